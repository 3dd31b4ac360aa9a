"""Evaluation of a classifier step by step, over affine forms or numbers.

``Numbers`` is the arithmetic of one input; it keeps the arguments that the units met, in their order, which is where a
proof's parabolas touch (``stability.kernel.reachability.quadratic_relaxation``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.arithmetic.intervals import Interval, hull, tanh
from stability.kernel.reachability.affine_forms import Form, Term, Tube, UnboundedError
from stability.kernel.reachability.gate_units import Unit
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_equations import GATES

Array = np.ndarray
SYMBOLS = 6000
"""Symbols above which those of earlier steps are merged."""
PLAIN, NUMBER = Unit("tanh", gated=True), Unit("identity", gated=True)


@dataclass(frozen=True)
class Value:
    """Numbers ``(m,)`` in the place of a form."""

    c: Array

    def rows(self, keep: Any) -> Value:
        """Some of them."""
        return Value(self.c[keep])

    def __neg__(self) -> Value:
        return Value(-self.c)


@dataclass
class Numbers:
    """The run of one input; ``met`` holds the arguments ``(a, b)`` of each unit's terms, group by group."""

    met: list[list[tuple[Array, Array]]] = field(default_factory=list)
    merged = True
    symbols = 0

    def point(self, c: Array) -> Value:
        """Numbers."""
        return Value(c)

    def enter(self, low: Array, high: Array) -> Value:
        """The input of a step; both ends are the same."""
        return Value(low)

    def affine(self, parts: Any, *offsets: Array) -> Value:
        """As of a tube."""
        return Value(np.asarray(sum(offsets) + sum(M @ y.c for M, _, y in parts)))

    def add(self, left: Value, right: Value) -> Value:
        """The sum."""
        return Value(left.c + right.c)

    def units(self, *terms: Any, within: Any = None) -> Value:
        """The sum of units."""
        if len(terms) == 1 and terms[0].unit == Unit("identity"):
            return terms[0].b
        self.met.append([((t.a or t.b).c, t.b.c) for t in terms])
        return Value(np.asarray(sum(t.unit.value((t.a or t.b).c, t.b.c) for t in terms)))

    def merge(self, forms: Any) -> Any:
        """They."""
        return forms


class LureStep:
    """One step of a Lur'e network that is a map: its channels level by level, as its ``D`` orders them.

    Raises:
        UnsupportedError: a ``D`` with a cycle.
    """

    def __init__(self, network: DrivenSystem) -> None:
        self.network, self.balls = network, system_balls(network.system)
        self.levels = _levels(network.system.D)
        A, B, _, _ = self.balls
        eye = np.eye(network.states)
        bare = not (A.mid.any() or A.rad.any() or network.F.any() or B.rad.any())
        self.is_plain = bare and len(self.levels) == 1 and np.array_equal(B.mid, eye)

    def start(self, tube: Any, state: Array) -> tuple[Any, ...]:
        """The initial state."""
        return (tube.point(state),)

    def advance(self, tube: Any, state: tuple[Any, ...], u: Any) -> tuple[Any, ...]:
        """The next state."""
        (x,), net, (A, B, C, D) = state, self.network, self.balls
        unit, values = Unit(net.activation), []
        for k, rows in enumerate(self.levels):
            parts = [*_part(C[rows], x), *_part(Ball.exact(net.E[rows]), u)]
            for before, w in zip(self.levels[:k], values):
                parts += _part(Ball(D.mid[np.ix_(rows, before)], D.rad[np.ix_(rows, before)]), w)
            z = tube.affine(parts, net.b[rows])
            values.append(tube.units(Term(unit, None, z)))
        if self.is_plain:
            return (values[0],)
        parts = [*_part(A, x), *_part(Ball.exact(net.F), u)]
        for rows, w in zip(self.levels, values):
            parts += _part(Ball(B.mid[:, rows], B.rad[:, rows]), w)
        return (tube.affine(parts, np.zeros(net.states)),)


def _part(matrix: Ball, y: Any) -> list[tuple[Array, Array | None, Any]]:
    """A summand of an affine map; none where the matrix is zero."""
    if not (matrix.mid.any() or matrix.rad.any()):
        return []
    return [(matrix.mid, matrix.rad if matrix.rad.any() else None, y)]


def _levels(D: Array) -> list[Array]:
    """Channels in an order in which each reads only earlier ones."""
    left, out = np.ones(len(D), dtype=bool), []
    while left.any():
        free = np.flatnonzero(left & ~(D[:, left] != 0).any(axis=1))
        if not len(free):
            raise UnsupportedError(
                "a local certificate in l_inf needs a direct term D without a cycle: this network's channels read "
                "each other in a circle"
            )
        out.append(free)
        left[free] = False
    return out


class GatedStep:
    """One step of an LSTM or GRU cell."""

    def __init__(self, cell: GatedCell) -> None:
        self.cell = cell
        self.rows = {name: slice(k * cell.hidden, (k + 1) * cell.hidden) for k, name in enumerate(GATES[cell.kind])}

    def start(self, tube: Any, state: Array) -> tuple[Any, ...]:
        """The initial state: ``(h, c)`` or ``(h,)``."""
        return tuple(tube.point(part) for part in np.split(state, self.cell.states // self.cell.hidden))

    def advance(self, tube: Any, state: tuple[Any, ...], u: Any) -> tuple[Any, ...]:
        """The next state, the hidden units first."""
        cell, rows, h = self.cell, self.rows, state[0]
        if cell.kind == "lstm":
            z = tube.affine([(cell.w_ih, None, u), (cell.w_hh, None, h)], cell.b_ih, cell.b_hh)
            i, f, g, o = (z.rows(rows[name]) for name in GATES["lstm"])
            c = tube.units(Term(NUMBER, f, state[1]), Term(PLAIN, i, g))
            return tube.units(Term(PLAIN, o, c)), c
        both = slice(0, 2 * cell.hidden)
        gates = tube.affine([(cell.w_ih[both], None, u), (cell.w_hh[both], None, h)], cell.b_ih[both], cell.b_hh[both])
        r, z, (w, v, b, d) = gates.rows(rows["r"]), gates.rows(rows["z"]), cell.gate("n")
        if cell.reset_after:
            seen = tube.affine([(v, None, h)], d)
            n = tube.add(tube.affine([(w, None, u)], b), tube.units(Term(NUMBER, r, seen)))
        else:
            seen = tube.units(Term(NUMBER, r, h))
            n = tube.affine([(w, None, u), (v, None, seen)], b, d)
        between = None  # the next state lies between the candidate and the state
        if isinstance(tube, Tube):
            between = hull(tanh(Interval(n.low, n.high)), Interval(h.low, h.high))
        return (tube.units(Term(PLAIN, -z, n), Term(NUMBER, z, h), within=between),)


def steps_of(classifier: Classifier) -> list[LureStep | GatedStep]:
    """The steps of its layers, the lowest first.

    Raises:
        UnsupportedError: a layer whose channels read each other in a circle.
    """
    return [GatedStep(layer) if isinstance(layer, GatedCell) else LureStep(layer) for layer in classifier.layers]


def readings(classifier: Classifier, tube: Any, low: Array, high: Array) -> Any:
    """What the head reads of all inputs ``low <= x <= high``, both ``(T, p)``: the last output, or the *sum* of all."""
    steps = steps_of(classifier)
    states, total = [step.start(tube, state) for step, state in zip(steps, classifier.starts)], None
    for t in range(len(low)):
        y = tube.enter(low[t], high[t])
        for k, step in enumerate(steps):
            states[k] = step.advance(tube, states[k], y)
            y = states[k][0]
        total = y if total is None or classifier.reduction == "last" else tube.add(total, y)
        if tube.symbols > SYMBOLS:
            live = iter(tube.merge([form for state in states for form in state] + [total]))
            states = [tuple(_next(live, len(state))) for state in states]
            total = next(live)
    return total


def _next(forms: Iterator[Any], count: int) -> list[Any]:
    return [next(forms) for _ in range(count)]


def margins(classifier: Classifier, tube: Any, low: Array, high: Array, label: int) -> Any:
    """Logit of ``label`` less those of the other classes in their order, times ``T`` for a head on the mean.

    Args:
        classifier: the network.
        tube: a ``Tube``, or ``Numbers`` where ``low`` is ``high``.
        low: ``(T, p)``.
        high: ``(T, p)``, not below.
        label: the class.

    Returns:
        A form, or a value, ``(classes - 1,)``.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> network, x = Classifier(cell, [[1.0], [-1.0]]), np.ones((1, 1))
        >>> margins(network, Numbers(), x, x, 0).c.round(3)
        array([1.523])
        >>> bool(margins(network, Tube(), x - 0.1, x + 0.1, 0).low[0] < 2 * np.tanh(0.9))
        True
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is seen, and proves nothing
            return _margins(classifier, tube, low, high, label)
    except UnboundedError:
        tube.merged, count = True, classifier.classes - 1
        none = np.zeros(count)
        return Form(none, np.zeros((count, tube.symbols)), none + np.inf, none - np.inf, none + np.inf)


def _margins(classifier: Classifier, tube: Any, low: Array, high: Array, label: int) -> Any:
    read = readings(classifier, tube, low, high)
    others = np.delete(np.arange(classifier.classes), label)
    own, scale = np.tile(classifier.weight[label], (len(others), 1)), 1.0
    if classifier.reduction == "mean":
        scale = float(len(low))
    parts = [(own, None, read), (-classifier.weight[others], None, read)]
    return tube.affine(parts, np.full(len(others), scale * classifier.bias[label]), -scale * classifier.bias[others])
