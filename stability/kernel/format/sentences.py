"""Building blocks of the sentences of claims, with numbers rounded on the safe side.

The maker writes them, the verifier compares: a certificate whose sentence differs is refused. Numbers are rounded in
the direction that keeps the sentence true: an upper bound up, a lower bound down; the proof holds the exact ones.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

DIGITS = 4  # significant digits of bounds in sentences

NO_SLOPES = "a linear system has no activation"
"""Reason that a system with this property has no gain margin."""


def at_most(value: Any, near: float | None = None) -> str:
    """Format an upper bound: the next larger number of four digits, of six digits just above one.

    Args:
        value: the bound; a value that is not finite is shown unchanged.
        near: a number that the value must not be confused with: three digits of the distance to it are kept.

    Returns:
        A decimal number at least as large.

    Example:
        >>> at_most(1.23411), at_most(0.99999871, near=1.0), at_most(25954.3), at_most(1 + 1e-12)
        ('1.235', '0.99999871', '25960', '1.00001')
    """
    return _rounded(value, ROUND_CEILING, near)


def at_least(value: Any) -> str:
    """Format a lower bound: the next smaller number of four digits; see ``at_most``.

    Example:
        >>> at_least(1.23479), at_least(3.9999e-9)
        ('1.234', '3.999e-9')
    """
    return _rounded(value, ROUND_FLOOR, None)


def _rounded(value: Any, direction: str, near: float | None) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return repr(value)
    if value == 0:
        return "0"
    exact = Decimal(value)
    last = -5 if 1 < value < 1.001 else exact.adjusted() - DIGITS + 1
    gap = abs(exact - Decimal(near)) if near is not None else Decimal(0)
    if gap:
        last = min(last, gap.adjusted() - 2)
    rounded = exact.quantize(Decimal(1).scaleb(last), rounding=direction)
    if -5 <= rounded.adjusted() < 9:
        text = f"{rounded:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{rounded.normalize():e}".replace("e+", "e")


def decay_factor(rate: Any, discrete: bool) -> str:
    """Format ``rho^k`` or ``exp(-lambda t)``, rounded towards slower decay."""
    return f"{at_most(rate, near=1.0)}^k" if discrete else f"exp(-{at_least(rate)} t)"


def exact_text(value: Any) -> str:
    """Return the shortest decimal that reads back as the same float64, without a trailing ``.0``.

    Example:
        >>> exact_text(1.0), exact_text(0.1), exact_text(0.9999996)
        ('1', '0.1', '0.9999996')
    """
    text = repr(float(value) + 0.0)
    return text[:-2] if text.endswith(".0") else text


def interval_phrase(low: Any, high: Any) -> str:
    """Format ``[low, high]`` with the exact ends."""
    return f"[{exact_text(low)}, {exact_text(high)}]"


def slopes_phrase(system: Any) -> str:
    """Describe the slopes that a claim about a bare system admits, exactly, per channel if they differ."""
    ends = sorted(set(zip(system.alpha.tolist(), system.beta.tolist())))
    if len(ends) == 1:
        return f"every activation of slopes in {interval_phrase(*ends[0])}"
    kinds = ", ".join(interval_phrase(*e) for e in ends[:4]) + (", ..." if len(ends) > 4 else "")
    return (
        "every activation whose slope in channel i lies in [alpha_i, beta_i] of the file "
        f"({len(ends)} different intervals: {kinds})"
    )


def inputs_phrase(subject: Any) -> str:
    """Describe the inputs of a claim: every one, or those in the subject's box, with its numbers."""
    low, high = getattr(subject, "input_low", None), getattr(subject, "input_high", None)
    if low is None or high is None:
        return "every input"
    if len(set(low.tolist())) <= 1 and len(set(high.tolist())) <= 1 and len(low):
        return f"every input with entries in {interval_phrase(low[0], high[0])}"
    size = interval_phrase(min(low, default=0.0), max(high, default=0.0))
    return f"every input with entry j in [low_j, high_j] of its box (all within {size})"


def phrase_of(subject: Any) -> str:
    """Describe the subject of a claim without quantifiers: stored numbers in exact arithmetic."""
    return getattr(subject, "phrase", f"this {type(subject).__name__}")


def describe(subject: Any) -> str:
    """Describe the subject as the beginning of a sentence."""
    phrase = phrase_of(subject)
    return phrase[0].upper() + phrase[1:]


def full_phrase(subject: Any) -> str:
    """Describe the subject of a claim with every admitted activation."""
    if getattr(subject, "system", None) is subject and subject.channels:  # a bare Lur'e system
        return f"{phrase_of(subject)} with {slopes_phrase(subject)}"
    return phrase_of(subject)


def subject_phrase(subject: Any) -> str:
    """Describe the subject of a claim with quantifiers."""
    first = subject.layers[0] if getattr(subject, "layers", ()) else subject
    return f"{full_phrase(subject)} under {inputs_phrase(first)}"


def undecided(subject: Any) -> str:
    """Return the only sentence of an open claim of contraction."""
    return f"Whether trajectories of {subject_phrase(subject)} approach each other exponentially is open."


def undecided_in_box(subject: Any) -> str:
    """Return the only sentence of an open claim of contraction under inputs in a box."""
    return (
        f"Whether trajectories of {full_phrase(subject)} approach each other exponentially under the inputs in the "
        "range asked about is open."
    )


def decays(rate: float, discrete: bool) -> bool:
    """Return True for a rate of exponential decay: below one per step, above zero in continuous time."""
    return 0.0 < rate < 1.0 if discrete else 0.0 < rate < math.inf


def contraction(subject: Any, rate: float, overshoot: float) -> str:
    """State exponential incremental stability in one sentence."""
    discrete = subject.is_discrete
    decay = f"{decay_factor(rate, discrete)} |d(0)| {'after k steps' if discrete else 'at time t'}"
    return (
        f"For {subject_phrase(subject)}: the difference d of any two trajectories satisfies "
        f"|d| <= {at_most(overshoot)} * {decay}."
    )


def unbounded_is_open(subject: Any) -> str:
    """Return the only sentence of an open claim of a state bound of a gated linear layer."""
    return f"Whether the states of {phrase_of(subject)} are bounded for {subject.input_set.phrase} is undecided."
