r"""Stages of one time step: a linear map followed by channels with bounded slopes.

A stage maps a vector ``y`` (states, input, outputs of earlier stages of the same step) to

.. math:: y^+ = A y + B \psi(C y), \qquad y'^+ - y^+ = A d + B \operatorname{diag}(k) C d, \quad d = y' - y,

for two runs. Each ``k_i`` lies in an interval that depends on the nominal run and on the reach of the row ``C_i d``:
the secant slopes of an activation, or such slopes times values of gates. For gates, too, the second equation is exact:
:math:`f' c' - f c = \tfrac12 (f + f') (c' - c) + \tfrac12 (c + c') (f' - f)`, which halves the range of each factor.

The nominal run is computed in floating point. Its error is bounded entry by entry: that of the output of a stage by
``Nominal.error``, and that of the pre-activations by ``Nominal.offset``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activation_bounds import secant_range
from stability.kernel.arithmetic.activations import TANH_ULPS, activation
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.floating_point import EPS

Array = np.ndarray
_WIDER = 128 * EPS
"""Allowance for the roundings of a few operations on activation values, relative to one plus the factors."""


@dataclass(frozen=True, eq=False)
class Nominal:
    """Floating-point values of a stage on the nominal run.

    Attributes:
        out: ``(..., k2)`` output of the stage.
        rows: ``(..., m)`` pre-activations ``C y + bias``.
        offset: ``(..., m)`` bound of ``|rows - exact rows|`` for the exact matrices and this ``y``.
        error: ``(..., k2)`` bound of ``|out - exact out|`` for the exact matrices and this ``y``.
    """

    out: Array
    rows: Array
    offset: Array
    error: Array


@dataclass(frozen=True, eq=False)
class Stage:
    """Linear map followed by channels.

    Attributes:
        A: ``(k2, k)``.
        B: ``(k2, m)``.
        C: ``(m, k)``.
        bias: ``(m,)``.
        slack: error bounds of the entries of ``A, B, C``; ``None`` if the matrices are exact.
        fresh: whether the input of a new step is appended to ``y`` before this stage.
    """

    A: Array
    B: Array
    C: Array
    bias: Array
    slack: tuple[Array, Array, Array] | None
    fresh: bool

    def nominal(self, y: Array) -> Nominal:
        """Return the stage on the nominal run, ``(..., k)``."""
        rows = y @ self.C.T + self.bias
        size = np.abs(y)
        rounding = gamma(self.C.shape[1] + 2) * (size @ np.abs(self.C).T + np.abs(self.bias))
        w, gap, gain = self.values(rows)
        offset = rounding if self.slack is None else rounding + size @ self.slack[2].T * (1 + _WIDER)
        gap = gap + gain * offset
        terms = self.A.shape[1] + self.B.shape[1] + 2
        error = gamma(terms) * (size @ np.abs(self.A).T + np.abs(w) @ np.abs(self.B).T) + gap @ np.abs(self.B).T
        if self.slack is not None:
            error = error + size @ self.slack[0].T + np.abs(w) @ self.slack[1].T
        return Nominal(y @ self.A.T + w @ self.B.T, rows, offset * (1 + _WIDER), error * (1 + gamma(terms)))

    def values(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return the channels' joint output at these rows, its rounding error, and its sensitivity to a row."""
        raise NotImplementedError

    def slopes(self, rows: Array, reach: Array) -> tuple[Array, Array]:
        """Bound ``k``, ``(..., m)``, for rows that move by at most ``reach[..., i]``, rounded outwards."""
        raise NotImplementedError

    def tangents(self, rows: Array, offset: Array) -> tuple[Array, Array]:
        """Return the derivatives at the rows, and bounds of their change for rows that differ by ``offset``."""
        low, high = self.slopes(rows, offset)
        return 0.5 * (low + high), (high - low) * (1 + _WIDER)

    def slopes_between(self, rows: Array, down: Array, up: Array) -> tuple[Array, Array]:
        """Bound ``k`` for rows that go down by at most ``down[..., i]`` and up by ``up[..., i]``."""
        return self.slopes(rows, np.maximum(down, up))

    def endpoints(self, rows: Array, reach: Array) -> tuple[Array, Array] | None:
        """Return the range of change of each channel if it is an increasing function of its row, else ``None``."""
        return None


@dataclass(frozen=True, eq=False)
class Activated(Stage):
    """Channels of one activation of a ``DrivenSystem``."""

    name: str

    def values(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return the channels' output with its error; see ``Stage``."""
        phi = activation(self.name)
        w, (relative, absolute) = phi.function(rows), phi.error
        return w, 2 * EPS * (relative * np.abs(w) + absolute), np.full(rows.shape, phi.slope[1])

    def slopes(self, rows: Array, reach: Array) -> tuple[Array, Array]:
        """Bound the slopes within a reach; see ``Stage``."""
        return secant_range(self.name, rows, reach)

    def tangents(self, rows: Array, offset: Array) -> tuple[Array, Array]:
        """Return the derivatives by the rows; see ``Stage``."""
        phi = activation(self.name)
        least, most = phi.slope
        if phi.width is None:
            return phi.derivative(rows), np.where(phi.to_kink(rows) > offset, 0.0, most - least)
        bend = 2.0 * most * phi.width  # above every second derivative
        return phi.derivative(rows), bend * offset + 4 * TANH_ULPS * EPS * (1.0 + most)

    def slopes_between(self, rows: Array, down: Array, up: Array) -> tuple[Array, Array]:
        """Bound the slopes between two bounds; see ``Stage``."""
        return secant_range(self.name, rows, down, up)

    def endpoints(self, rows: Array, reach: Array) -> tuple[Array, Array] | None:
        """Return the range of each channel; see ``Stage``."""
        phi = activation(self.name)
        w, size = phi.function(rows), phi.slope[1] * reach
        down, up = (np.clip(phi.function(end) - w, -size, size) for end in (rows - reach, rows + reach))
        error = 8 * EPS * (sum(phi.error) + 2.0) * np.maximum(np.abs(w), 1.0 + size)
        return down - error, up + error


_Range = tuple[Array, Array]


def _outward(low: Array, high: Array, size: Array | float = 1.0) -> _Range:
    return low - _WIDER * size, high + _WIDER * size


def _half_way(name: str, z: Array, reach: Array) -> _Range:
    """Enclose the mean of a gate's values at ``z`` and at a point within reach of ``z``."""
    phi = activation(name)
    value = phi.function(z)
    return _outward(0.5 * (value + phi.function(z - reach)), 0.5 * (value + phi.function(z + reach)), 1.0)


def _times(x: _Range, y: _Range) -> _Range:
    """Enclose the products of two ranges."""
    products = [a * b for a in x for b in y]
    low, high = np.minimum.reduce(products), np.maximum.reduce(products)
    return _outward(low, high, np.maximum(np.abs(low), np.abs(high)))


def _mean_range(value: Array, reach: Array) -> _Range:
    """Enclose the mean of a value and of another value within reach of it."""
    return _outward(value - 0.5 * reach, value + 0.5 * reach, 1.0 + np.abs(value) + reach)


def _joined(*parts: _Range) -> tuple[Array, Array]:
    return np.concatenate([p[0] for p in parts], axis=-1), np.concatenate([p[1] for p in parts], axis=-1)


_VALUE = 2 * (TANH_ULPS + 4.0) * EPS
"""Absolute error of a value of tanh or of the logistic function, with a margin."""


class Gated(Stage):
    """Channels of the gates of a cell: rows come in blocks of ``hidden``."""

    def blocks(self, rows: Array, count: int) -> list[Array]:
        """Return the rows, block by block."""
        return np.split(rows, count, axis=-1)


def _sigmoid(z: Array) -> Array:
    return activation("sigmoid").function(z)


class LstmCell(Gated):
    r"""Rows ``z_f, z_i, z_g, c``; out: :math:`c^+ = \sigma(z_f) c + \sigma(z_i) \tanh z_g`.

    The four channels of a unit share one output: ``values`` returns it in the block of ``c``, and zero in the others.
    """

    def values(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return the channels' output with its error; see ``Stage``."""
        zf, zi, zg, c = self.blocks(rows, 4)
        f, i, g = _sigmoid(zf), _sigmoid(zi), np.tanh(zg)
        none, size = np.zeros_like(c), 1.0 + np.abs(c)
        w = np.concatenate([none, none, none, f * c + i * g], axis=-1)
        gap = np.concatenate([none, none, none, 4 * _VALUE * size], axis=-1)
        gain = np.concatenate([0.25 * size, 0.25 + none, 1.0 + none, 1.0 + none], axis=-1)
        return w, gap, gain

    def slopes(self, rows: Array, reach: Array) -> tuple[Array, Array]:
        """Bound the slopes within a reach; see ``Stage``."""
        (zf, zi, zg, c), (rf, ri, rg, rc) = self.blocks(rows, 4), self.blocks(reach, 4)
        kf, ki, kg = secant_range("sigmoid", zf, rf), secant_range("sigmoid", zi, ri), secant_range("tanh", zg, rg)
        by_f, by_i = _times(_mean_range(c, rc), kf), _times(_half_way("tanh", zg, rg), ki)
        return _joined(by_f, by_i, _times(_half_way("sigmoid", zi, ri), kg), _half_way("sigmoid", zf, rf))


class LstmOut(Gated):
    r"""Rows ``z_o, c+``; out: :math:`h^+ = \sigma(z_o) \tanh c^+`."""

    def values(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return the channels' output with its error; see ``Stage``."""
        zo, c = self.blocks(rows, 2)
        none = np.zeros_like(c)
        w = np.concatenate([none, _sigmoid(zo) * np.tanh(c)], axis=-1)
        return w, np.concatenate([none, 4 * _VALUE + none], axis=-1), np.ones_like(rows)

    def slopes(self, rows: Array, reach: Array) -> tuple[Array, Array]:
        """Bound the slopes within a reach; see ``Stage``."""
        (zo, c), (ro, rc) = self.blocks(rows, 2), self.blocks(reach, 2)
        by_o = _times(_half_way("tanh", c, rc), secant_range("sigmoid", zo, ro))
        return _joined(by_o, _times(_half_way("sigmoid", zo, ro), secant_range("tanh", c, rc)))


class GruReset(Gated):
    r"""Rows ``z_r, q``; out: :math:`\sigma(z_r) q`, with ``q`` the operand of the reset gate."""

    def values(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return the channels' output with its error; see ``Stage``."""
        zr, q = self.blocks(rows, 2)
        none, size = np.zeros_like(q), 1.0 + np.abs(q)
        w = np.concatenate([none, _sigmoid(zr) * q], axis=-1)
        gap = np.concatenate([none, 4 * _VALUE * size], axis=-1)
        return w, gap, np.concatenate([0.25 * size, 1.0 + none], axis=-1)

    def slopes(self, rows: Array, reach: Array) -> tuple[Array, Array]:
        """Bound the slopes within a reach; see ``Stage``."""
        (zr, q), (rr, rq) = self.blocks(rows, 2), self.blocks(reach, 2)
        return _joined(_times(_mean_range(q, rq), secant_range("sigmoid", zr, rr)), _half_way("sigmoid", zr, rr))


class GruOut(Gated):
    r"""Rows ``z_z, a, h``; out: :math:`h^+ = (1 - \sigma(z_z)) \tanh a + \sigma(z_z) h`.

    The difference of two runs is :math:`\bar z\, dh + (\bar h - \bar n) dz + (1 - \bar z) dn`, with their means.
    """

    def values(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return the channels' output with its error; see ``Stage``."""
        zz, a, h = self.blocks(rows, 3)
        z, n, none = _sigmoid(zz), np.tanh(a), np.zeros_like(h)
        size = 1.0 + np.abs(h)
        w = np.concatenate([none, none, (1.0 - z) * n + z * h], axis=-1)
        gap = np.concatenate([none, none, 8 * _VALUE * size], axis=-1)
        return w, gap, np.concatenate([0.25 * size, 1.0 + none, 1.0 + none], axis=-1)

    def slopes(self, rows: Array, reach: Array) -> tuple[Array, Array]:
        """Bound the slopes within a reach; see ``Stage``."""
        (zz, a, h), (rz, ra, rh) = self.blocks(rows, 3), self.blocks(reach, 3)
        (low, high), (n_low, n_high) = _half_way("sigmoid", zz, rz), _half_way("tanh", a, ra)
        h_low, h_high = _mean_range(h, rh)
        spread = _outward(h_low - n_high, h_high - n_low, 1.0 + np.abs(h) + rh)
        by_z, by_a = secant_range("sigmoid", zz, rz), secant_range("tanh", a, ra)
        return _joined(_times(spread, by_z), _times((1.0 - high, 1.0 - low), by_a), (low, high))


TERMS: dict[type[Stage], tuple[int, tuple[tuple[float, int, int, str], ...]]] = {
    LstmCell: (4, ((1.0, 0, 3, "identity"), (1.0, 1, 2, "tanh"))),
    LstmOut: (2, ((1.0, 0, 1, "tanh"),)),
    GruReset: (2, ((1.0, 0, 1, "identity"),)),
    GruOut: (3, ((-1.0, 0, 1, "tanh"), (1.0, 0, 2, "identity"))),
}
"""Number of blocks of rows, and the terms ``sigma(sign a) psi(b)``: sign, block of ``a``, block of ``b``, ``psi``."""
