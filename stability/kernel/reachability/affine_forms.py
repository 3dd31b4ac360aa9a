r"""Affine arithmetic: every value of a network as an affine form of shared error symbols.

Every value of a run is :math:`y = c + L v + \eta`, ``|v_k| <= b_k``, ``|eta| <= err``: symbols ``v`` are the
perturbations of the inputs and one for each unit, what is left of it when its plane (``units.chords``) is taken away.
Linear maps keep the forms, errors of rounding go to ``eta``; a unit's own symbol takes in everything else, so that
after it ``eta = 0``. Beside each form stands an interval, which may be smaller than the form's range.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.arithmetic.intervals import Interval, affine
from stability.kernel.reachability.gate_units import Box, Corners, Parabola, Unit, chords, lower_bound, value_range

Array = np.ndarray
UP = 1.0 + 64.0 * EPS


def error_of_sum(count: int) -> float:
    """Return the relative error of a sum of ``count`` products and the operations around it, rounded up."""
    return gamma(count + 16)


class UnboundedError(Exception):
    """A tube diverged; the caller reports that nothing is proved."""


@dataclass(frozen=True)
class Form:
    """Affine form ``c + L v + eta`` with ``|eta| <= err`` and known range ``[low, high]``.

    Attributes:
        c: ``(m,)``.
        L: ``(m, n)`` for the symbols that there were when it was made.
        err: ``(m,)``.
        low: ``(m,)``.
        high: ``(m,)``.
        numbers: ``(m,)``, the values' places among all that the tube made; -1 or ``None`` for others.
    """

    c: Array
    L: Array
    err: Array
    low: Array
    high: Array
    numbers: Array | None = None

    @property
    def size(self) -> Array:
        """Return the largest absolute value, ``(m,)``."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def rows(self, keep: Array) -> Form:
        """Return the selected values."""
        numbers = None if self.numbers is None else self.numbers[keep]
        return Form(self.c[keep], self.L[keep], self.err[keep], self.low[keep], self.high[keep], numbers)

    def __neg__(self) -> Form:
        return Form(-self.c, -self.L, self.err, -self.high, -self.low, self.numbers)


@dataclass(frozen=True)
class Term:
    """Function of one unit's arguments; ``a`` is ``None`` without a gate."""

    unit: Unit
    a: Form | None
    b: Form
    corners: Corners | None = None

    @property
    def box(self) -> Box:
        """Return the intervals of the arguments."""
        a = self.a or self.b
        return Box(a.low, a.high, self.b.low, self.b.high, self.corners)


@dataclass(frozen=True)
class Group:
    """Units with their symbols: ``sum of terms = c + plane v + e``, with ``e`` the symbols ``first`` to ``last``."""

    terms: tuple[Term, ...]
    c: Array
    plane: Array
    first: int
    last: int


@dataclass
class AffineArithmetic:
    """Error symbols, their radii, and the units in order of appearance."""

    radius: Array = field(default_factory=lambda: np.zeros(0))
    groups: list[Group] = field(default_factory=list)
    inputs: list[tuple[Array, Array, int]] = field(default_factory=list)
    """Inputs of each step: the center, the mask of moving features, and their first symbol."""
    merged: bool = False
    cuts: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    """Known bounds of values, by the values' numbers."""
    made: int = 0
    """Number of values so far."""
    met: dict[int, Form] = field(default_factory=dict)
    """Values with cuts, each a form of one row."""
    empty: bool = False
    """True if no run satisfies the cuts."""

    @property
    def symbols(self) -> int:
        """Number of symbols ``n``."""
        return len(self.radius)

    def form(self, c: Array, L: Array, err: Array, low: Array | None = None, high: Array | None = None) -> Form:
        """Return a form of new values, with its range intersected with the given one and ``cuts``."""
        reach = self.reach(L) + err
        slack = 4 * EPS * (np.abs(c) + reach) + TINY
        lower, upper = c - reach - slack, c + reach + slack
        if low is not None and high is not None:
            lower, upper = np.maximum(lower, low), np.minimum(upper, high)
        if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
            raise UnboundedError
        active_cuts = [(k, k - self.made) for k in self.cuts if 0 <= k - self.made < len(c)]
        for number, row in active_cuts:
            bottom, top = self.cuts[number]
            self.empty = self.empty or bool(lower[row] > top or upper[row] < bottom)
            lower[row], upper[row] = max(lower[row], bottom), min(upper[row], top)
        out = Form(c, L, err, lower, np.maximum(upper, lower), self.made + np.arange(len(c)))
        self.made += len(c)
        self.met.update({number: out.rows(np.array([row])) for number, row in active_cuts})
        return out

    def reach(self, L: Array) -> Array:
        """Bound ``|L v|``, ``(m,)``, above."""
        radius = self.radius[: L.shape[1]]
        return np.abs(L) @ radius * (1.0 + error_of_sum(len(radius))) + TINY

    def point(self, c: Array) -> Form:
        """Return constants as a form."""
        return Form(c, np.zeros((len(c), 0)), np.zeros(len(c)), c, c)

    def enter(self, low: Array, high: Array) -> Form:
        """Return the input of a step, ``(p,)``, with one symbol for each moving feature."""
        c = 0.5 * low + 0.5 * high
        radius = np.nextafter(np.maximum(high - c, c - low), np.inf) * (high > low)
        moves = np.flatnonzero(radius > 0)
        self.inputs.append((c, moves, self.symbols))
        L = np.zeros((len(c), self.symbols + len(moves)))
        L[moves, self.symbols + np.arange(len(moves))] = 1.0
        self.radius = np.concatenate([self.radius, radius[moves]])
        return Form(c, L, np.zeros(len(c)), low, high)

    def affine(self, M: Array, radius: Array | None, y: Form, *offsets: Array) -> Form:
        """Return the form of ``M y`` plus the offsets, for all matrices within ``radius`` of ``M``.

        A row that only copies an entry of ``y`` keeps its form. Other rows have the range of their form, cut with what
        interval arithmetic says of the intervals of ``y``.
        """
        copies = ((M != 0.0).sum(axis=1) == 1) & (M.max(axis=1, initial=0.0) == 1.0)
        for other in (*offsets, *([] if radius is None else [radius.sum(axis=1)])):
            copies &= other == 0.0
        new, entries = np.flatnonzero(~copies), M[copies].argmax(axis=1)
        if not len(new):
            return y.rows(entries)
        out = self._affine(M[new], None if radius is None else radius[new], y, *(offset[new] for offset in offsets))
        if not len(entries):
            return out
        order = np.argsort(np.concatenate([new, np.flatnonzero(copies)]))
        return self.join(out, y.rows(entries)).rows(order)

    def _affine(self, M: Array, radius: Array | None, y: Form, *offsets: Array) -> Form:
        used = np.asarray(M.any(axis=0) if radius is None else M.any(axis=0) | radius.any(axis=0))
        M, y, size, sizes = M[:, used], y.rows(used), np.abs(M[:, used]), sum(np.abs(offset) for offset in offsets)
        spread, error = np.abs(y.c) + self.reach(y.L), error_of_sum(M.shape[1] + 4 + len(offsets))
        err, inside = size @ y.err, affine(M, Interval(y.low, y.high))
        for offset in offsets:
            inside = inside + Interval.point(offset)
        if radius is not None:
            err = err + radius[:, used] @ (y.size + spread)
            inside = inside + affine(radius[:, used], Interval(-y.size, y.size))
        err = (err * (1 + error) + error * (sizes + size @ spread)) * UP + M.shape[1] * TINY
        return self.form(M @ y.c + sum(offsets), M @ y.L, err, inside.low, inside.high)

    @staticmethod
    def join(*forms: Form) -> Form:
        """Join the values of several forms in one vector."""
        width = max(y.L.shape[1] for y in forms)
        L = np.concatenate([np.pad(y.L, ((0, 0), (0, width - y.L.shape[1]))) for y in forms])
        c, err, low, high = (np.concatenate([getattr(y, k) for y in forms]) for k in ("c", "err", "low", "high"))
        numbers = [np.full(len(y.c), -1) if y.numbers is None else y.numbers for y in forms]
        return Form(c, L, err, low, high, np.concatenate(numbers))

    def _corners(self, term: Term) -> Term:
        """Return the term with the known bounds of its arguments' sum and difference."""
        a, b, width = term.a, term.b, len(self.radius)
        if a is None:
            return term
        middle, radii, rows, slacks = [], [], [], []
        for y in (a, b):
            wide = np.maximum(0.5 * y.high - 0.5 * y.low, 1e-290)
            middle.append((y.c - (0.5 * y.low + 0.5 * y.high)) / wide)
            rows.append(np.zeros((len(y.c), width)))
            rows[-1][:, : y.L.shape[1]] = y.L / wide[:, None]
            slacks.append((y.err + error_of_sum(8) * (np.abs(y.c) + np.abs(y.low) + np.abs(y.high)) + TINY) / wide)
            radii.append(self.reach(rows[-1]))
        slack = (slacks[0] + slacks[1] + error_of_sum(width) * (radii[0] + radii[1])) * UP
        endpoints = []
        for sign in (1.0, -1.0):
            centre, reach = middle[0] + sign * middle[1], self.reach(rows[0] + sign * rows[1]) + slack
            endpoints.append((centre - reach, centre + reach))
        return replace(term, corners=Corners(*endpoints[0], *endpoints[1]))

    def units(self, *terms: Term, within: Interval | None = None) -> Form:
        """Return the sum of units with range ``within``: their planes, and a new symbol for the remainder."""
        terms = tuple(self._corners(term) for term in terms)
        m, n = len(terms[0].b.c), self.symbols
        if all(term.unit == Unit("identity") for term in terms) and len(terms) == 1:
            return terms[0].b
        c, L = np.zeros(m), np.zeros((m, n + m))
        endpoints, rests = [np.zeros(m), np.zeros(m)], [np.zeros(m), np.zeros(m)]
        slacks, size = np.zeros(m), np.zeros(m)
        one = np.ones(m)
        for term in terms:
            alpha, beta = chords(term.unit, term.box)
            whole = value_range(term.unit, term.box)
            box, across = term.box, np.zeros(m)  # how far the plane reaches: what is sure of very large boxes
            for slope, low, high in ((alpha, box.a_low, box.a_high), (beta, box.b_low, box.b_high)):
                across = across + np.abs(slope) * np.maximum(np.abs(low), np.abs(high)) * (slope != 0) * UP
            for k, sign in enumerate((one, -one)):
                plane = Parabola.plane(sign * alpha, sign * beta)
                sure = -whole.high if k else whole.low
                rests[k] = rests[k] + np.maximum(lower_bound(term.unit, sign, plane, box), sure - across * UP)
                endpoints[k] = endpoints[k] + sure  # no correlation between the arguments' intervals: nothing is lost
            for slope, y in ((alpha, term.a), (beta, term.b)):
                if y is None:
                    continue
                c = c + slope * y.c
                L[:, : y.L.shape[1]] += slope[:, None] * y.L
                slacks = slacks + np.abs(slope) * y.err
                size = size + np.abs(slope) * (np.abs(y.c) + self.reach(y.L))
        low, high = rests[0], -rests[1]  # of the units less their planes
        middle = 0.5 * low + 0.5 * high
        radius = (
            np.maximum(high - middle, middle - low) + slacks + error_of_sum(16 * len(terms)) * (size + np.abs(middle))
        )
        c = c + middle
        group = Group(terms, c, L[:, :n].copy(), n, n + m)
        L[np.arange(m), n + np.arange(m)] = 1.0
        self.radius = np.concatenate([self.radius, radius * UP + TINY])
        self.groups.append(group)
        slack = 4 * EPS * len(terms) * (np.abs(endpoints[0]) + np.abs(endpoints[1]))
        lowest, highest = endpoints[0] - slack, -endpoints[1] + slack
        if within is not None:
            lowest, highest = np.maximum(lowest, within.low), np.minimum(highest, within.high)
        return self.form(c, L, np.zeros(m), lowest, highest)

    def merge(self, y: Form) -> Form:
        """Return ``y``, all values in use, in the symbols of the inputs and one new symbol per value for all others."""
        input_symbols = np.concatenate([first + np.arange(len(moves)) for _, moves, first in self.inputs])
        removed, m = np.ones(self.symbols, dtype=bool), len(y.c)
        removed[input_symbols] = False
        own_inputs = input_symbols[input_symbols < y.L.shape[1]]
        L = np.zeros((m, len(input_symbols) + m))
        L[:, : len(own_inputs)] = y.L[:, own_inputs]
        L[np.arange(m), len(input_symbols) + np.arange(m)] = 1.0
        radius = self.reach(y.L * removed[: y.L.shape[1]])
        firsts = np.cumsum([0] + [len(moves) for _, moves, _ in self.inputs])
        self.inputs = [(c, moves, int(first)) for (c, moves, _), first in zip(self.inputs, firsts)]
        self.radius, self.groups, self.merged = np.concatenate([self.radius[input_symbols], radius]), [], True
        self.met = {}
        return Form(y.c, L, y.err, y.low, y.high)
