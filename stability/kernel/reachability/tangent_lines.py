r"""Lines above and below an activation on an interval, with adjustable slopes.

Those of a smooth activation touch it at points that may be moved (``Lines``), those of a piecewise linear one are the
chord or the piece of a point (``Kinked``). Any slope is sound; offsets are rounded outwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activations import Activation
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.reachability.invariant_zonotope import breaks, highest

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Lines:
    """What the lines over one box of pre-activations have in common: all in the scale of tanh.

    Attributes:
        low: ``(h, 1, m)``, one for every history of inputs.
        high: ``(h, 1, m)``.
        touch: ``(2, h, 1, m)`` where the steepest line of use touches, from above and (mirrored) from below.
        chord: ``(h, 1, m)`` slope of the chord.
    """

    phi: Activation
    low: Array
    high: Array
    touch: Array
    chord: Array

    @classmethod
    def over(cls, phi: Activation, low: Array, high: Array) -> Lines | Kinked:
        """The lines of an activation over boxes ``(h, 1, m)``: these, or those of a piecewise linear one."""
        if phi.width is None:
            return Kinked(phi, low, high)
        a, b = float(phi.width) * low, float(phi.width) * high
        gap, mean = b - a, 0.5 * (a + b)
        chord = np.where(gap > 1e-9, (np.tanh(b) - np.tanh(a)) / np.maximum(gap, 1e-9), 1.0 - np.tanh(mean) ** 2)
        return cls(phi, a, b, np.stack([touching(a), touching(-b)]), np.clip(chord, 0.0, 1.0))

    def start(self, up: Array) -> Array:
        """First tangent points, mirrored where the line is from below."""
        a, b, touch = self._sides(up)
        return 0.5 * (np.maximum(touch, a) + b)

    def _sides(self, up: Array) -> tuple[Array, Array, Array]:
        return (
            np.where(up, self.low, -self.high),
            np.where(up, self.high, -self.low),
            np.where(up, self.touch[0], self.touch[1]),
        )

    def at(self, points: Array, up: Array) -> tuple[Array, Array]:
        """Slopes and offsets of lines above the activation where ``up``, below it elsewhere; ``(h, q, m)`` each."""
        a, b, touch = self._sides(up)
        tangent = 1.0 - np.tanh(np.clip(points, touch, np.maximum(b, touch))) ** 2
        slope = np.where(touch >= b, self.chord, np.clip(tangent, 0.0, 1.0))
        pad = 256 * EPS * (1.0 + np.maximum(np.abs(a), np.abs(b)))
        offset = highest(a, b, slope) + pad
        scale = self.phi.slope[1] / float(self.phi.width or 1.0)
        zero = float(self.phi.function(np.zeros(1))[0])
        side = np.where(up, 1.0, -1.0)
        offset = zero + side * scale * offset
        return self.phi.slope[1] * slope, offset + side * 4 * EPS * (np.abs(offset) + zero)

    def moved(self, points: Array, z: Array, up: Array, share: float) -> Array:
        """Tangent points, a share of the way to where a run passes."""
        s = float(self.phi.width or 1.0) * z
        return points + share * (np.where(up, s, -s) - points)


@dataclass(frozen=True, eq=False)
class Kinked:
    """The same of a piecewise linear activation: of the chord and the piece of a point, what is nearer there.

    Attributes:
        low: ``(h, 1, m)``, one for every history of inputs.
        high: ``(h, 1, m)``.
    """

    phi: Activation
    low: Array
    high: Array

    def start(self, up: Array) -> Array:
        """First points, mirrored where the line is from below."""
        middle = 0.5 * (self.low + self.high)
        return np.where(up, middle, -middle)

    def at(self, points: Array, up: Array) -> tuple[Array, Array]:
        """Slopes and offsets of lines above the activation where ``up``, below it elsewhere; ``(h, q, m)`` each."""
        z = np.clip(np.where(up, points, -points), self.low, self.high)
        gap = self.high - self.low
        chord = (self.phi.function(self.high) - self.phi.function(self.low)) / np.where(gap > 1e-9, gap, 1.0)
        piece = np.clip(np.asarray(self.phi.derivative(z)), *self.phi.slope)
        chord = np.where(gap > 1e-9, np.clip(chord, *self.phi.slope), piece)
        first, second = self._offset(chord, up), self._offset(piece, up)
        side = np.where(up, 1.0, -1.0)
        nearer = side * (chord * z + first) <= side * (piece * z + second)
        return np.where(nearer, chord, piece), np.where(nearer, first, second)

    def _offset(self, slope: Array, up: Array) -> Array:
        """The least offset of lines above where ``up``, the largest of lines below elsewhere, rounded outwards."""
        rest = [self.phi.function(z) - slope * z for z in breaks(self.phi, self.low, self.high)]
        top, bottom = np.maximum.reduce(rest), np.minimum.reduce(rest)
        size = np.maximum(np.abs(self.low), np.abs(self.high)) * max(map(abs, self.phi.pieces))
        pad = 16 * EPS * (2.0 * size + np.abs(top) + np.abs(bottom)) + TINY
        return np.where(up, top + pad, bottom - pad)

    def moved(self, points: Array, z: Array, up: Array, share: float) -> Array:
        """Points, a share of the way to where a run passes."""
        return points + share * (np.where(up, z, -z) - points)


def touching(a: Array) -> Array:
    """Where the line from the end ``a < 0`` touches the tanh; ``a`` itself where that is not negative. Approximately:
    lines of any slope are sound.
    """
    start = np.minimum(a, 0.0)
    value, low, high = np.tanh(start), np.zeros_like(a), 1.0 - start
    for _ in range(30):
        middle = 0.5 * (low + high)
        t = np.tanh(middle)
        early = t - value < (1.0 - t * t) * (middle - start)
        low, high = np.where(early, middle, low), np.where(early, high, middle)
    return np.where(a < 0, high, a)
