r"""Lower bounds of gates and activations over boxes, by Taylor bounds on the cells of a grid.

A unit computes :math:`f(a, b) = \sigma(a)\, \psi(b)` (a gate times an activation, or times a number), or
:math:`\psi(b)` alone. LSTM and GRU cells are sums of such products: ``c+ = s(f) c + s(i) tanh(g)``,
``h+ = s(o) tanh(c+)``; ``n = tanh(a + s(r) q)`` and ``h+ = s(-z) tanh(.) + s(z) h``, for ``1 - s(z) = s(-z)``.

``lower_bound`` bounds :math:`\pm f(a, b) - \alpha a - \beta b - q(a - a_0, b - b_0)` from below over a box, where ``q``
is a quadratic form. On every cell of a grid it uses the Taylor polynomial at the center and the Hessian's range over
the cell. ``stability.kernel.reachability.quadratic_relaxation`` explains the quadratic forms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activation_lines import chord_slope, line_offset
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import Interval, sigmoid, tanh

Array = np.ndarray
CELLS = {1: 192, 2: 16}
"""Number of cells along each axis of a box, by the number of axes."""
_SLACK = 256.0 * EPS
"""Relative allowance for the few dozen roundings of a bound's terms, including those of ``tanh``."""
_IMAGES = {"tanh": tanh, "sigmoid": sigmoid, "identity": lambda x: x}
_THIRD_DERIVATIVES = {"tanh": 2.0, "sigmoid": 0.125, "identity": 0.0, "relu": 0.0, "leaky_relu": 0.0}
"""Upper bounds of ``|phi'''|`` where they exist."""


@dataclass(frozen=True)
class Unit:
    """Kind of unit: activation or gated product.

    Attributes:
        inner: name of the activation ``psi``.
        gated: whether it is multiplied by a gate ``sigma(a)``.

    Example:
        >>> import numpy as np
        >>> float(Unit("tanh", gated=True).value(np.zeros(1), np.full(1, 50.0))[0])
        0.5
    """

    inner: str
    gated: bool = False

    @property
    def is_smooth(self) -> bool:
        """Return True if it has a second derivative everywhere."""
        return activation(self.inner).width is not None or self.inner == "identity"

    def value(self, a: Array, b: Array) -> Array:
        """Return ``f``; the first argument is unused without a gate."""
        out = activation(self.inner).function(b)
        return out * activation("sigmoid").function(a) if self.gated else out

    def gradient(self, a: Array, b: Array) -> tuple[Array, Array]:
        """Return the two derivatives of ``f``."""
        psi, gate = activation(self.inner), activation("sigmoid")
        if not self.gated:
            return np.zeros_like(b), psi.derivative(b)
        return gate.derivative(a) * psi.function(b), gate.function(a) * psi.derivative(b)

    def hessian(self, a: Array, b: Array) -> tuple[Array, Array, Array]:
        """Return ``f_aa, f_ab, f_bb``."""
        psi, gate = activation(self.inner), activation("sigmoid")
        if not self.gated:
            return np.zeros_like(b), np.zeros_like(b), psi.second_derivative(b)
        return (
            gate.second_derivative(a) * psi.function(b),
            gate.derivative(a) * psi.derivative(b),
            gate.function(a) * psi.second_derivative(b),
        )


@dataclass(frozen=True)
class Corners:
    """Bounds of sum and difference of two arguments, each measured from the middle of its interval in half-widths.

    Arguments that depend on many inputs rarely reach the corners of their box, which these bounds cut off.
    """

    sum_low: Array
    sum_high: Array
    difference_low: Array
    difference_high: Array

    def outside(self, a: Array, b: Array, half: float) -> Array:
        """Return the mask ``(m, k, k)`` of squares ``|a' - a| <= half, |b' - b| <= half`` that violate the bounds.

        If all squares of a unit violate them, its mask is False everywhere.
        """
        total, difference = a + b, a - b
        column = (slice(None), None, None)
        half = 2.0 * half * (1.0 + 1e-9) + 1e-9
        out = (total - half > self.sum_high[column]) | (total + half < self.sum_low[column])
        out |= (difference - half > self.difference_high[column]) | (difference + half < self.difference_low[column])
        return out & ~out.all(axis=(1, 2), keepdims=True)


@dataclass(frozen=True)
class Box:
    """Intervals of the arguments, each ``(m,)``; those of ``a`` are unused without a gate."""

    a_low: Array
    a_high: Array
    b_low: Array
    b_high: Array
    corners: Corners | None = None

    def outside(self, points: Array, half: float) -> Array | None:
        """Return the mask of squares around ``grid(points)``, of half-width ``half``, that ``corners`` exclude."""
        if self.corners is None:
            return None
        return self.corners.outside(points[None, :, None], points[None, None, :], half)

    def grid(self, points: Array) -> tuple[Array, Array]:
        """Return the arguments at relative positions ``points (k,)`` in [-1, 1]: ``(m, k, 1)`` and ``(m, 1, k)``."""
        low, high = (1.0 - points) / 2.0, (1.0 + points) / 2.0
        a = np.outer(self.a_low, low) + np.outer(self.a_high, high)
        b = np.outer(self.b_low, low) + np.outer(self.b_high, high)
        return a[:, :, None], b[:, None, :]


@dataclass(frozen=True)
class Parabola:
    """Quadratic ``alpha a + beta b + m_aa a'^2 + 2 m_ab a' b' + m_bb b'^2``, ``a' = a - a_0``, ``b' = b - b_0``.

    All coefficients are ``(m,)``; ``(a_0, b_0)`` is the center of the quadratic part.
    """

    alpha: Array
    beta: Array
    a0: Array
    b0: Array
    aa: Array
    ab: Array
    bb: Array

    @classmethod
    def plane(cls, alpha: Array, beta: Array) -> Parabola:
        """Return a linear function."""
        zero = np.zeros_like(alpha)
        return cls(alpha, beta, zero, zero, zero, zero, zero)


def _derivatives(name: str, at: Array, half: Array) -> list[Array]:
    """Return ``phi, phi', phi''`` at points, and bounds of their changes within a distance ``half``."""
    phi, third = activation(name), _THIRD_DERIVATIVES[name]
    first, second = np.abs(phi.derivative(at)), np.abs(phi.second_derivative(at))
    values = [phi.function(at), phi.derivative(at), phi.second_derivative(at)]
    bend = third * half + 16 * EPS
    slope = (second + 0.5 * bend) * half + 16 * EPS
    return [*values, (first + slope) * half, slope, bend]


def _product(left: Array, left_reach: Array, right: Array, right_reach: Array) -> tuple[Array, Array]:
    """Return a product and the bound of its change, for factors that change by at most their reaches."""
    reach = np.abs(left) * right_reach + left_reach * np.abs(right) + left_reach * right_reach
    return left * right, reach


def _minimum(slope: Array, bend: Array, half: Array) -> Array:
    """Bound ``slope d + bend d^2 / 2`` over ``|d| <= half`` below, up to rounding."""
    size = np.abs(slope)
    endpoint_value = -size * half + 0.5 * bend * half * half
    inside = (bend > 0) & (size < bend * half)
    return np.where(inside, -0.5 * slope * slope / np.where(inside, bend, 1.0), endpoint_value)


def lower_bound(unit: Unit, sign: Array, parabola: Parabola, box: Box) -> Array:
    """Prove a lower bound of ``sign f - below`` over a box, unit by unit.

    Args:
        unit: the kind of the units.
        sign: ``(m,)`` of 1 and -1.
        parabola: subtrahend, whose numbers count as exact.
        box: the arguments' intervals.

    Returns:
        ``(m,)``, every rounding error inside; planes below units without a gate by ``line_offset``.

    Raises:
        ValueError: a parabola, or a gate, with an activation that has a kink.
    """
    if not unit.gated and not parabola.bb.any():
        return sign * line_offset(activation(unit.inner), sign * parabola.beta, box.b_low, box.b_high, sign < 0)
    if not unit.is_smooth:
        raise ValueError("gates need smooth activations: tanh or sigmoid")
    count = CELLS[2 if unit.gated else 1]
    points = (2.0 * np.arange(count) + 1.0) / count - 1.0
    a, b = box.grid(points)
    if not unit.gated:
        a = np.zeros((len(sign), 1, 1))
    grow = 1.0 + 2.0**-40  # the cells overlap despite rounding errors of their centers
    half_a, half_b = (
        ((high - low) / (2 * count) * grow + 8 * EPS * (np.abs(high) + np.abs(low)))[:, None, None]
        for low, high in ((box.a_low, box.a_high), (box.b_low, box.b_high))
    )
    s, (f, fa, fb, haa, hab, hbb) = sign[:, None, None], _jet(unit, a, b, half_a, half_b)
    p = {name: getattr(parabola, name)[:, None, None] for name in ("alpha", "beta", "a0", "b0", "aa", "ab", "bb")}
    da, db = a - p["a0"], b - p["b0"]
    if not unit.gated:
        da, half_a = np.zeros_like(a), np.zeros_like(a)
    terms = (s * f, -p["alpha"] * a, -p["beta"] * b, -p["aa"] * da * da, -2.0 * p["ab"] * da * db, -p["bb"] * db * db)
    value, size = sum(terms), sum(np.abs(t) for t in terms)
    slope_a = s * fa - p["alpha"] - 2.0 * (p["aa"] * da + p["ab"] * db)
    slope_b = s * fb - p["beta"] - 2.0 * (p["bb"] * db + p["ab"] * da)
    mixed = np.abs(s * hab[0] - 2.0 * p["ab"]) + hab[1]  # 2 |da db| <= ratio da^2 + db^2 / ratio
    ratio = np.divide(half_b, half_a, out=np.zeros(np.broadcast(half_a, half_b).shape), where=half_a > 0)
    back = np.divide(half_a, half_b, out=np.zeros_like(ratio), where=half_b > 0)
    bend_a = s * haa[0] - haa[1] - 2.0 * p["aa"] - mixed * ratio
    bend_b = s * hbb[0] - hbb[1] - 2.0 * p["bb"] - mixed * back
    value = value + _minimum(slope_b, bend_b, half_b) + (_minimum(slope_a, bend_a, half_a) if unit.gated else 0.0)
    moved = (np.abs(slope_a) + np.abs(bend_a) * half_a) * half_a + (np.abs(slope_b) + np.abs(bend_b) * half_b) * half_b
    # the error of a gate near zero is absolute, so that the error of f is relative to psi
    scale = np.abs(activation(unit.inner).function(b)) * (1.0 + half_a) + half_a * half_a + half_b * (1.0 + half_b)
    out, none = value - _SLACK * (size + moved + scale + 1e-290), box.outside(points, 1.0 / count)
    out = (out if none is None or not unit.gated else np.where(none, np.inf, out)).min(axis=(1, 2))
    return np.where(np.isnan(out), -np.inf, out)


def value_range(unit: Unit, box: Box) -> Interval:
    """Enclose the values of a unit over a box; an increasing activation is evaluated at the ends of its argument."""
    inner = Interval(box.b_low, box.b_high)
    if unit.inner in _IMAGES:
        out = _IMAGES[unit.inner](inner)
    else:
        low, high = (activation(unit.inner).function(end) for end in (box.b_low, box.b_high))
        out = Interval(np.nextafter(low, -np.inf), np.nextafter(high, np.inf))
    return sigmoid(Interval(box.a_low, box.a_high)) * out if unit.gated else out


def _jet(unit: Unit, a: Array, b: Array, half_a: Array, half_b: Array) -> tuple:
    """Return ``f`` and its gradient at the cells' centers, and its Hessian there with bounds of each entry's change."""
    p0, p1, p2, r0, r1, r2 = _derivatives(unit.inner, b, half_b)
    if not unit.gated:
        zero = np.zeros_like(b)
        return p0, zero, p1, (zero, zero), (zero, zero), (p2, r2)
    g0, g1, g2, s0, s1, s2 = _derivatives("sigmoid", a, half_a)
    return (g0 * p0, g1 * p0, g0 * p1, _product(g2, s2, p0, r0), _product(g1, s1, p1, r1), _product(g0, s0, p2, r2))


def chords(unit: Unit, box: Box) -> tuple[Array, Array]:
    """Return slopes ``(m,)`` of the least-squares plane of the unit over a box, at Chebyshev nodes.

    Any slopes are sound; these make the remainder small.
    """
    if not unit.is_smooth:
        return np.zeros_like(box.b_low), chord_slope(activation(unit.inner), box.b_low, box.b_high)
    count = 9 if unit.gated else 33
    nodes = np.cos((np.arange(count) + 0.5) * np.pi / count)
    a, b = box.grid(nodes)
    f = unit.value(a if unit.gated else 0.0 * b, b)
    f = np.broadcast_to(f, (len(box.b_low), count if unit.gated else 1, count))
    wide_a, wide_b = 0.5 * (box.a_high - box.a_low), 0.5 * (box.b_high - box.b_low)
    centre_a, centre_b = 0.5 * (box.a_high + box.a_low), 0.5 * (box.b_high + box.b_low)
    at_a, at_b = unit.gradient(centre_a, centre_b)
    total = float((nodes**2).sum()) * f.shape[1]
    narrow = 1e-7  # half-width below which differences of values are mostly rounding errors: use the derivative
    beta = np.where(wide_b > narrow, (f * nodes).sum(axis=(1, 2)) / total / np.maximum(wide_b, narrow), at_b)
    if not unit.gated:
        return np.zeros_like(beta), beta
    alpha = np.where(wide_a > narrow, (f * nodes[:, None]).sum(axis=(1, 2)) / total / np.maximum(wide_a, narrow), at_a)
    return alpha, beta
