r"""Least costs of networks of one state, by dynamic programming, as lower bounds that are linear on cells.

.. math:: V_t(h) = \min_v \; c(v) + V_{t+1}\big(A h + B \phi(C h + e + S v) + f + g v\big)

Over a cell of states and a range of ``v`` the function to be minimised lies above a line in ``h``: ``V_{t+1}`` above a
line on the states that are met, the activation above one of its tangents less what it bends, and the rest is a parabola
in ``v``. Ranges of ``v`` are halved where that pays. What is lost is of second order in the sizes of cells, at kinks,
too, where the function is convex; elsewhere it does not matter, as no least cost is met on a concave one.

Source: R. Bellman, Dynamic programming (1957).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.local.below import Lines, Stretches, Table
from stability.local.curves import curvature, slack, slopes, values
from stability.local.ranges import half, middle
from stability.local.scalar import ScalarStep
from stability.rigor.constants import EPS, TINY
from stability.systems.activations import Activation

Array = np.ndarray
_NESTED, _ROUNDS, _NARROW = 6, 44, 1e-13
"""Ranges of ``v`` at first, on either side of the best; how often they are halved; and of all, below which none is."""
_MANY, _FEW = 4, 400
"""Pieces of a range, not halves, where there are so few that a round costs as much whatever their number."""
_FREE = 0.1
"""Of what is lost: the least part that halving a range has to gain."""
_FLAT = 2_000
"""Boxes that cost as much as all that a step costs besides."""
_APART = 3e-6
"""Of the range of states: over which slopes are taken."""
_GRID, _ZOOMS = 33, 9
"""Values of ``v`` that are tried at once, and how often around the best."""
_BISECTIONS = 50
"""Until the ``v`` that leads to an end of a grid is known."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """Cells of states around ``h``, and ``v = y + k (h' - h) + delta`` for a state ``h'`` of the cell.

    Attributes:
        h: ``(N,)``.
        dh: ``(N,)`` half of a cell.
        y: ``(N,)``.
        dy: ``(N,)`` the most that ``|delta|`` is.
        k: ``(N,)``.
        tilt: ``(N,)`` slopes that are worth more than others.
    """

    h: Array
    dh: Array
    y: Array
    dy: Array
    k: Array
    tilt: Array

    @property
    def parts(self) -> tuple[Array, Array, Array, Array, Array]:
        """All but ``tilt``."""
        return self.h, self.dh, self.y, self.dy, self.k


@dataclass(frozen=True, eq=False)
class Stage:
    """One step in floating point: middles and what they are off by.

    Attributes:
        step: the step.
        phi: the activation.
        low: of the states before it.
        high: of these.
    """

    step: ScalarStep
    phi: Activation
    low: float
    high: float

    def __post_init__(self) -> None:
        s = self.step
        one = Stage._first
        for name in ("A", "B", "C", "e", "f", "S", "g"):
            vars(self)[name] = one(middle(getattr(s, name)))
            vars(self)["d" + name] = one(half(getattr(s, name)))
        far = max(abs(self.low), abs(self.high))
        v = max(abs(self.ends[0]), abs(self.ends[1])) + (self.ends[1] - self.ends[0])  # and what follows the states
        m = vars(self)
        z = abs(m["C"]) * far + abs(m["e"]) + abs(m["S"]) * v
        m["dz"] = m["dC"] * far + m["de"] + m["dS"] * v + 16 * EPS * z + TINY
        largest = min(self.phi.bound, abs(float(self.phi.function(np.zeros(())))) + self.phi.slope[1] * (z + m["dz"]))
        m["dh"] = m["dA"] * far + m["dB"] * (largest + 1e-14) + m["df"] + m["dg"] * v + 32 * EPS * (
            abs(m["A"]) * far + abs(m["B"]) * largest + abs(m["f"]) + abs(m["g"]) * v) + TINY  # fmt: skip

    @staticmethod
    def _first(x: Array) -> float:
        return float(x.ravel()[0]) if x.size else 0.0

    @property
    def ends(self) -> tuple[float, float]:
        """Of ``v``."""
        return (float(self.step.low[0]), float(self.step.high[0])) if len(self.step.low) else (0.0, 0.0)

    def after(self, h: Array, v: Array) -> tuple[Array, Array, Array]:
        """The argument, the activation's value and the next state, in floating point."""
        m = vars(self)
        z = m["C"] * h + m["e"] + m["S"] * v
        phi = self.phi.function(z)
        return z, phi, m["A"] * h + m["B"] * phi + m["f"] + m["g"] * v

    def parabola(self, v: Array) -> tuple[float, Array, Array]:
        """``(a, b, c)`` with a cost of ``a w^2 + b w + c`` at least, nearly so much at ``v``."""
        if self.step.clip is not None:
            return self.step.clip.tangents(v)
        return 1.0, np.zeros(v.shape), np.zeros(v.shape)

    @property
    def worth(self) -> int:
        """What a box costs, in those of a step without clipping: entries that are clipped are looked at one by one."""
        return 1 if self.step.clip is None else 1 + len(self.step.clip.E) // 16

    def cost(self, v: Array) -> Array:
        """Of ``v``, in floating point."""
        return v * v if self.step.clip is None else self.step.clip.cost(v)[0]

    def lines(self, table: Table, boxes: Boxes) -> tuple[Array, Array]:
        """Lines below ``c(v) + U(h+)`` over boxes: their values at the middles of the cells, and their slopes.

        Args:
            table: of ``U``.
            boxes: with ``v = y + k (h - middle) + delta``.
        """
        h, dh, y, dy, k, m, phi = *boxes.parts, vars(self), self.phi
        z, value, after = self.after(h, y)
        dz = (np.abs(m["C"] + m["S"] * k) * dh + np.abs(m["S"]) * dy) * (1.0 + 8 * EPS) + m["dz"]
        dz = dz + 8 * EPS * (np.abs(m["C"]) + np.abs(m["S"] * k)) * dh
        least, most = values(phi, z - dz, z + dz)
        ways = m["B"] * least, m["B"] * most
        linear = m["A"] * h + m["f"] + m["g"] * y
        moved = np.abs(m["A"] + m["g"] * k) * dh + np.abs(m["g"]) * dy
        moved = moved + 8 * EPS * (np.abs(m["A"]) + np.abs(m["g"] * k)) * dh + m["dh"] + 8 * EPS * np.abs(linear)
        reach = (linear - moved + np.minimum(*ways), linear + moved + np.maximum(*ways))
        least, most = slopes(phi, z - dz, z + dz)
        steep, apart = 0.5 * least + 0.5 * most, (0.5 * most - 0.5 * least) * (1.0 + 4 * EPS) + 1e-15
        near = np.abs(m["A"] + m["g"] * k + m["B"] * steep * (m["C"] + m["S"] * k)) * dh
        near = near + np.abs(m["g"] + m["B"] * m["S"] * steep) * dy + np.abs(m["B"]) * apart * dz
        near = near + 16 * EPS * (moved + np.abs(m["B"]) * phi.slope[1] * dz) + m["dh"]
        near = near + np.abs(m["B"]) * (2 * slack(phi, value) + phi.slope[1] * m["dz"]) + 8 * EPS * np.abs(after)
        reach = np.maximum(reach[0], after - near), np.minimum(reach[1], after + near)
        there = table.stretches(*(np.clip(end, table.knots[0], table.knots[-1]) for end in reach))
        p, q, r = self.parabola(y)
        steep = m["g"] + m["B"] * m["S"] * phi.derivative(z)
        with np.errstate(all="ignore"):
            wanted = np.where(steep == 0.0, 0.0, -(2.0 * p * y + q) / steep)
        wanted = np.where(np.isfinite(wanted), wanted, 0.0)
        least, most = there.slopes.min(axis=0), there.slopes.max(axis=0)
        tried = [np.clip(wanted, least, most), there.slopes[2]]
        found = [self._line(there, beta, boxes, dz, (z, value, after), (p, q, r)) for beta in tried]
        value, slope = found[0]
        for other in found[1:]:
            better = other[0] - np.abs(other[1] - boxes.tilt) * dh > value - np.abs(slope - boxes.tilt) * dh
            value, slope = np.where(better, other[0], value), np.where(better, other[1], slope)
        if table.beyond is not None:  # of what is outside only in part, the line below the rest goes on
            out = (reach[1] < table.knots[0]) | (reach[0] > table.knots[-1])
            value, slope = np.where(out, table.beyond, value), np.where(out, boxes.tilt, slope)
        return value, slope

    def _line(
        self, there: Stretches, beta: Array, boxes: Boxes, dz: Array, run: tuple[Array, Array, Array],
        parabola: tuple[float, Array, Array],
    ) -> tuple[Array, Array]:  # fmt: skip
        """The line of one slope ``beta`` of ``U``."""
        (_, dh, y, dy, k), (z, value, after), (p, q, r) = boxes.parts, run, parabola
        m, phi = vars(self), self.phi
        base, weight, slope = there.below(after, beta), beta * m["B"], 2.0 * p * y + q
        lost, tangent = self._tangent(weight, z, dz, value, slope + beta * m["g"])
        by_h = beta * m["A"] + weight * tangent * m["C"]
        by_y = slope + beta * m["g"] + weight * tangent * m["S"]
        # by_y (k x + d) + p (k x + d)^2 with |x| <= dh, |d| <= dy, where the square is (|d| - |k| dh)^2 at least
        bent = np.abs(k) * dh
        with np.errstate(all="ignore"):
            far = np.minimum(dy, bent + np.abs(by_y) / (2.0 * p)) if p > 0.0 else dy
        bowl = p * np.maximum(far - bent, 0.0) ** 2 - np.abs(by_y) * far
        out, by_h = base - lost + bowl + p * y * y + q * y + r, by_h + by_y * k
        size = np.abs(base) + np.abs(beta) * (m["dh"] / EPS + np.abs(after)) + np.abs(lost) + np.abs(r)
        size = size + 4.0 * p * (np.abs(y) + dy + bent) ** 2 + 2.0 * np.abs(q) * (np.abs(y) + dy + bent)
        moved = dy + bent
        size = size + (np.abs(by_y) + np.abs(slope) + np.abs(beta * m["g"])) * (moved + np.abs(y))
        steep = np.abs(weight) * phi.slope[1]
        size = size + steep * (m["dz"] / EPS + np.abs(z) + dz + np.abs(m["S"]) * moved + np.abs(m["C"]) * dh)
        size = size + (np.abs(by_h) + np.abs(beta * m["A"])) * dh
        out = out - 64 * EPS * size - TINY
        return np.where(np.isnan(out), -np.inf, out), by_h

    def _tangent(self, weight: Array, z: Array, dz: Array, value: Array, pulled: Array) -> tuple[Array, Array]:
        """``(lost, s)``: ``weight (phi(w) - phi(z)) >= weight s (w - z) - lost`` for ``|w - z| <= dz``."""
        phi, S = self.phi, vars(self)["S"]
        if phi.width is not None:
            s = phi.derivative(z)
            least, most = slopes(phi, z - dz, z + dz)
            bent = 0.5 * curvature(phi, z - dz, z + dz, weight) * dz * dz
            apart = np.abs(weight) * np.maximum(s - least, most - s) * dz
            lost = np.minimum(bent + 1e-14 * np.abs(weight) * dz, np.maximum(apart, 0.0))
            return lost + 2 * np.abs(weight) * slack(phi, value), s
        low, high = z - dz, z + dz
        s, kinks = np.full(z.shape, phi.pieces[0]), phi.kinks
        inside = [(low < k) & (k < high) for k in kinks]
        for i, k in enumerate(kinks):
            s = np.where(k <= low, phi.pieces[i + 1], s)
        with np.errstate(all="ignore"):
            wanted = -pulled / (weight * S)
        wanted = np.where(np.isfinite(wanted), wanted, 0.0)
        parts = list[tuple[Array, Array, float]]()
        for i, (k, there) in enumerate(zip(kinks, inside)):
            jump = phi.pieces[i + 1] - phi.pieces[i]
            convex = weight * jump >= 0.0
            share = np.where(convex, (wanted - s) / jump, (high - k) / np.maximum(high - low, 1e-300))
            share = np.where(there, np.clip(share, 0.0, 1.0), 0.0)
            s = s + share * jump
            parts.append((share, convex & there, k))
        lost = np.zeros(z.shape)
        for end in (low, high, *(np.clip(np.full(z.shape, k), low, high) for k in kinks)):
            lost = np.maximum(lost, weight * (s * (end - z) - phi.function(end) + value))
        far = np.abs(z) + dz + max(map(abs, kinks), default=0.0)
        return lost + np.abs(weight) * (16 * EPS * phi.slope[1] * far + 2 * slack(phi, value)), s


def bellman(
    stage: Stage,
    lines: Lines,
    knots: Array,
    small: float,
    room: float,
) -> tuple[Lines, tuple[Array, Array], int]:
    """The lower bound one step earlier; least costs, nearly, at the middles of the cells; ``v`` of it; boxes looked at.

    Args:
        stage: the step.
        lines: the lower bound after it.
        knots: ``(K + 1,)`` of the cells.
        small: a cost that does not matter.
        room: boxes that may be looked at; then no range is halved any more.
    """
    table, (low, high) = Table.of(lines), stage.ends
    left, right = knots[:-1], knots[1:]
    count, centre = len(left), 0.5 * left + 0.5 * right
    wide = np.maximum(right - centre, centre - left) * (1.0 + 4 * EPS)
    seen = _FLAT + count * _GRID * _ZOOMS // 8 * stage.worth
    if seen > room:
        return Lines(knots, np.zeros(count), np.zeros(count)), (np.zeros(count), centre), seen
    best, where = policy(stage, lines, centre)
    follow, tilt = _rises(where, centre, wide), _rises(best, centre, wide)
    span = (high - low) * (1.0 + 8 * EPS) + 1e-300
    follow = np.where(np.abs(follow) * wide < 0.25 * span, follow, 0.0)
    cell, ends = partition(where, np.abs(follow) * wide, low, high)
    done, floor = list[tuple[Array, ...]](), np.full(count, np.inf)
    for turn in range(_ROUNDS):
        y = 0.5 * ends[0] + 0.5 * ends[1]
        half_ = np.maximum(ends[1] - y, y - ends[0])
        boxes = Boxes(centre[cell], wide[cell], y, half_, follow[cell], tilt[cell])
        value, slope = stage.lines(table, boxes)
        seen += len(cell) * stage.worth
        worst = value - np.abs(slope - tilt[cell]) * wide[cell]
        split = (worst < np.minimum(best[cell] - small, floor[cell])) & (half_ > _NARROW * span)
        split &= turn < _ROUNDS - 1 and seen <= room
        if split.any():
            own = cell[split]
            thin = Boxes(centre[own], wide[own], y[split], 0.0 * half_[split], follow[own], tilt[own])
            alone, along = stage.lines(table, thin)
            seen += len(own) * stage.worth
            gained = alone - np.abs(along - tilt[own]) * wide[own] - worst[split]
            split[split] = gained > _FREE * (best[own] - worst[split])
        np.minimum.at(floor, cell[~split], worst[~split])
        done.append((cell[~split], value[~split], slope[~split], y[~split]))
        if not split.any():
            break
        pieces = _MANY if split.sum() < _FEW else 2
        cell = np.tile(cell[split], pieces)
        ends = _divided(ends[0][split], ends[1][split], pieces)
    cell, value, slope, y = (np.concatenate(part) for part in zip(*done))
    order = np.lexsort((value, cell))
    least = y[order[np.unique(cell[order], return_index=True)[1]]]
    # the least of lines is concave: the line between its ends is below it
    sides = np.full(count, np.inf), np.full(count, np.inf)
    size = np.abs(value) + np.abs(slope) * wide[cell]
    for out, way in zip(sides, (left - centre, right - centre)):  # of cells of a few roundings, not half of a cell
        far = np.minimum(slope * way[cell], slope * np.sign(way[cell]) * wide[cell])
        np.minimum.at(out, cell, value + far - 8 * EPS * size - TINY)
    return Lines(knots, *sides), (best, least), seen


def _divided(low: Array, high: Array, count: int) -> tuple[Array, Array]:
    """The ends of so many pieces of ranges, which meet: first pieces first."""
    inner = [low + (high - low) * (k / count) for k in range(1, count)]
    return np.concatenate([low, *inner]), np.concatenate([*inner, high])


def policy(stage: Stage, lines: Lines, h: Array) -> tuple[Array, Array]:
    """What a step costs at some states with its best ``v``, nearly, and which that is."""
    (low, high), index = stage.ends, np.arange(len(h))
    if lines.beyond is None:
        least, most = np.full(len(h), low), np.full(len(h), high)
    else:  # the rest costs what is beyond
        least, most = (_reaching(stage, h, end) for end in (lines.knots[0], lines.knots[-1]))
    best, where = np.full(len(h), np.inf), 0.5 * least + 0.5 * most
    away, grid = 0.5 * np.abs(most - least)[:, None], np.linspace(-1.0, 1.0, _GRID)
    for _ in range(_ZOOMS if high > low else 1):
        v = np.clip(where[:, None] + away * grid, low, high)
        met = stage.cost(v) + lines.at(stage.after(h[:, None], v)[2])
        k = met.argmin(axis=1)
        better = met[index, k] < best
        best, where = np.where(better, met[index, k], best), np.where(better, v[index, k], where)
        away = away * 3.0 / _GRID
    return best, where


def _reaching(stage: Stage, h: Array, state: float) -> Array:
    """The ``v`` that lead from some states to one, nearly; where none does, an end of their range."""
    low, high = (np.full(len(h), end) for end in stage.ends)
    rising = stage.after(h, high)[2] >= stage.after(h, low)[2]
    for _ in range(_BISECTIONS):
        v = 0.5 * low + 0.5 * high
        up = (stage.after(h, v)[2] < state) == rising
        low, high = np.where(up, v, low), np.where(up, high, v)
    return 0.5 * low + 0.5 * high


def _rises(values: Array, at: Array, wide: Array) -> Array:
    """Slopes of a function at its points: the smaller one of both sides, none where they differ in sign."""
    if len(at) < 2:
        return np.zeros(len(at))
    away = np.maximum(2.0 * wide, _APART * (at[-1] - at[0]))  # what is known of least costs is good for no less
    sides = np.clip(at - away, at[0], at[-1]), np.clip(at + away, at[0], at[-1])
    rises = [(values - np.interp(side, at, values)) / np.where(side == at, np.inf, at - side) for side in sides]
    before = np.where(sides[0] == at, rises[1], rises[0])
    after = np.where(sides[1] == at, rises[0], rises[1])
    out = np.where(np.abs(before) < np.abs(after), before, after) * (before * after > 0.0)
    return np.where(np.isfinite(out), out, 0.0)


def partition(where: Array, moved: Array, low: float, high: float) -> tuple[Array, tuple[Array, Array]]:
    """Cells, and ranges of ``delta`` that with ``v = delta + k (h - middle)`` cover ``[low, high]``.

    Args:
        where: ``(K,)``.
        moved: ``(K,)`` the most that ``k (h - middle)`` is.
        low: of ``v``.
        high: of ``v``.
    """
    if not high > low:
        return np.arange(len(where)), (where.copy() * 0.0 + low, where.copy() * 0.0 + high)
    away = (high - low) * 4.0 ** -np.arange(1, _NESTED + 1.0)
    moved = moved * (1.0 + 8 * EPS) + TINY
    least, most = low - moved, high + moved
    cuts = where[:, None] + np.concatenate([-away, away[::-1]])
    cuts = np.concatenate([least[:, None], np.clip(cuts, least[:, None], most[:, None]), most[:, None]], axis=1)
    cell, (left, right) = (
        np.repeat(np.arange(len(where)), cuts.shape[1] - 1),
        (cuts[:, :-1].ravel(), cuts[:, 1:].ravel()),
    )
    there = right > left
    return cell[there], (left[there], right[there])
