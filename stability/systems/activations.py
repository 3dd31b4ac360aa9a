"""Scalar activations with what a proof needs of them: slopes, bound, how their slopes bend and how they round.

``alpha <= (phi(s) - phi(t)) / (s - t) <= beta`` for all ``s != t``, and ``|phi(s)| <= bound``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability.systems.checks import as_choice

Array = np.ndarray
TANH_ULPS = 8.0
"""Assumed of ``np.tanh``, in units of ``2^-52``; its documented error is below 4 units in the last place."""


@dataclass(frozen=True)
class Activation:
    """A slope-restricted scalar function, applied entry by entry.

    Attributes:
        name: the name that files and constructors use.
        function: ``phi``.
        derivative: ``phi'`` (one element of the subdifferential at a kink).
        slope: ``(alpha, beta)``, the tightest interval of difference quotients.
        bound: ``sup |phi|``, infinite where there is none.
        width: ``w`` with ``phi'(z) = beta (1 - tanh(w z)^2)`` for a smooth one; ``None`` for a piecewise linear one,
            whose slope is ``beta`` above zero and ``alpha`` below.
        error: of ``function`` in floating point, in units of ``2^-52``: relative to the value, and absolute.
    """

    name: str
    function: Callable[[Array], Array]
    derivative: Callable[[Array], Array]
    slope: tuple[float, float]
    bound: float = float("inf")
    width: float | None = None
    error: tuple[float, float] = (0.0, 0.0)

    def second_derivative(self, z: Array) -> Array:
        """``phi''``, zero for a piecewise linear one."""
        if self.width is None:
            return np.zeros_like(z)
        t = np.tanh(self.width * z)
        return -2.0 * self.width * self.slope[1] * t * (1.0 - t * t)

    def steep_at(self, K: Array, signs: Array) -> Array:
        """Pre-activations at which the slopes are (nearly) ``K``, on the side of ``signs``."""
        low, high = self.slope
        if self.width is None:
            return np.where(0.5 * (low + high) < K, 1.0, -1.0)
        return signs * np.arctanh(np.sqrt(np.clip(1.0 - K / high, 0.0, 1.0 - 1e-7))) / self.width


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))


def _dtanh(z: Array) -> Array:
    return 1.0 - np.tanh(z) ** 2


def _dsigmoid(z: Array) -> Array:
    s = _sigmoid(z)
    return s * (1 - s)


ACTIVATIONS: dict[str, Activation] = {
    a.name: a
    for a in (
        Activation("tanh", np.tanh, _dtanh, (0.0, 1.0), 1.0, 1.0, (TANH_ULPS, 0.0)),
        Activation("relu", lambda z: np.maximum(z, 0.0), lambda z: (z > 0) * 1.0, (0.0, 1.0)),
        Activation("sigmoid", _sigmoid, _dsigmoid, (0.0, 0.25), 1.0, 0.5, (0.0, TANH_ULPS + 4.0)),
        Activation(
            "leaky_relu",
            lambda z: np.where(z > 0, z, 0.1 * z),
            lambda z: np.where(z > 0, 1.0, 0.1),
            (0.1, 1.0),
            error=(1.0, 0.0),
        ),
        Activation("identity", lambda z: z * 1.0, np.ones_like, (1.0, 1.0)),
    )
}


def activation(name: str) -> Activation:
    """Look an activation up by name (``leaky_relu`` has slope 0.1 on the negative side).

    Raises:
        ConfigurationError: when there is none of that name.

    Example:
        >>> activation("tanh").slope
        (0.0, 1.0)
    """
    return ACTIVATIONS[as_choice("activation", name, ACTIVATIONS)]
