r"""Reachable ellipsoids around a nominal trajectory, by the S-procedure.

Invariant, with ``d`` the difference of a perturbed run from the nominal one and :math:`\sigma` the budget spent so far
(the sum of the squares of the perturbation; at most :math:`\epsilon^2`): :math:`d d^T \le \sigma Y`. A new step
appends the input, :math:`Y \leftarrow \operatorname{diag}(Y, I)`. A stage is a map :math:`y^+ = A y + B \phi(C y + b)`.
Its pre-activations move by at most :math:`r_i = \epsilon \sqrt{(C Y C^T)_{ii}}`; let its slopes there lie within
:math:`m \pm \rho`. Then any diagonal ``T`` with :math:`T - C Y C^T > 0` gives, with :math:`G = A + B m C`,

.. math:: Y^+ = G Y G^T + G Y C^T (T - C Y C^T)^{-1} C Y G^T + B \rho T \rho B^T .

(The S-procedure with multipliers :math:`T^{-1}` for :math:`|\delta_i| \le \rho_i |C_i d|`, and Woodbury's formula.)
With a budget for each step, :math:`|u_t| \le \epsilon`, the invariant is :math:`d d^T \le \epsilon^2 Y`
and the input enters by :math:`Y \leftarrow \operatorname{diag}(Y / (1 - \tau), I / \tau)`, any ``tau`` in (0, 1).

Everything is batched over leading axes. Source: S. Boyd, L. El Ghaoui, E. Feron, V. Balakrishnan, Linear Matrix
Inequalities in System and Control Theory (1994), sections 2.6.3 and 6.1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.reachability.ellipsoid_operations import half_widths
from stability.kernel.reachability.network_stages import Stages
from stability.kernel.reachability.stages import Nominal, Stage

Array = np.ndarray
ROOM = 1e-9
"""Share of the budget reserved for rounding errors of the nominal run, which enter as an input of their own."""


def transposed(x: Array) -> Array:
    """Return the transposes of matrices ``(..., a, b)``."""
    return np.swapaxes(x, -1, -2)


def nominal_run(net: Stages, x: Array) -> list[Nominal]:
    """Return every stage of every step on the nominal run, for inputs ``(..., T, p)``."""
    y, run = np.broadcast_to(net.start, (*x.shape[:-2], net.states)), []
    for t in range(x.shape[-2]):
        for stage in net.stages:
            if stage.fresh:
                y = np.concatenate([y, x[..., t, :]], axis=-1)
            run.append(stage.nominal(y))
            y = run[-1].out
    return run


def append_input(Y: Array, free: Array, tau: Array | float | None) -> Array:
    """Append the input of a new step to ``Y``.

    Args:
        Y: ``(..., n, n)``.
        free: ``(p,)``, one for a feature that may change, else zero.
        tau: weight of the input with a budget for each step; ``None`` with a budget for the whole sequence.
    """
    n, p = Y.shape[-1], len(free)
    out = np.zeros((*Y.shape[:-2], n + p, n + p))
    out[..., :n, :n] = Y
    out[..., range(n, n + p), range(n, n + p)] = free
    if tau is not None:
        share = np.asarray(tau)[..., None, None]
        out[..., :n, :n] /= 1.0 - share
        out[..., n:, n:] /= share
    return out


def row_spread(stage: Stage, Y: Array) -> tuple[Array, Array]:
    """Return ``C Y`` and upper bounds of the diagonal of ``C Y C^T``, with all rounding errors included."""
    CY = stage.C @ Y
    sizes = half_widths(Y) @ np.abs(stage.C).T  # |Y_ij| <= sqrt(Y_ii Y_jj)
    inner = np.einsum("...ij,ij->...i", CY, stage.C)
    return CY, np.maximum(inner + 4 * (2 * stage.C.shape[1] + 8) * EPS * sizes * sizes, 0.0) * (1 + 8 * EPS)


@dataclass(frozen=True, eq=False)
class Local:
    """Slopes ``m +- rho`` of a stage whose pre-activations move by at most ``reach``, each ``(..., m)``."""

    m: Array
    rho: Array
    reach: Array


def local_slopes(stage: Stage, at: Nominal, squared_widths: Array, radius: Array | float) -> Local:
    """Bound the slopes of a stage near the nominal run.

    Args:
        stage: the stage.
        at: the nominal run there.
        squared_widths: upper bounds ``(..., m)`` of the diagonal of ``C Y C^T``.
        radius: epsilon, ``(...,)``.
    """
    size = np.asarray(radius)[..., None] * (1.0 + ROOM)
    reach = size * np.sqrt(squared_widths) * (1 + 8 * EPS) + at.offset
    low, high = stage.slopes(at.rows, reach)
    m = 0.5 * (low + high)
    rho = np.maximum(high - m, m - low)
    return Local(m, np.where(high > low, np.nextafter(rho, np.inf), 0.0), reach)


def gain(stage: Stage, m: Array) -> Array:
    """Return ``G = A + B m C``."""
    return stage.A + (stage.B * m[..., None, :]) @ stage.C


def stage_error(stage: Stage, at: Nominal, near: Local, offset: Array, moves: Array) -> Array:
    """Bound the errors of a stage around the nominal run: its roundings, and the errors of the stored matrices.

    Args:
        stage: the stage.
        at: the nominal run there.
        near: slopes ``m``, their radii and the reach of the pre-activations.
        offset: ``(m,)`` errors of the pre-activations.
        moves: ``(n,)`` largest distance of each state from the nominal one.

    Returns:
        A vector, one bound per entry of the output.
    """
    steep = np.abs(near.m) + near.rho
    absolute = np.abs(stage.A) + (np.abs(stage.B) * np.abs(near.m)) @ np.abs(stage.C)
    out = at.error + np.abs(stage.B) @ (steep * offset) + gamma(len(stage.C) + 4) * (absolute @ moves)
    if stage.slack is not None:
        out = out + stage.slack[0] @ moves + stage.slack[1] @ (steep * near.reach)
    return out * (1 + gamma(len(stage.C) + len(moves) + 16))


@dataclass(frozen=True, eq=False)
class Products:
    """Matrices for choosing and using ``T``: ``R = C Y C^T`` of shape ``(..., m, m)``, ``G`` and ``G Y C^T``."""

    R: Array
    G: Array
    GYC: Array


def products(stage: Stage, CY: Array, m: Array) -> Products:
    """Compute the products from a stage's ``C Y`` and the middles of its slopes."""
    G = gain(stage, m)
    return Products(CY @ stage.C.T, G, G @ transposed(CY))


def next_ellipsoid(stage: Stage, Y: Array, of: Products, rho: Array, T: Array) -> Array:
    """Return ``Y+``; channels with ``rho = 0`` contribute only through ``G``.

    Args:
        stage: the stage.
        Y: ``(..., k, k)``.
        of: matrices of the stage from ``products``.
        rho: ``(..., m)`` half-widths of the slope intervals.
        T: ``(..., m)``, positive, with ``T - C Y C^T > 0`` on the channels with positive ``rho``.
    """
    out = of.G @ Y @ transposed(of.G)
    active = rho > 0
    if active.any():
        BT = stage.B * (rho * np.sqrt(T))[..., None, :]
        left = resolvent(of.R, np.where(active, T, np.inf), of.GYC)
        out = out + left @ transposed(of.GYC) + BT @ transposed(BT)
    return 0.5 * (out + transposed(out))


def resolvent(R: Array, T: Array, X: Array) -> Array:
    """Return ``X (diag(T) - R)^{-1}``; rows of infinite ``T`` become zero."""
    scale = 1.0 / np.sqrt(T)  # zero for channels of infinite T
    inner = -R * scale[..., :, None] * scale[..., None, :]
    inner[..., range(R.shape[-1]), range(R.shape[-1])] += 1.0
    try:
        solved = np.linalg.solve(inner, transposed(X * scale[..., None, :]))
    except np.linalg.LinAlgError:  # singular matrices of the batch become NaN, which proves nothing
        inner = inner + 0.0 * inner
        singular = ~(np.abs(np.linalg.det(inner)) > 0)
        inner[singular] = np.nan
        solved = np.linalg.solve(inner, transposed(X * scale[..., None, :]))
    return transposed(solved) * scale[..., None, :]


_SWEEPS = 8  # power iterations for the largest eigenvalue
_SAFETY = 1.07  # factor on its estimate; any value is sound, since the user of the diagonal proves ``T > R``


def diagonal_above(R: Array, root: Array, rho: Array) -> Array:
    r"""Return the diagonal :math:`\sum_j |R_{ij}| v_j / v_i`, ``v = root``, scaled down as far as it stays above ``R``.

    Args:
        R: ``(B, m, m)``, symmetric.
        root: ``(B, m)``, positive.
        rho: ``(B, m)``; channels with zero are left out.
    """
    above = (np.abs(R) @ root[..., None])[..., 0] / root
    scale = (rho > 0) / np.sqrt(np.maximum(above, 1e-300))
    v, top = scale * root, np.ones(len(R))
    for _ in range(_SWEEPS):
        v = scale * (R @ (scale * v)[..., None])[..., 0]
        top = np.sqrt((v * v).sum(axis=-1))
        v = v / np.where(top > 0, top, 1.0)[..., None]
    return np.minimum(_SAFETY * top, 1.0)[..., None] * above
