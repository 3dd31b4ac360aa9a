r"""Choice of S-procedure multipliers by the sensitivity of margins and of later pre-activations.

The cost of a stage, :math:`\operatorname{tr}(W Y^+)`, is convex in ``T``. A backward pass along the nominal run
computes ``W``. It adds the sensitivities of the margins, each in units of the margin, and those of later
pre-activations, whose ranges determine how much the slopes vary. For a given tube ``refined_weights`` returns the
derivative of the largest lost share of a margin with respect to each ellipsoid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.reachability.ellipsoid_tube import Products, diagonal_above, gain, resolvent, transposed
from stability.kernel.reachability.network_stages import Stages
from stability.kernel.reachability.stages import Nominal, Stage

Array = np.ndarray
_FLOOR = 1e-5
"""Smallest multiplier, relative to the squared range of its row without cancellation, so that rounding errors do not
prevent the proof of ``T > R``."""
_CEILING = 1e9
"""Largest multiplier, relative to the squared ranges of the rows: larger ones gain at most 1e-9."""


def nominal_slopes(stage: Stage, at: Nominal) -> Array:
    """Return the slopes of a stage on the nominal run."""
    return stage.tangents(at.rows, at.offset)[0]


def stage_weights(net: Stages, run: list[Nominal], y: Array, margins: Array, regular: float = 1.0) -> list[Array]:
    """Return the sensitivity ``W`` of every stage's output.

    Args:
        net: the stages.
        run: the nominal run of ``B`` samples.
        y: ``(B,)`` their classes.
        margins: ``(B, k)`` logit of the class minus each logit; infinite for the class itself.
        regular: weight of the sensitivities of pre-activations, relative to those of the margins.

    Returns:
        One matrix ``(B, k2, k2)`` per stage and step.
    """
    per_step = len(net.stages)
    size = np.where(np.isfinite(margins), np.maximum(margins, 1e-12), np.inf)
    gradients = (net.head[y][:, None, :] - net.head[None]) / size[..., None]  # (B, k, n)
    weights = np.zeros((len(y), net.states, net.states))
    out: list[Array] = []
    for index in range(len(run) - 1, -1, -1):
        stage, at = net.stages[index % per_step], run[index]
        out.append(_unit(transposed(gradients) @ gradients) + regular * _unit(weights))
        G = gain(stage, nominal_slopes(stage, at))
        gradients, weights = gradients @ G, transposed(G) @ weights @ G + stage.C.T @ stage.C
        if stage.fresh:
            n = net.states
            gradients, weights = gradients[..., :n], weights[..., :n, :n]
    return out[::-1]


def _unit(W: Array) -> Array:
    trace = np.einsum("...ii->...", W)[..., None, None]
    return W / np.where(trace > 0, trace, 1.0)


@dataclass(frozen=True, eq=False)
class StagePass:
    """Stage of a tube, with the ellipsoid before it and the quantities of ``ellipsoid_tube``.

    Attributes:
        stage: the stage.
        Y: ``(B, k, k)`` ellipsoid before the stage.
        of: matrices of the stage from ``products``.
        rho: ``(B, m)`` half-widths of the slope intervals.
        T: ``(B, m)`` multipliers.
    """

    stage: Stage
    Y: Array
    of: Products
    rho: Array
    T: Array

    def only(self, index: Array) -> StagePass:
        """Return the pass of the selected samples."""
        of = Products(self.of.R[index], self.of.G[index], self.of.GYC[index])
        return StagePass(self.stage, self.Y[index], of, self.rho[index], self.T[index])


def refined_weights(net: Stages, tube: list[StagePass], heads: Array) -> list[Array]:
    r"""Return ``W`` of every stage of a tube: the derivative of the largest lost margin share by its ellipsoids.

    With fixed ``T`` and fixed midpoints of the slopes, :math:`dY^+ = M dY M^T` with
    :math:`M = G (I + Y C^T (T - R)^{-1} C)`, and the half-widths ``rho`` grow in proportion to the ranges.

    Args:
        net: the stages.
        tube: passes of all stages.
        heads: ``(B, k, n)`` differences of the head's rows, each divided by its margin and weighted.

    Returns:
        Weights as in ``stage_weights``; NaN if the tube has overflowed.
    """
    W, out = transposed(heads) @ heads, list[Array]()
    for at in reversed(tube):
        W = _unit(W)
        out.append(W)
        C, sensitivity = at.stage.C, np.einsum("ki,bki->bi", at.stage.B, W @ at.stage.B)
        M = at.of.G + resolvent(at.of.R, np.where(at.rho > 0, at.T, np.inf), at.of.GYC) @ C
        spread = np.einsum("...ii->...i", at.of.R)
        growth = np.where(spread > 0, at.rho * at.rho * at.T * sensitivity / np.where(spread > 0, spread, 1.0), 0.0)
        W = transposed(M) @ W @ M + C.T @ (growth[..., None] * C)
        W = 0.5 * (W + transposed(W))
        if at.stage.fresh:
            W = W[..., : net.states, : net.states]
    return out[::-1]


def stage_multipliers(stage: Stage, Y: Array, of: Products, rho: Array, W: Array) -> Array:
    r"""Return ``T`` of a stage: :math:`t_i + \sqrt{S_{ii} / p_i}` with a diagonal ``t >= R``.

    Its cost is :math:`\operatorname{tr} S (T - R)^{-1} + \sum_i p_i T_i`, with ``R = C Y C^T``, the prices
    :math:`p_i = (\rho B^T W B \rho)_{ii}` and :math:`S = C Y G^T W G Y C^T`. All diagonals
    :math:`\sum_j |R_{ij}| v_j / v_i` are above ``R``; the one with :math:`v = \sqrt p` has the smallest cost and is
    scaled down as far as it stays above ``R``.

    Args:
        stage: the stage.
        Y: ``(B, k, k)`` ellipsoid before the stage.
        of: matrices of the stage from ``products``.
        rho: ``(B, m)`` half-widths of the slope intervals.
        W: ``(B, k2, k2)`` weights of the stage's output.

    Returns:
        ``T (B, m)``, positive.
    """
    R = of.R
    price = rho * rho * np.einsum("ki,bki->bi", stage.B, W @ stage.B)
    price = np.maximum(price, 1e-12 * price.max(axis=-1, initial=0.0, keepdims=True))
    root = np.sqrt(price) + 1e-150
    sizes = np.sqrt(np.maximum(np.einsum("...ii->...i", Y), 0.0)) @ np.abs(stage.C).T
    floor = _FLOOR * sizes * sizes + 1e-12 * (sizes * sizes).max(axis=-1, initial=0.0)[..., None]
    S = np.einsum("bki,bki->bi", of.GYC, W @ of.GYC)  # diagonal
    free = np.sqrt(np.maximum(S, 0.0) / (root * root))
    free = np.minimum(free, _CEILING * (sizes * sizes).max(axis=-1, initial=0.0)[..., None])
    return diagonal_above(R, root, rho) + free + floor + 1e-40
