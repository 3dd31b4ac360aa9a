"""Choice of reference input and Lagrange multipliers for the backward bound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.reachability.ellipsoid_tube import ROOM, diagonal_above
from stability.kernel.reachability.network_stages import Stages
from stability.kernel.reachability.quadratic_lower_bound import (
    Around,
    Passage,
    Reference,
    backward_step,
    half_reach,
    linearize_stages,
    reference,
)
from stability.kernel.reachability.stages import Nominal

Array = np.ndarray
_ROUNDS, _CLOSE = 8, 1e-3  # updates of the prices, and relative change that ends them
_TOWARDS = 0.9
"""Weight of the direction of the reference, against all directions in the ellipsoid."""
_SHARE = 0.97
"""Position between the best price (0) and the price at which no margin remains (1)."""
_IDLE = 1e-9
"""Smallest price of a step, relative to the largest."""


@dataclass(frozen=True, eq=False)
class ClosedClass:
    """Reference input, prices and multipliers that bound the margin of one class.

    Attributes:
        other: the class.
        point: ``(T, p)`` the reference input.
        prices: ``lambda``, ``(1,)``, or ``(T,)`` for a budget of each step.
        T: ``(T, m)`` multipliers.
    """

    other: int
    point: Array
    prices: Array
    T: Array


def tube_passages(radius: float, net: Stages, x: Array, run: list[Nominal], Y: list[Array]) -> list[Passage]:
    """Return the tube of one sample in floating point, without error bounds."""
    out, y, count = list[Passage](), net.start, len(net.stages)
    for k, (nominal, shape) in enumerate(zip(run, Y)):
        stage = net.stages[k % count]
        y = np.concatenate([y, x[k // count]]) if stage.fresh else y
        spread = np.einsum("ij,ij->i", stage.C @ shape, stage.C)
        reach = radius * (1.0 + ROOM) * np.sqrt(np.maximum(spread, 0.0)) + nominal.offset
        out.append(Passage(stage, y, half_reach(radius, shape), nominal.rows, reach, shape))
        y = nominal.out
    return out


def priced_references(
    net: Stages, x: Array, w: Array, bias: Array, free: Array, radius: float, each: bool = False
) -> list[tuple[Reference, Array]] | None:
    """Return stationary reference inputs and the largest prices that the margins allow.

    Near a reference with gradient ``g`` the margin is approximately ``M + g (x' - x)``. A price ``lambda`` is
    admissible if ``M - |g|^2 / (4 lambda) - lambda eps^2 > 0``. The largest one leaves most slack for the curvature.
    With a budget for each step the terms are summed over the steps. Prices are then proportional to the gradients.

    Args:
        net: the stages.
        x: ``(T, p)``.
        w: ``(c, n)`` rows of margins on the vector at the end of the run.
        bias: ``(c,)`` their constant terms.
        free: ``(T, p)``, 1 for entries that may change and 0 for others.
        radius: ``eps``.
        each: whether every step has a separate budget.

    Returns:
        One pair per margin; ``None`` if some margin has no admissible price.
    """
    groups = x.shape[0] if each else 1
    prices, point = np.zeros((len(w), groups)), np.broadcast_to(x, (len(w), *x.shape))
    out, g = run_gradients(net, point, w)
    for turn in range(_ROUNDS):
        g, shift = g * free, point - x
        M, size = (w * out).sum(axis=1) + bias - (g * shift).sum(axis=(1, 2)), group_norms(g, groups)
        if not ((M > 0.0) & np.isfinite(size).all(axis=1)).all():
            return None
        new = _prices(M, size, radius)
        residual = group_norms(g + 2.0 * broadcast_groups(prices, x) * shift, groups).sum(axis=1)
        converged = np.abs(new - prices) <= _CLOSE * prices
        if turn and (converged.all(axis=1) & (residual * radius <= _CLOSE * M)).all():
            break
        prices = new
        point = x - free * g / (2.0 * broadcast_groups(prices, x))
        out, g = run_gradients(net, point, w)
    g, shift = g * free, point - x
    away, residual = group_norms(shift, groups), group_norms(g + 2.0 * broadcast_groups(prices, x) * shift, groups)
    decrease = prices * (radius * radius - away * away) + residual * (radius + away)
    if not ((w * out).sum(axis=1) + bias - decrease.sum(axis=1) > 0.0).all():
        return None
    return [(reference(net, point[k], w[k]), prices[k]) for k in range(len(w))]


def group_norms(g: Array, groups: int) -> Array:
    """Return the lengths ``(c, groups)`` of ``(c, T, p)``, as a whole or step by step."""
    return np.linalg.norm(g.reshape(len(g), groups, -1), axis=2)


def broadcast_groups(values: Array, x: Array) -> Array:
    """Broadcast values ``(c, 1)`` or ``(c, T)``, of a whole input or of its steps, to the entries of ``x (T, p)``."""
    return np.broadcast_to(values, (len(values), len(x)))[..., None]


def _prices(M: Array, size: Array, radius: float) -> Array:
    """Return almost the largest prices for margins ``M (c,)`` with gradients of given sizes ``(c, groups)``."""
    steep = size.sum(axis=1) * radius
    part = M / steep
    part = part + _SHARE * np.sqrt(np.maximum(part * part - 1.0, 0.0))
    slack = np.maximum(M - 0.5 * steep * (part + 1.0 / part), 0.0)
    prices = part[:, None] * size / (2.0 * radius)
    if size.shape[1] == 1:
        return prices
    floor_price = 0.5 * slack / (size.shape[1] * radius * radius)  # small gradients: half of the slack, shared
    return np.maximum(prices, floor_price[:, None] + _IDLE * prices.max(axis=1, keepdims=True))


def run_gradients(net: Stages, x: Array, w: Array) -> tuple[Array, Array]:
    """Return the final vectors ``y`` of runs ``(c, T, p)``, and the gradients of ``w y``, in floating point."""
    y, tangents, n = np.broadcast_to(net.start, (len(x), net.states)), list[Array](), net.states
    for t in range(x.shape[1]):
        for stage in net.stages:
            y = np.concatenate([y, x[:, t]], axis=1) if stage.fresh else y
            rows = y @ stage.C.T + stage.bias
            tangents.append(stage.tangents(rows, np.zeros_like(rows))[0])
            y = y @ stage.A.T + stage.values(rows)[0] @ stage.B.T
    gradient, p, count = np.zeros(x.shape), w, len(net.stages)
    for k in range(len(tangents) - 1, -1, -1):
        stage = net.stages[k % count]
        p = p @ stage.A + ((p @ stage.B) * tangents[k]) @ stage.C
        if stage.fresh:
            gradient[:, k // count], p = p[:, n:], p[:, :n]
    return y, gradient


def class_multipliers(net: Stages, tube: list[Passage], ref: Reference, free: Array, prices: Array) -> Array | None:
    """Return multipliers ``(T, m)`` for which a reference's inequalities hold at every stage, or ``None``."""
    count, P, out = len(net.stages), np.zeros((net.states, net.states)), list[Array]()
    stages, paid = linearize_stages(net, tube, ref), np.broadcast_to(prices, (len(free),))
    for k in range(len(tube) - 1, -1, -1):
        passage, a, price = tube[k], stages[k], float(paid[k // count])
        T = _multipliers(passage, a, P, price, ref.at[k])
        step = backward_step(passage.stage, a, P, T, free[k // count] if passage.stage.fresh else None, price)
        if step is None or not np.isfinite(step).all():
            return None
        P = step
        out.append(T)
    out.reverse()
    return np.stack([np.concatenate(out[k : k + count]) for k in range(0, len(out), count)])


def _multipliers(passage: Passage, a: Around, P: Array, price: float, at: Array) -> Array:
    """Return ``T > B^T P B`` for which the quadratic before the stage is small on the perturbed runs."""
    stage, shift = passage.stage, at - passage.y
    size = float(np.einsum("ii->", passage.Y))
    towards = _TOWARDS * size / max(float(shift @ shift), 1e-300)
    Y = (1.0 - _TOWARDS) * passage.Y + towards * np.outer(shift, shift)
    BP = stage.B.T @ P
    R, BPG = BP @ stage.B, BP @ a.G
    rows = np.einsum("ij,ij->i", stage.C @ Y, stage.C)
    cost = a.rho**2 * np.maximum(rows, 0.0)
    cost = np.maximum(cost, 1e-12 * cost.max(initial=0.0)) + 1e-300
    worth = np.einsum("ij,ij->i", BPG @ Y, BPG)
    floor = 1e-9 * price / (1.0 + (stage.C**2).sum(axis=1))
    return diagonal_above(R[None], np.sqrt(cost)[None], a.rho[None])[0] + np.sqrt(np.maximum(worth, 0.0) / cost) + floor
