r"""What the multipliers of a tube are chosen for: how much a stage's error matters to the margins and to later reaches.

One stage's cost :math:`\operatorname{tr}(W Y^+)` is convex in ``T``. ``W`` is made on the nominal run, backwards: the
sensitivity of all margins, each in units of the margin itself, plus that of all rows that later channels read, since
their reaches decide how much the slopes vary.
"""

from __future__ import annotations

import numpy as np

from stability.local.build import Stages
from stability.local.stages import Nominal, Stage
from stability.local.tube import gain, turned

Array = np.ndarray
_SWEEPS, _SAFETY = 12, 1.05


def nominal_slopes(stage: Stage, at: Nominal) -> Array:
    """The slopes of a stage on the nominal run itself."""
    low, high = stage.slopes(at.rows, at.offset)
    return 0.5 * (low + high)


def weights(net: Stages, run: list[Nominal], y: Array, margins: Array) -> list[Array]:
    """``W`` of every stage: what its output is worth.

    Args:
        net: the stages.
        run: the nominal run of ``B`` samples.
        y: ``(B,)`` their classes.
        margins: ``(B, k)`` logit of the class less the others'; those of the class itself are infinite.

    Returns:
        For every stage of every step ``(B, k2, k2)``, of trace 2 at most.
    """
    per_step = len(net.stages)
    size = np.where(np.isfinite(margins), np.maximum(margins, 1e-12), np.inf)
    marks = (net.head[y][:, None, :] - net.head[None]) / size[..., None]  # (B, k, n)
    seen = np.zeros((len(y), net.states, net.states))
    out: list[Array] = []
    for index in range(len(run) - 1, -1, -1):
        stage, at = net.stages[index % per_step], run[index]
        out.append(_unit(turned(marks) @ marks) + _unit(seen))
        G = gain(stage, nominal_slopes(stage, at))
        marks, seen = marks @ G, turned(G) @ seen @ G + stage.C.T @ stage.C
        if stage.fresh:
            n = net.states
            marks, seen = marks[..., :n], seen[..., :n, :n]
    return out[::-1]


def _unit(W: Array) -> Array:
    trace = np.einsum("...ii->...", W)[..., None, None]
    return W / np.where(trace > 0, trace, 1.0)


def multipliers(stage: Stage, CY: Array, G: Array, rho: Array, W: Array) -> Array:
    r"""``T`` of a stage: :math:`\kappa R_{ii} + \sqrt{S_{ii} / (\rho B^T W B \rho)_{ii}}`.

    ``kappa`` is the largest eigenvalue of ``R = C Y C^T`` scaled to a diagonal of one, so that ``T > R``;
    :math:`S = C Y G^T W G Y C^T`.

    Args:
        stage: the stage.
        CY: ``(B, m, k)``.
        G: ``(B, k2, k)``.
        rho: ``(B, m)``.
        W: ``(B, k2, k2)``.

    Returns:
        ``(B, m)``, positive.
    """
    R = CY @ stage.C.T
    diagonal = np.maximum(np.einsum("...ii->...i", R), 0.0)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0) * (rho > 0)
    v = scale + 0.0
    top = np.ones(len(R))
    for _ in range(_SWEEPS):
        v = scale * (R @ (scale * v)[..., None])[..., 0]
        top = np.sqrt((v * v).sum(axis=-1))
        v = v / np.where(top > 0, top, 1.0)[..., None]
    GYC = G @ turned(CY)
    worth = np.einsum("bki,bki->bi", GYC, W @ GYC)
    price = rho * rho * np.einsum("ki,bki->bi", stage.B, W @ stage.B)
    with np.errstate(divide="ignore", invalid="ignore"):
        free = np.sqrt(np.maximum(worth, 0.0) / price)
    free = np.where(np.isfinite(free), free, 0.0)
    least = diagonal.max(axis=-1, initial=0.0)[..., None]
    return _SAFETY * np.maximum(top, 1.0)[..., None] * diagonal + free + 1e-9 * least + 1e-200
