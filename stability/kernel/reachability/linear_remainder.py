r"""Bounds of the remainder of a linear relaxation of activations and gates over an interval.

For slopes ``s``, any that make what is left small, ends of :math:`e = \psi(z + v) - \psi(z) - s v` are proved: of an
activation by its chord, see ``activation_lines``; of gates times activations cell by cell, see ``gate_units``.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.activation_lines import chord_remainder
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability.gate_units import Box, Parabola, Unit, chords, lower_bound
from stability.kernel.reachability.stages import TERMS, Activated, Nominal, Stage

Array = np.ndarray


def relaxed(stage: Stage, at: Nominal, down: Array, up: Array) -> tuple[Array, Array, Array]:
    """Return the slopes of all channels of a stage, and bounds of the remainder ``e``.

    Args:
        stage: the stage.
        at: the nominal run there; its rows are taken as exact.
        down: ``(m,)`` how far rows go down, >= 0.
        up: ``(m,)`` and up.

    Returns:
        ``s``, least and largest ``e``, each ``(m,)``; of gates the last channel of a unit has all of its ``e``.

    """
    tangents = stage.tangents(at.rows, at.offset)[0]
    if not isinstance(stage, Activated):
        return _gates(stage, at.rows, down, up, tangents)
    phi = activation(stage.name)
    if phi.slope[0] == phi.slope[1]:
        return tangents, np.zeros_like(down), np.zeros_like(up)
    return chord_remainder(phi, at.rows, down, up)


def _gates(stage: Stage, rows: Array, down: Array, up: Array, tangents: Array) -> tuple[Array, Array, Array]:
    """Return slopes and remainder bounds of a cell's units: sums of terms ``sigma(sign a) psi(b)``."""
    count, terms = TERMS[type(stage)]
    m = len(rows) // count
    blocks = [slice(k * m, (k + 1) * m) for k in range(count)]
    low, high = np.nextafter(rows - down, -np.inf), np.nextafter(rows + up, np.inf)
    slopes, least_, most = np.zeros_like(tangents), np.zeros(m), np.zeros(m)
    for sign, i, j, name in terms:
        a, b, unit = blocks[i], blocks[j], Unit(name, gated=True)
        z, bounds = sign * rows[a], (low[a], high[a]) if sign > 0 else (-high[a], -low[a])
        box = Box(*bounds, low[b], high[b])
        alpha, beta = chords(unit, box)
        slopes[a] += sign * alpha
        slopes[b] += beta
        remainder = lower_bound(unit, np.ones(m), Parabola.plane(alpha, beta), box)
        above = -lower_bound(unit, -np.ones(m), Parabola.plane(-alpha, -beta), box)
        value, flat, tilt = unit.value(z, rows[b]), alpha * z, beta * rows[b]
        constant = value - flat - tilt
        error = 256 * EPS * (1.0 + np.abs(value) + np.abs(rows[b]) + np.abs(flat) + np.abs(tilt))
        error = error + 8 * EPS * (np.abs(remainder) + np.abs(above))
        least_, most = least_ + (remainder - constant - error), most + (above - constant + error)
    size = 8 * EPS * (np.abs(least_) + np.abs(most))
    none = np.zeros(len(rows) - m)
    low, high = np.minimum(least_ - size, 0.0), np.maximum(most + size, 0.0)
    return slopes, np.concatenate([none, low]), np.concatenate([none, high])
