r"""Bounds of the remainder of a linear relaxation of activations and gates over an interval.

For slopes ``s``, any that make what is left small, ends of :math:`e = \psi(z + v) - \psi(z) - s v` are proved.
Those of tanh and of the logistic function come from a few values: they are convex below zero and concave above, so that
on either side one extreme of :math:`g(w) = \phi(w) - s w` is at an end, and the other one below any tangent,
:math:`g(w) \le g(\tilde w) + |g'(\tilde w)| |w - \tilde w|`: take it where :math:`\phi'(\tilde w) \approx s`.
Kinks have their extremes at corners. Gates times activations are bounded cell by cell, see ``gate_units``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.arithmetic.activations import TANH_ULPS, Activation, activation
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability.gate_units import Box, Parabola, Unit, chords, least
from stability.kernel.reachability.stages import TERMS, Activated, Nominal, Stage

Array = np.ndarray
_NARROW = 1e-5
"""Reaches below which the tangent is as good as the chord."""


def is_covered(stage: Stage) -> bool:
    """Whether ``relaxed`` has bounds for its channels."""
    if not isinstance(stage, Activated):
        return type(stage) in TERMS
    phi = activation(stage.name)
    return phi.slope[0] == phi.slope[1] or phi.width is not None or bool(phi.kinks)


def relaxed(stage: Stage, at: Nominal, down: Array, up: Array) -> tuple[Array, Array, Array]:
    """Slopes, and ends of ``e``, of all channels of a stage.

    Args:
        stage: the stage.
        at: the nominal run there; its rows are taken as exact.
        down: ``(m,)`` how far rows go down, >= 0.
        up: ``(m,)`` and up.

    Returns:
        ``s``, least and largest ``e``, each ``(m,)``; of gates the last channel of a unit has all of its ``e``.

    Raises:
        UnsupportedError: an activation that is neither made of tanh nor piecewise linear.

    Example:
        >>> one = np.eye(1)
        >>> stage = Activated(0 * one, one, one, np.zeros(1), None, False, "tanh")
        >>> at, half = stage.nominal(np.ones(1)), np.full(1, 0.5)
        >>> s, low, high = relaxed(stage, at, half, half)
        >>> e = [np.tanh(1 + v) - np.tanh(1) - s[0] * v for v in np.linspace(-0.5, 0.5, 1001)]
        >>> bool(low[0] <= min(e) < low[0] + 1e-6), bool(max(e) <= high[0] < max(e) + 1e-6)
        (True, True)
    """
    tangents = stage.tangents(at.rows, at.offset)[0]
    if not isinstance(stage, Activated):
        return _gates(stage, at.rows, down, up, tangents)
    phi = activation(stage.name)
    if phi.slope[0] == phi.slope[1]:
        return tangents, np.zeros_like(down), np.zeros_like(up)
    if phi.width is not None:
        return _bent(phi, at.rows, down, up, tangents)
    if not phi.kinks:
        raise UnsupportedError(f"what the activation {stage.name!r} leaves of a line is not known here")
    return _summed([(1.0, None, slice(None), stage.name)], at.rows, down, up, tangents)


def _bent(phi: Activation, z: Array, down: Array, up: Array, tangents: Array) -> tuple[Array, Array, Array]:
    """Convex below zero, concave above: tanh and the logistic function."""
    low, high = np.nextafter(z - down, -np.inf), np.nextafter(z + up, np.inf)
    wide = np.maximum(high - low, 1e-300)
    s = np.where(wide > _NARROW, (phi.function(high) - phi.function(low)) / wide, tangents)
    s = np.clip(s, 0.0, phi.slope[1])
    # phi(w) = slope tanh(width w) / width + constant: its derivative is slope (1 - tanh^2)
    root = np.sqrt(np.clip(1.0 - s / phi.slope[1], 0.0, 1.0))
    turn = np.arctanh(np.minimum(root, 1.0 - 1e-12)) / (phi.width or 1.0)

    def g(w: Array) -> Array:
        return phi.function(w) - s * w

    own = g(z)
    least_, most = np.minimum(g(low), g(high)) - own, np.maximum(g(low), g(high)) - own
    for sign in (1.0, -1.0):  # above zero the largest value may lie inside, below zero the least one
        near, far = np.where(sign > 0, np.maximum(low, 0.0), low), np.where(sign > 0, high, np.minimum(high, 0.0))
        there = far >= near
        w = np.clip(sign * turn, near, np.maximum(near, far))
        slope = phi.derivative(w) - s
        beyond = (
            np.maximum(slope * (far - w), slope * (near - w))
            if sign > 0
            else np.minimum(slope * (far - w), slope * (near - w))
        )
        value = g(w) + beyond - own
        if sign > 0:
            most = np.where(there, np.maximum(most, value), most)
        else:
            least_ = np.where(there, np.minimum(least_, value), least_)
    crossing = (low < 0.0) & (high > 0.0)  # each side has an end there
    least_ = np.where(crossing, np.minimum(least_, g(0.0 * z) - own), least_)
    most = np.where(crossing, np.maximum(most, g(0.0 * z) - own), most)
    size = np.maximum(np.abs(low), np.abs(high))
    error = 32 * EPS * (sum(phi.error) + TANH_ULPS + 2.0) * (1.0 + phi.slope[1] * size)
    return s, np.minimum(least_ - error, 0.0), np.maximum(most + error, 0.0)


def _gates(stage: Stage, rows: Array, down: Array, up: Array, tangents: Array) -> tuple[Array, Array, Array]:
    """Terms ``sigma(sign a) psi(b)`` of the units of a cell."""
    count, terms = TERMS[type(stage)]
    size = len(rows) // count
    blocks = [slice(k * size, (k + 1) * size) for k in range(count)]
    parts = [(sign, blocks[a], blocks[b], name) for sign, a, b, name in terms]
    slopes, low, high = _summed(parts, rows, down, up, tangents)
    none = np.zeros(len(rows) - size)
    return slopes, np.concatenate([none, low]), np.concatenate([none, high])


def _summed(
    parts: Sequence[tuple[float, slice | None, slice, str]], rows: Array, down: Array, up: Array, tangents: Array
) -> tuple[Array, Array, Array]:
    """The sum of some terms of every unit: slopes of the rows, ends of what is left of all together."""
    ends = np.nextafter(rows - down, -np.inf), np.nextafter(rows + up, np.inf)
    slopes = np.zeros_like(tangents)
    total: list[Array] = []
    for sign, a, b, name in parts:
        unit = Unit(name, gated=a is not None)
        z = rows[b] if a is None else sign * rows[a]
        a_ends = (z, z) if a is None else (ends[0][a], ends[1][a]) if sign > 0 else (-ends[1][a], -ends[0][a])
        box = Box(*a_ends, ends[0][b], ends[1][b])
        alpha, beta = chords(unit, box)
        slopes[b] += beta
        if a is not None:
            slopes[a] += sign * alpha
        one = np.ones_like(beta)
        below = least(unit, one, Parabola.plane(alpha, beta), box)
        above = -least(unit, -one, Parabola.plane(-alpha, -beta), box)
        flat = alpha * z if a is not None else 0.0 * beta
        value = unit.value(z, rows[b])
        own = value - flat - beta * rows[b]
        error = 256 * EPS * (1.0 + np.abs(value) + np.abs(rows[b]) + np.abs(flat) + np.abs(beta * rows[b]))
        error = error + 8 * EPS * (np.abs(below) + np.abs(above))
        total = [below - own - error, above - own + error] if not total else [
            total[0] + (below - own - error), total[1] + (above - own + error)
        ]  # fmt: skip
    size = 8 * EPS * (np.abs(total[0]) + np.abs(total[1]))
    return slopes, np.minimum(total[0] - size, 0.0), np.maximum(total[1] + size, 0.0)
