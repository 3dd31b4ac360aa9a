"""Mean and confidence interval of a number over several trainings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.statistics import student_half_width

from .guard import check_number
from .results import Record


def check_confidence(value: Any) -> float:
    """Return ``value`` as a float strictly between 0 and 1.

    Raises:
        ConfigurationError: otherwise.
    """
    number = check_number("confidence", value, strict=True)
    if number >= 1:
        raise ConfigurationError(f"confidence must lie between 0 and 1, got {value!r}")
    return number


@dataclass(frozen=True)
class Spread(Record):
    """Mean, extremes and confidence interval of a number over several trainings.

    Attributes:
        mean: mean over the trainings.
        least: the smallest.
        largest: the largest.
        low: lower end of the interval of the mean; ``None`` for one training.
        high: upper end.
        n: trainings.
        confidence: confidence level of the interval.
    """

    mean: float
    least: float
    largest: float
    low: float | None
    high: float | None
    n: int
    confidence: float


def over_seeds(
    values: Sequence[float], confidence: float = 0.95, *, within: tuple[float, float] = (-math.inf, math.inf)
) -> Spread:
    r"""Return mean, extremes and Student's interval of the mean, :math:`\bar v \pm t_{n-1} s / \sqrt n`.

    The interval is of what trainings come to on average, as far as seeds are drawn at random and figures are about
    normal; one further training falls outside it more often than not.

    Args:
        values: one figure a training.
        confidence: confidence level of the interval, in (0, 1).
        within: possible range, such as ``(0, 1)`` for an accuracy; the interval is cut to it.

    Returns:
        The spread.

    Raises:
        ConfigurationError: no figures, or a confidence that is none.

    Source: Student (W. S. Gosset), "The probable error of a mean" (1908).

    Example:
        >>> spread = over_seeds([0.8, 0.9, 1.0])
        >>> round(spread.low, 3), round(spread.mean, 3), round(spread.high, 3)
        (0.652, 0.9, 1.148)
    """
    confidence, n = check_confidence(confidence), len(values)
    if not n:
        raise ConfigurationError("expected at least one training with a finished epoch, got none")
    array = np.asarray(values, dtype=np.float64)
    mean, extremes = float(array.mean()), (float(array.min()), float(array.max()))
    if n == 1:
        return Spread(mean, *extremes, None, None, n, confidence)
    half = student_half_width(float(array.std(ddof=1)) / math.sqrt(n), n, confidence)
    return Spread(mean, *extremes, max(mean - half, within[0]), min(mean + half, within[1]), n, confidence)
