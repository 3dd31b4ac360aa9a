"""Margins that a tube of ellipsoids leaves open: a reference input, a price and multipliers that close them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.local.backward import Around, Passage, Reference, around, reference, sides, step
from stability.local.build import Stages
from stability.local.costs import diagonal_above
from stability.local.stages import Nominal
from stability.local.tube import ROOM

Array = np.ndarray
_ROUNDS, _CLOSE = 8, 1e-3
_TOWARDS = 0.9
"""How much the direction of the reference counts among all that a tube allows."""
_SHARE = 0.97
"""Of the way from the price at which most is left to the one at which nothing is."""


@dataclass(frozen=True, eq=False)
class Closed:
    """What closes one class.

    Attributes:
        other: the class.
        point: ``(T, p)`` the reference input.
        price: ``lambda``.
        T: ``(T, m)`` multipliers.
    """

    other: int
    point: Array
    price: float
    T: Array


def passages(radius: float, net: Stages, x: Array, run: list[Nominal], Y: list[Array]) -> list[Passage]:
    """The tube of one sample, for the search: no rounding counted."""
    out, y, count = list[Passage](), net.start, len(net.stages)
    for k, (nominal, shape) in enumerate(zip(run, Y)):
        stage = net.stages[k % count]
        y = np.concatenate([y, x[k // count]]) if stage.fresh else y
        spread = np.einsum("ij,ij->i", stage.C @ shape, stage.C)
        reach = radius * (1.0 + ROOM) * np.sqrt(np.maximum(spread, 0.0)) + nominal.offset
        out.append(Passage(stage, y, sides(radius, shape), nominal.rows, reach, shape))
        y = nominal.out
    return out


def priced(
    net: Stages, x: Array, w: Array, bias: Array, free: Array, radius: float
) -> list[tuple[Reference, float]] | None:
    """Reference inputs that are stationary for as large prices as the margins allow, and the prices.

    About a reference with gradient ``g`` the margin is ``M + g (x' - x)`` nearly, and a price is paid for where
    ``M - |g|^2 / (4 lambda) - lambda eps^2 > 0``: the largest one leaves most room for the curvature.

    Args:
        net: the stages.
        x: ``(T, p)``.
        w: ``(c, n)`` rows of margins on the vector at the end of the run.
        bias: ``(c,)`` what is added to them.
        free: ``(T, p)`` which entries change.
        radius: ``eps``.

    Returns:
        One for each margin; ``None`` where one of them has none.
    """
    price, point = np.zeros(len(w)), np.broadcast_to(x, (len(w), *x.shape))
    out, g = runs(net, point, w)
    for turn in range(_ROUNDS):
        g, shift = g * free, point - x
        M, size = (w * out).sum(axis=1) + bias - (g * shift).sum(axis=(1, 2)), (g * g).sum(axis=(1, 2))
        if not ((M > 0.0) & np.isfinite(size)).all():
            return None
        new = (M + _SHARE * np.sqrt(np.maximum(M * M - size * radius * radius, 0.0))) / (2.0 * radius * radius)
        rest = np.linalg.norm((g + 2.0 * price[:, None, None] * shift).reshape(len(w), -1), axis=1)
        if turn and ((np.abs(new - price) <= _CLOSE * price) & (rest * radius <= _CLOSE * M)).all():
            break
        price = new
        point = x - free * g / (2.0 * price[:, None, None])
        out, g = runs(net, point, w)
    g, shift = g * free, point - x
    size, away = (shift * shift).sum(axis=(1, 2)), np.linalg.norm(shift.reshape(len(w), -1), axis=1)
    rest = np.linalg.norm((g + 2.0 * price[:, None, None] * shift).reshape(len(w), -1), axis=1)
    left = (w * out).sum(axis=1) + bias - price * (radius * radius - size) - rest * (radius + away)
    if not (left > 0.0).all():
        return None
    return [(reference(net, point[k], w[k]), float(price[k])) for k in range(len(w))]


def runs(net: Stages, x: Array, w: Array) -> tuple[Array, Array]:
    """The vectors ``y`` at the ends of runs ``(c, T, p)``, and the gradients of ``w y``; no rounding counted."""
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


def closed(net: Stages, tube: list[Passage], ref: Reference, free: Array, price: float) -> Array | None:
    """Multipliers ``(T, m)`` for which a reference's inequalities hold at every stage, or ``None``."""
    count, P, out = len(net.stages), np.zeros((net.states, net.states)), list[Array]()
    stages = around(net, tube, ref)
    for k in range(len(tube) - 1, -1, -1):
        passage, a = tube[k], stages[k]
        T = _multipliers(passage, a, P, price, ref.at[k])
        found = step(passage.stage, a, P, T, free[k // count] if passage.stage.fresh else None, price)
        if found is None or not np.isfinite(found).all():
            return None
        P = found
        out.append(T)
    out.reverse()
    return np.stack([np.concatenate(out[k : k + count]) for k in range(0, len(out), count)])


def _multipliers(passage: Passage, a: Around, P: Array, price: float, at: Array) -> Array:
    """``T > B^T P B`` for which the quadratic function before the stage is small where the perturbed runs are."""
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
