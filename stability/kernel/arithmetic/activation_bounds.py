r"""Bounds of values, slopes, secant slopes and derivatives of a scalar activation on an interval.

Secant slopes around a point: for :math:`|v| \le r` the quotient :math:`k(v) = (\phi(z + v) - \phi(z)) / v` lies in an
interval that is far narrower than the activation's own slopes where ``r`` is small. For tanh (and so for the logistic
function, which is a tanh) ``k`` has one peak: its least value is the secant to the end away from the origin; its
largest is :math:`\phi'(w^*)` at the point of tangency, :math:`\phi'(w)(z - w) = \phi(z) - \phi(w)`, where the reach
contains that, and else the secant to the end towards the origin. For a kink at zero the quotients run between the slope
on the own side and the secant to the end on the other; with several kinks the extremes are among the secants to these
and to the ends.
"""

from __future__ import annotations

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.arithmetic.activations import TANH_ULPS, Activation, activation
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.floating_point import EPS, TINY

Array = np.ndarray
_ERROR = (2.0 * TANH_ULPS + 16.0) * EPS
"""Absolute rounding error of a few operations on values of tanh."""
_STEPS = 4
"""Newton steps for points of tangency."""
_SURE = 1.0 + 1e-12
_LOOSE = 512 * EPS
CURVATURE_OF_TANH = 0.7699
"""Upper bound of ``sup |tanh''| = 4 / 27^(1/2)``."""


def activation_values(name: str, z: Ball) -> Ball:
    """Enclose the activation over a ball of pre-activations, by its steepest slope and rounding errors.

    Raises:
        UnsupportedError: for an activation without a known error bound.
    """
    phi = activation(name)
    value, (relative, absolute) = phi.function(z.mid), phi.error
    if not (relative or absolute):
        return Ball(value, phi.slope[1] * z.rad)
    error = EPS * (relative * np.abs(value) + absolute)
    return Ball(value, (phi.slope[1] * z.rad + error) * (1 + 8 * EPS) + TINY)


def activation_slopes(name: str, z: Ball) -> Ball:
    r"""Enclose the derivative over a ball of pre-activations.

    For a smooth one, :math:`\phi' = \beta (1 - \tanh^2 w z)`, the mean value theorem with
    :math:`|\phi''| \le \tfrac{4}{3 \sqrt 3} w \beta < 0.7699\, w \beta`. At a kink the range is the whole interval
    between the two slopes.

    Raises:
        UnsupportedError: for an activation without a known error bound.
    """
    phi = activation(name)
    if phi.width is not None:
        high = phi.slope[1]
        t = np.tanh(phi.width * z.mid)
        rad = np.minimum(CURVATURE_OF_TANH * phi.width * high * z.rad, high) + (2 * TANH_ULPS + 8) * EPS
        return Ball(high * (1.0 - t * t), rad * (1 + 8 * EPS))
    low, high = phi.slopes_near(z.mid, z.rad)
    return Ball(np.where(low == high, low, 0.5 * (high + low)), np.where(low == high, 0.0, 0.5 * (high - low) + EPS))


def slope_range(name: str, centre: Array, reach: Array) -> tuple[Array, Array]:
    """Bound the difference quotients of an activation on ``[centre - reach, centre + reach]``.

    Args:
        name: the activation.
        centre: ``(m,)``.
        reach: ``(m,)``, >= 0.

    Returns:
        Two vectors, rounded outwards.

    Example:
        >>> low, high = slope_range("tanh", np.zeros(1), np.ones(1))
        >>> bool(low[0] <= 1 - np.tanh(1.0) ** 2), bool(high[0] >= 1)
        (True, True)
    """
    phi = activation(name)
    if phi.width is not None:  # the derivative falls with |z|
        least, most = (np.maximum(end, 0.0) for end in Ball(np.abs(centre), reach).endpoints())
        low, _ = activation_slopes(name, Ball.exact(most)).endpoints()
        _, high = activation_slopes(name, Ball.exact(least)).endpoints()
    else:
        low, high = activation_slopes(name, Ball(centre, reach)).endpoints()
    return np.clip(low, *phi.slope), np.clip(high, *phi.slope)


def derivative_suprema(name: str, z: Array, reach: Array) -> tuple[Array, Array, Array, Array]:
    """Bound the absolute value and the first three derivatives within reach of ``z``, except at kinks."""
    if name == "identity":
        none = np.zeros_like(z)
        return (np.abs(z) + reach) * _SURE, none + 1.0, none, none
    phi = activation(name)
    width, top = float(phi.width or 0.0), phi.slope[1]
    distance = np.maximum(width * (np.abs(z) - reach), 0.0)
    value = (phi.function(z + reach) if name == "sigmoid" else np.tanh(np.abs(z) + reach)) + _LOOSE
    slope = top * (1.0 - np.tanh(distance) ** 2 + _LOOSE)
    bend = top * width * _second_of_tanh(width * z, width * reach)
    return value, slope, bend, top * width * width * _third_of_tanh(width * z, width * reach)


def _endpoints(z: Array, reach: Array) -> tuple[Array, Array]:
    """Return the smallest and largest ``|tanh|`` within reach."""
    return np.tanh(np.maximum(np.abs(z) - reach, 0.0)), np.tanh(np.abs(z) + reach)


def _second_of_tanh(z: Array, reach: Array) -> Array:
    """Return ``sup 2 t (1 - t^2)``, which is largest at ``t = 3^(-1/2)``."""
    low, high = _endpoints(z, reach)
    endpoint_maxima = np.maximum(low * (1.0 - low * low), high * (1.0 - high * high))
    top = 3.0**-0.5
    return np.where((low < top + _LOOSE) & (high > top - _LOOSE), CURVATURE_OF_TANH, 2.0 * endpoint_maxima) + _LOOSE


def _third_of_tanh(z: Array, reach: Array) -> Array:
    """Return ``sup |s (4 - 6 s)|`` with ``s = 1 - t^2``: at the ends, or 2/3 at ``s = 1/3``."""
    low, high = (1.0 - t * t for t in _endpoints(z, reach)[::-1])
    endpoint_maxima = np.maximum(np.abs(low * (4.0 - 6.0 * low)), np.abs(high * (4.0 - 6.0 * high)))
    inside = (low < 1.0 / 3.0 + _LOOSE) & (high > 1.0 / 3.0 - _LOOSE)
    return np.where(inside, np.maximum(endpoint_maxima, 2.0 / 3.0), endpoint_maxima) + _LOOSE


def secant_range(name: str, z: Array, r: Array, up: Array | None = None) -> tuple[Array, Array]:
    """Bound the secant slopes from ``z`` over ``[z - r, z + r]``, or ``[z - r, z + up]``.

    Args:
        name: a name of ``stability.kernel.arithmetic.activations``.
        z: ``(..., m)``, taken as exact.
        r: ``(..., m)``, >= 0; infinite: the activation's own slopes on both sides.
        up: ``(..., m)``, >= 0, where the reach upwards is another one.

    Returns:
        Two arrays ``(..., m)``, rounded outwards.

    Raises:
        UnsupportedError: an activation whose quotients are not known.

    Example:
        >>> low, high = secant_range("tanh", np.array([1.0]), np.array([0.5]))
        >>> bool(low[0] <= (np.tanh(1.5) - np.tanh(1.0)) / 0.5), bool(high[0] >= (np.tanh(1.0) - np.tanh(0.5)) / 0.5)
        (True, True)
        >>> low, high = secant_range("relu", np.array([1.0]), np.array([0.5]))  # rounded outwards
        >>> bool(1 - 1e-15 < low[0] <= 1.0), float(high[0])
        (True, 1.0)
    """
    phi = activation(name)
    least, most = phi.slope
    if least == most:
        return np.full(z.shape, least), np.full(z.shape, most)
    up = r if up is None else up
    near, far = np.where(z < 0, up, r), np.where(z < 0, r, up)  # towards zero and beyond, and away from it
    if phi.width is not None:
        low, high = _tanh(phi.width * np.abs(z), phi.width * near, phi.width * far)
        low, high = most * low, most * high
    elif phi.kinks == (0.0,):
        low, high = _kink(z, np.where(z == 0, np.maximum(near, far), near), least, most)
    elif phi.kinks:
        low, high = _pieces(phi, z, r, up)
    else:
        raise UnsupportedError(f"no secant slope bounds are known for the activation {name!r}")
    return np.clip(np.nextafter(low, -np.inf), least, most), np.clip(np.nextafter(high, np.inf), least, most)


def secants_between(name: str, first: tuple[Array, Array], second: tuple[Array, Array]) -> tuple[Array, Array]:
    r"""Bound the quotients of a smooth activation between any points of two intervals.

    For tanh and a fixed ``t`` the quotient :math:`q(s, t)` has one peak over ``s``, so that the least is at a corner of
    the two intervals. A peak inside would need :math:`\phi'(s) = q = \phi'(t)`, hence ``s = -t``, where ``q`` is larger
    than both unless they are zero: the largest is one where both hold zero, and else on an edge.

    Args:
        name: tanh or sigmoid.
        first: ends ``(m,)``, finite, taken as exact.
        second: ends ``(m,)``, the same.

    Returns:
        Two arrays ``(m,)``, rounded outwards.

    Raises:
        UnsupportedError: an activation that is not smooth.

    Example:
        >>> low, high = secants_between("tanh", (np.array([0.5]), np.array([0.6])), (np.array([2.0]), np.array([3.0])))
        >>> bool(low[0] <= (np.tanh(3) - np.tanh(0.6)) / 2.4), bool(high[0] >= (np.tanh(2) - np.tanh(0.5)) / 1.5)
        (True, True)
    """
    phi = activation(name)
    if phi.width is None:
        raise UnsupportedError(f"difference quotients are bounded for tanh and sigmoid only, got {name!r}")
    (a, b), (c, d) = ((phi.width * low, phi.width * high) for low, high in (first, second))
    corners = [_quotient(s, t) for s in (a, b) for t in (c, d)]
    least = np.min([low for low, _ in corners], axis=0)
    edges = [_along(c, a, b), _along(d, a, b), _along(a, c, d), _along(b, c, d)]
    most = np.where((a <= 0) & (b >= 0) & (c <= 0) & (d >= 0), 1.0, np.max(edges, axis=0))
    beta = phi.slope[1]
    low, high = (np.nextafter(beta * end, way) for end, way in ((least, -np.inf), (most, np.inf)))
    return np.clip(low, *phi.slope), np.clip(high, *phi.slope)


def _quotient(s: Array, t: Array) -> tuple[Array, Array]:
    """Bound one quotient of tanh: by its values, or by the derivative's if they are too close."""
    apart = np.abs(s - t)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        value, error = np.abs(np.tanh(s) - np.tanh(t)) / apart, _ERROR / apart
    largest, smallest = np.maximum(np.abs(s), np.abs(t)), np.where(s * t > 0, np.minimum(np.abs(s), np.abs(t)), 0.0)
    low, high = 1.0 - np.tanh(largest) ** 2 - _ERROR, 1.0 - np.tanh(smallest) ** 2 + _ERROR
    known = error < 0.1
    return np.where(known, np.maximum(low, value - error), low), np.where(known, np.minimum(high, value + error), high)


def _along(t: Array, low: Array, high: Array) -> Array:
    """Bound tanh's quotients from ``t`` over ``[low, high]`` above: at an end, or by the point of tangency."""
    low, high = np.where(t > 0, -high, low), np.where(t > 0, -low, high)
    t = -np.abs(t)
    up = (high <= 0.0) | (_climb(high, t) >= _ERROR * (2.0 + high - t))
    down = (low >= 0.0) & (_climb(low, t) <= -_ERROR * (2.0 + low - t))
    peak = np.ones_like(t)
    between = ~(up | down)
    if between.any():
        peak[between] = _tangent(-t[between], np.tanh(-t[between]))
    return np.where(up, _quotient(high, t)[1], np.where(down, _quotient(low, t)[1], peak))


def _climb(s: Array, t: Array) -> Array:
    """Return ``phi'(s) (s - t) - (phi(s) - phi(t))``, whose sign is that of the quotient's change along ``s > t``."""
    return (1.0 - np.tanh(s) ** 2) * (s - t) - (np.tanh(s) - np.tanh(t))


def _kink(z: Array, r: Array, least: float, most: float) -> tuple[Array, Array]:
    """Bound the secants of an activation with a kink at zero: the longest one beyond it averages both slopes."""
    size = np.abs(z)
    with np.errstate(divide="ignore", invalid="ignore"):
        part = np.where(r < size, 1.0, (1.0 - 8 * EPS) * np.minimum(size / r, 1.0))  # of that secant, on the own side
    mixed = (most - least) * np.where(size > 0, part, 0.0)
    low = np.where(z > 0, least + mixed, least)
    high = np.where(z < 0, most - mixed, most)
    return np.where(r < size, low, low - 4 * EPS), np.where(r < size, high, high + 4 * EPS)


def _pieces(phi: Activation, z: Array, down: Array, up: Array) -> tuple[Array, Array]:
    """Bound the secants of a piecewise linear activation: quotients are extreme at ends and kinks."""
    least, most = phi.slope
    low, high = phi.slopes_near(z, 8 * EPS * (1.0 + np.abs(z)))  # at once beside z
    endpoints = [(-np.minimum(down, 1e300), down > 0), (np.minimum(up, 1e300), up > 0)]
    slack = 8 * EPS * (1.0 + np.abs(z))
    endpoints += [(kink - z, (kink - z >= -down - slack) & (kink - z <= up + slack)) for kink in phi.kinks]
    for way, reachable in endpoints:
        reachable = reachable & (way != 0)
        v = np.where(reachable, way, 1.0)
        quotient = phi.rise(z, v) / v
        with np.errstate(over="ignore"):
            error = 16 * EPS * (1.0 + (1.0 + np.abs(z)) / np.abs(v))
        low = np.where(reachable, np.minimum(low, quotient - error), low)
        high = np.where(reachable, np.maximum(high, quotient + error), high)
    endless = np.isinf(down) | np.isinf(up)
    one_piece = phi.to_kink(z) > np.maximum(down, up)  # on one piece, quotients are its slope, without rounding
    slope = phi.slopes_near(z, np.zeros_like(z))
    return (
        np.where(endless, least, np.where(one_piece, slope[0], low)),
        np.where(endless, most, np.where(one_piece, slope[1], high)),
    )


def _tanh(z: Array, near: Array, far: Array) -> tuple[Array, Array]:
    """Bound the secants of tanh for ``z >= 0``; the smallest quotient is one to an end, usually the far one."""
    near, far = near * (1.0 + 4 * EPS), far * (1.0 + 4 * EPS)
    t = np.tanh(z)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        away = np.where(far > 0, (np.tanh(z + far) - t) / far - _ERROR / far, -np.inf)
        back = np.where(near > 0, (t - np.tanh(z - near)) / near, np.inf)
        error = np.where(near > 0, _ERROR / near, 0.0)
    # difference quotients are values of the derivative in between, which serves where the reach is tiny
    low = np.maximum(away, 1.0 - np.tanh(z + far) ** 2 - _ERROR)
    wide = near > far
    low = np.where(wide, np.minimum(low, np.maximum(back - error, 1.0 - np.tanh(z + near) ** 2 - _ERROR)), low)
    back = back + error
    closest = np.maximum(z - near, 0.0)
    steepest = 1.0 - np.tanh(closest) ** 2 + _ERROR
    e = z - near
    slope = 1.0 - np.tanh(e) ** 2
    with np.errstate(invalid="ignore"):
        rising = slope * near - (t - np.tanh(e)) >= _ERROR * (1.0 + near)  # the quotient still grows at this end
    within = ~(rising | (e >= 0.0))  # the reach contains the point of tangency, or cannot be seen not to
    peak = np.ones_like(t)
    if within.any():
        peak[within] = _tangent(z[within], t[within])
    high = np.minimum(np.where(within, peak, back), steepest)
    return np.where(np.isnan(low), 0.0, np.maximum(low, 0.0)), np.where(np.isnan(high), 1.0, high)


def _tangent(z: Array, t: Array) -> Array:
    """Bound all quotients from ``z >= 0`` above: ``phi'(w)`` at a ``w`` between the point of tangency and zero.

    Seen from the far side, ``tanh(w) = tanh(z) - phi'(w) (z - w)``; what counts is that
    ``phi'(w) (z - w) >= tanh(z) - tanh(w)`` was seen with room for the roundings. Newton's steps end a little on that
    side; where it is not seen there, a bisection keeps the end for which it was, and zero always has that.
    """
    w = -np.minimum(0.5 * z, 0.5 * np.log1p(2.0 * z))
    for _ in range(_STEPS):
        s = np.tanh(w)
        steep, across = 1.0 - s * s, z - w
        w = np.clip(w + (steep * across - (t - s)) / (2.0 * s * steep * across - 1e-300), -0.5 * z, 0.0)
    w = w * (1.0 - 1e-6)
    s = np.tanh(w)
    out = 1.0 - s * s + _ERROR
    unseen = ~((1.0 - s * s) * (z - w) - (t - s) >= _ERROR * (1.0 + z - w))
    if unseen.any():
        out[unseen] = _bisected(z[unseen], t[unseen])
    return out


def _bisected(z: Array, t: Array) -> Array:
    """Bound all quotients from ``z >= 0`` above, with the point of tangency by bisection."""
    low, high = -0.5 * z - 1e-300, np.zeros_like(z)  # the point of tangency lies between -z/2 and 0
    for _ in range(18):
        w = 0.5 * (low + high)
        s = np.tanh(w)
        good = (1.0 - s * s) * (z - w) - (t - s) >= _ERROR * (1.0 + z - w)
        low, high = np.where(good, low, w), np.where(good, w, high)
    return 1.0 - np.tanh(high) ** 2 + _ERROR
