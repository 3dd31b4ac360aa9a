r"""Invariant boxes of LSTM and GRU cells, and bounds of their Jacobian.

Everything here is rounded outwards, so that a proof may rest on it. For inputs in the cell's input box and
states in a state box, ``gate_bounds`` encloses every gate; ``is_invariant`` proves that no step leaves the box,
``absorbs`` that every trajectory enters it (where an LSTM's cell state settles is bounded in ``settling``);
``JacobianBound`` bounds ``sup |J| d`` row by row for a positive vector ``d``; ``embedding`` writes the difference of
two trajectories as a Lur'e system with one slope interval a channel.

The difference of two trajectories in the box is exact, not linearized: products are split as
``f1 c1 - f2 c2 = f1 (c1 - c2) + c2 (f1 - f2)`` and ``f1 - f2`` is a slope of the logistic function times the
difference of its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stability.kernel.arithmetic.intervals import Interval, affine, hull, sigmoid, tanh, upper_product
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.gated_equations import GATES
from stability.kernel.systems.lstm_cell_range import settling_range
from stability.kernel.systems.lure import LureSystem

Array = np.ndarray
Gates = dict[str, Interval]
PIECES = 32
GROW = 1.0 + 2.0**-40
"""Factor that covers the dozen roundings in a bound with non-negative terms."""
_ROUND = {"lstm": 5e3, "gru": 200.0}
"""Operations of one round of bounds on a slow core, in units of ``m (m + p)``."""


def _one(like: Interval) -> Interval:
    return Interval(np.ones_like(like.low), np.ones_like(like.low))


def _drive(cell: GatedCell, rows: slice) -> Interval:
    """Enclose the input's and bias's part of some rows' pre-activations."""
    weights, bias = cell.w_ih[rows], Interval.point(cell.b_ih[rows])
    if cell.input_low is not None and cell.input_high is not None:
        return affine(weights, Interval(cell.input_low, cell.input_high), bias)
    free = np.where((weights != 0).any(axis=1), np.inf, 0.0)
    return Interval(-free, free) + bias


def gate_bounds(cell: GatedCell, box: Interval) -> Gates:
    """Enclose every gate and the next state, for states in ``box`` and inputs in the cell's box.

    Args:
        cell: the cell.
        box: ``(n,)`` state box.

    Returns:
        Enclosures by the names of the cell's equations; ``next`` is that of the next state. ``v`` is the
        recurrent part of the GRU's candidate, ``t`` the LSTM's ``tanh c+``, ``q`` its ``i g / (1 - f)`` and zero.
    """
    m = cell.hidden
    h = Interval(box.low[:m], box.high[:m])
    out: Gates = {"h": h}
    for k, name in enumerate(GATES[cell.kind]):
        if cell.kind == "gru" and name == "n":
            continue
        rows = slice(k * m, (k + 1) * m)
        z = affine(cell.w_hh[rows], h, Interval.point(cell.b_hh[rows])) + _drive(cell, rows)
        out[name] = tanh(z) if name == "g" else sigmoid(z)
    if cell.kind == "lstm":
        c = Interval(box.low[m:], box.high[m:])
        q = _settling(cell, h, out)
        after = _meet(out["f"] * c + out["i"] * out["g"], hull(c, q))
        t = tanh(after)
        following = out["o"] * t
        nxt = Interval(np.concatenate([following.low, after.low]), np.concatenate([following.high, after.high]))
        return {**out, "c": c, "q": q, "t": t, "next": nxt}
    rows = slice(2 * m, None)
    seen = h if cell.reset_after else out["r"] * h
    v = affine(cell.w_hh[rows], seen, Interval.point(cell.b_hh[rows]))
    n = tanh(_drive(cell, rows) + (out["r"] * v if cell.reset_after else v))
    return {**out, "v": v, "n": n, "next": hull(n, h)}


def _settling(cell: GatedCell, h: Interval, gates: Gates) -> Interval:
    """Enclose ``i g / (1 - f)`` and zero: by the gates' own ranges, and by joint bounds."""
    gain, keeps = _around_zero(gates["i"] * gates["g"]), np.nextafter(1.0 - gates["f"].high, -np.inf)
    shut = keeps > 0.0
    if not shut.all():
        return Interval(np.full(cell.hidden, -np.inf), np.full(cell.hidden, np.inf))
    apart = Interval(np.nextafter(gain.low / keeps, -np.inf), np.nextafter(gain.high / keeps, np.inf))
    return _meet(apart, settling_range(cell, h))


def _meet(x: Interval, y: Interval) -> Interval:
    """Intersect two enclosures of the same numbers."""
    return Interval(np.maximum(x.low, y.low), np.minimum(x.high, y.high))


def is_invariant(cell: GatedCell, box: Interval) -> bool:
    """Prove that every step from ``box``, under every input of the cell's box, ends in ``box``; 0 must be in it.

    A GRU's next state lies between its candidate and its state, so the candidate in the box is enough.
    """
    if not (np.isfinite(box.low).all() and np.isfinite(box.high).all()) or not box.contains(
        Interval.point(0.0 * box.low)
    ):
        return False
    bounds = gate_bounds(cell, box)
    return box.contains(bounds["n"] if cell.kind == "gru" else bounds["next"])


def round_cost(cell: GatedCell) -> float:
    """Return the approximate operations of one round of bounds on the gates, for the search's time limit.

    Example:
        >>> round_cost(GatedCell("gru", np.zeros((3, 1)), np.zeros((3, 1))))
        400.0
    """
    return _ROUND[cell.kind] * cell.hidden * (cell.hidden + cell.inputs)


def invariant_box(
    cell: GatedCell, *, sweeps: int = 100, affords: Callable[[float], bool] = lambda operations: True
) -> Interval | None:
    """Return a small invariant box around the zero state, by shrinking the one of saturated gates.

    Wherever ``absorbs`` can be proved of some box, it is of this one.

    Args:
        cell: the cell.
        sweeps: most rounds of shrinking.
        affords: function of a number of operations, True if there is time for them; called before every round.

    Returns:
        The box, proved by ``is_invariant``, or ``None`` when there is none (a forget gate that may reach 1), or no
        time for the first rounds; without time for others it is wider.

    Example:
        >>> cell = GatedCell("gru", np.zeros((3, 1)), np.array([[0.0], [0.0], [0.5]]), b_ih=np.array([0, 0, 0.1]))
        >>> box = invariant_box(cell)
        >>> bool(box.low[0] > -0.01), bool(box.high[0] < 0.2)
        (True, True)
    """
    m, cost = cell.hidden, round_cost(cell)
    box = _widest(cell) if affords(cost) else None
    if box is None:
        return None
    for _ in range(sweeps):
        if not affords(4.0 * cost):  # the proof at the end takes up to three rounds
            break
        new = _shrunk(cell, box)
        moved = float(max(np.max(new.low - box.low), np.max(box.high - new.high)))
        box = new
        if moved < 1e-9:
            break
    for slack in (1e-12, 1e-9, 1e-6, 1e-3):
        if not affords(cost):
            return None
        wide: Interval | None = Interval(np.maximum(box.low[:m] - slack, -1.0), np.minimum(box.high[:m] + slack, 1.0))
        if cell.kind == "lstm":
            wide = _with_cell_state(cell, wide, rooms=2.0)
        if wide is not None and is_invariant(cell, wide):
            return wide
    return None


def absorbs(cell: GatedCell, box: Interval, *, sweeps: int = 300) -> bool:
    r"""Prove that every trajectory from ``|h| <= 1`` and any ``c`` enters ``box``, under every input of the cell's box.

    Let ``H`` be a box in whose every neighborhood all trajectories end, at first ``[-1, 1]``. Bounds of the gates
    over ``H`` give a smaller one:

    * LSTM: ``c+ = f c + (1 - f) q`` with ``q = i g / (1 - f)``, so with ``sup f < 1`` the distance of ``c`` to the
      range of ``q`` shrinks by that factor a step: ``c`` ends in that range, and ``h`` in the image of ``o tanh c``.
      The first step brings ``h`` into ``(-1, 1)`` from wherever it was.
    * GRU: ``h+`` lies between ``n`` and ``h``, and with ``sup z < 1`` the distance of ``h`` to the range of ``n``
      shrinks by that factor a step, so ``h`` ends in that range.

    These bounds depend continuously on ``H``, so they may be repeated. Where they end up strictly inside ``box``
    (or at the end of ``[-1, 1]``, which no step leaves), every trajectory enters it after a time that is the same for
    all trajectories from one bounded set.

    Args:
        cell: the cell.
        box: ``(n,)`` state box.
        sweeps: most rounds.

    Returns:
        Whether it is proved.
    """
    m = cell.hidden
    state = _widest(cell)
    if state is None or (cell.kind == "gru" and not (gate_bounds(cell, state)["z"].high < 1.0).all()):
        return False
    for _ in range(sweeps):
        below, above = box.low < state.low, state.high < box.high
        below[:m] |= box.low[:m] <= -1.0
        above[:m] |= box.high[:m] >= 1.0
        if below.all() and above.all():
            return True
        state = _shrunk(cell, state)
    return False


def _widest(cell: GatedCell) -> Interval | None:
    """Return the box of saturated hidden units; ``None`` if a forget gate may keep its cell state forever."""
    h = Interval(-np.ones(cell.hidden), np.ones(cell.hidden))
    return _with_cell_state(cell, h) if cell.kind == "lstm" else h


def _shrunk(cell: GatedCell, box: Interval) -> Interval:
    """Return the part of ``box`` that contains all final states, rounded outwards; 0 stays in it."""
    bounds = gate_bounds(cell, box)
    if cell.kind == "gru":
        new = _around_zero(bounds["n"])
    else:
        after = _with_cell_state(cell, _around_zero(bounds["o"] * tanh(bounds["c"])))
        new = box if after is None else after
    return Interval(np.maximum(new.low, box.low), np.minimum(new.high, box.high))


def _around_zero(x: Interval) -> Interval:
    return Interval(np.minimum(x.low, 0.0), np.maximum(x.high, 0.0))


def _with_cell_state(cell: GatedCell, h: Interval, rooms: float = 1.0) -> Interval | None:
    """Extend a box of hidden units by the LSTM's cell state: ``c+ = f c + (1 - f) q`` settles in the range of ``q``."""
    bounds = gate_bounds(cell, Interval(np.tile(h.low, 2), np.tile(h.high, 2)))  # no gate reads the cell state
    q, forget = bounds["q"], bounds["f"].high
    if not (np.isfinite(q.low).all() and np.isfinite(q.high).all()):
        return None
    room = rooms * 1e-14 / (1.0 - forget)  # for the roundings of the step that must stay inside
    low, high = q.low * (1.0 + room) - room, q.high * (1.0 + room) + room
    return Interval(np.concatenate([h.low, low]), np.concatenate([h.high, high]))


def _sup_gate(gate: Interval, direct: Array, gated: Array, rest: Array | float = 0.0) -> Array:
    """Bound ``s direct + s (1 - s) gated + (1 - s) rest`` above over ``s`` in ``gate``; all arguments >= 0.

    The function is concave in ``s``; a rounded maximizer costs a second-order error, which ``GROW`` covers.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        peak = np.nan_to_num((direct - rest + gated) / (2.0 * gated))  # without a peak an end is the largest
        candidates = (np.clip(peak, gate.low, gate.high), gate.low, gate.high)
        values = [s * direct + s * (1.0 - s) * gated + (1.0 - s) * rest for s in candidates]
    return np.nextafter(np.maximum.reduce(values) * GROW, np.inf)


def _pieces(value: Interval, gate: Interval) -> tuple[Array, Array, Interval]:
    """Split the modulus of tanh values ``y`` in ``PIECES`` slices, ``(PIECES, m)``: their upper ends, upper bounds of
    ``1 - y^2`` there, and the gate's interval repeated.
    """
    low, high = value.mignitude, value.magnitude
    points = low + np.linspace(0.0, 1.0, PIECES + 1)[:, None] * (high - low)
    points[0], points[-1] = low, high
    low, high = points[:-1], np.maximum(points[1:], points[:-1])
    flat = np.nextafter(np.maximum(1.0 - low * low, 0.0) * GROW + 2.0**-52, np.inf)
    return high, flat, Interval(np.broadcast_to(gate.low, low.shape), np.broadcast_to(gate.high, low.shape))


@dataclass(frozen=True)
class JacobianBound:
    """Row-wise bound ``apply(d) >= sup |J| d`` over the state box and the input box.

    Within a row the bound keeps what is common to several terms: a gate cannot be open and steep at once, and a
    saturated ``tanh`` is flat. ``apply`` is monotone and homogeneous up to rounding.

    Attributes:
        cell: the cell.
        box: the state box.
    """

    cell: GatedCell
    box: Interval

    @cached_property
    def gates(self) -> Gates:
        """Enclosures of the gates over the boxes."""
        return gate_bounds(self.cell, self.box)

    @cached_property
    def weights(self) -> dict[str, Array]:
        """Absolute recurrent weights, gate by gate."""
        return {k: np.abs(self.cell.gate(k)[1]) for k in GATES[self.cell.kind]}

    def apply(self, d: Array) -> Array:
        """Return the bound at a positive vector.

        Args:
            d: ``(n,)``, entries > 0.

        Returns:
            ``(n,)``.
        """
        return self._lstm(d) if self.cell.kind == "lstm" else self._gru(d)

    def _lstm(self, d: Array) -> Array:
        m, g = self.cell.hidden, self.gates
        reach = {k: upper_product(w, d[:m]) for k, w in self.weights.items()}
        forget = _sup_gate(g["f"], d[m:], np.nextafter(g["c"].magnitude * reach["f"], np.inf))
        row_c = np.nextafter(forget + _sup_product(g["i"], g["g"], reach["g"], reach["i"]), np.inf)
        return np.concatenate([_sup_product(g["o"], g["t"], row_c, reach["o"]), row_c])

    def _gru(self, d: Array) -> Array:
        g, w = self.gates, self.weights
        reset = upper_product(w["r"], d)
        if self.cell.reset_after:
            inner = _sup_gate(g["r"], upper_product(w["n"], d), np.nextafter(g["v"].magnitude * reset, np.inf))
        else:
            inner = upper_product(w["n"], _sup_gate(g["r"], d, np.nextafter(g["h"].magnitude * reset, np.inf)))
        update = upper_product(w["z"], d)
        high, flat, gate = _pieces(g["n"], g["z"])
        spread = np.nextafter(g["h"].magnitude + high, np.inf)  # for |n| in a slice: |h - n| <= |h| + high
        bound = _sup_gate(gate, np.broadcast_to(d, high.shape), spread * update * GROW, flat * inner * GROW)
        return bound.max(axis=0)


def _sup_product(gate: Interval, value: Interval, direct: Array, gated: Array) -> Array:
    """Bound ``s ((1 - y^2) direct + (1 - s) |y| gated)`` above.

    It is the derivative of ``s y`` for a logistic ``s`` and a hyperbolic tangent ``y``.
    """
    high, flat, over = _pieces(value, gate)
    return _sup_gate(over, flat * direct * GROW, high * gated * GROW).max(axis=0)


def _slope_sigmoid(s: Interval) -> Interval:
    """Bound slopes of the logistic function between arguments whose images lie in ``s``."""
    ends = [Interval.point(x) for x in (s.low, s.high)]
    low, high = (e * (_one(e) - e) for e in ends)
    out = hull(low, high)
    peak = (s.low <= 0.5) & (s.high >= 0.5)
    return Interval(np.maximum(out.low, 0.0), np.where(peak, 0.25, np.minimum(out.high, 0.25)))


def _slope_tanh(t: Interval) -> Interval:
    """Bound slopes of ``tanh`` between arguments whose images lie in ``t``."""
    square = t.square()
    out = _one(square) - square
    return Interval(np.maximum(out.low, 0.0), np.minimum(out.high, 1.0))


def embedding(cell: GatedCell, box: Interval) -> LureSystem:
    r"""Return the difference of two trajectories in the box as a Lur'e system: every pair satisfies it for some slopes.

    LSTM, with ``d = (dh, dc)`` and slopes ``k`` in intervals: ``dc+ = w1 + w2 + w3 + w4`` with
    ``w1 = k c2 s_f' R_f dh``, ``w2 = g s_i' R_i dh``, ``w3 = i t_g' R_g dh``, ``w4 = f dc``, and
    ``dh+ = w5 + w6`` with ``w5 = o tanh' dc+``, ``w6 = tanh(c+) s_o' R_o dh``: six channels a unit. GRU: four.

    Args:
        cell: the cell.
        box: a state box.

    Returns:
        A discrete system with ``dt = 1``; its matrices are the cell's own weights, zeros and ones.
    """
    m, g = cell.hidden, gate_bounds(cell, box)
    eye, zero = np.eye(m), np.zeros((m, m))
    w = {k: cell.gate(k)[1] for k in GATES[cell.kind]}
    if cell.kind == "lstm":
        slopes = [
            g["c"] * _slope_sigmoid(g["f"]),
            g["g"] * _slope_sigmoid(g["i"]),
            g["i"] * _slope_tanh(g["g"]),
            g["f"],
            g["o"] * _slope_tanh(g["t"]),
            g["t"] * _slope_sigmoid(g["o"]),
        ]
        B = np.block([[zero, zero, zero, zero, eye, eye], [eye, eye, eye, eye, zero, zero]])
        C = np.block([[w["f"], zero], [w["i"], zero], [w["g"], zero], [zero, eye], [zero, zero], [w["o"], zero]])
        D = np.zeros((6 * m, 6 * m))
        D[4 * m : 5 * m, : 4 * m] = np.hstack([eye] * 4)
    else:
        flat = (_one(g["z"]) - g["z"]) * _slope_tanh(g["n"])
        spread = (g["h"] - g["n"]) * _slope_sigmoid(g["z"])
        if cell.reset_after:
            slopes = [g["z"], spread, flat * g["r"], flat * g["v"] * _slope_sigmoid(g["r"])]
            B = np.hstack([eye] * 4)
            C = np.vstack([eye, w["z"], w["n"], w["r"]])
            D = None
        else:
            slopes = [g["z"], spread, g["r"], g["h"] * _slope_sigmoid(g["r"]), flat]
            B = np.hstack([eye, eye, zero, zero, eye])
            C = np.vstack([eye, w["z"], eye, w["r"], zero])
            D = np.zeros((5 * m, 5 * m))
            D[4 * m :, 2 * m : 4 * m] = np.hstack([w["n"], w["n"]])
    alpha, beta = np.concatenate([s.low for s in slopes]), np.concatenate([s.high for s in slopes])
    return LureSystem(np.zeros((cell.states, cell.states)), B, C, D, (alpha, beta), 1.0)
