r"""Ranges of the cell state of an LSTM over boxes of hidden states and inputs.

Let ``i``, ``f`` be the input and forget gates and ``g`` the candidate, with pre-activations ``a``, ``b``, ``z``. With
:math:`q = i g / (1 - f)` the step is a convex combination, :math:`c^+ = f c + (1 - f) q`: a cell state between two
bounds of ``q`` stays there, and the distance of one outside shrinks by the factor ``f`` at each step. The gates read
the same hidden units and inputs, so that a large ``i g`` and a forget gate near one need not occur together.
Therefore :math:`q = \sigma(a) \tanh(z)\,(1 + e^b)` is bounded separately on slices ``e <= b <= E``. On a slice the
largest ``a`` and ``z`` are bounded by Lagrangian relaxation with any multiplier ``k >= 0``,

.. math:: \sup_{b \ge e} z \le \sup (z + k b) - k e, \qquad \sup_{b \le E} z \le \sup (z - k b) + k E .

The right-hand sides are suprema of affine functions over a box.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.arithmetic.intervals import Interval, affine, sigmoid, tanh, upper_product
from stability.kernel.systems.gated_cell import GatedCell

Array = np.ndarray
SLICES = 64  # number of slices of the forget gate's pre-activation
_BATCH_WEIGHTS = 2**16
"""Weights of a gate in one batch of units: they fit the processor's cache."""
MULTIPLIERS = 2.0 ** np.arange(-3.0, 4.0)
"""Tried multipliers ``k``, divided by the ratio of the two pre-activations' widths. Zero is also tried; any is sound.
"""
_BATCH_ENTRIES = 2**18
"""Most entries of the matrices of one batch of multipliers."""


def _upper(x: Array) -> Array:
    return np.nextafter(x, np.inf)


def settling_range(cell: GatedCell, h: Interval) -> Interval:
    """Enclose ``i g / (1 - f)`` and zero, for hidden units in ``h`` and inputs in the cell's box.

    Args:
        cell: an LSTM.
        h: ``(m,)`` box of hidden units.

    Returns:
        ``(m,)``. All entries are infinite if a forget gate may reach one in float64, or if the inputs have no box.

    Example:
        >>> w = np.array([[1.0], [1.0], [-1.0], [0.0]])  # inputs that open the forget gate lower the candidate
        >>> cell = GatedCell("lstm", w, np.zeros((4, 1)), input_low=-1.0, input_high=1.0)
        >>> box = settling_range(cell, Interval(np.zeros(1), np.zeros(1)))
        >>> (-box.low).round(2), box.high.round(2)  # separate bounds of the gates give 2.07 twice
        (array([2.07]), array([0.31]))
    """
    known, key = _CACHE.setdefault(cell, {}), (h.low.tobytes(), h.high.tobytes())
    if key not in known:
        while len(known) >= _CACHED_BOXES:
            known.pop(next(iter(known)))
        known[key] = _settling_range(cell, h)
    return known[key]


_CACHE: WeakKeyDictionary[GatedCell, dict[tuple[bytes, bytes], Interval]] = WeakKeyDictionary()
_CACHED_BOXES = 32
"""Number of boxes whose ranges are cached per cell: a search asks for a box up to seven times."""


def _settling_range(cell: GatedCell, h: Interval) -> Interval:
    """Compute ``settling_range`` without the cache."""
    m = cell.hidden
    unbounded = Interval(np.full(m, -np.inf), np.full(m, np.inf))
    if cell.input_low is None or cell.input_high is None:
        return unbounded
    x = Interval(np.concatenate([h.low, cell.input_low]), np.concatenate([h.high, cell.input_high]))
    size = max(1, _BATCH_WEIGHTS // len(x.low))
    parts = [_range_of_units(cell, x, slice(k, k + size)) for k in range(0, m, size)]
    if any(part is None for part in parts):
        return unbounded
    low, high = (np.concatenate([getattr(part, end) for part in parts]) for end in ("low", "high"))
    return Interval(low, high)


def _range_of_units(cell: GatedCell, x: Interval, units: slice) -> Interval | None:
    """Enclose ``i g / (1 - f)`` for some units; return ``None`` if a forget gate may reach one."""
    rows, offsets = {}, {}
    for name in "ifg":
        w_ih, w_hh, b_ih, b_hh = (part[units] for part in cell.gate(name))
        rows[name], offsets[name] = np.hstack([w_hh, w_ih]), Interval.point(b_ih) + Interval.point(b_hh)
    forget = affine(rows["f"], x, offsets["f"])
    if not (np.isfinite(forget.low).all() and np.isfinite(forget.high).all()):
        return None
    edges = forget.low + np.linspace(0.0, 1.0, SLICES + 1)[:, None] * (forget.high - forget.low)
    edges[0], edges[-1] = forget.low, forget.high
    edges = np.maximum.accumulate(np.minimum(edges, forget.high), axis=0)
    one_minus_forget = sigmoid(Interval.point(-edges[1:])).low  # lower bound
    if not (one_minus_forget > 0.0).all():
        return None
    (input_bound, _), candidate_bounds = (
        _pre_activation_bounds(rows, offsets, "i", x, edges),
        _pre_activation_bounds(rows, offsets, "g", x, edges),
    )
    input_gate = sigmoid(Interval.point(input_bound)).high
    candidates = [np.maximum(tanh(Interval.point(z)).high, 0.0) for z in candidate_bounds]
    high, low = (_upper(_upper(input_gate * g) / one_minus_forget).max(axis=0) for g in candidates)
    return Interval(-low, high)


def _pre_activation_bounds(
    rows: dict[str, Array], offsets: dict[str, Interval], name: str, x: Interval, edges: Array
) -> tuple[Array, Array]:
    """Return upper bounds ``(SLICES, m)`` of a gate's pre-activation ``z`` and of ``-z``, on every slice.

    Args:
        rows: weights of the gates on ``x``, by the gate's name.
        offsets: their biases.
        name: the gate.
        x: box of hidden units and inputs.
        edges: ``(SLICES + 1, m)`` ends of the slices of the forget gate's pre-activation.
    """
    width = x.high - x.low
    gate_width, forget_width = (np.abs(rows[k]) @ width for k in (name, "f"))
    unit = np.where(forget_width > 0.0, gate_width / np.where(forget_width > 0.0, forget_width, 1.0), 0.0)
    unit = np.where(np.isfinite(unit), unit, 0.0)  # unit of the multipliers
    plain = affine(rows[name], x, offsets[name])
    best = [np.broadcast_to(end, edges[1:].shape) for end in (plain.high, -plain.low)]
    lower, upper = edges[:-1], edges[1:]
    for sizes in np.array_split(MULTIPLIERS, min(len(MULTIPLIERS), -(-14 * rows[name].size // _BATCH_ENTRIES))):
        size = sizes[:, None] * unit
        k = np.concatenate([size, -size])
        combined = (rows[name] + k[:, :, None] * rows["f"]).reshape(-1, len(x.low))
        # error of the combined weights, times the largest entries of the box
        terms = np.abs(rows[name]) + size[:, :, None] * np.abs(rows["f"])
        error = upper_product((4.0 * EPS * terms + TINY).reshape(-1, len(x.low)), x.magnitude)
        error = np.concatenate([error, error])
        offset = offsets[name] + Interval.point(k) * offsets["f"]
        sums = affine(combined, x, Interval(offset.low.ravel(), offset.high.ravel())) + Interval(-error, error)
        high, low = (end.reshape(2, *size.shape)[:, :, None] for end in (sums.high, -sums.low))
        # z is bounded with + k at the lower edge and - k at the upper one; -z with the signs of k exchanged
        at_lower, at_upper = size[:, None] * lower, size[:, None] * upper
        reach = np.abs(size).max(axis=0) * np.maximum(np.abs(lower[0]), np.abs(upper[-1]))
        for side, (support, other) in enumerate(((high[0], high[1]), (low[1], low[0]))):
            bound = np.fmin.reduce(np.fmin(support - at_lower, other + at_upper))  # NaN counts as no bound
            largest = np.where(np.isfinite(support), np.abs(support), 0.0)
            largest = np.maximum(largest, np.where(np.isfinite(other), np.abs(other), 0.0)).max(axis=(0, 1))
            rounding = 8.0 * EPS * (largest + reach) + TINY  # errors of the product and of the sum
            best[side] = np.fmin(best[side], _upper(bound + rounding))
    return best[0], best[1]
