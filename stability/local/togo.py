"""What leads an LSTM or GRU of one unit to another class costs at least, step by step from the last: what is checked.

Planes on cells of the states, see ``stability.local.cells``, are lower bounds of the cost to go where in every cell of
every step, whatever the move, what the move costs and the bound of the next step are together at least the plane
(``stability.local.moves``). Each cell is looked at on its own, so a check costs as much as there are cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stability.gated.cell import GatedCell
from stability.local.after import After, Ending, Margins, Tolled
from stability.local.cells import Cells
from stability.local.classifier import Classifier
from stability.local.expansions import Boxes
from stability.local.least import kept_states
from stability.local.leaves import input_box
from stability.local.moves import Moves, least
from stability.local.unit import GatedUnit
from stability.rigor.constants import EPS, TINY
from stability.rigor.intervals import Interval, affine

Array = np.ndarray
PIECES, TURNS, MOST, BATCH, TURN = 4, 50, 200_000, 2000, 400
"""Parts of a box of moves that is cut; how often; boxes for one cell; cells at once; boxes that a turn counts for."""


@dataclass(frozen=True, eq=False)
class Progress:
    """What came of a check.

    Attributes:
        holds: whether all cells passed.
        boxes: that were looked at.
    """

    holds: bool
    boxes: int


def unfit(subject: Classifier) -> str | None:
    """Why a network is none of those that the theorem is about, or ``None``."""
    net = subject.recurrent
    if not isinstance(net, GatedCell) or net.hidden > 1:
        return "a proof by cells of states is about cells of gates of one unit"
    return None


def gated_moves(
    classifier: Classifier,
    x: Array,
    radius: float,
    norm: str = "l2",
    mask: Array | None = None,
    bounds: Sequence[float] | None = None,
    each: bool = False,
) -> list[Moves]:
    """The steps of a sequence, in l2 their moves as long as the perturbations at most.

    Args:
        classifier: the network.
        x: ``(T, p)``.
        radius: > 0.
        norm: ``l2`` or ``linf``.
        mask: ``(T, p)``, zero where an entry may not change.
        bounds: two numbers between which perturbed inputs stay.
        each: whether, in l2, the radius is that of every step.

    Example:
        >>> net = Classifier(GatedCell("gru", np.ones((3, 5)), np.ones((3, 1))), [[1.0], [-1.0]])
        >>> (step,) = gated_moves(net, np.zeros((1, 5)), 1.0)
        >>> len(step.low), round(float(abs(step.unit.E.low[0, 0])), 6)
        (1, 2.236068)
    """
    net, out, longest = classifier.recurrent, list[Moves](), radius if each else None
    low, high = input_box(x, radius, mask, bounds)
    for t, u in enumerate(x):
        free = np.flatnonzero(high[t] > low[t])
        moved = Interval(low[t, free], high[t, free]) - Interval.point(u[free])
        E, e = Interval.point(net.w_ih[:, free]), affine(net.w_ih, Interval.point(u), Interval.point(net.b_ih))
        shorter = _fewer(net.w_ih[:, free], radius) if norm == "l2" else None
        if shorter is not None:
            E, lost = shorter
            e, ends = e + Interval(-lost, lost), np.full(E.low.shape[1], np.nextafter(radius, np.inf))
            moved = Interval(-ends, ends)
        out.append(Moves(GatedUnit(net, E, e), moved.low, moved.high, longest if norm == "l2" else np.inf))
    return out


def _fewer(rows: Array, radius: float) -> tuple[Interval, Array] | None:
    """Fewer coordinates, no longer than the perturbation, and what is lost of ``rows @ d``; ``None``: all count."""
    if not rows.size:
        return None
    _, sizes, turn = np.linalg.svd(rows, full_matrices=False)
    Q = turn[sizes > 1e-12 * max(float(sizes[0]), 1e-300)].T
    if Q.shape[1] == rows.shape[1]:
        return None
    slack = (rows.shape[1] + 8) * EPS
    stretch = float(np.abs(Q.T @ Q - np.eye(Q.shape[1])).sum()) + 4 * slack * (Q.shape[1] + 1) ** 2
    short = rows @ Q
    near = slack * (np.abs(rows) @ np.abs(Q))
    left = np.abs(rows - short @ Q.T) + (near + 4 * slack * np.abs(short)) @ np.abs(Q.T) + 4 * EPS * np.abs(rows)
    size, wide = (1.0 + stretch) * short, (1.0 + stretch) * near + (stretch + 4 * EPS) * EPS * np.abs(short) + 1e-300
    wide = wide + 4 * EPS * np.abs(size)
    return Interval(size - wide, size + wide), left.sum(axis=1) * radius * (1.0 + 1e-9) + 1e-300


def ending(classifier: Classifier, label: int, last: Interval) -> Ending | None:
    """What follows the last step, where the head reads numbers in ``last (1,)``; ``None``: none has the class."""
    low, high = float(last.low[0]), float(last.high[0])
    kept = kept_states(classifier, label, low, high)
    if kept is None:
        return None
    return Ending(kept[0] if kept[0] > low else -np.inf, kept[1] if kept[1] < high else np.inf)


def sides(classifier: Classifier, label: int) -> Ending | None:
    """Bounds of the means of outputs that surely have the class; ``None`` where no mean has.

    Example:
        >>> cell = GatedCell("gru", np.ones((3, 1)), np.ones((3, 1)))
        >>> end = sides(Classifier(cell, [[1.0], [-1.0]], [0.5, 0.0], "mean"), 0)
        >>> round(end.low, 6), end.high
        (-0.25, inf)
    """
    most = max(1.0, float(np.abs(classifier.start[0]))) * (1.0 + 16 * EPS)  # of outputs, whatever the inputs are
    return ending(classifier, label, Interval(np.array([-most]), np.array([most])))


def margins(classifier: Classifier, label: int) -> Margins:
    """What follows the last step where moves cost nothing."""
    others = [k for k in range(classifier.classes) if k != label]
    w, b = classifier.weight[:, 0], classifier.bias
    size = np.abs(w[others]) + abs(w[label]) + np.abs(b[others]) + abs(b[label])
    return Margins(w[label] - w[others], b[label] - b[others], 8 * EPS * size + TINY)


def image(step: Moves, low: Array, high: Array) -> tuple[Array, Array]:
    """A box of all states ``(d,)`` after a step."""
    states = [Interval(low[k : k + 1], high[k : k + 1]) for k in range(len(low))]
    found = step.unit.values(states, Interval(step.low[None], step.high[None]))
    return np.concatenate([x.low for x in found]), np.concatenate([x.high for x in found])


def split(cell: Array, v: Array, dv: Array) -> tuple[Array, Array, Array]:
    """Boxes of moves, cut along their longest side, with the cells that they are of."""
    rows = np.arange(len(v))
    longest = dv.argmax(axis=1) if dv.size else rows
    half = dv[rows, longest] / PIECES
    middles = [v.copy() for _ in range(PIECES)]
    for part, middle in enumerate(middles):
        middle[rows, longest] += (2 * part - PIECES + 1) * half
    wide = dv.copy()
    wide[rows, longest] = half
    return np.concatenate([cell] * PIECES), np.concatenate(middles), np.concatenate([wide] * PIECES)


def above(
    step: Moves,
    after: After | Ending,
    s: Array,
    ds: Array,
    slope: Array,
    value: Array,
    room: float = np.inf,
    most: int = MOST,
) -> tuple[Array, int]:
    """Of which cells a plane is proved to be below the cost to go, and boxes looked at, with what turns count for.

    Args:
        step: the step.
        after: what follows.
        s: ``(N, d)`` middles of cells.
        ds: ``(N, d)`` half of their widths, with what is around them.
        slope: ``(N, d)`` of the planes.
        value: ``(N,)`` of these in the middles.
        room: boxes at which it is given up.
        most: boxes for one cell.
    """
    good, boxes = np.ones(len(s), dtype=bool), 0
    for start in range(0, len(s), BATCH):
        own = slice(start, start + BATCH)
        passed, used = good[own], np.zeros(len(good[own]), dtype=int)
        cell, v, dv = step.grid(len(used))
        for turn in range(TURNS + 1):
            boxes, used = boxes + len(v) + TURN, used + np.bincount(cell, minlength=len(used))
            if boxes > room:
                good[start:] = False
                return good, boxes
            found = least(step, after, Boxes(s[own][cell], ds[own][cell], v, dv, slope[own][cell]))
            left = ~(found.cost >= value[own][cell])
            passed[cell[left & ((used[cell] > most) | (turn == TURNS) | (dv.shape[1] == 0))]] = False
            left &= passed[cell]
            if not left.any():
                break
            cell, v, dv = split(cell[left], v[left], dv[left])
    return good, boxes


def checked(
    steps: list[Moves], start: Array, cells: list[Cells], end: After | Ending, goal: float, room: int, toll: float = 0.0
) -> Progress:
    """Whether whatever leads to another class costs at least so much, or margins are at least so large.

    Args:
        steps: ``T`` of them.
        start: ``(d,)`` the first state.
        cells: of the states after each step but the last; their planes are what is checked.
        end: what follows the last.
        goal: what is to be proved.
        room: boxes at which it is given up.
        toll: what outputs count.
    """
    boxes, after = 0, end
    for t in range(len(steps) - 1, -1, -1):
        if t:
            own = cells[t - 1]
            leaves = own.leaves
            s, half = own.boxes(leaves)
            falls = (np.abs(own.slope[leaves]) * (half + own.around)).sum(axis=1)
            some = own.value[leaves] > own.bottom - falls * (1.0 + 1e-9)  # of others the plane is nowhere positive
            planes = s, half + own.around, own.slope[leaves], own.value[leaves]
        else:
            planes = start[None], np.zeros((1, len(start))), np.zeros((1, len(start))), np.array([goal])
            some = np.ones(1, dtype=bool)
        good, more = above(steps[t], after, *(part[some] for part in planes), room=room - boxes)
        boxes += more
        if not good.all():
            return Progress(False, boxes)
        if t:
            cells[t - 1].lift()
            after = Tolled(cells[t - 1], toll) if toll else cells[t - 1]
    return Progress(True, boxes)
