"""State spaces of ``python-control`` and ``scipy.signal`` as matrices.

None of these libraries is imported: any object with ``A``, ``B``, ``C``, ``D`` and ``dt`` is read.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.arithmetic.activations import ACTIVATIONS
from stability.kernel.checks import as_choice, as_matrix

Array = np.ndarray
SLOPES = {"saturation": (0.0, 1.0), "deadzone": (0.0, 1.0)}
"""Slope intervals of further nonlinearities; a claim about a loop needs no more."""
UNSPECIFIED_STEP = 1.0
"""Step of a discrete system whose library says "discrete, step unspecified" (``dt=True``)."""


@dataclass(frozen=True, eq=False)
class Plant:
    """State space ``x' = A x + B u``, ``y = C x + D u``, with the library's step (``None``: continuous)."""

    A: Array
    B: Array
    C: Array
    D: Array
    dt: float | None


def _library(value: Any) -> str:
    return type(value).__module__.split(".")[0]


def is_linear_system(value: Any) -> bool:
    """Return True for a state space or transfer function of ``python-control`` or ``scipy.signal``."""
    if _library(value) not in ("control", "scipy"):
        return False
    return _has_matrices(value) or hasattr(value, "to_ss") or hasattr(value, "num_array")


def _has_matrices(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("A", "B", "C", "D", "dt"))


def as_plant(value: Any) -> Plant:
    """Return the matrices of a linear system.

    Args:
        value: a state space or transfer function of ``python-control`` or ``scipy.signal``, or ``(A, B, C, D)``, which
            is continuous, or ``(A, B, C, D, dt)``.

    Returns:
        The matrices and the step. ``dt`` of ``python-control`` is 0 for continuous time; ``True`` (discrete, step
        unspecified) becomes a step of 1.

    Raises:
        UnsupportedError: something else.
        ConfigurationError: a system of ``python-control`` without a timebase (``dt=None``), a step below zero, or a
            transfer function with more zeros than poles.
        DimensionError: shapes that do not fit.
    """
    if isinstance(value, tuple):
        if len(value) not in (4, 5):
            raise UnsupportedError(f"a plant as a tuple is (A, B, C, D) or (A, B, C, D, dt), got {len(value)} entries")
        a, b, c, d, dt = (*value, None)[:5]
        return _plant(a, b, c, d, dt)
    try:
        if _library(value) == "scipy" and not _has_matrices(value) and hasattr(value, "to_ss"):
            value = value.to_ss()
        elif _library(value) == "control" and not _has_matrices(value) and hasattr(value, "num_array"):
            value = sys.modules["control"].tf2ss(value)
    except ValueError as error:
        raise ConfigurationError(f"a transfer function needs at least as many poles as zeros: {error}") from error
    if not _has_matrices(value):
        raise UnsupportedError(
            f"expected a state space (python-control, scipy.signal) or (A, B, C, D[, dt]), got a "
            f"{type(value).__module__}.{type(value).__qualname__}"
        )
    dt = value.dt
    if _library(value) == "control":
        if dt is None:
            raise ConfigurationError(
                "this system has no timebase (dt=None): use control.ss(..., dt=0) for continuous time, or give its step"
            )
        dt = None if dt is not True and dt == 0 else dt
    return _plant(value.A, value.B, value.C, value.D, dt)


def _plant(A: Any, B: Any, C: Any, D: Any, dt: Any) -> Plant:
    a = as_matrix("A", A)
    b, c = as_matrix("B", B, (len(a), None)), as_matrix("C", C, (None, len(a)))
    return Plant(a, b, c, as_matrix("D", D, (len(c), b.shape[1])), UNSPECIFIED_STEP if dt is True else dt)


def slopes_of(slope: Any) -> Any:
    """Return the slopes of a nonlinearity given as ``name`` or ``(name, gain)``; return other values unchanged.

    Raises:
        ConfigurationError: an unknown name, or a gain that is not a positive number.

    Example:
        >>> slopes_of("saturation"), slopes_of(("deadzone", 3.0)), slopes_of("leaky_relu"), slopes_of((0, 2))
        ((0.0, 1.0), (0.0, 3.0), (0.1, 1.0), (0, 2))
    """
    name, gain = (slope, 1.0) if isinstance(slope, str) else (None, 1.0)
    if isinstance(slope, (tuple, list)) and len(slope) == 2 and isinstance(slope[0], str):
        name, gain = slope
    if name is None:
        return slope
    known = SLOPES | {key: each.slope for key, each in ACTIVATIONS.items()}
    low, high = known[as_choice("slope", name, known)]
    if isinstance(gain, bool) or not isinstance(gain, (int, float)) or not 0.0 < gain < float("inf"):
        raise ConfigurationError(f"the gain of a {name} must be a positive number, got {gain!r}")
    return gain * low, gain * high
