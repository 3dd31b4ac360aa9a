"""Names of subjects that are parts of a larger model.

What a container does around its recurrent part (a residual, a feedback of the output) cannot be seen from the part. So
a subject taken out of one carries where it stood, and every sentence about it says so.
"""

from __future__ import annotations

import re
from typing import Any

from stability.errors import ConfigurationError

LONGEST_PATH, LONGEST_WHOLE = 200, 100  # characters of the path and of the container's name
_FORM = re.compile(rf"[A-Za-z0-9_.\-]{{1,{LONGEST_PATH}}} of [A-Za-z0-9_.\-]{{1,{LONGEST_WHOLE}}}")


def as_part(value: Any) -> str:
    """Return a checked ``"PATH of WHOLE"``, or the empty string for a subject that is no part.

    Only letters, digits, ``_``, ``-`` and ``.`` are allowed in the two names: no sentence can be smuggled in by them.

    Raises:
        ConfigurationError: anything else.
    """
    if value == "" and isinstance(value, str):
        return ""
    if not isinstance(value, str) or _FORM.fullmatch(value) is None:
        raise ConfigurationError(f"part must be 'PATH of WHOLE' (letters, digits, _, -, .), got {str(value)[:60]!r}")
    return value


def part_phrase(subject: Any, noun: str = "") -> str:
    """Return ``the part `PATH` of WHOLE`` with its description; for no part ``this NOUN``, or the empty string.

    Example:
        >>> from stability.systems import LureSystem
        >>> part_phrase(LureSystem.linear([[-1.0]]), "cell")
        'this cell'
    """
    path, of, whole = getattr(subject, "part", "").partition(" of ")
    if not of:
        return f"this {noun}" if noun else ""
    return f"the part `{path}` of {whole}" + (f", {'an' if noun.startswith('LSTM') else 'a'} {noun}" if noun else "")
