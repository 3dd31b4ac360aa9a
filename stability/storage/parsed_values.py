"""Strict readers of the values of a parsed file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from stability.errors import FileFormatError


def number_or_none(value: Any) -> float | None:
    """Return a finite float64, or ``None``.

    Raises:
        FileFormatError: anything else.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FileFormatError(f"expected a number, got {str(value)[:40]!r}")
    if isinstance(value, int) and abs(value) > 2**53:
        raise FileFormatError(f"the integer {str(value)[:40]} is too large for float64: the limit is 2^53")
    if not math.isfinite(value):
        raise FileFormatError("a number is beyond the range of float64")
    return float(value)


def text(value: Any) -> str:
    """Return a string.

    Raises:
        FileFormatError: anything else.
    """
    if not isinstance(value, str):
        raise FileFormatError(f"expected a string, got {str(value)[:40]!r}")
    return value


def text_or_none(value: Any) -> str | None:
    """Return a string, or ``None``."""
    return None if value is None else text(value)


def boolean(value: Any) -> bool:
    """Return True or False.

    Raises:
        FileFormatError: anything else.
    """
    if not isinstance(value, bool):
        raise FileFormatError(f"the field holds must be true or false, got {str(value)[:40]!r}")
    return value


def natural(value: Any) -> int:
    """Return an integer from zero.

    Raises:
        TypeError: anything else, a truth value too.
    """
    if type(value) is not int or value < 0:
        raise TypeError(f"an integer from zero is expected, got {str(value)[:40]!r}")
    return value


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """Return a mapping; ``what`` names it in the error.

    Raises:
        FileFormatError: anything else.
    """
    if not isinstance(value, Mapping):
        raise FileFormatError(f"{what} must be a mapping, got {type(value).__name__}")
    return value


def list_reader(what: str, read: Callable[[Any], Any], most: int | None = None) -> Callable[[Any], tuple[Any, ...]]:
    """Return a reader of lists whose entries ``read`` reads, with at most ``most`` entries."""

    def every(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise FileFormatError(f"{what} must be a list, got {type(value).__name__}")
        if most is not None and len(value) > most:
            raise FileFormatError(f"{len(value)} further {what}; at most {most} are read")
        return tuple(read(v) for v in value)

    return every


def unchanged(value: Any) -> Any:
    """Return the value itself."""
    return value
