r"""Curvature bounds of activations and gates: the loss of a margin against its linearization.

Around a reference run, with ``v`` what a stage's rows move by and ``l`` what its channels' outputs are worth to a
margin,

.. math:: \sum_i l_i \psi_i(v) \ge \sum_i l_i\, \partial_i \psi(0)\, v_i - v^T K v ,

``K`` a diagonal and, for gates times activations, one pair of rows each. Entries are negative where a unit bends in the
margin's favor.

A smooth channel of one row has :math:`q(v) = (\phi(z + v) - \phi(z) - \phi'(z) v) / v^2`, whose slope is at most
:math:`\sup |\phi'''| / 6` (it is a mean of :math:`\phi''`): values on a grid bound it. Products of a gate and an
activation: Taylor's polynomial with the third derivatives' bounds. A kink: the steepest parabola through its corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability.gate_units import Unit
from stability.kernel.reachability.stages import TERMS, Activated, Stage
from stability.kernel.reachability.taylor_remainder import third_order

Array = np.ndarray
_POINTS, _NEAR = 17, 1e-4


@dataclass(frozen=True)
class Curvature:
    """Quadratic form ``v^T K v = sum_i diagonal_i v_i^2 + 2 sum_j mixed_j v_first_j v_second_j``.

    Attributes:
        diagonal: ``(..., m)``.
        first: ``(s,)`` row numbers.
        second: ``(s,)``.
        mixed: ``(..., s)``.
    """

    diagonal: Array
    first: Array
    second: Array
    mixed: Array

    def at(self, k: int) -> Curvature:
        """Return the curvature of one of several steps."""
        return Curvature(self.diagonal[k], self.first, self.second, self.mixed[k])

    def on(self, C: Array, more: Array) -> Array:
        """Return ``C^T (K + diag(more)) C``."""
        out = C.T @ ((self.diagonal + more)[:, None] * C)
        if len(self.mixed):
            cross = C[self.first].T @ (self.mixed[:, None] * C[self.second])
            out = out + cross + cross.T
        return out

    def sizes(self, C: Array, s: Array, more: Array) -> Array:
        """Return ``|C|^T (|K| + diag(more)) |C| s`` for ``s >= 0``, plus an allowance for underflow."""
        rows = np.abs(C) @ s
        out = (np.abs(self.diagonal) + more) * rows
        np.add.at(out, self.first, np.abs(self.mixed) * rows[self.second])
        np.add.at(out, self.second, np.abs(self.mixed) * rows[self.first])
        return np.abs(C).T @ out


def curvature(stage: Stage, rows: Array, worth: Array, low: Array, high: Array) -> Curvature:
    """Return ``K`` of a stage, rounded outwards.

    Args:
        stage: the stage.
        rows: ``(..., m)`` on the reference run, taken as exact.
        worth: ``(..., m)`` of the channels' outputs.
        low: ``(..., m)`` how far rows go down from there, at most 0 up to rounding.
        high: ``(..., m)`` and up.

    Example:
        >>> one, zero = np.eye(1), np.zeros((1, 1))
        >>> stage = Activated(zero, one, one, np.zeros(1), None, False, "tanh")
        >>> K = curvature(stage, np.array([1.0]), np.ones(1), np.array([-0.5]), np.array([0.5]))
        >>> v = np.linspace(-0.5, 0.5, 11)
        >>> bool((np.tanh(1 + v) - np.tanh(1) - (1 - np.tanh(1) ** 2) * v >= -K.diagonal[0] * v * v).all())
        True
    """
    if isinstance(stage, Activated):
        none = np.zeros(0, dtype=int)
        phi = activation(stage.name)
        bend = _smooth if phi.width is not None else _kinks if any(phi.kinks) else _kink
        return Curvature(bend(stage.name, rows, worth, low, high), none, none, np.zeros((*rows.shape[:-1], 0)))
    return _products(stage, rows, worth, np.maximum(np.abs(low), np.abs(high)))


def _smooth(name: str, z: Array, worth: Array, low: Array, high: Array) -> Array:
    phi = activation(name)
    third = 2.0 * phi.slope[1] * (phi.width or 0.0) ** 2
    v = low[..., None] + (high - low)[..., None] * np.linspace(0.0, 1.0, _POINTS)
    small = np.abs(v) < _NEAR
    divisor, error = np.where(small, 1.0, v), 64 * EPS * (2.0 + np.abs(z)[..., None] + np.abs(v))
    tangent = phi.derivative(z)[..., None]
    q = (phi.function(z[..., None] + divisor) - phi.function(z)[..., None] - tangent * divisor) / (divisor * divisor)
    q = np.where(small, 0.5 * phi.second_derivative(z)[..., None], q)
    error_bound = np.where(small, third / 6.0 * _NEAR, error / (divisor * divisor)) + EPS
    step = (high - low) / (_POINTS - 1)
    worst = (-worth[..., None] * q + np.abs(worth)[..., None] * error_bound).max(axis=-1)
    return worst + np.abs(worth) * (third / 12.0 * step) * (1 + 16 * EPS)


def _kink(name: str, z: Array, worth: Array, low: Array, high: Array) -> Array:
    """Bound the part above the tangent: beyond the kink it is ``(most - least) (|v| - |z|)``."""
    least, most = activation(name).slope
    if least == most:
        return np.zeros_like(z)
    size, reach = np.abs(z), np.where(z > 0, -low, high)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(reach >= 2.0 * size, 0.25 / size, (reach - size) / (reach * reach))
    slope = np.where(reach > size, slope, 0.0)
    return np.where(worth < 0, (most - least) * np.abs(worth) * slope * (1 + 16 * EPS), 0.0)


def _kinks(name: str, z: Array, worth: Array, low: Array, high: Array) -> Array:
    """Bound the curvature of other kinks: ``(c + s v) / v^2`` is largest at a piece's ends, or at ``v = -2 c / s``."""
    phi, slope = activation(name), activation(name).derivative(z)
    out = np.zeros(np.broadcast(z, worth, low).shape)
    tops = [low, high, *(kink - z for kink in phi.kinks)]
    for piece, edge in zip((*phi.pieces[:-1], *phi.pieces[1:]), (*phi.kinks, *phi.kinks)):
        rise = piece - slope  # of what lies above the tangent along the piece: c + s v, through the kink at its edge
        with np.errstate(divide="ignore", invalid="ignore"):
            top = -2.0 * (phi.rise(z, edge - z) - slope * (edge - z) - rise * (edge - z)) / rise
        tops.append(np.where(np.isfinite(top), top, 0.0))
    for v in tops:
        v = np.clip(v, low, high)
        above = phi.rise(z, v) - slope * v
        error = np.where(np.abs(v) > phi.to_kink(z), 16 * EPS * (1.0 + np.abs(z) + np.abs(v)), 0.0)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            size = np.where(error > 0, (-worth * above + np.abs(worth) * error) / (v * v), 0.0)
        out = np.maximum(out, np.where(np.isnan(size), 0.0, size))
    return np.where((phi.to_kink(z) <= 0) & (worth != 0), np.inf, out * (1 + 16 * EPS))


def _products(stage: Stage, rows: Array, worth: Array, reach: Array) -> Curvature:
    count, terms = TERMS[type(stage)]
    h = rows.shape[-1] // count
    block = [slice(k * h, (k + 1) * h) for k in range(count)]
    diagonal, index = np.zeros(rows.shape), np.arange(rows.shape[-1])
    first, second, mixed = [], [], []
    for sign, i, j, name in terms:
        (a, ra), (b, rb) = ((rows[..., block[n]], reach[..., block[n]]) for n in (i, j))
        l = worth[..., block[j]]
        size = np.abs(l)
        faa, fab, fbb = Unit(name, gated=True).hessian(sign * a, b)
        by_a, by_b = third_order((name, sign * a, b), (ra, rb), (ra, rb))
        rounding = 64 * EPS * (1.0 + np.abs(b))
        diagonal[..., block[i]] += -0.5 * l * faa + size * (by_a + rounding)
        diagonal[..., block[j]] += -0.5 * l * fbb + size * (by_b + rounding)
        first.append(index[block[i]])
        second.append(index[block[j]])
        mixed.append(-0.5 * sign * l * fab)
    return Curvature(diagonal, np.concatenate(first), np.concatenate(second), np.concatenate(mixed, axis=-1))
