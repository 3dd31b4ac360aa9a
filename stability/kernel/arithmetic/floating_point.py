"""Constants of the error bounds of floating-point arithmetic."""

from __future__ import annotations

UNIT = 2.0**-53
"""Unit roundoff of float64."""
EPS = 2.0**-52
"""Twice the unit roundoff, which leaves a margin of two in every bound."""
TINY = 1e-300
"""Upper bound of what underflow can lose in one entry."""
LOST = 1e-150
"""Upper bound of what underflow can lose in the root of a sum of squares."""
