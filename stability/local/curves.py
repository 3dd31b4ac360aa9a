r"""Values, slopes and curvatures of an activation over many ranges at once, with what rounding costs.

Lighter than ``stability.rigor.intervals``: every function takes ends ``low <= high`` and gives numbers that are good
for all of the range, roundings included.
"""

from __future__ import annotations

import numpy as np

from stability.rigor.constants import EPS, TINY
from stability.systems.activations import TANH_ULPS, Activation

Array = np.ndarray
_PEAK, _AT = 0.38490017945975053, 3.0**-0.5
"""The largest ``t - t^3`` from 0 to 1, and where it is."""


def slack(phi: Activation, value: Array) -> Array:
    """What the activation's value in floating point may be off by."""
    return EPS * (1.0 + 4 * EPS) * (phi.error[0] * np.abs(value) + phi.error[1]) + TINY


def values(phi: Activation, low: Array, high: Array) -> tuple[Array, Array]:
    """The activation's range; it does not fall.

    Example:
        >>> from stability.systems.activations import activation
        >>> least, most = values(activation("relu"), np.array([-1.0]), np.array([2.0]))
        >>> bool(least[0] <= 0.0), bool(most[0] >= 2.0)
        (True, True)
    """
    ends = phi.function(low), phi.function(high)
    return ends[0] - slack(phi, ends[0]), ends[1] + slack(phi, ends[1])


def slopes(phi: Activation, low: Array, high: Array) -> tuple[Array, Array]:
    """Least and largest slope.

    Example:
        >>> from stability.systems.activations import activation
        >>> least, most = slopes(activation("tanh"), np.array([-1.0]), np.array([2.0]))
        >>> least.round(3), most.round(3)
        (array([0.071]), array([1.]))
    """
    if phi.width is None:
        least, most = np.full(low.shape, np.inf), np.full(low.shape, -np.inf)
        for piece, left, right in zip(phi.pieces, (-np.inf, *phi.kinks), (*phi.kinks, np.inf)):
            there = (low <= right) & (high >= left)
            least = np.where(there, np.minimum(least, piece), least)
            most = np.where(there, np.maximum(most, piece), most)
        return least, most
    near = np.where((low <= 0.0) & (high >= 0.0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    far, top, error = np.maximum(np.abs(low), np.abs(high)), phi.slope[1], 3 * (TANH_ULPS + 4) * EPS
    least, most = (top * (1.0 - np.tanh(phi.width * z) ** 2) for z in (far, near))
    return np.maximum(least - error, 0.0), np.minimum(most + error, top)


def curvature(phi: Activation, low: Array, high: Array, weight: Array) -> Array:
    """The largest ``-weight phi''``, at least zero: how far a smooth one bends downwards.

    Example:
        >>> from stability.systems.activations import activation
        >>> curvature(activation("tanh"), np.zeros(1), np.ones(1), np.ones(1)).round(3)
        array([0.77])
    """
    assert phi.width is not None
    t, v = np.tanh(phi.width * low), np.tanh(phi.width * high)
    ends, room = (t - t**3, v - v**3), 8 * (TANH_ULPS + 4) * EPS
    most, least = np.maximum(*ends) + room, np.minimum(*ends) - room
    most = np.where((t <= _AT + room) & (v >= _AT - room), _PEAK + EPS, most)
    least = np.where((t <= -_AT + room) & (v >= -_AT - room), -_PEAK - EPS, least)
    bent = 2.0 * phi.width * phi.slope[1] * np.maximum(weight * most, weight * least)  # phi'' = -2 w beta (t - t^3)
    return np.maximum(bent * (1.0 + 8 * EPS), 0.0)
