"""Checks of arguments of searches and conversions: vectors and positive numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.checks import refuse_rounded, unmasked

Array = np.ndarray


def as_vector(name: str, value: Any, size: int, otherwise: str) -> Array:
    """Return a finite vector of a known size.

    Args:
        name: name in error messages.
        value: its entries.
        size: number of entries.
        otherwise: text of the error about a value that is no vector of numbers.

    Returns:
        A copy ``(size,)``.

    Raises:
        ConfigurationError: no numbers, NaN, infinity, or numbers that float64 rounds.
        DimensionError: another size.
    """
    unmasked(name, value)
    try:
        vector = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(otherwise) from error
    if vector.shape != (size,):
        raise DimensionError(name, (size,), vector.shape)
    refuse_rounded(name, np.asarray(value), vector)
    if not np.isfinite(vector).all():
        raise ConfigurationError(f"{name} must be finite")
    return vector


def as_positive(name: str, value: Any) -> float:
    """Return a finite number above zero.

    Raises:
        ConfigurationError: for anything else.

    Example:
        >>> as_positive("M", 2)
        2.0
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 < value < np.inf:
        raise ConfigurationError(f"{name} must be a positive number, got {value!r}")
    return float(value)
