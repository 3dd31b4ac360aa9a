r"""Second-order Taylor polynomials of activations and gates, with bounds of the remainder.

A unit is a channel of an activation, or the sum of the channels of a gated cell's unit:

.. math:: f(z + v) = f(z) + f'(z) v + v^T H v + \text{rest}, \qquad |\text{rest}| \le \sum_i \theta_i |v_i|,
          \quad |v_i| \le r_i,

with ``H`` half the Hessian and ``theta`` from bounds of the third derivatives over the reach (for products
:math:`\sigma(a) \psi(b)`: of the factors' derivatives, each over its own interval). A kink has no ``H``, and the rest
is what lies on its other side.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability.gate_units import Unit
from stability.kernel.reachability.stages import TERMS, Activated, Stage

Array = np.ndarray
_SURE = 1.0 + 1e-12
_TINY = 512 * EPS
_TOP = 0.7699
"""Above ``sup |tanh''| = 4 / 27^(1/2)``."""


@dataclass(frozen=True, eq=False)
class Hessians:
    """Half the Hessians of a stage's units.

    Attributes:
        units: how many.
        blocks: rows of one unit; row ``i`` of unit ``k`` is number ``i units + k``.
        entries: ``H_ij (units,)`` by ``(i, j)``, those that are not zero; both ``(i, j)`` and ``(j, i)`` are there.
        error: ``(blocks, units)``: what the floats of each row's entries may miss, all together.
    """

    units: int
    blocks: int
    entries: dict[tuple[int, int], Array]
    error: Array


def hessians(stage: Stage, rows: Array, offset: Array) -> Hessians:
    """They, at rows ``(m,)`` that the exact ones differ from by ``offset`` at most."""
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


def rest(stage: Stage, rows: Array, offset: Array, reach: Array) -> Array:
    """``theta (m,)``, rounded upwards, for rows that move by at most ``reach``.

    Args:
        stage: the stage.
        rows: ``(m,)``.
        offset: ``(m,)`` what the exact rows differ from these at most.
        reach: ``(m,)``.

    Example:
        >>> one = np.eye(1)
        >>> stage = Activated(0.0 * one, one, one, np.zeros(1), None, False, "tanh")
        >>> z, v = np.array([0.7]), np.linspace(-0.5, 0.5, 11)
        >>> t = np.tanh(0.7)
        >>> left = np.abs(np.tanh(0.7 + v) - t - (1 - t * t) * (v - t * v * v))
        >>> bool((left <= rest(stage, z, 0.0 * z, np.array([0.5])) * np.abs(v) + 1e-16).all())
        True
    """
    if isinstance(stage, Activated):
        phi = activation(stage.name)
        if phi.width is None:
            beyond = np.maximum(reach + offset - phi.to_kink(rows), 0.0) / np.maximum(reach, 1e-300)
            return (phi.slope[1] - phi.slope[0]) * np.minimum(beyond * _SURE, 1.0)
        third = phi.slope[1] * phi.width**2 * _third_of_tanh(phi.width * rows, phi.width * (reach + offset))
        return third / 6.0 * reach * reach * _SURE
    blocks, terms = TERMS[type(stage)]
    at, far, wide = (v.reshape(blocks, -1) for v in (rows, reach, reach + offset))
    out = np.zeros_like(at)
    for sign, i, j, name in terms:
        gate, inner = _most("sigmoid", sign * at[i], wide[i]), _most(name, at[j], wide[j])
        out[i] += (gate[3] * inner[0] * far[i] + 3.0 * gate[2] * inner[1] * far[j]) / 6.0 * far[i]
        out[j] += (gate[0] * inner[3] * far[j] + 3.0 * gate[1] * inner[2] * far[i]) / 6.0 * far[j]
    return out.reshape(-1) * _SURE


def _most(name: str, z: Array, reach: Array) -> tuple[Array, Array, Array, Array]:
    """The largest ``|phi|, |phi'|, |phi''|, |phi'''|`` within reach of ``z``."""
    if name == "identity":
        none = np.zeros_like(z)
        return (np.abs(z) + reach) * _SURE, none + 1.0, none, none
    phi = activation(name)
    width, top = float(phi.width or 0.0), phi.slope[1]
    near = np.maximum(width * (np.abs(z) - reach), 0.0)
    value = (phi.function(z + reach) if name == "sigmoid" else np.tanh(np.abs(z) + reach)) + _TINY
    slope = top * (1.0 - np.tanh(near) ** 2 + _TINY)
    bend = top * width * _second_of_tanh(width * z, width * reach)
    return value, slope, bend, top * width * width * _third_of_tanh(width * z, width * reach)


def _ends(z: Array, reach: Array) -> tuple[Array, Array]:
    """``|tanh|`` at its least and its largest within reach."""
    return np.tanh(np.maximum(np.abs(z) - reach, 0.0)), np.tanh(np.abs(z) + reach)


def _second_of_tanh(z: Array, reach: Array) -> Array:
    """``sup 2 t (1 - t^2)``, which is largest at ``t = 3^(-1/2)``."""
    low, high = _ends(z, reach)
    ends = np.maximum(low * (1.0 - low * low), high * (1.0 - high * high))
    top = 3.0**-0.5
    return np.where((low < top + _TINY) & (high > top - _TINY), _TOP, 2.0 * ends) + _TINY


def _third_of_tanh(z: Array, reach: Array) -> Array:
    """``sup |s (4 - 6 s)|`` with ``s = 1 - t^2``: at the ends, or 2/3 at ``s = 1/3``."""
    low, high = (1.0 - t * t for t in _ends(z, reach)[::-1])
    ends = np.maximum(np.abs(low * (4.0 - 6.0 * low)), np.abs(high * (4.0 - 6.0 * high)))
    inside = (low < 1.0 / 3.0 + _TINY) & (high > 1.0 / 3.0 - _TINY)
    return np.where(inside, np.maximum(ends, 2.0 / 3.0), ends) + _TINY
