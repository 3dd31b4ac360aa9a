r"""Backward linear bounds of the pre-activations of a network through its last steps.

Given are bounds :math:`l \le z_t \le h` that hold at all times from some step on. They are tightened in rounds. A row
:math:`a^T x_t` is traced back: with :math:`g = B^T a`, every :math:`g_i \phi(z_i)` is at most
:math:`g_i (s_i z_i + o_i)` over ``[l_i, h_i]``, where the line is above the activation if :math:`g_i > 0` and below it
otherwise. What remains is the row :math:`A^T a + C^T (g \circ s)` of the state one step earlier. After ``depth`` steps
the bounds of the state end the trace. Each row and step has lines of its own. They are moved so that they touch the
activation at the worst run of the relaxed network. Therefore these sets can shrink where zonotopes with one slope per
unit do not (linear bounds: Zhang et al. 2018, CROWN; slopes by row: Xu et al. 2021).

The ranges of the last ``memory`` inputs may be divided into cells. A bound is then the largest over all sequences of
cells (histories), each with its own bounds of the pre-activations. Any slopes and any rows in floating point are sound,
since rounding errors are bounded by :math:`\gamma` times the sum of the absolute values of all terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activation_lines import Lines
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import diagonal_of, system_balls
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.systems.driven import DrivenSystem

Array = np.ndarray
_BATCH = 2_000_000
"""Most entries of an array, unless a single history needs more."""
_STRIDE = 0.1
"""Smallest step of a tangent point towards the worst run, as a share: worst runs jump, so that points approach a mean.
"""


@dataclass(frozen=True)
class Schedule:
    """Schedule of rounds of tightening.

    Attributes:
        rounds: number of rounds, each of which replaces all bounds by narrower ones.
        depth: number of steps that a row is traced back.
        sweeps: number of times that the lines of a round are moved.
        cells: number of cells of every input's range.
        memory: number of last inputs whose ranges are divided into cells.
    """

    rounds: int
    depth: int
    sweeps: int
    cells: int = 1
    memory: int = 0

    @property
    def steps(self) -> int:
        """Return the number of steps until the bounds hold: ``depth`` and one for the state at the end of the trace."""
        return self.rounds * (self.depth + 1)

    def histories(self, inputs: int) -> int:
        """Return the number of sequences of input cells."""
        return self.cells ** min(inputs * self.memory, 64)


def steps_made(steps: int, rows: Array | None) -> int:
    """Return the number of steps from the first box to the last sets of a proof.

    The steps of the zonotopes and of all schedules are added; each row begins with rounds and depth.

    Example:
        >>> steps_made(2, np.array([[31.0, 6.0, 2.0, 1.0, 0.0]]))
        219
    """
    # a sentence may be formed before the rule has refused malformed rows
    pairs = np.zeros((0, 2)) if rows is None or np.ndim(rows) != 2 or rows.shape[1] < 2 else rows
    return int(steps) + sum(Schedule(int(row[0]), int(row[1]), 0).steps for row in pairs)


def _maximum(rows: Array, low: Array, high: Array) -> Array:
    """Return the maximum of ``rows @ v`` over ``low <= v <= high``, up to rounding."""
    return np.maximum(rows, 0.0) @ high + np.minimum(rows, 0.0) @ low


def _maximum_by_history(rows: Array, low: Array, high: Array) -> Array:
    """Return the maximum of ``rows @ v`` over boxes ``(h, 1, p)``, one for each history, up to rounding."""
    return (np.maximum(rows, 0.0) * high + np.minimum(rows, 0.0) * low).sum(axis=-1)


def _stacked(bounds: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Return boxes ``(h, 1, p)``, one for every history."""
    return np.stack([low for low, _ in bounds])[:, None], np.stack([high for _, high in bounds])[:, None]


def _minimum(rows: Array, low: Array, high: Array) -> Array:
    return _maximum(rows, high, low)


class BackwardBounds:
    """Bounds of pre-activations and states of a driven network, for all times from some step on.

    Args:
        driven: a discrete network without feedthrough (``D = 0``), its activation bounded and smooth, or piecewise
            linear.
        low: ``(p,)`` lower bounds of the inputs.
        high: ``(p,)`` upper bounds of the inputs.
        pre: lower and upper bounds ``(m,)`` of the pre-activations at all times.
        states: lower and upper bounds ``(n,)`` of the states at all times.

    Attributes:
        low: ``(m,)`` lower bounds of the pre-activations.
        high: ``(m,)`` upper bounds of the pre-activations.
        steps: number of steps after which they hold.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = LureSystem([[0.0]], [[1.0]], [[0.9]], dt=1.0)
        >>> network = DrivenSystem(cell, "tanh", [[1.0]], [0.5])
        >>> pre = np.array([-1.4]), np.array([2.4])
        >>> bounds = BackwardBounds(network, -np.ones(1), np.ones(1), pre, (-np.ones(1), np.ones(1)))
        >>> bounds.follow(Schedule(30, 5, 3))
        >>> bool(-1.35 < bounds.low[0] < -1.2), bounds.steps
        (True, 180)
    """

    def __init__(
        self, driven: DrivenSystem, low: Array, high: Array, pre: tuple[Array, Array], states: tuple[Array, Array]
    ) -> None:
        self.driven, self.phi, self.inputs = driven, activation(driven.activation), (low, high)
        self.A, self.B, self.C, _ = system_balls(driven.system)
        self.plain = None if self.B.rad.any() else diagonal_of(self.B.mid)
        self.rounding = gamma(4 * (driven.states + driven.system.channels + driven.inputs) + 64)
        self.reach = np.maximum(np.abs(low), np.abs(high))
        self._slack = self.rounding * (np.abs(driven.E) @ self.reach + np.abs(pre[0]) + np.abs(pre[1])) + TINY
        # inputs at a step do not depend on the state: max(C x + b) + max(E u) is at most max(z)
        least, most = _minimum(driven.E, low, high), _maximum(driven.E, low, high)
        self._free = pre[0] - least - self._slack, pre[1] - most + self._slack
        self.states = states
        self.low, self.high, self.steps = pre[0], pre[1], 0
        self._points: dict[tuple[int, ...], list[Array]] = {}  # tangent points of the last round, by history

    def follow(self, schedule: Schedule) -> None:
        """Run all rounds of a schedule."""
        self.begin()
        for _ in range(schedule.rounds):
            self.round(schedule)

    def begin(self) -> None:
        """Reset the lines of earlier rounds."""
        self._points = {}

    def round(self, schedule: Schedule) -> None:
        """Run one round: compute all bounds again from the present ones."""
        system, eye = self.driven.system, np.eye(self.driven.states)
        parts = [system.C, -system.C, eye, -eye] if system.A.any() else [system.C, -system.C]
        rows = np.vstack(parts)
        cells = self._cells(schedule.cells if schedule.memory else 1)
        boxes, whole = [self._box(cell) for cell in cells], self._box(self.inputs)
        worst = np.full(len(rows), -np.inf)
        for histories in self._batches(len(cells), schedule.memory, rows.size):
            runs = [
                ([cells[h[k]] for h in histories], [boxes[h[k]] for h in histories]) for k in range(schedule.memory)
            ]
            runs += [([self.inputs], [whole])] * (schedule.depth - schedule.memory)
            inputs, endpoints = zip(*[(_stacked(u), _stacked(z)) for u, z in runs])
            lines = [Lines.over(self.phi, low, high) for low, high in endpoints]
            worst = np.maximum(worst, self._traced(rows, inputs, lines, schedule.sweeps, histories[0]).max(axis=0))
        self._intersect(np.split(worst, np.cumsum([len(part) for part in parts])[:-1]))
        self.steps += schedule.depth + 1

    @staticmethod
    def _batches(cells: int, memory: int, size: int) -> list[list[tuple[int, ...]]]:
        """Return all histories, in batches of at most ``_BATCH`` entries."""
        histories = list(itertools.product(range(cells), repeat=memory))
        count = max(1, _BATCH // max(size, 1))
        return [histories[k : k + count] for k in range(0, len(histories), count)]

    def _traced(
        self,
        rows: Array,
        inputs: Sequence[tuple[Array, Array]],
        lines: Sequence[Lines],
        sweeps: int,
        key: tuple[int, ...],
    ) -> Array:
        """Return upper bounds ``(h, q)`` of ``rows @ x`` over each history, with lines moved ``sweeps`` times."""
        points, best = self._points.get(key), np.asarray(np.inf)
        for sweep in range(sweeps + 1):
            trace = _Trace(self, rows, inputs, lines, points)
            best = np.fmin(best, trace.value)
            points = trace.moved(_STRIDE if key in self._points else max(1.0 / (sweep + 1), _STRIDE))
        self._points[key] = points or []
        return best

    def _intersect(self, bounds: list[Array]) -> None:
        """Intersect the old and the new bounds."""
        b = self.driven.b
        slack = self._slack + self.rounding * np.abs(b) + 2 * self.C.rad @ self.sizes[0]
        self._free = np.maximum(self._free[0], b - bounds[1] - slack), np.minimum(self._free[1], bounds[0] + b + slack)
        low, high = self._box(self.inputs)
        self.low, self.high = low, high
        endpoints = (-bounds[3], bounds[2]) if len(bounds) == 4 else self._next_bounds()
        self.states = np.maximum(self.states[0], endpoints[0]), np.minimum(self.states[1], endpoints[1])

    def _next_bounds(self) -> tuple[Array, Array]:
        """Bound the states ``B phi(z) + F u`` of a network without linear part."""
        least, most = self.phi.function(self.low), self.phi.function(self.high)
        least, most = least - 32 * EPS * (1.0 + np.abs(least)), most + 32 * EPS * (1.0 + np.abs(most))
        B, F, size = self.B, self.driven.F, self.sizes[1]
        error = self.rounding * (np.abs(B.mid) @ size + np.abs(F) @ self.reach) + 2 * B.rad @ size + TINY
        bottom = _minimum(B.mid, least, most) + _minimum(F, *self.inputs) - error
        return bottom, _maximum(B.mid, least, most) + _maximum(F, *self.inputs) + error

    @property
    def sizes(self) -> tuple[Array, Array, Array]:
        """Return upper bounds of the absolute states, activations and pre-activations, with a margin for rounding."""
        x, z = (np.maximum(np.abs(low), np.abs(high)) for low, high in (self.states, (self.low, self.high)))
        bounded = np.isfinite(self.phi.bound)
        return x, np.full(len(z), 1.0 + self.phi.bound) if bounded else 1.0 + max(map(abs, self.phi.slope)) * z, z

    def _cells(self, count: int) -> list[tuple[Array, Array]]:
        """Return boxes that cover the input box; neighbors share their ends."""
        edges = [np.append(np.linspace(a, b, count + 1)[:-1], b) for a, b in zip(*self.inputs)]
        cells = itertools.product(range(count), repeat=len(edges))
        return [
            (np.array([e[k] for e, k in zip(edges, c)]), np.array([e[k + 1] for e, k in zip(edges, c)])) for c in cells
        ]

    def _box(self, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        """Bound the pre-activations for inputs in a cell."""
        low = self._free[0] + _minimum(self.driven.E, *inputs) - self._slack
        high = self._free[1] + _maximum(self.driven.E, *inputs) + self._slack
        return np.maximum(low, self.low), np.minimum(high, self.high)


class _Trace:
    """Linear rows propagated backwards through the steps of several input histories.

    Attributes:
        value: ``(h, q)`` upper bounds, rounding errors included.
    """

    def __init__(
        self,
        bounds: BackwardBounds,
        rows: Array,
        inputs: Sequence[tuple[Array, Array]],
        lines: Sequence[Lines],
        points: list[Array] | None,
    ) -> None:
        self._bounds, self._inputs = bounds, inputs
        driven, A, B, C = bounds.driven, bounds.A, bounds.B, bounds.C
        x, w, z = bounds.sizes
        E, F, b = driven.E, driven.F, driven.b
        sizes = [np.abs(M) for M in (A.mid, B.mid, C.mid, E, F)]
        first = sizes[0] @ x + 2 * sizes[1] @ w + sizes[4] @ bounds.reach
        second = 2 * z + sizes[2] @ x + sizes[3] @ bounds.reach + np.abs(b) + 1.0
        radii = A.rad @ x + B.rad @ w, C.rad @ x
        rounding = 2 * len(lines) * bounds.rounding
        first, second = rounding * first + 2 * radii[0], rounding * second + 2 * radii[1]
        rows = rows[None]
        total, error = np.zeros(1), np.zeros(1)
        best = self._bound_at_end(rows, total, error, rounding)
        self._runs: list[tuple[Array, Array, Array, Array]] = []
        self._points = []
        for k, line in enumerate(lines):
            g = rows @ B.mid if bounds.plain is None else rows * bounds.plain
            up = g > 0
            point = line.start(up) if points is None else points[k]
            slope, offset = line.at(point, up)
            weights = g * slope
            entry = weights @ E + rows @ F
            total = total + (g * offset).sum(axis=-1) + weights @ b + _maximum_by_history(entry, *inputs[k])
            error = error + np.abs(rows) @ first + np.abs(weights) @ second
            self._runs.append((up, slope, offset, entry > 0))
            self._points.append(point)
            rows = weights @ C.mid + (rows @ A.mid if A.mid.any() else 0.0)
            best = np.fmin(best, self._bound_at_end(rows, total, error, rounding))
        self._last, self.value = rows > 0, best

    def _bound_at_end(self, rows: Array, total: Array, error: Array, rounding: float) -> Array:
        """Return the upper bound if the trace ends here, by the bounds of the states."""
        size = np.abs(rows) @ self._bounds.sizes[0]
        value = total + _maximum(rows, *self._bounds.states)
        return value + (error + rounding * (np.abs(total) + size)) * (1 + 1e-9) + TINY

    def moved(self, share: float) -> list[Array]:
        """Return tangent points moved by a share towards the worst run of the relaxed network, for every row."""
        bounds, driven = self._bounds, self._bounds.driven
        system = driven.system
        x = np.where(self._last, bounds.states[1], bounds.states[0])
        out = []
        for (up, slope, offset, rising), (low, high), point in reversed(
            list(zip(self._runs, self._inputs, self._points))
        ):
            u = np.where(rising, high, low)
            z = x @ system.C.T + u @ driven.E.T + driven.b
            out.append(point + share * (np.where(up, z, -z) - point))
            w = slope * z + offset
            x = x @ system.A.T + w @ system.B.T + u @ driven.F.T
        return out[::-1]
