"""Systems that contract by construction: each by an argument of one line, with its rate.

Whoever refutes one of them is wrong; whoever leaves one of a comfortable margin undecided is weak. The margin is one
less the rate per step, or the rate per unit of time, and lies as close to zero as one likes.

``KINDS`` holds the kinds; ``draw`` makes one of a kind, ``drive`` adds what makes it a particular network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability import LureSystem
from stability.systems import DrivenSystem

__all__ = ["KINDS", "Construction", "draw", "drive"]

Array = np.ndarray
Rng = np.random.Generator
Maker = Callable[[Rng, int, float], LureSystem]


@dataclass(frozen=True)
class Construction:
    """A system with the reason why it contracts.

    Attributes:
        kind: a name of ``KINDS``.
        system: the system.
        rate: it contracts at this rate (per step, or per unit of time) in some norm.
        margin: ``1 - rate`` or ``rate``.
    """

    kind: str
    system: LureSystem
    rate: float
    margin: float


# Matrices of a given size: each a function of (rng, n, size).


def two_norm(rng: Rng, n: int, size: float) -> Array:
    W = rng.standard_normal((n, n))
    return W * (size / np.linalg.norm(W, 2))


def inf_norm(rng: Rng, n: int, size: float) -> Array:
    W = rng.standard_normal((n, n))
    return W * (size / np.abs(W).sum(axis=1))[:, None]


def one_norm(rng: Rng, n: int, size: float) -> Array:
    return inf_norm(rng, n, size).T.copy()


def _scaled(rng: Rng, W: Array) -> Array:
    d = 10.0 ** rng.uniform(-2, 2, len(W))
    return d[:, None] * W / d


def scaled_inf_norm(rng: Rng, n: int, size: float) -> Array:
    return _scaled(rng, inf_norm(rng, n, size))


def scaled_two_norm(rng: Rng, n: int, size: float) -> Array:
    return _scaled(rng, two_norm(rng, n, size))


def non_negative(rng: Rng, n: int, size: float) -> Array:
    W = rng.exponential(size=(n, n)) * (rng.random((n, n)) < 0.7) + np.diag(rng.uniform(0.05, 1.0, n))
    return W * (size / np.abs(np.linalg.eigvals(W)).max())


def sign_similar(rng: Rng, n: int, size: float) -> Array:
    signs = rng.choice([-1.0, 1.0], n)
    return signs[:, None] * non_negative(rng, n, size) * signs


def triangular(rng: Rng, n: int, size: float) -> Array:
    """Off the diagonal anything at all; on it at most ``size``, in some row exactly."""
    W = np.triu(rng.standard_normal((n, n)), 1) * 10.0 ** rng.uniform(-1, 0.3)
    diagonal = rng.uniform(-1, 1, n)
    diagonal *= size / np.abs(diagonal).max()
    return W + np.diag(diagonal)


def orthogonal(rng: Rng, n: int, size: float) -> Array:
    return size * np.linalg.qr(rng.standard_normal((n, n)))[0]


def _parts(rng: Rng, n: int) -> list[int]:
    sizes = []
    while (left := n - sum(sizes)) > 0:
        sizes.append(int(rng.integers(1, min(left, 5) + 1)))
    return sizes


def block_diagonal(rng: Rng, n: int, size: float) -> Array:
    W, start = np.zeros((n, n)), 0
    for k in _parts(rng, n):
        block = (two_norm, inf_norm, one_norm, orthogonal)[rng.integers(4)]
        W[start : start + k, start : start + k] = block(rng, k, size)
        start += k
    return W


def block_triangular(rng: Rng, n: int, size: float) -> Array:
    """Blocks in series that contract, each driven by the earlier ones; only one is as slow as ``size`` says."""
    W, start, parts = np.zeros((n, n)), 0, _parts(rng, n)
    slowest = int(rng.integers(len(parts)))
    for i, k in enumerate(parts):
        block = (two_norm, inf_norm, one_norm, orthogonal)[rng.integers(4)]
        own = size if i == slowest else size * rng.uniform(0.2, 0.9)
        W[start : start + k, start : start + k] = block(rng, k, own)
        W[start : start + k, :start] = 0.5 * rng.standard_normal((k, start)) * (rng.random((k, start)) < 0.5)
        start += k
    order = rng.permutation(n)
    return W[np.ix_(order, order)]


# Systems: each a function of (rng, n, margin).


def _map(matrix: Callable[[Rng, int, float], Array], slope: tuple[float, float] = (0.0, 1.0)) -> Maker:
    def make(rng: Rng, n: int, margin: float) -> LureSystem:
        return LureSystem(np.zeros((n, n)), np.eye(n), matrix(rng, n, 1.0 - margin), None, slope, 1.0)

    return make


def _flow(matrix: Callable[[Rng, int, float], Array]) -> Maker:
    def make(rng: Rng, n: int, margin: float) -> LureSystem:
        return LureSystem.recurrent(-np.eye(n), matrix(rng, n, 1.0 - margin))

    return make


def euler(rng: Rng, n: int, margin: float) -> LureSystem:
    """``x+ = x + dt (-x + phi(W x))``: ``1 - dt + dt |W|``."""
    dt = max(float(rng.choice([0.5, 0.1, 0.02])), 2.0 * margin)
    matrix = (two_norm, inf_norm, triangular)[rng.integers(3)]
    return LureSystem.recurrent(-np.eye(n), matrix(rng, n, 1.0 - margin / dt)).euler(dt)


def midpoint(rng: Rng, n: int, margin: float) -> LureSystem:
    """The polynomial in ``|W|`` that bounds the norm of the step's Jacobian is ``1 - margin``."""
    dt = max(float(rng.choice([0.5, 0.1, 0.02])), min(2.0 * margin, 0.5))
    a, b, c = 0.5 * dt * dt, dt, 0.5 * dt * dt - dt + margin  # 1 - dt + dt^2/2 + dt q + dt^2 q^2/2 = 1 - margin
    q = (-b + np.sqrt(b * b - 4.0 * a * c)) / (2.0 * a)
    matrix = (two_norm, inf_norm)[rng.integers(2)]
    return LureSystem.recurrent(-np.eye(n), matrix(rng, n, float(q))).midpoint(dt)


def leaky(rng: Rng, n: int, margin: float) -> LureSystem:
    """``x+ = a x + (1 - a) phi(W x)``: ``a + (1 - a) |W|``."""
    a = float(rng.uniform(0.0, min(0.95, 1.0 - 1.5 * margin)))
    matrix = (two_norm, inf_norm, non_negative, triangular)[rng.integers(4)]
    W = matrix(rng, n, 1.0 - margin / (1.0 - a))
    return LureSystem(a * np.eye(n), (1.0 - a) * np.eye(n), W, dt=1.0)


def slow(rng: Rng, n: int, margin: float) -> LureSystem:
    """``x+ = (1 - e) x + e phi(W x)`` with ``|W| = 0.1`` and a tiny e."""
    e = min(margin / 0.9, 1.0)
    return LureSystem((1.0 - e) * np.eye(n), e * np.eye(n), inf_norm(rng, n, 0.1), dt=1.0)


def leaky_units(rng: Rng, n: int, margin: float) -> LureSystem:
    """Every unit with a leak of its own: ``a_i + (1 - a_i) sum_j |W_ij| = 1 - margin``."""
    a = rng.uniform(0.0, min(0.9, 1.0 - 1.5 * margin), n)
    W = inf_norm(rng, n, 1.0) * (1.0 - margin / (1.0 - a))[:, None]
    return LureSystem(np.diag(a), np.diag(1.0 - a), W, dt=1.0)


def per_channel(rng: Rng, n: int, margin: float) -> LureSystem:
    """Slopes that differ: ``sum_j max(|alpha_i|, |beta_i|) |W_ij| = 1 - margin``."""
    beta = rng.uniform(0.1, 1.0, n)
    alpha = beta * rng.choice([-1.0, -0.5, 0.0, 0.2], n)
    W = inf_norm(rng, n, 1.0 - margin) / beta[:, None]
    return LureSystem(np.zeros((n, n)), np.eye(n), W, None, (alpha, beta), 1.0)


def deep(rng: Rng, n: int, margin: float) -> LureSystem:
    """Two layers a step, ``x+ = phi(W2 phi(W1 x))``, with ``|W2| |W1| = 1 - margin``: D is not zero."""
    matrix = (two_norm, inf_norm)[rng.integers(2)]
    split = 10.0 ** rng.uniform(-1, 1)
    first, second = matrix(rng, n, (1.0 - margin) * split), matrix(rng, n, 1.0 / split)
    zero = np.zeros((n, n))
    B, C, D = np.hstack([zero, np.eye(n)]), np.vstack([first, zero]), np.block([[zero, zero], [second, zero]])
    return LureSystem(zero, B, C, D, dt=1.0)


KINDS: dict[str, Maker] = {
    "two_norm": _map(two_norm),
    "inf_norm": _map(inf_norm),
    "one_norm": _map(one_norm),
    "scaled_inf_norm": _map(scaled_inf_norm),
    "scaled_two_norm": _map(scaled_two_norm),
    "symmetric_slopes": _map(two_norm, (-1.0, 1.0)),
    "block_diagonal": _map(block_diagonal),
    "block_triangular": _map(block_triangular),
    "non_negative": _map(non_negative),
    "sign_similar": _map(sign_similar),
    "triangular": _map(triangular),
    "orthogonal": _map(orthogonal),
    "flow_two_norm": _flow(two_norm),
    "flow_inf_norm": _flow(inf_norm),
    "flow_triangular": _flow(triangular),
    "euler": euler,
    "midpoint": midpoint,
    "leaky": leaky,
    "slow": slow,
    "leaky_units": leaky_units,
    "per_channel": per_channel,
    "deep": deep,
}


def draw(kind: str, rng: Rng, n: int, margin: float) -> Construction:
    """One system of a kind.

    Args:
        kind: a name of ``KINDS``.
        rng: source.
        n: states.
        margin: in (0, 0.5).
    """
    system = KINDS[kind](rng, n, margin)
    return Construction(kind, system, 1.0 - margin if system.is_discrete else margin, margin)


def drive(system: LureSystem, rng: Rng) -> DrivenSystem | None:
    """The system as one network: tanh, random bias and inputs; ``None`` where its slopes are not those of tanh."""
    if not ((system.alpha <= 0.0).all() and (system.beta >= 1.0).all()):
        return None
    p = int(rng.integers(1, 4))
    E = rng.standard_normal((system.channels, p))
    if system.origin is not None and system.origin.method == "midpoint":
        E = np.tile(E[: system.channels // 2], (2, 1))
    return DrivenSystem(system, "tanh", E, 0.3 * rng.standard_normal(system.channels))
