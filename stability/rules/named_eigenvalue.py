"""How a sentence speaks of an unstable eigenvalue: by its number where that one is proved, else by its side only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["OPTIONAL", "eigenvalue_phrase", "named"]

OPTIONAL = {"eigenvalue": "pair"}
"""The datum by which a proof names an eigenvalue; without it no sentence shows a number."""


def named(data: Mapping[str, Any]) -> complex | None:
    """The eigenvalue that the proof names, or ``None``."""
    pair = data.get("eigenvalue")
    return None if pair is None else complex(*pair)


def _decimal(value: float, places: int) -> str:
    if not -6 <= places <= 12:
        return f"{value:.6g}"
    text = f"{value:.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _number(value: complex) -> str:
    """Six digits of the larger part, the other part to the same place."""
    places = 5 - math.floor(math.log10(max(abs(value.real), abs(value.imag))))
    real, imag = _decimal(value.real, places), _decimal(abs(value.imag), places)
    if not float(imag):
        return real
    turn = f"{imag}i"
    return f"{real} {'+' if value.imag > 0 else '-'} {turn}" if float(real) else f"{'-' * (value.imag < 0)}{turn}"


def eigenvalue_phrase(data: Mapping[str, Any], discrete: bool, *, strict: bool = True) -> str:
    """``the eigenvalue ... of modulus above 1`` or what is proved without a name.

    Args:
        data: the proof's data.
        discrete: unit circle instead of the imaginary axis.
        strict: what is proved without a name lies outside the closed stability region, not only on its boundary.

    Returns:
        The phrase.

    Example:
        >>> eigenvalue_phrase({"eigenvalue": (0.971134, 0.294673)}, True)
        'the eigenvalue 0.971134 + 0.294673i of modulus above 1'
        >>> eigenvalue_phrase({}, False, strict=False)
        'an eigenvalue of real part at least 0'
    """
    value = named(data)
    side = "modulus above 1" if discrete else "positive real part"
    if value is not None and value != 0:
        return f"the eigenvalue {_number(value)} of {side}"
    if strict:
        return f"an eigenvalue of {side}"
    return f"an eigenvalue of {'modulus at least 1' if discrete else 'real part at least 0'}"
