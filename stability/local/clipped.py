r"""The cost of moving ``v = E d`` where each entry of ``d`` keeps to a range: :math:`c(v) = \min \{|d|^2 : E d = v\}`.

By duality :math:`c(v) \ge \nu v + \psi(\nu)` with :math:`\psi(\nu) = \sum_k \min_{d_k} (d_k^2 - \nu E_k d_k)` for every
:math:`\nu`. As :math:`\psi` is concave with :math:`\psi'' \ge -|E|^2 / 2`, more is true:

.. math:: c(v) \ge \nu v + \psi(\nu) + \frac{(v + \psi'(\nu))^2}{|E|^2} .
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma

Array = np.ndarray
_HALVINGS = 90
_MOST = 1e30


@dataclass(eq=False)
class Clipped:
    """One step's perturbations.

    Attributes:
        E: ``(q,)``.
        low: ``(q,)``, at most zero.
        high: ``(q,)``, at least zero.
    """

    E: Array
    low: Array
    high: Array

    def moved(self, nu: Array) -> Array:
        """The ``d (..., q)`` of least ``|d|^2 - nu E d``, for ``nu (...,)``."""
        return np.clip(0.5 * nu[..., None] * self.E, self.low, self.high)

    @cached_property
    def ways(self) -> tuple[Array, Array]:
        """Where entries meet their ends: ``nu`` in rising order, and ``E d`` there."""
        own = self.E != 0.0
        with np.errstate(over="ignore"):
            nu = np.concatenate([[0.0], *(2.0 * end[own] / self.E[own] for end in (self.low, self.high))])
        nu = np.sort(np.clip(nu, -_MOST, _MOST))
        return nu, self.moved(nu) @ self.E

    def cost(self, v: Array) -> tuple[Array, Array]:
        """``c(v)`` and its slope ``nu``, in floating point; beyond the range of ``E d`` those of its end."""
        nus, values = self.ways
        nu = np.interp(v, values, nus)
        d = self.moved(nu)
        return (d * d).sum(axis=-1), nu

    def tangent(self, v: float) -> tuple[float, float, float]:
        """``(a, b, c)`` with ``cost >= a w^2 + b w + c`` for every ``w = E d``, nearly equal at ``v``.

        Example:
            >>> one = Clipped(np.array([3.0, 4.0]), np.array([-1.0, -1.0]), np.array([1.0, 0.1]))
            >>> a, b, c = one.tangent(1.6)  # the second entry is at its end: 0.4 + 3 d = 1.6
            >>> round(a * 1.6**2 + b * 1.6 + c, 9), round(0.4**2 + 0.1**2, 9)
            (0.17, 0.17)
        """
        a, b, c = self.tangents(np.array(v))
        return a, float(b), float(c)

    def tangents(self, v: Array) -> tuple[float, Array, Array]:
        """``a`` and one ``b`` and ``c`` for each ``v (...,)``, see ``tangent``."""
        nu = self.cost(v)[1]
        d, E, n = self.moved(nu), self.E, len(self.E)
        size = float(E @ E) * (1.0 + gamma(n + 4)) + TINY
        a = min(1.0 / size, _MOST) * (1.0 - 4 * EPS)
        linear = nu[..., None] * E * d
        psi = (d * d - linear).sum(axis=-1) - gamma(2 * n + 32) * (d * d + np.abs(linear)).sum(axis=-1) - TINY
        at, far = d @ E, np.maximum(-self.low, self.high)
        most = float(np.abs(E) @ far) * (1.0 + gamma(n + 4))
        rough = gamma(n + 16) * ((far + np.abs(d)) @ np.abs(E)) + TINY
        b, c = nu - 2.0 * a * at, psi + a * at * at
        lost = 4.0 * a * most * rough + 16 * EPS * (np.abs(nu) + 2.0 * a * np.abs(at)) * most
        return a, b, c - lost - 16 * EPS * (np.abs(psi) + a * at * at) - TINY

    def reach(self, radius: float) -> tuple[float, float]:
        """Ends of ``E d`` for ``|d| <= radius``, rounded outwards: by a multiplier of the ball."""
        ends: list[float] = []
        for sign in (-1.0, 1.0):
            low, high, best = -300.0, 300.0, np.inf
            for _ in range(_HALVINGS):
                power = 0.5 * (low + high)
                price = float(np.exp(0.5 * power))
                d = self.moved(np.array(sign / price))
                gains = sign * self.E * d - price * d * d
                size = float((np.abs(self.E * d) + price * d * d).sum()) + price * radius * radius
                bound = float(gains.sum()) + price * radius * radius + gamma(2 * len(d) + 32) * size + TINY
                best = min(best, bound)
                if float(d @ d) > radius * radius:
                    low = power
                else:
                    high = power
            free = float(np.maximum(sign * self.E * self.low, sign * self.E * self.high).sum())
            size = float((np.abs(self.E) * np.maximum(-self.low, self.high)).sum())
            ends.append(sign * min(best, free + gamma(len(self.E) + 8) * size + TINY))
        return ends[0], ends[1]
