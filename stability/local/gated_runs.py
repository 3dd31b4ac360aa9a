"""Runs of an LSTM or GRU of one unit in floating point: the nearest ones that change the class, and good moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from stability.gated.cell import GatedCell
from stability.local.after import After, Ending
from stability.local.moves import Moves
from stability.local.parts import Part
from stability.local.togo import image

Array = np.ndarray
_PAD = 1e-6
"""Of boxes of states, what is added."""
_NUDGE, _NEWTON, _FARTHEST = 1e-6, 6, 3.0
"""Of differences; steps of Newton's method, and how long these are at most."""
_GRIDS, _ZOOMS = {0: (1, 1), 1: (33, 9), 2: (13, 5), 3: (7, 3), 4: (5, 3)}, 7
"""Points along each coordinate, at first and later, by how many there are; and how often a grid is made smaller."""


@dataclass(frozen=True, eq=False)
class _Sizes:
    """How long moves are: the largest entry, or the largest of parts; ``y`` is the moves and a size behind them."""

    boxed: bool
    parts: list[slice]

    def largest(self, v: Array) -> float:
        return float(np.abs(v).max()) if self.boxed else max(float(np.linalg.norm(v[part])) for part in self.parts)

    def room(self, y: Array) -> Array:
        """What is left to the size: not negative where all moves are as long at most."""
        size, v = y[-1], y[:-1]
        if self.boxed:
            return np.concatenate([size - v, size + v])
        return np.array([size * size - float(v[part] @ v[part]) for part in self.parts])

    def slopes(self, y: Array) -> Array:
        """Those of ``room``."""
        eye = np.eye(len(y) - 1)
        if self.boxed:
            return np.hstack([np.vstack([-eye, eye]), np.ones((2 * len(eye), 1))])
        moves = [-2.0 * y[:-1] * eye[part].sum(axis=0) for part in self.parts]
        return np.hstack([np.stack(moves), np.full((len(moves), 1), 2.0 * y[-1])])


@dataclass(frozen=True, eq=False)
class Met:
    """A run: what it costs, what it leaves of the room to a bound, and its moves."""

    cost: float
    left: float
    moves: Array

    def at(self, price: float) -> float:
        """What it comes to at a price."""
        return self.cost + price * self.left


@dataclass(frozen=True, eq=False)
class GatedRuns:
    """Runs of a sequence.

    Attributes:
        steps: with the boxes of their moves.
        start: ``(d,)``.
        averaged: whether the head reads the mean of outputs, and not the last one.
    """

    steps: list[Moves]
    start: Array
    averaged: bool = False

    @cached_property
    def cells(self) -> list[GatedCell]:
        """One for each step, which reads its moves."""
        units = [step.unit for step in self.steps]
        middles = [(0.5 * (u.E.low + u.E.high), 0.5 * (u.e.low + u.e.high)) for u in units]
        return [replace(u.cell, w_ih=E, b_ih=e, input_low=None, input_high=None) for u, (E, e) in zip(units, middles)]

    def boxes(self, part: Part) -> tuple[Array, Array] | None:
        """Of the states of a part's runs after each step, a little wider, ``(T, d)`` each; ``None`` without runs."""
        low = high = self.start
        lows, highs = list[Array](), list[Array]()
        for t, step in enumerate(self.steps, 1):
            low, high = image(step, low, high)
            pad = 1e-9 + _PAD * (high - low)
            low, high = low - pad, high + pad
            low[0], high[0] = max(low[0], part.low[t]), min(high[0], part.high[t])
            if not low[0] < high[0]:
                return None
            lows.append(low)
            highs.append(high)
        return np.array(lows), np.array(highs)

    @cached_property
    def parts(self) -> list[slice]:
        """Where the moves of each step are among those of all."""
        ends = np.cumsum([len(step.low) for step in self.steps])
        return [slice(int(end) - len(step.low), int(end)) for end, step in zip(ends, self.steps)]

    def after(self, t: int, s: Array, v: Array) -> Array:
        """The next states ``(N, d)`` of ``(N, d)`` and moves ``(N, q)``."""
        return self.cells[t].advance(s, v)

    @cached_property
    def share(self) -> Array:
        """``(T,)``: of each output, in what the head reads."""
        size = len(self.steps)
        return np.full(size, 1.0 / size) if self.averaged else np.eye(1, size, size - 1)[0]

    def states(self, y: Array) -> Array:
        """``(T + 1, d)``: of the run of these moves of all steps."""
        out = [self.start]
        for t, part in enumerate(self.parts):
            out.append(self.cells[t].advance(out[-1], y[part]))
        return np.array(out)

    def mean(self, y: Array, share: Array | None = None) -> float:
        """What the head reads of the run of these moves; ``share``: of each output, else the head's."""
        return float((self.share if share is None else share) @ self.states(y)[1:, 0])

    def read(self, y: Array, share: Array | None = None) -> tuple[float, Array]:
        """The same, and its slope."""
        share, states, worth = self.share if share is None else share, self.states(y), np.zeros(len(self.start))
        slope = np.zeros(len(y))
        for t in range(len(self.steps) - 1, -1, -1):
            cell, u = self.cells[t], y[self.parts[t]]
            worth = worth + np.eye(1, len(worth))[0] * share[t]
            slope[self.parts[t]] = worth @ cell.input_jacobian(states[t], u)
            worth = worth @ cell.jacobian(states[t], u)
        return float(share @ states[1:, 0]), slope

    def starts(self, rng: np.random.Generator, size: float, count: int) -> Iterator[Array]:
        """Moves of about a size: of all steps, and of the last ones alone."""
        total = self.parts[-1].stop
        for k in range(count):
            y = rng.normal(size=total)
            if k % 2:
                y[: total - 1 - rng.integers(total)] = 0.0
            yield y * size / max(float(np.linalg.norm(y)), 1e-300)

    def nearest(self, end: Ending, start: Array) -> float:
        """The least length of moves that lead out of an ending's bounds, from a start; infinite where there are none.

        That of all steps together, or the largest of one step or entry, where these have balls or boxes of their own.
        """
        return self.descended(end, start)[0]

    def descended(self, end: Ending, start: Array) -> tuple[float, Array]:
        """That length, and the moves."""
        longest, count, best = {step.longest for step in self.steps}, len(start), (np.inf, start)
        total, scale = longest == {None}, max(float(np.abs(start).max()), 1e-9)
        sizes = _Sizes(longest == {np.inf}, [slice(0, count)] if total else self.parts)
        low, high = (np.concatenate([getattr(step, e) for step in self.steps]) / scale for e in ("low", "high"))

        def paid(y: Array) -> tuple[float, Array]:
            return (float(y @ y), 2.0 * y) if total else (float(y[-1]), np.eye(count + 1)[-1])

        first = start / scale if total else np.append(start / scale, 1.0)
        limits = [*zip(low, high)] if total else [*zip(low, high), (0.0, None)]
        others = [] if total else [{"type": "ineq", "fun": sizes.room, "jac": sizes.slopes}]
        for sign, at in end.sides:

            def beyond(y: Array, sign: float = sign, at: float = at) -> float:
                return sign * (self.mean(scale * y[:count]) - at)

            def rise(y: Array, sign: float = sign) -> Array:
                return np.append(sign * scale * self.read(scale * y[:count])[1], np.zeros(len(y) - count))

            found = minimize(
                paid, first, jac=True, method="SLSQP", bounds=limits, options={"maxiter": 200, "ftol": 1e-16},
                constraints=[{"type": "ineq", "fun": beyond, "jac": rise}, *others],
            )  # fmt: skip
            v = np.clip(np.nan_to_num(found.x[:count]), low, high)
            if beyond(v) >= -1e-13:
                best = min(best, (scale * sizes.largest(v), scale * v), key=lambda found: found[0])
        return best

    def cheapest(self, price: float, side: tuple[float, float], part: Part, start: Array) -> Met:
        """What a descent finds of the runs of a part to be the cheapest at a price, from a start.

        Args:
            price: of what is left to the bound.
            side: the sign and the bound.
            part: the runs.
            start: moves.
        """
        (sign, at), limits = side, list[dict[str, object]]()
        low, high = (np.concatenate([getattr(step, e) for step in self.steps]) for e in ("low", "high"))

        def paid(y: Array) -> tuple[float, Array]:
            mean, slope = self.read(y)
            return float(y @ y) + price * sign * (at - mean), 2.0 * y - price * sign * slope

        for t in range(len(self.steps)):
            for way, end in ((1.0, part.low[t + 1]), (-1.0, part.high[t + 1])):
                if np.isfinite(end):
                    share = way * np.eye(1, len(self.steps), t)[0]
                    limits.append({
                        "type": "ineq", "fun": lambda y, share=share, end=way * end: self.mean(y, share) - end,
                        "jac": lambda y, share=share: self.read(y, share)[1],
                    })  # fmt: skip
        told = {"jac": True, "bounds": list(zip(low, high)), "options": {"maxiter": 200, "ftol": 1e-15}}
        told |= {"method": "SLSQP", "constraints": limits} if limits else {"method": "L-BFGS-B"}
        found = minimize(paid, np.clip(start, low, high), **told)
        y = np.clip(np.nan_to_num(found.x), low, high)
        return Met(float(y @ y), sign * (at - self.mean(y)), y)

    def within(self, t: int, v: Array) -> Array:
        """Moves ``(N, q)``, those that are too long made shorter."""
        longest = self.steps[t].longest
        if longest is None or not np.isfinite(longest):
            return v
        return v * np.minimum(1.0, longest / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300))

    def costs(self, t: int, after: After | Ending, s: Array, v: Array, near: bool) -> tuple[Array, Array]:
        """What moves cost with what follows, by its lower bounds, and these moves.

        Args:
            t: the step.
            after: what follows.
            s: ``(N, d)``.
            v: ``(N, q)``.
            near: whether moves of the last step are changed until they lead just out of the class.
        """
        v = self.within(t, v)
        cost = self.steps[t].priced(v)
        if not isinstance(after, Ending):
            return cost + after.bound(self.after(t, s, v)), v
        last = self.after(t, s, v)[:, 0]
        cost, out = np.where((last > after.high) | (last < after.low), cost, np.inf), v.copy()
        for sign, at in after.sides if near and v.shape[1] else ():
            w = self._led(t, s, v, at + sign * 1e-12)
            beyond = sign * (self.after(t, s, w)[:, 0] - at) > 0.0
            better = beyond & ((w * w).sum(axis=1) < cost)
            cost, out = np.where(better, (w * w).sum(axis=1), cost), np.where(better[:, None], w, out)
        return cost, out

    def _led(self, t: int, s: Array, v: Array, goal: float) -> Array:
        """Moves changed by Newton's method until ``h`` is a number, and they are short."""
        step, count = self.steps[t], v.shape[1]
        for _ in range(_NEWTON):
            at = self.after(t, s, v)[:, 0]
            near = [self.after(t, s, v + _NUDGE * unit)[:, 0] for unit in np.eye(count)]
            slope = (np.stack(near, axis=1) - at[:, None]) / _NUDGE
            size = np.maximum((slope * slope).sum(axis=1), 1e-12)
            onto = ((slope * v).sum(axis=1) - (at - goal)) / size
            new = onto[:, None] * slope
            v = np.clip(v + np.clip(new - v, -_FARTHEST, _FARTHEST), step.low, step.high)
        return v

    def guess(self, t: int, after: After | Ending, s: Array) -> tuple[Array, Array]:
        """Good moves ``(N, q)`` for states ``(N, d)``, and their costs with what follows."""
        step, count = self.steps[t], len(self.steps[t].low)
        first, later = _GRIDS[min(count, 4)]
        at, best = np.zeros((len(s), count)), np.full(len(s), np.inf)
        half, middle = 0.5 * (step.high - step.low), 0.5 * (step.high + step.low)
        for turn in range(_ZOOMS if count else 1):
            each = later if turn else first
            side = [np.linspace(-1.0, 1.0, each)] * count
            grid = np.stack(np.meshgrid(*side, indexing="ij"), axis=-1).reshape(-1, count) if count else at[:1]
            v = np.clip((at if turn else middle)[..., None, :] + grid * half, step.low, step.high)
            v = np.broadcast_to(v, (len(s), len(grid), count)).reshape(len(s) * len(grid), count)
            cost, v = self.costs(t, after, np.repeat(s, len(grid), axis=0), v, not turn)
            cost, rows = cost.reshape(len(s), -1), np.arange(len(s))
            k = cost.argmin(axis=1)
            better = cost[rows, k] < best
            at = np.where(better[:, None], v.reshape(len(s), len(grid), count)[rows, k], at)
            best = np.minimum(best, cost[rows, k])
            if isinstance(after, Ending) and turn:
                break
            half = 3.0 * half / max(each - 1, 1)
        return at, best
