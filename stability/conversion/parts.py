"""Subjects that are parts of a larger model: the same system under the name of its path."""

from __future__ import annotations

import copy
import re
from typing import Any

from stability.kernel.systems.parts import LONGEST_PATH, LONGEST_WHOLE, as_part, part_of


def part_name(path: str, whole: str) -> str:
    """Return the name of a part from its path and container, with forbidden characters as codes.

    Example:
        >>> part_name("encoder.0", "Residual"), part_name("my cell", "Net")
        ('encoder.0 of Residual', 'my_u20_cell of Net')
    """
    return f"{_encoded(path, 'cell')[-LONGEST_PATH:]} of {_encoded(whole, 'model')[-LONGEST_WHOLE:]}"


def _encoded(name: str, default: str) -> str:
    characters = [c if re.fullmatch(r"[A-Za-z0-9_.\-]", c) else f"_u{ord(c):x}_" for c in name]
    return "".join(characters) or default


def subject_as_part(subject: Any, path: str, whole: str) -> Any:
    """Return the subject under the name of the part ``path`` of ``whole``.

    Args:
        subject: a ``LureSystem``, ``DrivenSystem``, ``GatedCell`` or ``LayerStack``.
        path: path within the whole.
        whole: the object that contains it.

    Example:
        >>> from stability.systems import LureSystem
        >>> subject_as_part(LureSystem.linear([[-1.0]]), "cell", "Residual").part
        'cell of Residual'
    """
    origin = getattr(subject, "origin", None)
    if origin is not None:  # a file keeps the system behind a discretisation, so that is what has to know
        return subject_as_part(origin.base, path, whole).discretise(origin.method, origin.dt)
    return _with_part(subject, part_name(path, whole) + subject.part.removeprefix(part_of(subject)))


def with_ending(subject: Any, ending: str) -> Any:
    """Return the subject with a note where its weights come from: an ending of ``part``, see ``ORIGINS``.

    Example:
        >>> from stability.systems import LureSystem
        >>> with_ending(subject_as_part(LureSystem.linear([[-1.0]]), "cell", "Residual"), "; computed").part
        'cell of Residual; computed'
    """
    return _with_part(subject, subject.part.removesuffix(ending) + ending)


def _with_part(subject: Any, part: str) -> Any:
    out = copy.copy(subject)
    object.__setattr__(out, "part", as_part(part))
    return out
