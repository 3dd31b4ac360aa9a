"""Scalar activations: functions, slope bounds, curvature bounds, rounding error bounds.

``alpha <= (phi(s) - phi(t)) / (s - t) <= beta`` for all ``s != t``, and ``|phi(s)| <= bound``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability.kernel.checks import as_choice

Array = np.ndarray
TANH_ULPS = 8.0
"""Assumed error bound of ``np.tanh`` in units of ``2^-52``; its documented error is below 4 units in the last place."""


@dataclass(frozen=True)
class Activation:
    """Slope-restricted scalar function, applied entry by entry.

    Attributes:
        name: the name that files and constructors use.
        function: ``phi``.
        derivative: ``phi'`` (one element of the subdifferential at a kink).
        slope: ``(alpha, beta)``, the tightest interval of difference quotients.
        bound: ``sup |phi|``; infinite for an unbounded function.
        width: ``w`` with ``phi'(z) = beta (1 - tanh(w z)^2)`` if ``phi`` is smooth; ``None`` if it is piecewise linear.
        kinks: breakpoints of a piecewise linear activation, in rising order.
        pieces: slopes of a piecewise linear activation from left to right, one more than ``kinks``.
        error: bounds of the relative and of the absolute rounding error of ``function``, in units of ``2^-52``.
    """

    name: str
    function: Callable[[Array], Array]
    derivative: Callable[[Array], Array]
    slope: tuple[float, float]
    bound: float = float("inf")
    width: float | None = None
    kinks: tuple[float, ...] = ()
    pieces: tuple[float, ...] = ()
    error: tuple[float, float] = (0.0, 0.0)

    def second_derivative(self, z: Array) -> Array:
        """Return ``phi''``, zero for a piecewise linear activation."""
        if self.width is None:
            return np.zeros_like(z)
        t = np.tanh(self.width * z)
        return -2.0 * self.width * self.slope[1] * t * (1.0 - t * t)

    def to_kink(self, z: Array) -> Array:
        """Return the distance to the nearest kink, rounded downwards; infinite without kinks."""
        out = np.full(np.shape(z), np.inf)
        for kink in self.kinks:
            distance = np.abs(z - kink)
            out = np.minimum(out, distance if kink == 0.0 else distance * (1.0 - 2.0**-50))
        return out

    def slopes_near(self, z: Array, reach: Array) -> tuple[Array, Array]:
        """Return the least and the largest slope of the linear pieces that meet ``[z - reach, z + reach]``."""
        low, high = (np.full(np.shape(z), value) for value in (np.inf, -np.inf))
        edges = (-np.inf, *self.kinks, np.inf)
        for piece, left, right in zip(self.pieces, edges, edges[1:]):
            reachable = np.ones(np.shape(z), dtype=bool)
            for kink, side in ((left, -1.0), (right, 1.0)):
                if np.isfinite(kink):
                    distance = side * (z - kink)
                    reachable &= ~((distance if kink == 0.0 else distance * (1.0 - 2.0**-50)) > reach)
            low = np.where(reachable, np.minimum(low, piece), low)
            high = np.where(reachable, np.maximum(high, piece), high)
        return low, high

    def rise(self, z: Array, v: Array) -> Array:
        """Return ``phi(z + v) - phi(z)`` of a piecewise linear activation: the sum of slope times length."""
        edges = (-np.inf, *self.kinks, np.inf)
        out = np.zeros(np.broadcast(z, v).shape)
        for slope, low, high in zip(self.pieces, edges, edges[1:]):
            out = out + slope * (np.clip(z + v, low, high) - np.clip(z, low, high))
        return out


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
        Activation("tanh", np.tanh, _dtanh, (0.0, 1.0), 1.0, 1.0, error=(TANH_ULPS, 0.0)),
        Activation(
            "relu", lambda z: np.maximum(z, 0.0), lambda z: (z > 0) * 1.0, (0.0, 1.0), kinks=(0.0,), pieces=(0.0, 1.0)
        ),
        Activation("sigmoid", _sigmoid, _dsigmoid, (0.0, 0.25), 1.0, 0.5, error=(0.0, TANH_ULPS + 4.0)),
        Activation(
            "leaky_relu",
            lambda z: np.where(z > 0, z, 0.1 * z),
            lambda z: np.where(z > 0, 1.0, 0.1),
            (0.1, 1.0),
            kinks=(0.0,),
            pieces=(0.1, 1.0),
            error=(1.0, 0.0),
        ),
        Activation("identity", lambda z: z * 1.0, np.ones_like, (1.0, 1.0), pieces=(1.0,)),
        Activation(
            "saturation",
            lambda z: np.clip(z, -1.0, 1.0),
            lambda z: (np.abs(z) < 1.0) * 1.0,
            (0.0, 1.0),
            1.0,
            kinks=(-1.0, 1.0),
            pieces=(0.0, 1.0, 0.0),
        ),
        Activation(
            "deadzone",
            lambda z: z - np.clip(z, -1.0, 1.0),
            lambda z: (np.abs(z) > 1.0) * 1.0,
            (0.0, 1.0),
            kinks=(-1.0, 1.0),
            pieces=(1.0, 0.0, 1.0),
            error=(1.0, 0.0),
        ),
    )
}


def activation(name: str) -> Activation:
    """Return the activation with this name.

    ``leaky_relu`` has slope 0.1 on the negative side. ``saturation`` clips to [-1, 1], and ``deadzone`` is ``z``
    minus ``saturation``.

    Raises:
        ConfigurationError: no activation has this name.

    Example:
        >>> activation("tanh").slope
        (0.0, 1.0)
        >>> z = np.array([-3.0, 0.5])
        >>> activation("saturation").function(z), activation("deadzone").function(z)
        (array([-1. ,  0.5]), array([-2.,  0.]))
    """
    return ACTIVATIONS[as_choice("activation", name, ACTIVATIONS)]
