"""A subject that was found inside something bigger: what is claimed of it is claimed of that part alone.

What a container does around its recurrent part (a residual, a feedback of the output) cannot be seen from the part. So
a subject taken out of one carries where it stood, and every sentence about it says so.
"""

from __future__ import annotations

import copy
import re
from typing import Any

from stability.errors import ConfigurationError

_PATH, _WHOLE = 200, 100
_FORM = re.compile(rf"[A-Za-z0-9_.\-]{{1,{_PATH}}} of [A-Za-z0-9_.\-]{{1,{_WHOLE}}}")


def as_part(value: Any) -> str:
    """A checked ``"PATH of WHOLE"``, or the empty string for a subject that is no part.

    Only letters, digits, ``_``, ``-`` and ``.`` are allowed in the two names: no sentence can be smuggled in by them.

    Raises:
        ConfigurationError: anything else.
    """
    if value == "" and isinstance(value, str):
        return ""
    if not isinstance(value, str) or _FORM.fullmatch(value) is None:
        raise ConfigurationError(f"part must be 'PATH of WHOLE' (letters, digits, _, -, .), got {str(value)[:60]!r}")
    return value


def part_name(path: str, whole: str) -> str:
    """The name of a part from any path and any container's name; characters that it cannot hold become their codes.

    Example:
        >>> part_name("encoder.0", "Residual"), part_name("my cell", "Net")
        ('encoder.0 of Residual', 'my_u20_cell of Net')
    """
    return f"{_encoded(path, 'cell')[-_PATH:]} of {_encoded(whole, 'model')[-_WHOLE:]}"


def _encoded(name: str, default: str) -> str:
    kept = [c if re.fullmatch(r"[A-Za-z0-9_.\-]", c) else f"_u{ord(c):x}_" for c in name]
    return "".join(kept) or default


def of_part(subject: Any, path: str, whole: str) -> Any:
    """The same subject, known as the part ``path`` of ``whole``.

    Args:
        subject: a ``LureSystem``, ``DrivenSystem``, ``GatedCell`` or ``LayerStack``.
        path: where it stands in the whole.
        whole: what it was taken from.

    Example:
        >>> from stability.systems import LureSystem
        >>> of_part(LureSystem.linear([[-1.0]]), "cell", "Residual").part
        'cell of Residual'
    """
    origin = getattr(subject, "origin", None)
    if origin is not None:  # a file keeps the system behind a discretisation, so that is what has to know
        return of_part(origin.base, path, whole).discretise(origin.method, origin.dt)
    out = copy.copy(subject)
    object.__setattr__(out, "part", as_part(part_name(path, whole)))
    return out


def part_phrase(subject: Any, noun: str = "") -> str:
    """``the part `PATH` of WHOLE``, and what that is; for no part ``this NOUN``, or the empty string.

    Example:
        >>> from stability.systems import LureSystem
        >>> part_phrase(LureSystem.linear([[-1.0]]), "cell")
        'this cell'
    """
    path, of, whole = getattr(subject, "part", "").partition(" of ")
    if not of:
        return f"this {noun}" if noun else ""
    return f"the part `{path}` of {whole}" + (f", {'an' if noun.startswith('LSTM') else 'a'} {noun}" if noun else "")
