"""Decimal numbers that say no more than was proved."""

from __future__ import annotations

import math


def upwards(value: float, digits: int) -> str:
    """A proved bound says no more than was proved: the decimal number is no smaller."""
    steps = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    near = round(value / steps)
    return f"{(near if near * steps >= value else near + 1) * steps:.{digits}g}"


def downwards(value: float) -> str:
    """Three digits of a proved radius, none of them rounded up."""
    return (
        f"{math.floor(value * 10 ** (2 - math.floor(math.log10(value)))) / 10 ** (2 - math.floor(math.log10(value))):g}"
    )
