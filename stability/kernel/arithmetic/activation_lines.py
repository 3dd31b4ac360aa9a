r"""Lines above and below an activation on an interval: chords and tangents, their offsets and remainders.

With :math:`\phi(z) = \phi(0) + (\beta / w) \tanh(w z)`, lines of a smooth activation follow from bounds of
:math:`d(s) = \tanh s - \lambda s`. For negative s it is convex, so its values at the ends bound it from above. For
positive s every tangent of the tanh bounds it from above, most tightly the one of slope :math:`\lambda`. Bounds from
below follow because d is odd. A piecewise linear activation minus a line has its extremes at the ends of the interval
and at kinks. Any slope is sound; offsets are rounded outwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activations import Activation
from stability.kernel.arithmetic.floating_point import EPS, TINY

Array = np.ndarray
_FLAT = 1e-9
"""Width of intervals below which the derivative replaces the slope of the chord."""


def chord_slope(phi: Activation, low: Array, high: Array) -> Array:
    """Return the slope of the chord over ``[low, high]``, within the slopes of the activation; not proved."""
    gap = high - low
    chord = (phi.function(high) - phi.function(low)) / np.where(gap > _FLAT, gap, 1.0)
    return np.clip(np.where(gap > _FLAT, chord, phi.derivative(0.5 * (low + high))), *phi.slope)


def line_offset(phi: Activation, slope: Array, low: Array, high: Array, above: Array | bool) -> Array:
    """Return the offset ``o`` of a line ``slope z + o`` above (``above``) or below the activation on an interval."""
    side, largest = np.where(above, 1.0, -1.0), np.maximum(np.abs(low), np.abs(high))
    if phi.width is None:
        rest = [phi.function(z) - slope * z for z in (low, high, *(np.clip(kink, low, high) for kink in phi.kinks))]
        top, bottom = np.maximum.reduce(rest), np.minimum.reduce(rest)
        size = largest * (max(map(abs, phi.pieces)) + np.abs(slope))
        pad = 16 * EPS * (size + np.abs(top) + np.abs(bottom)) + TINY
        return np.where(above, top + pad, bottom - pad)
    width, zero, flat = float(phi.width), float(phi.function(np.zeros(1))[0]), slope / phi.slope[1]
    a, b = width * np.where(above, low, -high), width * np.where(above, high, -low)
    pad = 256 * EPS * (1.0 + (1.0 + np.abs(flat)) * width * largest)
    offset = zero + side * (phi.slope[1] / width) * (_max_above_line(a, b, flat) + pad)
    return offset + side * 4 * EPS * (np.abs(offset) + zero)


def _max_above_line(a: Array, b: Array, slope: Array) -> Array:
    """Return an upper bound of ``tanh s - slope s`` on ``[a, b]``, up to rounding."""
    left = np.minimum(b, 0.0)
    convex = np.maximum(np.tanh(a) - slope * a, np.tanh(left) - slope * left)
    start = np.maximum(a, 0.0)
    touch = np.clip(np.arctanh(np.sqrt(np.clip(1.0 - slope, 0.0, 1.0 - 4 * EPS))), start, np.maximum(b, start))
    t = np.tanh(touch)
    tilt = (1.0 - t * t) - slope
    tangent = t - (1.0 - t * t) * touch + np.maximum(tilt * start, tilt * b)
    return np.where(a < 0, np.where(b > 0, np.maximum(convex, tangent), convex), tangent)


def relaxation(phi: Activation, low: Array, high: Array, slope: Array | None = None) -> tuple[Array, Array, Array]:
    """Return ``slope``, ``offset``, ``error``: ``|phi(z) - slope z - offset| <= error`` for ``low <= z <= high``.

    Args:
        phi: the activation.
        low: ``(m,)`` lower ends.
        high: ``(m,)`` upper ends.
        slope: ``(m,)`` slopes; those of the chords by default.

    Example:
        >>> from stability.kernel.arithmetic.activations import activation
        >>> slope, offset, error = relaxation(activation("tanh"), np.array([-0.5]), np.array([2.0]))
        >>> z = np.linspace(-0.5, 2.0, 1000)
        >>> bool((np.abs(np.tanh(z) - slope * z - offset) <= error).all())
        True
    """
    slope = chord_slope(phi, low, high) if slope is None else slope
    top, bottom = (line_offset(phi, slope, low, high, above) for above in (True, False))
    middle, spread = 0.5 * (top + bottom), 0.5 * (top - bottom)
    return slope, middle, spread + 4 * EPS * (np.abs(middle) + spread) + TINY


def chord_remainder(phi: Activation, z: Array, down: Array, up: Array) -> tuple[Array, Array, Array]:
    """Return chord slopes ``s`` and bounds of ``phi(z + v) - phi(z) - s v``, ``-down <= v <= up``, each ``(m,)``.

    Example:
        >>> from stability.kernel.arithmetic.activations import activation
        >>> z, half = np.ones(1), np.full(1, 0.5)
        >>> s, low, high = chord_remainder(activation("tanh"), z, half, half)
        >>> e = [np.tanh(1 + v) - np.tanh(1) - s[0] * v for v in np.linspace(-0.5, 0.5, 1001)]
        >>> bool(low[0] <= min(e) < low[0] + 1e-6), bool(max(e) <= high[0] < max(e) + 1e-6)
        (True, True)
    """
    low, high = np.nextafter(z - down, -np.inf), np.nextafter(z + up, np.inf)
    slope, offset, error = relaxation(phi, low, high)
    size = 1.0 + phi.slope[1] * np.maximum(np.abs(low), np.abs(high))
    error = error + 32 * EPS * (sum(phi.error) + 2.0) * size
    middle = offset - (phi.function(z) - slope * z)
    return slope, np.minimum(middle - error, 0.0), np.maximum(middle + error, 0.0)


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines above or below an activation over boxes of pre-activations; a point selects the slope of each.

    A smooth activation touches its line at the point. For a piecewise linear one the line is the chord or continues the
    piece of the point, whichever is nearer there. Points of lines from below are mirrored at zero.

    Attributes:
        low: ``(h, 1, m)`` lower ends, one box for each history of inputs.
        high: ``(h, 1, m)`` upper ends.
        chord: ``(h, 1, m)`` slope of the chord.
        touch: ``(2, h, 1, m)`` least points of lines from above and below; ``None`` for a piecewise linear activation.
    """

    phi: Activation
    low: Array
    high: Array
    chord: Array
    touch: Array | None

    @classmethod
    def over(cls, phi: Activation, low: Array, high: Array) -> Lines:
        """Return the lines of an activation over boxes ``(h, 1, m)``."""
        w = phi.width
        touch = None if w is None else np.stack([_tangent_point(w * low), _tangent_point(-w * high)]) / w
        return cls(phi, low, high, chord_slope(phi, low, high), touch)

    def _endpoints(self, up: Array) -> tuple[Array, Array, Array]:
        """Return the ends of the boxes and the smallest points, mirrored where ``up`` is false."""
        a, b = np.where(up, self.low, -self.high), np.where(up, self.high, -self.low)
        return a, b, a if self.touch is None else np.where(up, self.touch[0], self.touch[1])

    def start(self, up: Array) -> Array:
        """Return initial points of lines above where ``up`` is true, below elsewhere."""
        a, b, touch = self._endpoints(up)
        return 0.5 * (np.maximum(touch, a) + b)

    def at(self, points: Array, up: Array) -> tuple[Array, Array]:
        """Return slopes and offsets of lines above the activation (``up``) or below it; ``(h, q, m)`` each."""
        _, b, touch = self._endpoints(up)
        points = np.clip(points, touch, np.maximum(b, touch))
        z = np.where(up, points, -points)
        tangent = np.clip(self.phi.derivative(z), *self.phi.slope)
        if self.touch is not None:
            slope = np.where(touch >= b, self.chord, tangent)
            return slope, line_offset(self.phi, slope, self.low, self.high, up)
        chord, tangent = np.broadcast_arrays(self.chord, tangent)
        first, second = (line_offset(self.phi, slope, self.low, self.high, up) for slope in (chord, tangent))
        side = np.where(up, 1.0, -1.0)
        nearer = side * (chord * z + first) <= side * (tangent * z + second)
        return np.where(nearer, chord, tangent), np.where(nearer, first, second)


def _tangent_point(a: Array) -> Array:
    """Return roughly the point where the line through the end ``a < 0`` touches tanh; ``a`` itself if ``a >= 0``."""
    start = np.minimum(a, 0.0)
    value, low, high = np.tanh(start), np.zeros_like(a), 1.0 - start
    for _ in range(30):
        middle = 0.5 * (low + high)
        t = np.tanh(middle)
        early = t - value < (1.0 - t * t) * (middle - start)
        low, high = np.where(early, middle, low), np.where(early, high, middle)
    return np.where(a < 0, high, a)
