"""Cells of states, cut where runs go that may cost the least, and their planes: the search of rule ``local_cells``.

A pass goes back through the steps. Where a cell loses more than its share of the gap between the bound and the nearest
run that is known, and a run through it may cost less than that, it is cut. What runs may, is told forwards from the
boxes of moves that were looked at: a run has the gap to waste, each of its steps wastes what it costs more than the
plane. So ever fewer cells count, and the gap shrinks to a quarter with each halving of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability.local.after import After, Ending, Margins, Tolled
from stability.local.cells import DEEPEST, Cells
from stability.local.expansions import Boxes
from stability.local.gated_runs import GatedRuns
from stability.local.moves import least
from stability.local.needed import Needed
from stability.local.pools import Met, Pool
from stability.local.togo import BATCH, above

Array = np.ndarray
_FIRST = {1: 3, 2: 2}
"""Halvings of all cells before the first pass, by the number of states."""
_SHARES, _SHARE = ((0.5, 1.2), (0.01, 0.6)), 0.4
"""What cells of a run may lose together, of the gap, while this is larger than a share of the cap, and then."""
_ROUNDS, _DEEP, _FEW = 3, 12, 6
"""How often cells are cut in a pass; those few that lose much."""
_MUCH, _MIDDLE = 0.3, 0.1
"""Of the gap: what few cells lose; and what runs have to spare in cells that are cut where a pass has stalled."""
_USELESS = 0.9
"""Of what a cell loses, what each of its parts does where cutting them is of no use."""
_GAIN, _MOST, _WRONG = 0.25, (1, 400, 4000, 10_000, 20_000), 0.03
"""What cutting a box of moves has to gain of what it loses; boxes for one cell, by how many
coordinates these have; of what is lost, a better move."""
_TURNS = 120
"""How often boxes of moves are cut."""
_TRIED, _AT_START = 3000, 100_000
"""Boxes for one cell whose plane is proved once more, and for the start."""


@dataclass(frozen=True, eq=False)
class Found:
    """Planes of cells.

    Attributes:
        value: ``(n,)``.
        slope: ``(n, d)``.
        best: ``(n,)`` costs of moves from the middles.
        move: ``(n, q)`` these moves.
        met: the boxes that were looked at last.
        boxes: that were looked at.
    """

    value: Array
    slope: Array
    best: Array
    move: Array
    met: Met
    boxes: int


@dataclass(frozen=True, eq=False)
class _Sought:
    """Planes whose values are looked for.

    Attributes:
        s: ``(n, d)`` middles of cells.
        ds: ``(n, d)`` half of their widths, with what is around them.
        slope: ``(n, d)``.
        move: ``(n, q)`` good moves from the middles.
        best: ``(n,)`` what these cost.
        enough: ``(n,)`` values up to which they are told.
    """

    s: Array
    ds: Array
    slope: Array
    move: Array
    best: Array
    enough: Array

    def of(self, which: slice) -> _Sought:
        """Some of them."""
        return _Sought(*(part[which] for part in vars(self).values()))


class Refining:
    """The cells of a sequence.

    Args:
        runs: of the sequence.
        end: what follows the last step.
        low: ``(T - 1, d)`` boxes of states after each step but the last.
        high: ``(T - 1, d)``.
        cap: costs are not told apart beyond.
        toll: what outputs count.

    Attributes:
        more: what planes are proved beyond what is needed for the bound.
    """

    def __init__(
        self, runs: GatedRuns, end: Ending | Margins, low: Array, high: Array, cap: float, toll: float = 0.0
    ) -> None:
        self.runs, self.end, self.cap, self.toll, self.more = runs, end, cap, toll, 0.0
        self.cells = [Cells(*ends, signed=isinstance(end, Margins)) for ends in zip(low, high)]
        for own in self.cells:
            for _ in range(_FIRST[len(runs.start)]):
                own.cut(own.leaves)
        self.best = [np.full(len(own), np.inf) for own in self.cells]
        self.spare = [np.full(len(own), np.inf) for own in self.cells]
        self.need = [Needed(np.full(len(own), np.inf), 0.0 * own.slope) for own in self.cells]
        self.met: list[Met | None] = [None] * len(runs.steps)
        self.boxes = 0

    @property
    def size(self) -> int:
        """Boxes of moves that all planes stand on: about as many as a check looks at."""
        return sum(len(met.cell) for met in self.met if met is not None)

    def after(self, t: int) -> After | Ending:
        """What follows step ``t``."""
        if t == len(self.cells):
            return self.end
        return Tolled(self.cells[t], self.toll) if self.toll else self.cells[t]

    def back(self, gap: float, stalled: bool = False, over: Callable[[], bool] = lambda: False) -> float | None:
        """A pass: the bound of the cost at the start; ``None`` where it is ``over`` before that.

        It makes planes of ever smaller cells, and so others of the larger ones that these are parts of, which need not
        be above what they were. Planes that what follows does not prove any more are made anew. What a cell loses is
        known in its middle alone; where a pass has ``stalled``, all cells are cut that runs come to which may cost
        little.
        """
        for t in range(len(self.cells), 0, -1):
            if over():
                return None
            self._refined(t, gap, stalled)
            self.cells[t - 1].lift()
        start = self.runs.start[None]
        move, best = self.runs.guess(0, self.after(0), start)
        still, all_ = 0.0 * start, np.full(1, np.inf)
        found = self._swept(0, _Sought(start, still, still, move, best, all_), self._small(gap), _AT_START)
        self.met[0], self.boxes = found.met, self.boxes + found.boxes
        return float(found.value[0])

    def _share(self, gap: float) -> float:
        """What cells of a run may lose together: while the gap is large it is soon another."""
        return next((share for least, share in _SHARES if gap > least * self.cap), _SHARE)

    def _small(self, gap: float) -> float:
        """A cost that does not matter yet."""
        return min(max(0.05 * _SHARE * gap / len(self.runs.steps), 1e-10 * self.cap), 1e-3 * self.cap)

    def _refined(self, t: int, gap: float, stalled: bool) -> None:
        own, share = self.cells[t - 1], self._share(gap) * gap / len(self.runs.steps)
        leaves, few = own.leaves, len(own.low) == 1
        some = self.spare[t - 1][leaves] >= 0.0
        rest = leaves[~some]
        s, half = own.boxes(rest)
        planes = half + own.around, own.slope[rest], own.value[rest]
        some[~some] = ~above(self.runs.steps[t], self.after(t), s, *planes, most=_TRIED)[0]
        cells, before_cut = leaves[some], np.full(int(some.sum()), np.inf)
        for turn in range(_DEEP + 1):
            if not len(cells):
                break
            self._planes(t, cells, gap)
            lost = np.minimum(self.best[t - 1][cells], self.cap) - own.value[cells]
            lost = np.maximum(lost, own.bent(cells))
            lost = np.minimum(lost, self.need[t - 1].value[cells] - own.value[cells])
            bad = lost > (share if turn < _ROUNDS else max(share, _MUCH * gap))
            bad |= stalled and turn == 0 and self.spare[t - 1][cells] > _MIDDLE * gap
            useless = (lost > _USELESS * before_cut).reshape(-1, len(own.corners) if turn else 1).all(axis=1)
            bad &= ~np.repeat(useless, len(own.corners) if turn else 1) & (own.level[cells] < DEEPEST)
            bad &= self.spare[t - 1][cells] >= 0.0  # others are made anew, and cut once runs come there
            before_cut, bad = np.repeat(lost[bad], len(own.corners)), cells[bad]
            if turn == _DEEP or (turn >= _ROUNDS and not (few and len(bad) <= _FEW)):
                break
            before, k = len(own), len(own.corners)
            own.cut(bad)
            self.need[t - 1] = self.need[t - 1].cut(own, bad)
            self.spare[t - 1] = np.concatenate([self.spare[t - 1], np.repeat(self.spare[t - 1][bad], k)])
            self.best[t - 1] = np.concatenate([self.best[t - 1], np.full(k * len(bad), np.inf)])
            cells = np.arange(before, len(own))

    def _planes(self, t: int, cells: Array, gap: float) -> None:
        """New planes of cells."""
        own = self.cells[t - 1]
        s, half = own.boxes(cells)
        found = self.planes(t, s, half + own.around, self._small(gap), self.need[t - 1].of(cells))
        own.value[cells], own.slope[cells], self.best[t - 1][cells] = found.value, found.slope, found.best
        met, old = found.met.of(np.arange(len(found.met.cell)), cells), self.met[t]
        if old is not None:
            met = old.of(~np.isin(old.cell, cells) & (own.first[old.cell] < 0)) + met
        self.met[t], self.boxes = met, self.boxes + found.boxes

    def planes(self, t: int, s: Array, ds: Array, small: float, need: Needed) -> Found:
        """Planes of cells, their slopes those of good moves from the middles."""
        move, best = self.runs.guess(t, self.after(t), s)
        slope = self._slope(t, s, move)
        slope[~(best < self.cap)] = 0.0
        found = self._swept(t, _Sought(s, ds, slope, move, best, need.most(slope, ds)), small)
        wrong = best - found.best > _WRONG * np.abs(found.best - found.value) + 1e-9 * self.cap
        if not wrong.any():
            return found
        k = np.flatnonzero(wrong)
        slope[k] = self._slope(t, s[k], found.move[k])
        enough = need.of(k).most(slope[k], ds[k])
        again = self._swept(t, _Sought(s[k], ds[k], slope[k], found.move[k], found.best[k], enough), small)
        value, best, move = found.value.copy(), found.best.copy(), found.move.copy()
        value[k], best[k], move[k] = again.value, again.best, again.move
        met = found.met.of(~wrong[found.met.cell]) + again.met.of(np.arange(len(again.met.cell)), k)
        return Found(value, slope, best, move, met, found.boxes + again.boxes)

    def _slope(self, t: int, s: Array, v: Array) -> Array:
        """How the cost to go changes with the state, where a move is the best one: ``(N, d)``."""
        runs, after, nudge = self.runs, self.after(t), 1e-7
        near = runs.after(t, s, v)
        by_state, by_move = (
            np.stack([(runs.after(t, s + nudge * a, v + nudge * b) - near) / nudge for a, b in units], axis=2)
            if len(units) else np.zeros((*s.shape, 0))
            for units in (
                [(unit, 0.0) for unit in np.eye(s.shape[1])], [(0.0, unit) for unit in np.eye(v.shape[1])],
            )
        )  # fmt: skip
        if not isinstance(after, Ending):
            return np.einsum("nk,nkj->nj", after.slopes(near), by_state)
        size = np.maximum((by_move[:, 0] ** 2).sum(axis=1), 1e-30)
        price = np.clip(2.0 * (v * by_move[:, 0]).sum(axis=1) / size, -1e11, 1e11)
        return -price[:, None] * by_state[:, 0]

    def _swept(self, t: int, own: _Sought, small: float, most: int = 0) -> Found:
        """The values of planes with given slopes, told up to what is ``enough``."""
        most = most or _MOST[min(len(self.runs.steps[t].low), 4)]
        parts = [self._batch(t, own.of(slice(k, k + BATCH)), small, most) for k in range(0, len(own.s), BATCH)]
        if len(parts) == 1:
            return parts[0]
        met = Met.joined([
            part.met.of(np.arange(len(part.met.cell)), k * BATCH + np.arange(BATCH)) for k, part in enumerate(parts)
        ])  # fmt: skip
        joined = (np.concatenate([getattr(p, name) for p in parts]) for name in ("value", "slope", "best", "move"))
        return Found(*joined, met=met, boxes=sum(p.boxes for p in parts))

    def _batch(self, t: int, asked: _Sought, small: float, most: int) -> Found:
        step, after, n = self.runs.steps[t], self.after(t), len(asked.s)
        s, ds, slope, enough = asked.s, asked.ds, asked.slope, asked.enough
        move, best = asked.move.copy(), asked.best.copy()
        used, boxes, met = np.zeros(n, dtype=int), 0, list[Met]()
        value, top = np.minimum(self.cap - (np.abs(slope) * ds).sum(axis=1), enough), np.minimum(self.cap, enough)
        (cell, v, dv), pool = step.grid(n), Pool.empty(len(self.runs.start), len(step.low))
        for turn in range(_TURNS + 1):
            boxes, used = boxes + len(v), used + np.bincount(cell, minlength=n)
            found = least(step, after, Boxes(s[cell], ds[cell], v, dv, slope[cell]))
            cost, moved = self.runs.costs(t, after, s[cell], v, True)
            order = np.lexsort((cost, cell))
            first = order[np.r_[True, np.diff(cell[order]) != 0]]
            first = first[cost[first] < best[cell[first]]]
            best[cell[first]], move[cell[first]] = cost[first], moved[first]
            need, goal = np.minimum(best - small, value)[cell], np.minimum(best, top)[cell]
            narrow = np.where(found.turned, np.maximum(found.narrow, cost), found.narrow)
            gained = np.minimum(narrow, need) - found.cost
            left = (gained > _GAIN * (goal - found.cost)) & (dv.shape[1] > 0)
            own = Met(cell, found.cost, found.low, found.high, found.floor)
            pool, done = pool + Pool(own.of(left), v[left], dv[left]), own.of(~left)
            np.minimum.at(value, done.cell, done.cost)
            need = np.where((used < most) & (turn < _TURNS), np.minimum(best - small, value), -np.inf)
            cell, v, dv, pool, ended = pool.cut(need)
            np.minimum.at(value, ended.cell, ended.cost)
            met += [done, ended]
            if not len(cell):
                break
        return Found(value, slope, best, move, Met.joined(met), boxes)

    def told(self) -> dict[str, Array]:
        """What a proof says about the cells."""
        d, told = len(self.runs.start), [cells.ordered() for cells in self.cells]
        pairs = list(zip(self.cells, told))
        out = {end: np.array([getattr(own, end) for own in self.cells]).reshape(-1, d) for end in ("low", "high")}
        out["cut"] = np.concatenate([np.zeros(0), *(cut.astype(np.float64) for cut, _ in told)])
        out["values"] = np.concatenate([np.zeros(0), *(own.value[leaves] for own, (_, leaves) in pairs)])
        out["slopes"] = np.concatenate([np.zeros((0, d)), *(own.slope[leaves] for own, (_, leaves) in pairs)])
        return out

    def followed(self) -> Array:
        """The moves of the run that the bound is about, nearly."""
        s, out = self.runs.start[None], list[Array]()
        for t in range(len(self.runs.steps)):
            move, _ = self.runs.guess(t, self.after(t), s)
            out.append(move[0])
            s = self.runs.after(t, s, move)
        return np.concatenate(out)

    def forward(self, value: float, gap: float) -> None:
        """What runs have to spare in each cell: negative where none comes."""
        cells, spare, base = np.zeros(1, dtype=int), np.array([gap]), np.array([value])
        for t, own in enumerate(self.cells):
            met = self.met[t]
            assert met is not None
            if not len(cells):  # by rounding
                break
            size = int(max(met.cell.max(), cells.max())) + 1
            left, plane = np.full(size, -np.inf), np.zeros(size)
            left[cells], plane[cells] = spare, base
            most = left[met.cell] + plane[met.cell]
            on = met.cost <= most
            spare = most[on] - np.maximum(met.cost, plane[met.cell])[on]
            low, high = met.low[on], met.high[on]
            left = (most - met.floor)[on] - Tolled(own, self.toll).least(low, high)
            self.spare[t] = own.spread(low, high, spare, left)
            self.need[t] = Needed(own.value + np.maximum(self.spare[t], 0.0) + self.more, own.slope.copy())
            cells = np.flatnonzero(self.spare[t] >= 0.0)
            spare, base = self.spare[t][cells], own.value[cells]
