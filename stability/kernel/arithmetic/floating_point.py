"""Constants of the error bounds of floating-point arithmetic."""

from __future__ import annotations

UNIT = 2.0**-53
"""The unit roundoff of float64."""
EPS = 2.0**-52
"""Twice the unit roundoff: a margin of two everywhere."""
TINY = 1e-300
"""More than anything that underflow can lose in one entry."""
LOST = 1e-150
"""More than anything that underflow can lose in the root of a sum of squares."""
