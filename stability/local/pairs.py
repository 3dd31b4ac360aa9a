r"""Convex sets of pairs of numbers: what a step's perturbation adds to the activation's argument, and what past it.

Of all allowed perturbations ``d`` of a step of several features that go to the state itself, the pairs
:math:`(y, q) = (E d, F d)` fill a convex set: an ellipse (a ball), a sum of segments (a box), or what a ball and a box
share. It lies below each of its tangents,

.. math:: q \le s y + H(s), \qquad H(s) = \max_d \, (F - s E) d ,

where a ball and a box together have, by duality, :math:`H(s) \le \mu r^2 + \sum_k \max_{d_k} (c_k d_k - \mu d_k^2)`
with :math:`c = F - s E` for every :math:`\mu \ge 0`. A table of many tangents is a polygon around the set; between two
of them ``H`` lies below the chord, as it is convex.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import length

Array = np.ndarray
TANGENTS = 2048
"""Of an ellipse, on either side: their corners are ``pi^2 / (8 TANGENTS^2)``, 3e-7, of a radius outside of it."""
_HALVINGS, _POWERS, _STEEPEST = 24, 20.0, 1e60
"""Of a multiplier's logarithm; how far below the largest it is sought; slopes beyond which there are no tangents."""
_NUMBERS = 2**21
"""Of all entries for all tangents: how many are in memory at once."""


@dataclass(frozen=True, eq=False)
class Tangents:
    """One side of a set: ``q <= slopes * y + tops`` for all of its pairs.

    Attributes:
        slopes: ``(N,)`` falling, so that they touch from the left to the right.
        tops: ``(N,)`` rounded upwards.
    """

    slopes: Array
    tops: Array

    def cuts(self, tops: Array, low: float, high: float) -> Array:
        """``(N + 1,)`` rising: where each is the lowest one, nearly, with other ``tops``, between two numbers."""
        with np.errstate(all="ignore"):
            met = np.diff(tops) / -np.diff(self.slopes)
        met = np.maximum.accumulate(np.clip(np.nan_to_num(met, nan=low), low, high))
        return np.concatenate([[low], met, [high]])

    @cached_property
    def corners(self) -> Array:
        """``(N - 1,)`` where neighbours meet, nearly."""
        return self.cuts(self.tops, -np.inf, np.inf)[1:-1]

    def slope(self, y: Array) -> Array:
        """Of the lowest tangent at some numbers, nearly."""
        return self.slopes[np.searchsorted(self.corners, y)]

    def height(self, y: Array) -> Array:
        """Of the polygon, in floating point."""
        k = np.searchsorted(self.corners, y)
        return self.slopes[k] * y + self.tops[k]

    def top(self, s: Array) -> Array:
        """Upper bounds of ``H``, of slopes between the first and the last one."""
        if len(self.slopes) == 1:
            return np.full(s.shape, self.tops[0])
        k = np.clip(np.searchsorted(-self.slopes, -s), 1, len(self.slopes) - 1)
        steep, flat = self.slopes[k - 1], self.slopes[k]
        part = np.clip((steep - s) / (steep - flat), 0.0, 1.0)
        tops = self.tops[k - 1], self.tops[k]
        return (1.0 - part) * tops[0] + part * tops[1] + 8 * EPS * (np.abs(tops[0]) + np.abs(tops[1])) + TINY


@dataclass(frozen=True, eq=False)
class Pair:
    """The set of one step.

    Attributes:
        E: ``(q,)`` to the activation's argument.
        F: ``(q,)`` past it.
        low: ``(q,)`` of the entries of ``d``, at most zero.
        high: ``(q,)`` at least zero.
        radius: of ``d``; infinite where the box alone counts.
        boxed: whether the box counts.
        also: slopes that tangents are wanted of.

    Example:
        >>> one = np.ones(2)
        >>> disc = Pair(np.array([1.0, 0.0]), np.array([0.0, 1.0]), -one, one, 0.5, False)
        >>> bool(0.5 <= disc.sides[0].height(np.zeros(1))[0] < 0.5000002), round(disc.ends[1], 9)
        (True, 0.5)
    """

    E: Array
    F: Array
    low: Array
    high: Array
    radius: float
    boxed: bool
    also: tuple[float, ...] = ()

    def most(self, c: Array, error: Array) -> Array:
        """Upper bounds ``(N,)`` of ``c d``, for ``c (N, q)`` that are known to an ``error (N, q)``."""
        n, r = c.shape[1], self.radius
        out = np.full(len(c), np.inf)
        if np.isfinite(r):
            out = r * length(np.abs(c) + error) * (1.0 + (n + 8) * EPS) + TINY
        if not self.boxed:
            return out
        far = np.maximum(-self.low, self.high)
        loose = (error * far).sum(axis=1) * (1.0 + gamma(n + 8)) + TINY
        free = np.maximum(c * self.low, c * self.high).sum(axis=1) + gamma(n + 8) * (np.abs(c) * far).sum(axis=1)
        out = np.minimum(out, free + loose)
        if not np.isfinite(r):
            return out
        begin = length(c) / (2.0 * r)  # a larger price moves less than the ball allows
        less, more = np.full(len(c), -_POWERS), np.zeros(len(c))
        for _ in range(_HALVINGS):
            power = 0.5 * less + 0.5 * more
            price = begin * np.exp(power)
            d = np.clip(c / (2.0 * price)[:, None], self.low, self.high)
            beyond = (d * d).sum(axis=1) > r * r
            less, more = np.where(beyond, power, less), np.where(beyond, more, power)
        gain, paid = c * d, price[:, None] * d * d
        size = (np.abs(gain) + paid).sum(axis=1) + price * r * r
        bound = (gain - paid).sum(axis=1) + price * r * r + gamma(2 * n + 32) * size + loose + TINY
        return np.fmin(out, bound)

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Of ``y``, rounded outwards."""
        both = self.most(np.stack([-self.E, self.E]), np.zeros((2, len(self.E))))
        return -float(both[0]), float(both[1])

    @cached_property
    def sides(self) -> tuple[Tangents, Tangents]:
        """Of ``q``, and of ``-q``."""
        with np.errstate(all="ignore"):
            return self._side(1.0), self._side(-1.0)

    def _side(self, sign: float) -> Tangents:
        E, F = self.E, sign * self.F
        slopes = [np.array([0.0, *(sign * s for s in self.also)])]
        if self.boxed:
            slopes.append(F / E)
        if np.isfinite(self.radius):
            share = (F @ E) / (E @ E)
            angle = (np.arange(TANGENTS) + 0.5) * np.pi / TANGENTS
            slopes.append(share - np.linalg.norm(F - share * E) / np.linalg.norm(E) / np.tan(angle))
        s = np.concatenate(slopes)
        s = np.unique(s[np.isfinite(s) & (np.abs(s) < _STEEPEST)])[::-1]
        tops = list[Array]()
        for part in np.array_split(s, 1 + len(s) * len(E) // _NUMBERS):
            own = part[:, None] * E
            tops.append(self.most(F - own, 4 * EPS * (np.abs(F) + np.abs(own)) + TINY))
        return Tangents(s, np.concatenate(tops))
