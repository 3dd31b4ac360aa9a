"""Confidence intervals of shares and means, without torch, so that pages can be drawn without it."""

from __future__ import annotations

import math

from scipy.special import ndtri, stdtrit


def wilson(share: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval of a share: solutions p of ``|share - p| = z sqrt(p (1 - p) / n)``.

    Args:
        share: observed, in [0, 1].
        n: number of independent trials.
        confidence: confidence level of the interval, in (0, 1).

    Returns:
        Lower and upper end, within [0, 1].

    Source: E. Wilson (1927).

    >>> low, high = wilson(0.5, 100)
    >>> round(low, 4), round(high, 4)
    (0.4038, 0.5962)
    """
    z = float(ndtri(0.5 + confidence / 2))
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def student_half_width(standard_error: float, samples: int, confidence: float = 0.95) -> float:
    """Return half the width of Student's interval of a mean; 0 for an exact value.

    Args:
        standard_error: standard error of the mean, estimated from the same samples.
        samples: number of samples, 2 or more; fewer for an exact value.
        confidence: confidence level of the interval, in (0, 1).

    Example:
        >>> round(student_half_width(1.0, 4), 3), round(student_half_width(1.0, 1000), 3)
        (3.182, 1.962)
    """
    return float(stdtrit(samples - 1, 0.5 + confidence / 2)) * standard_error if samples > 1 else 0.0
