"""The claims in words: one function a claim, so that the words above a proof are always the same.

The maker writes them, the verifier compares: a certificate whose sentence differs is refused. Numbers are rounded in
the direction that keeps the sentence true: an upper bound up, a lower bound down; the proof holds the exact ones.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from stability.systems import DrivenSystem, LureSystem

__all__ = ["at_least", "at_most", "contraction", "decay_factor", "subject_phrase"]

DIGITS = 4


def at_most(value: Any, near: float | None = None) -> str:
    """An upper bound in words: the next larger number of four digits.

    Args:
        value: the bound; what is no finite number is shown as it is.
        near: a number that the value must not be confused with: three digits of the distance to it are kept.

    Returns:
        A decimal number at least as large.

    Example:
        >>> at_most(1.23411), at_most(0.99999871, near=1.0), at_most(25954.3)
        ('1.235', '0.99999871', '25960')
    """
    return _rounded(value, ROUND_CEILING, near)


def at_least(value: Any, near: float | None = None) -> str:
    """A lower bound in words: the next smaller number of four digits; see ``at_most``.

    Example:
        >>> at_least(1.23479), at_least(3.9999e-9)
        ('1.234', '3.999e-9')
    """
    return _rounded(value, ROUND_FLOOR, near)


def _rounded(value: Any, direction: str, near: float | None) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value == 0:
        return repr(value)
    exact = Decimal(value)
    last = exact.adjusted() - DIGITS + 1
    gap = abs(exact - Decimal(near)) if near is not None else Decimal(0)
    if gap:
        last = min(last, gap.adjusted() - 2)
    rounded = exact.quantize(Decimal(1).scaleb(last), rounding=direction)
    if -5 <= rounded.adjusted() < 9:
        text = f"{rounded:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{rounded.normalize():e}".replace("e+", "e")


def decay_factor(rate: Any, discrete: bool) -> str:
    """``rho^k`` or ``exp(-lambda t)`` in words, rounded towards slower."""
    return f"{at_most(rate, near=1.0)}^k" if discrete else f"exp(-{at_least(rate)} t)"


def subject_phrase(subject: Any) -> str:
    """Whom a claim is about, quantifiers included."""
    if isinstance(subject, DrivenSystem):
        return f"this network ({subject.activation}, its weights and bias) under every input"
    if isinstance(subject, LureSystem):
        if subject.channels == 0:
            return "this linear system under every input"
        low, high = float(subject.alpha.min()), float(subject.beta.max())
        return f"this system with every activation of slopes in [{low:g}, {high:g}] under every input"
    if isinstance(getattr(subject, "kind", None), str):
        return f"this {subject.kind.upper()} cell under every input of its box"
    if hasattr(subject, "layers"):
        return f"this stack of {len(subject.layers)} layers under every input"
    return f"this {type(subject).__name__}"


def contraction(subject: Any, rate: float, overshoot: float) -> str:
    """Exponential incremental stability in one sentence."""
    system = subject.system if isinstance(subject, DrivenSystem) else subject
    discrete = bool(getattr(system, "is_discrete", True))
    decay = f"{decay_factor(rate, discrete)} |d(0)| {'after k steps' if discrete else 'at time t'}"
    return (
        f"For {subject_phrase(subject)}: the difference d of any two trajectories satisfies "
        f"|d| <= {at_most(overshoot)} * {decay}."
    )
