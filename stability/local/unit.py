r"""One step of an LSTM or GRU of one unit, with its first two derivatives, over many boxes at once, in intervals.

With the gates' arguments :math:`a = e + E y + C h` a GRU is, ``A`` the candidate's argument, ``k`` the part of its bias
that the reset gate multiplies and ``s`` all else that does not,

.. math:: A = s + \sigma(a_r) (C_n h + k), \quad h^+ = (1 - \sigma(a_z)) \tanh A + \sigma(a_z) h,

an LSTM :math:`c^+ = \sigma(a_f) c + \sigma(a_i) \tanh a_g`, :math:`h^+ = \sigma(a_o) \tanh c^+`. The variables are the
states and the coordinates ``y`` of the step. A GRU's next state lies between its state and the candidate, which rises
with both: its range is that of two corners.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stability.gated.cell import GatedCell
from stability.gated.equations import GATES
from stability.local.chains import Chain, Derivatives, Inner, Weights, products, rows_of, stacked, whole
from stability.local.jets import Jet, curves, images
from stability.rigor.intervals import Interval

Array = np.ndarray
_NAMES = {"lstm": ("i", "f", "o", "g"), "gru": ("r", "z", "n", "v")}
"""Arguments of gates, sigmoids first: of a GRU's candidate ``n`` is what the reset gate leaves alone, ``v`` what it
multiplies."""


@dataclass(frozen=True, eq=False)
class GatedUnit:
    """The step, for the perturbations of one step of the input.

    Attributes:
        cell: of one unit.
        E: ``(g, q)`` what the coordinates add to the gates' arguments.
        e: ``(g,)`` what these have without states and perturbations, the recurrent biases left out.
    """

    cell: GatedCell
    E: Interval
    e: Interval

    @property
    def kind(self) -> str:
        """``lstm`` or ``gru``."""
        return self.cell.kind

    def values(self, state: list[Interval], y: Interval) -> list[Interval]:
        """The next states ``(N,)``; ``y`` is ``(N, q)``."""
        found = self._after(_joined(state, y))
        return [_row(found, k) for k in range(len(state))]

    def jets(self, state: list[Interval], y: Interval, second: bool) -> list[Jet]:
        """The same with derivatives by ``(state, y)``, ranges as narrow as monotonicity makes them."""
        x = _joined(state, y)
        full, out = whole(len(x.low)), list[Jet]()
        values, found = self.derivatives(x, x.low.shape[1] if second else 0)
        for k, own in enumerate(found):
            bend = Interval(*(end[full].transpose(2, 0, 1) for end in (own.bend.low, own.bend.high)))
            out.append(Jet(_row(values, k), Interval(own.slope.low.T, own.slope.high.T), bend if second else None))
        return out

    def derivatives(self, x: Interval, bent: int) -> tuple[Interval, list[Derivatives]]:
        """The next states ``(n, N)`` and their derivatives.

        Args:
            x: ``(n + q, N)`` states and coordinates.
            bent: of how many boxes, the first ones, Hessians are asked for.
        """
        values, found = self._lstm(x, bent) if self.kind == "lstm" else self._gru(x, bent)
        wide = np.flatnonzero((x.low < x.high).any(axis=0))
        if not len(wide):
            return values, found
        own, corners, count = Interval(x.low[:, wide], x.high[:, wide]), list[Interval](), len(wide)
        for one in found:
            rises, falls = one.slope.low[:, wide] >= 0.0, one.slope.high[:, wide] <= 0.0
            corners += [_end(own, falls, rises), _end(own, rises, falls)]  # where it is least, and where it is largest
        reached = self._after(stacked(corners, axis=1))
        low, high = values.low.copy(), values.high.copy()
        for k in range(len(found)):
            least, most = (slice((2 * k + side) * count, (2 * k + side + 1) * count) for side in (0, 1))
            low[k, wide] = np.maximum(low[k, wide], reached.low[k, least])
            high[k, wide] = np.minimum(high[k, wide], reached.high[k, most])
        return Interval(low, high), found

    @cached_property
    def _rows(self) -> dict[str, Interval]:
        """``(n + q,)`` of each argument, by states and coordinates, and of the states themselves."""
        cell, out = self.cell, dict[str, Interval]()
        for name in _NAMES[self.kind]:
            j, back = GATES[self.kind].index("n" if name == "v" else name), np.zeros(cell.states)
            back[0] = 0.0 if name == "n" else cell.w_hh[j, 0]
            out[name] = Interval(*(np.concatenate([back, end[j] * (name != "v")]) for end in (self.E.low, self.E.high)))
        units = np.eye(cell.states + self.E.low.shape[1])
        return out | {name: Interval.point(unit) for name, unit in zip("hc"[: cell.states], units)}

    @cached_property
    def _arguing(self) -> tuple[Weights, Interval]:
        """What weighs states and coordinates for the arguments, and what else these have, ``(g, 1)``."""
        names, cell = _NAMES[self.kind], self.cell
        index = [GATES[self.kind].index("n" if name == "v" else name) for name in names]
        entered, bias = np.array([name != "v" for name in names]), np.ones(len(names))
        if self.kind == "gru":
            bias[names.index("n" if cell.reset_after else "v")] = 0.0
        e = Interval(self.e.low[index] * entered, self.e.high[index] * entered)
        e = e + Interval.point(cell.b_hh[index] * bias)
        rows = (np.stack([getattr(self._rows[name], end) for name in names], axis=1) for end in ("low", "high"))
        return Weights(Interval(*rows)), Interval(e.low[:, None], e.high[:, None])

    def _arguments(self, x: Interval) -> Interval:
        """Of the gates, ``(g, N)``."""
        weights, offsets = self._arguing
        return weights(x) + offsets

    @cached_property
    def _chains(self) -> tuple[Chain, Chain]:
        """Of an LSTM's next ``c`` or a GRU's candidate, and of the next ``h``."""
        if self.kind == "lstm":
            bends = [("f", "f"), ("i", "i"), ("i", "g"), ("g", "g"), ("f", "c")]
            return Chain(self._rows, "figc", bends), Chain(self._rows, "o", [("o", "o")], "o")
        bends = [("r", "r"), ("r", "v")]
        return Chain(self._rows, "rvn", bends), Chain(self._rows, "zh", [("z", "z"), ("z", "h")], "z")

    def _after(self, x: Interval) -> Interval:
        """The next states ``(n, N)``."""
        rows = self._arguments(x)
        if self.kind == "lstm":
            parts = stacked([images(3, rows), rows_of(x, [1])])
            kept = products(parts, [1, 0], [4, 3])
            after = rows_of(kept, [0]) + rows_of(kept, [1])
            return stacked([rows_of(parts, [2]) * images(0, after), after])
        gates = images(2, rows_of(rows, [0, 1]))
        inner = rows_of(rows, [2]) + rows_of(gates, [0]) * rows_of(rows, [3])
        return mixed(rows_of(gates, [1]), images(0, inner), rows_of(x, [0]))

    def _lstm(self, x: Interval, bent: int) -> tuple[Interval, list[Derivatives]]:
        """The next states, by the ranges of what they are made of, and their derivatives."""
        before, last = self._chains
        at = curves(3, self._arguments(x))
        parts = stacked([at.value, at.first, at.second, rows_of(x, [1])])
        (i, f, o, g), (i1, f1, o1, g1), (i2, f2, o2, g2), c = range(4), range(4, 8), range(8, 12), 12
        made = products(parts, [f, i, f1, i1, i, f2, i2, i1, i], [c, g, c, g, g1, c, g, g1, g2])
        after = rows_of(made, [0]) + rows_of(made, [1])
        first, second = (
            [rows_of(made, [2, 3, 4]), rows_of(parts, [f])],
            [rows_of(made, [5, 6, 7, 8]), rows_of(parts, [f1])],
        )
        inner = before(stacked(first), stacked(second), bent)
        t = curves(0, after)
        parts = stacked([rows_of(parts, [o, o1, o2]), t.value, t.first, t.second])
        made = products(parts, [0, 1, 2, 0, 0, 1], [3, 3, 3, 4, 5, 4])
        value, first, second, *by = (rows_of(made, [k]) for k in range(6))
        return stacked([value, after]), [last(first, second, bent, Inner(inner, *by)), inner]

    def _gru(self, x: Interval, bent: int) -> tuple[Interval, list[Derivatives]]:
        """The same of a GRU."""
        before, last = self._chains
        rows, h = self._arguments(x), rows_of(x, [0])
        at, v = curves(2, rows_of(rows, [0, 1])), rows_of(rows, [3])
        r, z = ([rows_of(part, [k]) for part in (at.value, at.first, at.second)] for k in (0, 1))
        made = products(stacked([*r, v]), [0, 1, 2], [3, 3, 3])
        inside, one = rows_of(rows, [2]) + rows_of(made, [0]), Interval.point(np.ones((1, x.low.shape[1])))
        inner = before(stacked([rows_of(made, [1]), r[0], one]), stacked([rows_of(made, [2]), r[1]]), bent)
        n, keep = curves(0, inside), Interval.point(1.0) - z[0]
        parts = stacked([z[1], z[2], keep, h - n.value, n.first, n.second])
        made = products(parts, [0, 1, 2, 2, 0], [3, 3, 4, 5, 4])
        own = Inner(inner, rows_of(made, [2]), rows_of(made, [3]), -rows_of(made, [4]))
        first, second = stacked([rows_of(made, [0]), z[0]]), stacked([rows_of(made, [1]), z[1]])
        return mixed(z[0], n.value, h), [last(first, second, bent, own)]


def mixed(z: Interval, n: Interval, h: Interval) -> Interval:
    """``(1 - z) n + z h`` for ``z`` from 0 to 1.

    Example:
        >>> z, n, h = (Interval(np.array([a]), np.array([b])) for a, b in ((0.0, 1.0), (-1.0, 0.5), (0.25, 2.0)))
        >>> out = mixed(z, n, h)
        >>> bool(abs(out.low[0] + 1.0) < 1e-12 and abs(out.high[0] - 2.0) < 1e-12)
        True
    """
    a, b = (Interval.point(np.stack([x.low, x.low, x.high, x.high])) for x in (n, h))
    found = a + Interval.point(np.stack([z.low, z.high] * 2)) * (b - a)
    return Interval(np.minimum(*found.low[:2]), np.maximum(*found.high[2:]))


def _joined(state: list[Interval], y: Interval) -> Interval:
    """``(n + q, N)``."""
    return Interval(*(np.stack([*(getattr(h, end) for h in state), *getattr(y, end).T]) for end in ("low", "high")))


def _row(x: Interval, k: int) -> Interval:
    return Interval(x.low[k], x.high[k])


def _end(x: Interval, up: Array, down: Array) -> Interval:
    """The upper end of some ranges, the lower end of others, and all of the rest."""
    return Interval(np.where(up & ~down, x.high, x.low), np.where(down, x.low, x.high))
