r"""Second-order Taylor polynomials of activations and gates, with bounds of the remainder.

A unit is a channel of an activation, or the sum of the channels of a gated cell's unit:

.. math:: f(z + v) = f(z) + f'(z) v + v^T H v + \text{rest}, \qquad |\text{rest}| \le \sum_i \theta_i |v_i|,
          \quad |v_i| \le r_i,

with ``H`` half the Hessian and ``theta`` from bounds of the third derivatives over the reach (for products
:math:`\sigma(a) \psi(b)`: of the factors' derivatives, each over its own interval). At a kink ``H`` is zero, and the
rest is the deviation from the line on the other side of the kink.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activation_bounds import derivative_suprema
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability.gate_units import Unit
from stability.kernel.reachability.stages import TERMS, Activated, Stage

Array = np.ndarray
_ROUND_UP = 1.0 + 1e-12
_TINY = 512 * EPS


@dataclass(frozen=True, eq=False)
class Hessians:
    """Halved Hessians of a stage's units.

    Attributes:
        units: number of units.
        blocks: rows of one unit; row ``i`` of unit ``k`` is number ``i units + k``.
        entries: the nonzero ``H_ij (units,)`` by ``(i, j)``, including both ``(i, j)`` and ``(j, i)``.
        error: ``(blocks, units)``: one error bound for all entries of each row.
    """

    units: int
    blocks: int
    entries: dict[tuple[int, int], Array]
    error: Array


def hessians(stage: Stage, rows: Array, offset: Array) -> Hessians:
    """Return the halved Hessians at rows ``(m,)`` within ``offset`` of the exact ones."""
    if isinstance(stage, Activated):
        phi = activation(stage.name)
        curve = phi.slope[1] * (phi.width or 0.0)
        error = _TINY * curve * np.ones((1, len(rows))) + 2.0 * curve * (phi.width or 0.0) * offset
        entries = {} if phi.width is None else {(0, 0): 0.5 * phi.second_derivative(rows)}
        return Hessians(len(rows), 1, entries, error)
    blocks, terms = TERMS[type(stage)]
    units = len(rows) // blocks
    at, off = rows.reshape(blocks, units), offset.reshape(blocks, units)
    entries: dict[tuple[int, int], Array] = {}
    error = np.zeros((blocks, units))
    for sign, i, j, name in terms:
        faa, fab, fbb = Unit(name, gated=True).hessian(sign * at[i], at[j])
        for place, value in (((i, i), faa), ((i, j), sign * fab), ((j, i), sign * fab), ((j, j), fbb)):
            entries[place] = entries.get(place, 0.0) + 0.5 * value
        size = _TINY * (1.0 + np.abs(at[j])) + 4.0 * (off[i] + off[j]) * (1.0 + np.abs(at[j]) + off[j])
        error[[i, j]] += size
    return Hessians(units, blocks, {place: value for place, value in entries.items() if value.any()}, error)


def third_order(
    unit: tuple[str, Array, Array], within: tuple[Array, Array], by: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Bound the third-order remainder ``p v_a^2 + q v_b^2`` of a gated product ``sigma(a) psi(b)``.

    Args:
        unit: name of ``psi``, and the arguments.
        within: reach over which derivatives are bounded.
        by: reach of the perturbation ``v``, at most as large.
    """
    name, a, b = unit
    gate, inner = derivative_suprema("sigmoid", a, within[0]), derivative_suprema(name, b, within[1])
    return (
        (gate[3] * inner[0] * by[0] + 3.0 * gate[2] * inner[1] * by[1]) / 6.0,
        (gate[0] * inner[3] * by[1] + 3.0 * gate[1] * inner[2] * by[0]) / 6.0,
    )


def remainder_slopes(stage: Stage, rows: Array, offset: Array, reach: Array) -> Array:
    """Bound the slopes ``theta (m,)`` of the Taylor remainder above, for rows that move by at most ``reach``.

    Args:
        stage: the stage.
        rows: ``(m,)``.
        offset: ``(m,)`` bound of the distance from the exact rows.
        reach: ``(m,)``.

    Example:
        >>> one = np.eye(1)
        >>> stage = Activated(0.0 * one, one, one, np.zeros(1), None, False, "tanh")
        >>> z, v = np.array([0.7]), np.linspace(-0.5, 0.5, 11)
        >>> t = np.tanh(0.7)
        >>> left = np.abs(np.tanh(0.7 + v) - t - (1 - t * t) * (v - t * v * v))
        >>> bool((left <= remainder_slopes(stage, z, 0.0 * z, np.array([0.5])) * np.abs(v) + 1e-16).all())
        True
    """
    if isinstance(stage, Activated):
        phi = activation(stage.name)
        if phi.width is None:
            slope = np.maximum(reach + offset - phi.to_kink(rows), 0.0) / np.maximum(reach, 1e-300)
            return (phi.slope[1] - phi.slope[0]) * np.minimum(slope * _ROUND_UP, 1.0)
        return derivative_suprema(stage.name, rows, reach + offset)[3] / 6.0 * reach * reach * _ROUND_UP
    blocks, terms = TERMS[type(stage)]
    at, reaches, wide = (v.reshape(blocks, -1) for v in (rows, reach, reach + offset))
    out = np.zeros_like(at)
    for sign, i, j, name in terms:
        by_a, by_b = third_order((name, sign * at[i], at[j]), (wide[i], wide[j]), (reaches[i], reaches[j]))
        out[i] += by_a * reaches[i]
        out[j] += by_b * reaches[j]
    return out.reshape(-1) * _ROUND_UP
