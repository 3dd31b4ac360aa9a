r"""Affine arithmetic: every value of a network as an affine form of shared error symbols.

Every value of a run is :math:`y = c + L v + \eta`, ``|v_k| <= b_k``, ``|eta| <= err``: symbols ``v`` are the
perturbations of the inputs and one for each unit, what is left of it when its plane (``units.chords``) is taken away.
Linear maps keep the forms, errors of rounding go to ``eta``; a unit's own symbol takes in everything else, so that
after it ``eta = 0``. Beside each form stands an interval, which may be smaller than the form's range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.reachability.gate_units import Box, Corners, Parabola, Unit, chords, image, least

Array = np.ndarray
UP = 1.0 + 64.0 * EPS


def gamma(count: int) -> float:
    """Error of a sum of ``count`` products relative to that of their sizes, with room for what is done around it."""
    return 2.0 * (count + 16) * EPS


class UnboundedError(Exception):
    """A tube has left all bounds; who builds one says that nothing is proved of it."""


@dataclass(frozen=True)
class Form:
    """Values ``c + L v + eta`` with ``|eta| <= err``, known to lie in ``[low, high]``.

    Attributes:
        c: ``(m,)``.
        L: ``(m, n)`` for the symbols that there were when it was made.
        err: ``(m,)``.
        low: ``(m,)``.
        high: ``(m,)``.
    """

    c: Array
    L: Array
    err: Array
    low: Array
    high: Array

    @property
    def size(self) -> Array:
        """The largest absolute value, ``(m,)``."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def rows(self, keep: Array) -> Form:
        """Some of the values."""
        return Form(self.c[keep], self.L[keep], self.err[keep], self.low[keep], self.high[keep])

    def __neg__(self) -> Form:
        return Form(-self.c, -self.L, self.err, -self.high, -self.low)


@dataclass(frozen=True)
class Term:
    """One unit's function of its arguments; ``a`` is ``None`` without a gate."""

    unit: Unit
    a: Form | None
    b: Form
    corners: Corners | None = None

    @property
    def box(self) -> Box:
        """The intervals of the arguments."""
        a = self.a or self.b
        return Box(a.low, a.high, self.b.low, self.b.high, self.corners)


@dataclass(frozen=True)
class Group:
    """Units with their symbols: ``sum of terms = c + plane v + e`` exactly, ``e`` the symbols ``first`` to ``last``."""

    terms: tuple[Term, ...]
    c: Array
    plane: Array
    first: int
    last: int


@dataclass
class Tube:
    """Symbols, their radii, and the units in the order in which they were met."""

    radius: Array = field(default_factory=lambda: np.zeros(0))
    groups: list[Group] = field(default_factory=list)
    inputs: list[tuple[Array, Array, int]] = field(default_factory=list)
    """Of each step: the centre, which features move, and their first symbol."""
    merged: bool = False

    @property
    def symbols(self) -> int:
        """Number of symbols ``n``."""
        return len(self.radius)

    def form(self, c: Array, L: Array, err: Array, low: Array | None = None, high: Array | None = None) -> Form:
        """A form with the range that follows from it, cut with another one."""
        reach = self.reach(L) + err
        slack = 4 * EPS * (np.abs(c) + reach) + TINY
        lower, upper = c - reach - slack, c + reach + slack
        if low is not None and high is not None:
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
        if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            raise UnboundedError
        return Form(c, L, err, lower, np.maximum(upper, lower))

    def reach(self, L: Array) -> Array:
        """Upper bound of ``|L v|``, ``(m,)``."""
        radius = self.radius[: L.shape[1]]
        return np.abs(L) @ radius * (1.0 + gamma(len(radius))) + TINY

    def point(self, c: Array) -> Form:
        """Numbers."""
        return Form(c, np.zeros((len(c), 0)), np.zeros(len(c)), c, c)

    def enter(self, low: Array, high: Array) -> Form:
        """The input of a step, ``(p,)``: one symbol for each feature that moves."""
        c = 0.5 * low + 0.5 * high
        radius = np.nextafter(np.maximum(high - c, c - low), np.inf) * (high > low)
        moves = np.flatnonzero(radius > 0)
        self.inputs.append((c, moves, self.symbols))
        L = np.zeros((len(c), self.symbols + len(moves)))
        L[moves, self.symbols + np.arange(len(moves))] = 1.0
        self.radius = np.concatenate([self.radius, radius[moves]])
        return Form(c, L, np.zeros(len(c)), low, high)

    def affine(self, parts: Sequence[tuple[Array, Array | None, Form]], *offsets: Array) -> Form:
        """The sum of the offsets and of ``M y`` over parts ``(M, radius of M or None, y)``."""
        width = max((y.L.shape[1] for *_, y in parts), default=0)
        c, size = sum(offsets), sum(np.abs(offset) for offset in offsets)
        L, err, count = np.zeros((len(offsets[0]), width)), np.zeros(len(offsets[0])), 4 + len(offsets)
        for M, rad, y in parts:
            c = c + M @ y.c
            L[:, : y.L.shape[1]] += M @ y.L
            magnitude = np.abs(M)
            spread = np.abs(y.c) + self.reach(y.L)
            size, count = size + magnitude @ spread, count + M.shape[1]
            err = err + magnitude @ y.err
            if rad is not None:
                err = err + rad @ (y.size + spread)
        return self.form(np.asarray(c), L, (err * (1 + gamma(count)) + gamma(count) * size) * UP + count * TINY)

    def add(self, left: Form, right: Form) -> Form:
        """The sum, with the sum of the intervals beside it."""
        wide, narrow = (left, right) if left.L.shape[1] >= right.L.shape[1] else (right, left)
        L = wide.L.copy()
        L[:, : narrow.L.shape[1]] += narrow.L
        err = (
            left.err
            + right.err
            + 8 * EPS * (np.abs(left.c) + np.abs(right.c) + self.reach(left.L) + self.reach(right.L))
        )
        low, high = np.nextafter(left.low + right.low, -np.inf), np.nextafter(left.high + right.high, np.inf)
        return self.form(left.c + right.c, L, err * UP + TINY, low, high)

    def _corners(self, term: Term) -> Term:
        """The term with what its arguments' forms know of their sum and difference."""
        a, b, width = term.a, term.b, len(self.radius)
        if a is None:
            return term
        middle, far, rows, loose = [], [], [], []
        for y in (a, b):
            wide = np.maximum(0.5 * y.high - 0.5 * y.low, 1e-290)
            middle.append((y.c - (0.5 * y.low + 0.5 * y.high)) / wide)
            rows.append(np.zeros((len(y.c), width)))
            rows[-1][:, : y.L.shape[1]] = y.L / wide[:, None]
            loose.append((y.err + gamma(8) * (np.abs(y.c) + np.abs(y.low) + np.abs(y.high)) + TINY) / wide)
            far.append(self.reach(rows[-1]))
        slack = (loose[0] + loose[1] + gamma(width) * (far[0] + far[1])) * UP
        ends = []
        for sign in (1.0, -1.0):
            centre, reach = middle[0] + sign * middle[1], self.reach(rows[0] + sign * rows[1]) + slack
            ends.append((centre - reach, centre + reach))
        return replace(term, corners=Corners(*ends[0], *ends[1]))

    def units(self, *terms: Term, within: Interval | None = None) -> Form:
        """The sum of units, known to lie ``within``: its planes, and a new symbol for what they leave."""
        terms = tuple(self._corners(term) for term in terms)
        m, n = len(terms[0].b.c), self.symbols
        if all(term.unit == Unit("identity") for term in terms) and len(terms) == 1:
            return terms[0].b
        c, L = np.zeros(m), np.zeros((m, n + m))
        ends, rests, loose, size = [np.zeros(m), np.zeros(m)], [np.zeros(m), np.zeros(m)], np.zeros(m), np.zeros(m)
        one = np.ones(m)
        for term in terms:
            alpha, beta = chords(term.unit, term.box)
            whole = image(term.unit, term.box)
            box, across = term.box, np.zeros(m)  # how far the plane reaches: what is sure of very large boxes
            for slope, low, high in ((alpha, box.a_low, box.a_high), (beta, box.b_low, box.b_high)):
                across = across + np.abs(slope) * np.maximum(np.abs(low), np.abs(high)) * (slope != 0) * UP
            for k, sign in enumerate((one, -one)):
                plane = Parabola.plane(sign * alpha, sign * beta)
                sure = -whole.high if k else whole.low
                rests[k] = rests[k] + np.maximum(least(term.unit, sign, plane, box), sure - across * UP)
                ends[k] = ends[k] + sure  # the arguments' intervals know nothing of each other: nothing is lost
            for slope, y in ((alpha, term.a), (beta, term.b)):
                if y is None:
                    continue
                c = c + slope * y.c
                L[:, : y.L.shape[1]] += slope[:, None] * y.L
                loose = loose + np.abs(slope) * y.err
                size = size + np.abs(slope) * (np.abs(y.c) + self.reach(y.L))
        low, high = rests[0], -rests[1]  # of the units less their planes
        middle = 0.5 * low + 0.5 * high
        radius = np.maximum(high - middle, middle - low) + loose + gamma(16 * len(terms)) * (size + np.abs(middle))
        c = c + middle
        group = Group(terms, c, L[:, :n].copy(), n, n + m)
        L[np.arange(m), n + np.arange(m)] = 1.0
        self.radius = np.concatenate([self.radius, radius * UP + TINY])
        self.groups.append(group)
        slack = 4 * EPS * len(terms) * (np.abs(ends[0]) + np.abs(ends[1]))
        lowest, highest = ends[0] - slack, -ends[1] + slack
        if within is not None:
            lowest, highest = np.maximum(lowest, within.low), np.minimum(highest, within.high)
        return self.form(c, L, np.zeros(m), lowest, highest)

    def merge(self, forms: Sequence[Form]) -> list[Form]:
        """The same values with one symbol each for all that units left so far; what came before is forgotten.

        Args:
            forms: all values that are still in use.

        Returns:
            They, in the inputs' symbols and their own new ones.
        """
        kept = np.concatenate([first + np.arange(len(moves)) for _, moves, first in self.inputs])
        gone = np.ones(self.symbols, dtype=bool)
        gone[kept] = False
        total = sum(len(y.c) for y in forms)
        radii, out, at = [], [], len(kept)
        for y in forms:
            here, m = np.arange(y.L.shape[1]), len(y.c)
            radii.append(self.reach(y.L * gone[here]))
            L = np.zeros((m, len(kept) + total))
            own = kept < len(here)
            L[:, np.flatnonzero(own)] = y.L[:, kept[own]]
            L[np.arange(m), at + np.arange(m)] = 1.0
            out.append(Form(y.c, L, y.err, y.low, y.high))
            at += m
        firsts = np.cumsum([0] + [len(moves) for _, moves, _ in self.inputs])
        self.inputs = [(c, moves, int(first)) for (c, moves, _), first in zip(self.inputs, firsts)]
        self.radius, self.groups, self.merged = np.concatenate([self.radius[kept], *radii]), [], True
        return out
