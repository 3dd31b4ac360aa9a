"""What the rules for witnesses share: reading untrusted data, and the subject they are about."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stability.systems import DrivenSystem, LureSystem

__all__ = [
    "complex_number",
    "eigenvalue_text",
    "lure_of",
    "number",
    "symmetric",
    "vector",
]

Array = np.ndarray
LIMIT = 1e100


def vector(data: Any, key: str, size: int) -> Array | None:
    """``data[key]`` when it is a finite float64 vector of this size, else ``None``."""
    value = data.get(key)
    if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.shape != (size,):
        return None
    return value if bool((np.abs(value) <= LIMIT).all()) else None


def symmetric(data: Any, key: str, size: int) -> Array | None:
    """``data[key]`` when it is a finite symmetric float64 matrix of this size, else ``None``."""
    value = data.get(key)
    if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.shape != (size, size):
        return None
    return value if bool((np.abs(value) <= LIMIT).all() and (value == value.T).all()) else None


def number(data: Any, key: str) -> float | None:
    """``data[key]`` when it is a finite number, else ``None``."""
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def complex_number(data: Any, key: str) -> complex | None:
    """``data[key]`` when it is a pair of finite numbers ``(re, im)`` (or an array of two), else ``None``."""
    value = data.get(key)
    pair = value.tolist() if isinstance(value, np.ndarray) and value.shape == (2,) else value
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        return None
    if any(isinstance(x, bool) or not isinstance(x, (int, float)) or not abs(x) <= LIMIT for x in pair):
        return None
    return complex(float(pair[0]), float(pair[1]))


def eigenvalue_text(value: complex | None) -> str:
    """An eigenvalue in words, the same wherever a sentence names it."""
    if value is None:
        return "an unreadable eigenvalue"
    return (
        f"{value.real:.6g}"
        if value.imag == 0
        else f"{value.real:.6g} {'+' if value.imag > 0 else '-'} {abs(value.imag):.6g}i"
    )


def lure_of(subject: LureSystem | DrivenSystem) -> LureSystem:
    """The Lur'e system of a subject."""
    return subject.system if isinstance(subject, DrivenSystem) else subject
