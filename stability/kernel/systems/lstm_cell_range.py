r"""Ranges of the cell state of an LSTM over boxes of hidden states and inputs.

With :math:`q = i g / (1 - f)` the step is a convex mix, :math:`c^+ = f c + (1 - f) q`: a cell state between two bounds
of ``q`` stays there, and one outside comes closer by a factor of ``f`` a step. The gates read the same hidden units and
inputs, so that a large ``i g`` and a forget gate near one need not occur together: with ``b`` the forget gate's
pre-activation, :math:`q = \sigma(a) \tanh(z)\,(1 + e^b)` is bounded slice by slice of ``b``. Within a slice
``e <= b <= E`` the largest ``a`` and ``z`` are bounded by Lagrange's inequality, for any numbers ``k >= 0``,

.. math:: \sup_{b \ge e} z \le \sup (z + k b) - k e, \qquad \sup_{b \le E} z \le \sup (z - k b) + k E ,

whose right-hand sides are suprema of affine functions over a box.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.arithmetic.intervals import Interval, affine, sigmoid, tanh, upper_product
from stability.kernel.systems.gated_cell import GatedCell

Array = np.ndarray
SLICES = 64
_AT_ONCE = 2**16
"""Weights of a gate in one batch, which fit the cache."""
MULTIPLIERS = 2.0 ** np.arange(-3.0, 4.0)
"""Candidate multipliers, in ratios of the ranges of both pre-activations; any are sound, zero is also tried."""
_TOGETHER = 2**18
"""Most entries of the matrices of jointly tried multipliers."""


def _upper(x: Array) -> Array:
    return np.nextafter(x, np.inf)


def settling_range(cell: GatedCell, h: Interval) -> Interval:
    """Enclose ``i g / (1 - f)`` and zero, for hidden units in ``h`` and inputs in the cell's box.

    Args:
        cell: an LSTM.
        h: ``(m,)`` box of hidden units.

    Returns:
        ``(m,)``; infinite in every entry where a forget gate may reach one in float64, or the inputs have no box.

    Example:
        >>> w = np.array([[1.0], [1.0], [-1.0], [0.0]])  # what opens the forget gate closes the candidate
        >>> cell = GatedCell("lstm", w, np.zeros((4, 1)), input_low=-1.0, input_high=1.0)
        >>> box = settling_range(cell, Interval(np.zeros(1), np.zeros(1)))
        >>> (-box.low).round(2), box.high.round(2)  # apart, the gates allow 2.07 at both ends
        (array([2.07]), array([0.31]))
    """
    known, key = _KNOWN.setdefault(cell, {}), (h.low.tobytes(), h.high.tobytes())
    if key not in known:
        while len(known) >= _KEPT:
            known.pop(next(iter(known)))
        known[key] = _settling_range(cell, h)
    return known[key]


_KNOWN: WeakKeyDictionary[GatedCell, dict[tuple[bytes, bytes], Interval]] = WeakKeyDictionary()
_KEPT = 32
"""Number of cached boxes of a cell: a search repeats a box seven times. A cell's weights never change."""


def _settling_range(cell: GatedCell, h: Interval) -> Interval:
    m = cell.hidden
    free = Interval(np.full(m, -np.inf), np.full(m, np.inf))
    if cell.input_low is None or cell.input_high is None:
        return free
    x = Interval(np.concatenate([h.low, cell.input_low]), np.concatenate([h.high, cell.input_high]))
    size = max(1, _AT_ONCE // len(x.low))
    parts = [_of_units(cell, x, slice(k, k + size)) for k in range(0, m, size)]
    if any(part is None for part in parts):
        return free
    low, high = (np.concatenate([getattr(part, end) for part in parts]) for end in ("low", "high"))
    return Interval(low, high)


def _of_units(cell: GatedCell, x: Interval, units: slice) -> Interval | None:
    """Return the range of some units; ``None`` if a forget gate may reach one."""
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
    keeps = sigmoid(Interval.point(-edges[1:])).low  # 1 - f or less
    if not (keeps > 0.0).all():
        return None
    (above, _), reach = (
        _pre_activation_bounds(rows, offsets, "i", x, edges),
        _pre_activation_bounds(rows, offsets, "g", x, edges),
    )
    opens = sigmoid(Interval.point(above)).high
    ends = [np.maximum(tanh(Interval.point(z)).high, 0.0) for z in reach]
    high, low = (_upper(_upper(opens * end) / keeps).max(axis=0) for end in ends)
    return Interval(-low, high)


def _pre_activation_bounds(
    rows: dict[str, Array], offsets: dict[str, Interval], name: str, x: Interval, edges: Array
) -> tuple[Array, Array]:
    """Bound a gate's pre-activation and its negative above, ``(SLICES, m)``, with the forget gate's between ``edges``
    ``(SLICES + 1, m)``.
    """
    width = x.high - x.low
    spread, against = (np.abs(rows[k]) @ width for k in (name, "f"))
    unit = np.where(against > 0.0, spread / np.where(against > 0.0, against, 1.0), 0.0)
    unit = np.where(np.isfinite(unit), unit, 0.0)
    plain = affine(rows[name], x, offsets[name])
    best = [np.broadcast_to(end, edges[1:].shape) for end in (plain.high, -plain.low)]
    lower, upper = edges[:-1], edges[1:]
    for sizes in np.array_split(MULTIPLIERS, min(len(MULTIPLIERS), -(-14 * rows[name].size // _TOGETHER))):
        size = sizes[:, None] * unit
        k = np.concatenate([size, -size])
        both = (rows[name] + k[:, :, None] * rows["f"]).reshape(-1, len(x.low))
        # what the roundings of this sum may add over the box
        terms = np.abs(rows[name]) + size[:, :, None] * np.abs(rows["f"])
        error = upper_product((4.0 * EPS * terms + TINY).reshape(-1, len(x.low)), x.magnitude)
        error = np.concatenate([error, error])
        offset = offsets[name] + Interval.point(k) * offsets["f"]
        sums = affine(both, x, Interval(offset.low.ravel(), offset.high.ravel())) + Interval(-error, error)
        high, low = (end.reshape(2, *size.shape)[:, :, None] for end in (sums.high, -sums.low))
        # the bound of sign z has the multiplier sign k: one that is not negative is of the lower edge
        of_lower, of_upper = size[:, None] * lower, size[:, None] * upper
        reach = np.abs(size).max(axis=0) * np.maximum(np.abs(lower[0]), np.abs(upper[-1]))
        for side, (support, other) in enumerate(((high[0], high[1]), (low[1], low[0]))):
            bound = np.fmin.reduce(np.fmin(support - of_lower, other + of_upper))  # no number is no bound
            largest = np.where(np.isfinite(support), np.abs(support), 0.0)
            largest = np.maximum(largest, np.where(np.isfinite(other), np.abs(other), 0.0)).max(axis=(0, 1))
            best[side] = np.fmin(
                best[side], _upper(bound + (8.0 * EPS * (largest + reach) + TINY))
            )  # of both roundings
    return best[0], best[1]
