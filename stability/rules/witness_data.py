"""What rules share: data of the right size, and the subject they are about.

That arrays are float64 and finite, and numbers numbers, is what the preamble in ``stability.rules.registry`` has seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.rigor.definite import is_symmetric

__all__ = [
    "eigenvalue_text",
    "symmetric",
    "vector",
]

Array = np.ndarray
LIMIT = 1e100


def vector(data: Mapping[str, Any], key: str, size: int) -> Array | None:
    """``data[key]``, an array of finite numbers, when it is a vector of this size, else ``None``."""
    value = data[key]
    return value if value.shape == (size,) and bool((np.abs(value) <= LIMIT).all()) else None


def symmetric(data: Mapping[str, Any], key: str, size: int) -> Array | None:
    """``data[key]``, an array of finite numbers, when it is a symmetric matrix of this size, else ``None``."""
    value = data[key]
    return (
        value if value.shape == (size, size) and is_symmetric(value) and bool((np.abs(value) <= LIMIT).all()) else None
    )


def eigenvalue_text(value: complex) -> str:
    """An eigenvalue in words."""
    if value.imag == 0:
        return f"{value.real:.6g}"
    return f"{value.real:.6g} {'+' if value.imag > 0 else '-'} {abs(value.imag):.6g}i"
