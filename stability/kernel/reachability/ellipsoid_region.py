r"""Ranges of pre-activations and slopes of a network on an ellipsoid of states.

The region is :math:`\Omega = \{x : (x - c)^T P (x - c) \le \ell\}` with inputs
:math:`|u_j - u_{0,j}| \le \bar u`. Every bound includes its rounding errors. The search for regional certificates and
their rule both use this module.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activation_bounds import activation_values, slope_range
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.arithmetic.eigenpairs import inverse_or_none
from stability.kernel.systems.driven import DrivenSystem

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Region:
    """Bounds over the region.

    Attributes:
        centre: ``(m,)`` approximate pre-activations at the center.
        reach: ``(m,)`` bound of the distance of all pre-activations from ``centre``.
        low: ``(m,)`` lower bound of the difference quotients of the activation over these pre-activations.
        high: ``(m,)`` upper bound of the difference quotients.
        drift: ``(n,)`` entrywise bound of the right-hand side (of the step) at the center, over all inputs.
    """

    centre: Array
    reach: Array
    low: Array
    high: Array
    drift: Array


def through_loop(gain: Array, free: Array) -> Array | None:
    """Return ``s >= free + gain s`` with ``gain >= 0``, an upper bound of every ``d <= free + gain d``, or ``None``."""
    s = free
    if not gain.any():
        return s
    for _ in range(300 + len(free)):
        new = (Ball.exact(gain) @ s + free).upper()
        if (new <= s).all():
            return s
        if not np.isfinite(new).all():
            return None
        s = new * (1 + 1e-12)
    return None


def _square_root(x: Array) -> Array:
    return np.nextafter(np.sqrt(x), np.inf)


def _inner(x: Ball, y: Ball) -> Array:
    """Return upper bounds of the inner products ``|x_i y_i|`` of rows."""
    return (x[:, None, :] @ y[:, :, None])[:, 0, 0].upper()


def _lengths(x: Ball) -> Array:
    """Return upper bounds of the lengths of rows."""
    size = Ball.exact(x.upper())
    return _square_root(_inner(size, size))


def ellipsoid_reach(P: Array, p_min: float, level: float, rows: Ball) -> Array | None:
    r"""Bound :math:`|C_i d|` over the ellipsoid :math:`d^T P d \le \ell`.

    Uses :math:`|C_i d| \le \sqrt{\ell\, C_i P^{-1} C_i^T}` and, with an approximate inverse ``X``,
    :math:`C_i P^{-1} C_i^T \le C_i X C_i^T + |C_i| |(I - P X) C_i^T| / p_{\min}`.

    Args:
        P: ``(n, n)`` symmetric positive definite.
        p_min: a proved lower bound of its spectrum.
        level: level of the ellipsoid.
        rows: ``(k, n)``, the rows :math:`C_i`.

    Returns:
        ``(k,)`` upper bounds, or ``None`` without an approximate inverse.
    """
    inverse = inverse_or_none(P)
    if inverse is None:
        return None
    residual = (np.eye(len(P)) - Ball.exact(P) @ inverse) @ rows.T
    norms = (Ball.exact(_lengths(rows)) * _lengths(residual.T)).upper()
    spread = Ball.exact(_inner(rows @ inverse, rows)) + np.nextafter(norms / p_min, np.inf)
    # the product of the two factors may underflow
    return (Ball.exact(_square_root(spread.upper())) * _square_root(np.asarray(level))).upper()


def region_bounds(
    driven: DrivenSystem, P: Array, p_min: float, level: float, centre: Array, inputs: Array, input_bound: float
) -> Region | None:
    r"""Bound channels, slopes and drift over the ellipsoid, for every input within ``input_bound`` of ``inputs``.

    Args:
        driven: the network.
        P: ``(n, n)`` symmetric positive definite.
        p_min: a proved lower bound of its spectrum.
        level: level of the ellipsoid.
        centre: ``(n,)``.
        inputs: ``(p,)``.
        input_bound: >= 0.

    Returns:
        The bounds, or ``None`` where they cannot be computed.
    """
    system, name = driven.system, driven.activation
    A, B, C, D = system_balls(system)
    swing, middle = ellipsoid_reach(P, p_min, level, C), driven.channel(centre, inputs)
    if swing is None or not np.isfinite(middle).all():
        return None
    w = activation_values(name, Ball.exact(middle))
    aside = np.full(driven.inputs, float(input_bound))
    turn = (Ball.exact(np.abs(driven.E)) @ aside).upper()
    gap = (C @ centre + D @ w + Ball.exact(driven.E) @ inputs + driven.b - middle).upper()
    steepest = np.maximum(np.abs(system.alpha), np.abs(system.beta))
    gain = D.upper() * steepest[None, :]
    through = through_loop(gain, np.stack([(Ball.exact(gap) + swing + turn).upper(), turn, gap], axis=1))
    if through is None:
        return None
    reach, shift, start = through.T
    low, high = slope_range(name, middle, reach)
    values = w + Ball(np.zeros(len(start)), start)  # the activation at the exact pre-activations of the centre
    image = A @ centre + B @ values + Ball.exact(driven.F) @ inputs
    if system.is_discrete:
        image = image - centre
    moved = Ball.exact(B.upper()) @ (Ball.exact(steepest) * shift) + Ball.exact(np.abs(driven.F)) @ aside
    drift = (moved + image.upper()).upper()
    return Region(middle, reach, low, high, drift)
