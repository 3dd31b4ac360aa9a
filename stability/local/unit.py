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

import numpy as np

from stability.gated.cell import GatedCell
from stability.gated.equations import GATES
from stability.local.jets import Jet, both, chained, curve, summed
from stability.rigor.intervals import Interval, sigmoid, tanh

Array = np.ndarray


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
        return self._after(self._arguments(state, y), state)[0]

    def jets(self, state: list[Interval], y: Interval, second: bool) -> list[Jet]:
        """The same with derivatives by ``(state, y)``, ranges as narrow as monotonicity makes them."""
        rows = self._arguments(state, y)
        out = self._jets(rows, state, second)
        if (y.low == y.high).all() and all((h.low == h.high).all() for h in state):
            return out
        return [Jet(self._cornered(k, jet, state, y), jet.slope, jet.bend) for k, jet in enumerate(out)]

    def _arguments(self, state: list[Interval], y: Interval) -> dict[str, Interval]:
        """Of the gates ``(N,)``; ``n`` is what the reset gate leaves alone, ``v`` what it multiplies."""
        cell, out, h = self.cell, dict[str, Interval](), state[0]
        for j, name in enumerate(GATES[cell.kind]):
            own = summed(Interval(self.E.low[j], self.E.high[j]) * y) + Interval(self.e.low[j], self.e.high[j])
            back, bias = Interval.point(cell.w_hh[j, 0]), Interval.point(cell.b_hh[j])
            if name != "n":
                out[name] = own + back * h + bias
            elif cell.reset_after:
                out["n"], out["v"] = own, back * h + bias
            else:
                out["n"], out["v"] = own + bias, back * h
        return out

    def _after(self, rows: dict[str, Interval], state: list[Interval]) -> tuple[list[Interval], Interval]:
        """The next states, and an LSTM's next ``c`` or the candidate's argument."""
        if self.kind == "lstm":
            after = sigmoid(rows["f"]) * state[1] + sigmoid(rows["i"]) * tanh(rows["g"])
            return [sigmoid(rows["o"]) * tanh(after), after], after
        inner = rows["n"] + sigmoid(rows["r"]) * rows["v"]
        return [mixed(sigmoid(rows["z"]), tanh(inner), state[0])], inner

    def _jets(self, rows: dict[str, Interval], state: list[Interval], second: bool) -> list[Jet]:
        at = {name: Jet(value, self._row(name)) for name, value in rows.items()}
        own = [Jet(h, self._unit(k)) for k, h in enumerate(state)]
        if self.kind == "lstm":
            i, f, o, g = (curve(name, rows[gate]) for name, gate in zip(("sigmoid",) * 3 + ("tanh",), "ifog"))
            c = state[1]
            bends = {
                (0, 0): f.second * c, (0, 1): f.first, (2, 2): i.second * g.value, (2, 3): i.first * g.first,
                (3, 3): i.value * g.second,
            }  # fmt: skip
            first = [f.first * c, f.value, i.first * g.value, i.value * g.first]
            after = f.value * c + i.value * g.value
            parts = [at["f"], own[1], at["i"], at["g"]]
            inner = chained(parts, after, first, bends if second else None)
            t = curve("tanh", after)
            bends = {(0, 0): o.second * t.value, (0, 1): o.first * t.first, (1, 1): o.value * t.second}
            first = [o.first * t.value, o.value * t.first]
            return [chained([at["o"], inner], o.value * t.value, first, bends if second else None), inner]
        r, z, v, h = curve("sigmoid", rows["r"]), curve("sigmoid", rows["z"]), rows["v"], state[0]
        inner = rows["n"] + r.value * v
        bends = {(1, 1): r.second * v, (1, 2): r.first}
        one = Interval.point(np.ones(1))
        A = chained([at["n"], at["r"], at["v"]], inner, [one, r.first * v, r.value], bends if second else None)
        n, keep = curve("tanh", inner), Interval.point(1.0) - z.value
        apart = h - n.value
        bends = {
            (0, 0): z.second * apart, (0, 1): -(z.first * n.first), (0, 2): z.first, (1, 1): keep * n.second,
        }  # fmt: skip
        first = [z.first * apart, keep * n.first, z.value]
        value = mixed(z.value, n.value, h)
        return [chained([at["z"], A, own[0]], value, first, bends if second else None)]

    def _row(self, name: str) -> Interval:
        """``(1, n + q)``: a gate's argument by states and coordinates."""
        cell = self.cell
        j = GATES[cell.kind].index("n" if name == "v" else name)
        back = np.zeros((1, cell.states))
        back[0, 0] = 0.0 if name == "n" else cell.w_hh[j, 0]
        low, high = (
            np.zeros((1, self.E.low.shape[1])) if name == "v" else end[j : j + 1] for end in (self.E.low, self.E.high)
        )
        return Interval(np.concatenate([back, low], axis=1), np.concatenate([back, high], axis=1))

    def _unit(self, k: int) -> Interval:
        return Interval.point(np.eye(1, self.cell.states + self.E.low.shape[1], k))

    def _cornered(self, k: int, jet: Jet, state: list[Interval], y: Interval) -> Interval:
        """The range of a next state, by where it rises and falls."""
        n, out = len(state), jet.value
        shape = y.low.shape[0]
        slope = Interval(*(np.broadcast_to(end, (shape, end.shape[1])) for end in (jet.slope.low, jet.slope.high)))
        rises, falls = slope.low >= 0.0, slope.high <= 0.0
        found = list[Interval]()
        for up, down in ((falls, rises), (rises, falls)):  # where it is least, and where it is largest
            own = [_end(h, up[:, i], down[:, i]) for i, h in enumerate(state)]
            found.append(self.values(own, _end(y, up[:, n:], down[:, n:]))[k])
        return both(out, Interval(found[0].low, found[1].high))


def mixed(z: Interval, n: Interval, h: Interval) -> Interval:
    """``(1 - z) n + z h`` for ``z`` from 0 to 1.

    Example:
        >>> z, n, h = (Interval(np.array([a]), np.array([b])) for a, b in ((0.0, 1.0), (-1.0, 0.5), (0.25, 2.0)))
        >>> out = mixed(z, n, h)
        >>> bool(abs(out.low[0] + 1.0) < 1e-12 and abs(out.high[0] - 2.0) < 1e-12)
        True
    """
    low, high = list[Array](), list[Array]()
    for share in (z.low, z.high):
        for a, b, out in ((n.low, h.low, low), (n.high, h.high, high)):
            a_, s = Interval.point(a), Interval.point(share)
            found = a_ + s * (Interval.point(b) - a_)
            out.append(found.low if out is low else found.high)
    return Interval(np.minimum(*low), np.maximum(*high))


def _end(x: Interval, up: Array, down: Array) -> Interval:
    """The upper end of some ranges, the lower end of others, and all of the rest."""
    return Interval(np.where(up & ~down, x.high, x.low), np.where(down, x.low, x.high))
