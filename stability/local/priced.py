"""Near runs of another class of networks of one state, by descents in floating point."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stability.local.ranges import middle
from stability.local.scalar import ScalarStep
from stability.systems.activations import Activation

Array = np.ndarray
_TURNS, _LOOKS, _HALVINGS, _FAR = 81, 8, 50, 80.0
"""How often starts are moved, and after how often it is looked where they are; halvings of a price's logarithm; and the
largest one."""
_LENGTHS = (1e-3, 0.03, 0.2, 0.5, 0.8, 0.95, 1.0, 1.0001, 1.01, 1.1, 1.5, 3.0, 10.0)
"""Of moves: multiples at which it is looked first whether the class has changed."""


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs in floating point, by what is added to the argument, ``y``, and past it, ``q``, at each step.

    Attributes:
        steps: of a ball.
        phi: the activation.
        start: the first state.
        last: whether the sum is that of the last state alone.
    """

    steps: list[ScalarStep]
    phi: Activation
    start: float
    last: bool = False

    def __post_init__(self) -> None:
        for name in ("A", "B", "C", "e", "f"):
            vars(self)[name] = np.array([float(middle(getattr(step, name))) for step in self.steps])
        for name in ("S", "g"):
            parts = [middle(getattr(step, name)) for step in self.steps]
            vars(self)[name] = np.array([float(part[0]) if len(part) else 0.0 for part in parts])
        for name in ("low", "high"):
            parts = [getattr(step, name) for step in self.steps]
            vars(self)[name] = np.array([float(part[0]) if len(part) else 0.0 for part in parts])
        vars(self)["ends"] = np.array([float(step.ends) for step in self.steps])
        if self.last:
            vars(self)["ends"][:-1] = 0.0

    def states(self, y: Array, q: Array) -> Array:
        """``(..., K + 1)`` of ``(..., K)``."""
        m = vars(self)
        out = [np.full(y.shape[:-1], self.start)]
        for t in range(len(self.steps)):
            h = out[-1]
            phi = self.phi.function(m["C"][t] * h + m["e"][t] + y[..., t])
            out.append(m["A"][t] * h + m["B"][t] * phi + m["f"][t] + q[..., t])
        return np.stack(out, axis=-1)

    def total(self, y: Array, q: Array) -> Array:
        """``(...)`` the sum of the states after the network's own steps, or after the last one."""
        return self.states(y, q)[..., 1:] @ vars(self)["ends"]

    def path(self, v: Array) -> Array:
        """``(K + 1,)`` of coordinates ``(K,)``."""
        return self.states(vars(self)["S"] * v, vars(self)["g"] * v)

    def slope(self, v: Array) -> tuple[Array, Array]:
        """The sum ``(b,)``, and its slope by coordinates ``(b, K)``."""
        m, y, q = vars(self), vars(self)["S"] * v, vars(self)["g"] * v
        h = self.states(y, q)
        steep = self.phi.derivative(m["C"] * h[..., :-1] + m["e"] + y)
        out, back = np.zeros(v.shape), np.zeros(v.shape[:-1])
        for t in range(v.shape[-1] - 1, -1, -1):
            back = back + m["ends"][t]
            out[..., t] = back * (m["g"][t] + m["B"][t] * steep[..., t] * m["S"][t])
            back = back * (m["A"][t] + m["B"][t] * steep[..., t] * m["C"][t])
        return h[..., 1:] @ m["ends"], out

    def cost(self, v: Array) -> Array:
        """``(b,)`` of coordinates ``(b, K)``."""
        out = v * v
        for t, step in enumerate(self.steps):
            if step.clip is not None:
                out[..., t] = step.clip.cost(v[..., t])[0]
        return out.sum(axis=-1)

    def reply(self, slope: Array) -> Array:
        """Coordinates ``(b, K)`` that cost least where each is worth its slope."""
        out = np.clip(-0.5 * slope, vars(self)["low"], vars(self)["high"])
        for t, step in enumerate(self.steps):
            if step.clip is not None:
                out[..., t] = step.clip.moved(-slope[..., t]) @ step.clip.E
        return out


@dataclass(eq=False)
class Side:
    """One end of the sums that keep the class.

    Attributes:
        sign: of the sum.
        most: ``sign`` times the sum is at most this, where the class changes.
        nearest: what the cheapest run costs that was found there.
        price: at which the nearest one is a stationary point.
        best: of the best bound.
        bound: of the least cost.
        paths: of cheap runs, the best first.
    """

    sign: float
    most: float
    nearest: float = np.inf
    price: float = 1.0
    best: float = 1.0
    bound: float = -np.inf
    paths: list[Array] = field(default_factory=list)

    def starts(self, runs: Runs, rng: np.random.Generator, count: int) -> Array:
        """``(b, K)``: no change at first, then some as large as would do, were the sum linear."""
        total, slope = runs.slope(np.zeros((1, len(runs.steps))))
        far = abs(float(self.sign * total[0]) - self.most) / max(float(np.linalg.norm(slope)), 1e-12)
        self.price = 2.0 * far / max(float(np.linalg.norm(slope)), 1e-12)
        drawn = rng.normal(size=(count, len(runs.steps))) * far / len(runs.steps) ** 0.5
        return np.concatenate([np.zeros(slope.shape), drawn * rng.uniform(0.3, 3.0, (count, 1))])

    def descend(self, runs: Runs, v: Array) -> bool:
        """Moves starts ``(b, K)`` to near runs of another class, and whether one is nearer than all before.

        Each is replaced by the cheapest run of which the sum, were it linear, would be the end: where nothing moves any
        more, the slope of the sum and that of the cost are in proportion.
        """
        found = False
        for turn in range(_TURNS):
            total, slope = runs.slope(v)
            total, slope = self.sign * total, self.sign * slope
            wanted = self.most - total + (slope * v).sum(axis=1)
            low, high = np.full(len(v), -_FAR), np.full(len(v), _FAR)
            for _ in range(_HALVINGS):  # the price: by halving its logarithm
                price = np.exp(0.5 * low + 0.5 * high)
                short = (slope * runs.reply(price[:, None] * slope)).sum(axis=1) > wanted
                low, high = np.where(short, 0.5 * (low + high), low), np.where(short, high, 0.5 * (low + high))
            if turn % _LOOKS == 0 or turn == _TURNS - 1:
                over, cost = self._stretched(runs, v)
                k = int(cost.argmin())
                if cost[k] < self.nearest * (1.0 - 1e-12):
                    self.nearest, self.price, found = float(cost[k]), float(price[k]), True
                    self.paths.insert(0, runs.path(over[k]))
            step = runs.reply(np.exp(high)[:, None] * slope) - v
            going = np.isfinite(step).all(axis=1) & (np.abs(step).max(axis=1) > 1e-14 * (1.0 + np.abs(v).max(axis=1)))
            if not going.any():
                break
            v, step = v[going], step[going]
            v = v + (1.0 if turn < _TURNS // 3 else 0.5 if turn < 2 * _TURNS // 3 else 0.2) * step
        return found

    def _stretched(self, runs: Runs, v: Array) -> tuple[Array, Array]:
        """The multiples of moves ``(b, K)`` at which the class changes first, nearly, and what they cost."""
        low, high = np.zeros(len(v)), np.full(len(v), np.inf)
        for part in _LENGTHS:
            out = self._out(runs, part * v) & ~np.isfinite(high)
            high = np.where(out, part, high)
            low = np.where(np.isfinite(high), low, part)
        for _ in range(_HALVINGS if np.isfinite(high).any() else 0):
            middle_ = 0.5 * (low + np.minimum(high, 1e3))
            out = self._out(runs, middle_[:, None] * v)
            low, high = np.where(out, low, middle_), np.where(out, middle_, high)
        there = np.clip(np.where(np.isfinite(high), high, 0.0)[:, None] * v, vars(runs)["low"], vars(runs)["high"])
        sure = np.isfinite(high) & self._out(runs, there)
        return there, np.where(sure, runs.cost(there), np.inf)

    def _out(self, runs: Runs, v: Array) -> Array:
        m = vars(runs)
        return self.sign * runs.total(m["S"] * v, m["g"] * v) <= self.most + 1e-13 * (1.0 + abs(self.most))
