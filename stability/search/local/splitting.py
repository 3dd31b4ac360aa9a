r"""Branch and bound on values inside the network, for margins that quadratic relaxation leaves open.

A cut divides the runs from a box by a value of the tube, such as the argument of a gate or the state of a cell. In one
half the value lies below a number, in the other above. In each half the planes and parabolas of the units that read the
value are tighter. The cut :math:`(y - low)(high - y) \ge 0` has its own Lagrange multiplier, beside those of the
symbols. Each leaf of the tree is proved by the rule ``local_planes``.

Values are selected by pseudo-costs. Trial cuts at the root measure the gain of a value, and later cuts update it. The
predicted gain falls with the square of the remaining width.

Source: T. Achterberg, T. Koch, A. Martin, Branching rules revisited, Operations Research Letters 33 (2005).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stability.kernel.reachability.affine_forms import AffineArithmetic, Form
from stability.kernel.reachability.classifier_run import margins
from stability.kernel.reachability.input_box import evaluate_at, inputs_of
from stability.kernel.reachability.quadratic_relaxation import Met, Quadratic, quadratic
from stability.search.local.branch_and_bound import About, Tree
from stability.search.local.quadratic_multipliers import Multipliers, best_multipliers

Array = np.ndarray
Cuts = dict[int, tuple[float, float]]
DEEPEST = 22
"""Most nested cuts: a file may be nested at most 64 deep."""
_ROUNDS, _FIRST, _TRIED = 60, 60, 8
"""Newton steps for the multipliers of a node, of the root, and of a trial cut."""
PRICE = 4.0
"""Penalty for a violation of a cut by half its width, relative to the missing margin."""
NODE_TRIALS = 2
"""Trial cuts per node."""
ROOT_TRIALS, ROOT_TRIAL_TIME = 32, 0.2
"""Trial cuts at the root, and their share of the time."""
_STEPS = 6
"""Sign-gradient steps towards the worst input of a node."""


def margin_gradient(tube: AffineArithmetic, margin: Form, row: int, met: Met) -> Array:
    """Return the gradient of a margin along one run, in the symbols of the inputs.

    Args:
        tube: the tube, with nothing merged.
        margin: the margins of all classes, as forms.
        row: index of the margin.
        met: arguments of the units along the run.

    Returns:
        ``(n,)``, for symbols in [-1, 1]; zero for symbols of smooth units.
    """
    slope = np.zeros(tube.symbols)
    slope[: margin.L.shape[1]] = margin.L[row]
    for group, arguments in zip(reversed(tube.groups), reversed(met)):
        if not all(term.unit.is_smooth for term in group.terms):
            continue
        theta = slope[group.first : group.last].copy()
        slope[group.first : group.last] = 0.0
        slope[: group.plane.shape[1]] -= theta @ group.plane
        for term, (a0, b0) in zip(group.terms, arguments):
            by_a, by_b = term.unit.gradient(a0, b0)
            for by, y in ((by_a, term.a), (by_b, term.b)):
                if y is not None:
                    slope[: y.L.shape[1]] += (theta * by) @ y.L
    return slope * tube.radius


def worst_input(
    question: About, tube: AffineArithmetic, margin: Form, row: int, point: Array, price: float = 0.0
) -> tuple[Array, float]:
    """Return an input of small margin, by steps along the signs of its gradient.

    Args:
        question: the network and the class.
        tube: the tube, with its cuts.
        margin: the margins of all classes, as forms.
        row: index of the margin.
        point: initial guess, in [-1, 1] for each entry that may change.
        price: weight of the quadratic penalty for a violated cut, in units of half its width.

    Returns:
        The point, and its margin; infinite if the point violates a cut.
    """
    inputs, best = inputs_of(tube), (np.inf, point, np.inf)
    cuts = [tube.met[number] for number in sorted(tube.met)]
    rows, middle, half = np.zeros((len(cuts), len(inputs))), np.zeros(len(cuts)), np.zeros(len(cuts))
    for k, y in enumerate(cuts):
        inside = inputs < y.L.shape[1]
        rows[k, inside] = y.L[0][inputs[inside]] * tube.radius[inputs[inside]]
        low, high = float(y.low[0]), float(y.high[0])
        middle[k], half[k] = float(y.c[0]) - 0.5 * (low + high), max(0.5 * (high - low), 1e-12)
    for k in range(_STEPS):
        met, values = evaluate_at(question.classifier, tube, point, question.label)
        value, slope = float(values[row]), margin_gradient(tube, margin, row, met)[inputs]
        y = (middle + rows @ point) / half
        excess = np.maximum(np.abs(y) - 1.0, 0.0)
        cost = value + price * float(excess @ excess)
        slope = slope + 2.0 * price * rows.T @ (np.sign(y) * excess / half)
        if cost < best[0]:
            best = (cost, point, value if not excess.any() else np.inf)
        point = np.clip(point - (1.0 if k < _STEPS // 2 else 0.4) * np.sign(slope), -1.0, 1.0)
    return best[1], best[2]


@dataclass
class _Ranges(AffineArithmetic):
    """Tube that keeps the intervals of all values by their numbers."""

    ranges: Cuts = field(default_factory=dict)

    def form(self, c: Array, L: Array, err: Array, low: Array | None = None, high: Array | None = None) -> Form:
        """Return a form of new values."""
        first, out = self.made, super().form(c, L, err, low, high)
        self.ranges.update(enumerate(zip(out.low.tolist(), out.high.tolist()), first))
        return out


@dataclass(frozen=True, eq=False)
class Node:
    """Bound of the margin over the runs that satisfy some cuts.

    Attributes:
        cuts: the cuts.
        bound: lower bound of the margin, in floating point.
        point: input at which the parabolas touch the activations.
        multipliers: Lagrange multipliers; ``None`` if affine forms alone prove the margin positive.
        proved: whether the bound is positive with rounding.
        numbers: numbers of the cut values, in the order of their multipliers.
    """

    cuts: Cuts
    bound: float
    point: Array
    multipliers: Multipliers | None
    proved: bool
    numbers: tuple[int, ...] = ()

    @property
    def leaf(self) -> Tree:
        """Return the part of the proof for these runs."""
        return {} if self.multipliers is None else {"point": self.point, "multipliers": self.multipliers.D}


@dataclass(eq=False)
class Splitting:
    """Branch and bound for one class and one box of inputs."""

    question: About
    low: Array
    high: Array
    row: int
    room: int
    """Remaining number of nodes."""
    order: list[int] = field(default_factory=list)
    gains: dict[int, tuple[float, float]] = field(default_factory=dict)
    ranges: dict[int, tuple[float, float]] = field(default_factory=dict)

    def node(self, cuts: Cuts, point: Array | None, parent: Node | None, rounds: int) -> Node:
        """Bound the runs that satisfy the cuts; ``point`` is the initial guess of the worst input."""
        self.room -= 1
        tube = _Ranges(cuts=cuts)
        margin = margins(self.question.classifier, tube, self.low, self.high, self.question.label)
        inputs = inputs_of(tube)
        if tube.empty or margin.low[self.row] > 0.0:
            return Node(cuts, float(margin.low[self.row]), np.zeros(len(inputs)), None, True)
        start_point = -np.sign(margin.L[self.row][inputs]) if point is None else point
        if not cuts:
            self.ranges = tube.ranges
        price = PRICE * (1.0 if parent is None else abs(parent.bound))
        point, value = worst_input(self.question, tube, margin, self.row, start_point, price)
        if not value > 0.0:
            return Node(cuts, -np.inf, point, None, False)
        start = None if parent is None or parent.multipliers is None else self._start(parent, cuts, tube)
        best, proved = None, False
        for at in (point,) if parent is None else (point, parent.point):
            met, _ = evaluate_at(self.question.classifier, tube, at, self.question.label)
            F = quadratic(tube, margin, self.row, met)
            multipliers = best_multipliers(F, rounds=rounds, deadline=self.question.deadline, start=start)
            proved = multipliers.bound > 0.0 and F.least(multipliers.D) > 0.0
            if proved or best is None or multipliers.bound > best[0].bound:  # the leaf stores the proved multipliers
                best = multipliers, at, F
            if proved or parent is None or multipliers.bound > parent.bound + 0.02 * abs(parent.bound):
                break
        assert best is not None
        multipliers, point, F = best
        if not cuts and not proved:
            self._rank(tube, F)
        return Node(cuts, multipliers.bound, point, multipliers, proved, tuple(sorted(tube.met)))

    def _start(self, parent: Node, cuts: Cuts, tube: AffineArithmetic) -> Array:
        """Return the parent's multipliers, in the order of a child's."""
        assert parent.multipliers is not None
        n = tube.symbols
        old = dict(zip(parent.numbers, parent.multipliers.D[n:]))
        mean, values = float(parent.multipliers.D[:n].mean()), []
        for number in sorted(tube.met):
            low, high = self._endpoints(cuts, number)
            default = 0.01 * mean / max(0.5 * (high - low), 1e-9) ** 2
            values.append(old.get(number, default))
        return np.concatenate([parent.multipliers.D[:n], values])

    def _rank(self, tube: AffineArithmetic, F: Quadratic) -> None:
        """Order the values by curvature times squared reach, the largest first."""
        reach = np.abs(F.rows).sum(axis=1)
        curved = np.abs(F.form(np.eye(len(reach)))) @ reach * reach
        worth: dict[int, float] = {}
        at = 0
        for group in reversed(tube.groups):
            if not all(term.unit.is_smooth for term in group.terms):
                continue
            for term in group.terms:
                for y in (term.b,) if term.a is None else (term.b, term.a):
                    for k, number in enumerate(y.numbers if y.numbers is not None else ()):
                        worth[int(number)] = worth.get(int(number), 0.0) + float(curved[at + k])
                    at += len(y.c)
        wide = {number for number, (low, high) in self.ranges.items() if high > low}
        self.order = [n for n in sorted(worth, key=lambda n: -worth[n]) if n in wide and worth[n] > 0.0]

    def halves(self, node: Node, number: int, rounds: int) -> tuple[float, list[Node]]:
        """Return the two halves of a node."""
        low, high = self._endpoints(node.cuts, number)
        at = 0.5 * (low + high)
        low, high = node.cuts.get(number, (-np.inf, np.inf))  # the rule stores cuts alone, without the known range
        parts = [{**node.cuts, number: bounds} for bounds in ((low, at), (at, high))]
        return at, [self.node(part, node.point, node, rounds) for part in parts]

    def gain(self, node: Node, halves: list[Node], number: int) -> tuple[float, float]:
        """Return the gains of both halves, the smaller first, per squared remaining share of the first width."""
        remaining = self._remaining_share(node, number)
        low, high = sorted(min(max(half.bound - node.bound, 1e-3), -2.0 * node.bound) / remaining for half in halves)
        return low, high

    def _endpoints(self, cuts: Cuts, number: int) -> tuple[float, float]:
        """Return the interval of a value within its uncut range."""
        low, high = cuts.get(number, self.ranges[number])
        return max(low, self.ranges[number][0]), min(high, self.ranges[number][1])

    def _remaining_share(self, node: Node, number: int) -> float:
        """Return the squared ratio of a value's width in a node to its uncut width."""
        low, high = self._endpoints(node.cuts, number)
        first = self.ranges[number]
        return ((high - low) / (first[1] - first[0])) ** 2

    def promise(self, node: Node, number: int) -> float:
        """Return the product of both halves' predicted gains, each at most the missing margin."""
        remaining = self._remaining_share(node, number)
        low, high = (min(gain * remaining, -node.bound) for gain in self.gains[number])
        return low * high

    def tree(self) -> Tree | None:
        """Return a tree that proves the margin of all runs from the box, or ``None``."""
        root = self.node({}, None, None, _FIRST)
        if root.proved or not np.isfinite(root.bound):
            return root.leaf if root.proved else None
        deadline = self.question.deadline
        seconds = deadline.left()
        for number in self.order[:ROOT_TRIALS]:
            if deadline.over or (self.gains and deadline.left() < (1.0 - ROOT_TRIAL_TIME) * seconds):
                break
            self.gains[number] = self.gain(root, self.halves(root, number, _TRIED)[1], number)
        return self._tree(root, 0) if self.gains else None

    def _tree(self, node: Node, depth: int) -> Tree | None:
        if node.proved:
            return node.leaf
        if self.question.deadline.over or self.room <= 0 or depth >= DEEPEST or not np.isfinite(node.bound):
            return None
        tried: list[tuple[float, int, float, list[Node]]] = []
        for number in sorted(self.gains, key=lambda n: -self.promise(node, n))[:NODE_TRIALS]:
            at, halves = self.halves(node, number, _ROUNDS)
            measured, previous = self.gain(node, halves, number), self.gains[number]
            if not all(half.proved for half in halves):
                self.gains[number] = 0.7 * previous[0] + 0.3 * measured[0], 0.7 * previous[1] + 0.3 * measured[1]
            worth = [min(max(half.bound - node.bound, 1e-3), -node.bound) for half in halves]
            tried.append((worth[0] * worth[1], number, at, halves))
            if all(half.proved for half in halves):
                break
        _, number, at, halves = max(tried, key=lambda t: t[0])
        parts: dict[int, Tree] = {}
        for k in sorted((0, 1), key=lambda k: halves[k].bound):  # the harder half first: its failure ends the search
            part = self._tree(halves[k], depth + 1)
            if part is None:
                return None
            parts[k] = part
        return {"value": number, "at": at, "parts": [parts[0], parts[1]]}
