"""Systems that contract by construction, and random systems near the boundary of stability.

A verdict "refuted" about a contracting system is an error; "inconclusive" at a comfortable margin is a weakness.
The margin is ``1 - rate`` (discrete time) or the rate (continuous time).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stability import LureSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.systems import DrivenSystem

Array = np.ndarray
Rng = np.random.Generator
Maker = Callable[[Rng, int, float], LureSystem]


@dataclass(frozen=True)
class Construction:
    """A contracting system: its kind, its rate (per step, or per unit of time) and its margin."""

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
    """Draw a system with ``n`` states of a kind of ``KINDS``; margin in (0, 0.5)."""
    system = KINDS[kind](rng, n, margin)
    return Construction(kind, system, 1.0 - margin if system.is_discrete else margin, margin)


def drive(system: LureSystem, rng: Rng) -> DrivenSystem | None:
    """Return the system as a tanh network with random bias and inputs; ``None`` where tanh violates its slopes."""
    if not ((system.alpha <= 0.0).all() and (system.beta >= 1.0).all()):
        return None
    p = int(rng.integers(1, 4))
    E = rng.standard_normal((system.channels, p))
    if system.origin is not None and system.origin.method == "midpoint":
        E = np.tile(E[: system.channels // 2], (2, 1))
    return DrivenSystem(system, "tanh", E, 0.3 * rng.standard_normal(system.channels))


NETWORKS = ("inf_norm", "two_norm", "triangular", "leaky")


def gated_cell(rng: Rng, margin: float, kind: str | None = None) -> GatedCell:
    """A cell without recurrent weights: every unit forgets at the rate of its gate, which is at most ``1 - margin``.

    The box of the inputs is [-1, 1]; the bias of the forgetting gate (LSTM: f, GRU: z) leaves it just that room.
    """
    kind = kind or ("lstm", "gru")[rng.integers(2)]
    m, p = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    gates = 4 if kind == "lstm" else 3
    W = 0.5 * rng.standard_normal((gates * m, p))
    b = 0.3 * rng.standard_normal(gates * m)
    b[m : 2 * m] = np.log((1.0 - margin) / margin) - np.abs(W[m : 2 * m]).sum(axis=1)
    return GatedCell(kind, W, np.zeros((gates * m, m)), b, None, -1.0, 1.0)


def stack(rng: Rng, margin: float) -> LayerStack:
    """Two or three layers on top of each other; each contracts, and so does the stack."""
    layers: list[DrivenSystem | GatedCell] = []
    for _ in range(int(rng.integers(2, 4))):
        n = int(rng.integers(1, 4))
        kind = NETWORKS[rng.integers(len(NETWORKS))]
        layer = drive(draw(kind, rng, n, margin).system, rng)
        assert layer is not None
        if layers:
            below = layers[-1].system.states if isinstance(layers[-1], DrivenSystem) else layers[-1].outputs
            E = rng.standard_normal((n, below))
            layer = DrivenSystem(layer.system, layer.activation, E, layer.b)
        layers.append(layer)
    return LayerStack(layers)


def random_system(rng: Rng) -> LureSystem:
    """One system near the boundary: the linear part is shifted so that some admissible slopes are nearly unstable.

    Many shapes; badly scaled, non-normal, slopes of one interval or of one a channel, channels that drive others.
    """
    n, m = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    A = rng.standard_normal((n, n)) * 10.0 ** rng.uniform(-1, 1)
    B, C = rng.standard_normal((n, m)), rng.standard_normal((m, n))
    D = np.tril(rng.standard_normal((m, m)), -1) if rng.random() < 0.3 else np.zeros((m, m))
    if rng.random() < 0.3:
        A = np.triu(A)  # non-normal
        A[np.triu_indices(n, 1)] *= 10.0 ** rng.uniform(0, 2)
    if rng.random() < 0.3:
        d = 10.0 ** rng.uniform(-3, 3, n)  # badly scaled
        A, B, C = d[:, None] * A / d, d[:, None] * B, C / d
    intervals = np.array([(0.0, 1.0), (0.1, 1.0), (-1.0, 1.0), (0.0, 0.25), (0.5, 0.5)])
    picks = rng.integers(5, size=m) if rng.random() < 0.4 else np.full(m, rng.integers(5))
    slope = (intervals[picks, 0], intervals[picks, 1])
    dt = None if rng.random() < 0.5 else 1.0
    worst = worst_slopes(LureSystem(A, B, C, D, slope, dt), rng, 8)
    gap = 10.0 ** rng.uniform(-8, 0.5) * rng.choice([-1.0, 1.0, 1.0, 1.0])
    if dt is None:
        return LureSystem(A - (worst + gap) * np.eye(n), B, C, D, slope)
    scale = max(1.0 + gap, 0.05) * max(worst, 1e-9)
    return LureSystem(A / scale, B / scale, C, D, slope, dt)


def worst_slopes(system: LureSystem, rng: Rng, tries: int) -> float:
    """Largest abscissa (radius) over corners and random slopes, then coordinate ascent over corners."""

    def measure(k: Array) -> float:
        values = np.linalg.eigvals(system.jacobian(k))
        return float(np.abs(values).max() if system.is_discrete else values.real.max())

    low, high = system.alpha, system.beta
    picks = [low, high] + [np.where(rng.random(len(low)) < 0.5, low, high) for _ in range(tries)]
    picks += [rng.uniform(low, high) for _ in range(tries)]
    best = max(picks, key=measure).copy()
    top = measure(best)
    for i in range(len(low)):
        for value in (low[i], high[i]):
            trial = best.copy()
            trial[i] = value
            if (new := measure(trial)) > top:
                best, top = trial, new
    return top


def contracts_no_faster(system: LureSystem, rate: float, rng: Rng, tries: int = 30) -> bool:
    """Return True if constant slopes decay more slowly than a claimed rate: then the claim is false."""
    slowest = rate if system.is_discrete else -rate
    return worst_slopes(system, rng, tries) > slowest + 1e-9 * max(1.0, abs(slowest))


def feasible_system(rng: Rng, margin: float) -> LureSystem:
    """A system whose inequality holds at a random (P, L) with a scaled margin: built backwards from the proof."""
    n = int(rng.integers(2, 17))
    V = rng.standard_normal((n, n)) + np.eye(n)
    P = V.T @ V / n + 0.1 * np.eye(n)
    L = 10.0 ** rng.uniform(-1, 1, n)
    X, K = rng.standard_normal((n, n)), rng.standard_normal((n, n))
    S = rng.standard_normal((n, n))
    S *= np.sqrt(1.0 - margin) / np.linalg.norm(S, 2)
    A = np.linalg.solve(P, -0.5 * X.T @ X - margin * P + (K - K.T))
    W = (np.sqrt(2.0) * np.sqrt(L)[:, None] * (S @ X) - P) / L[:, None]
    return LureSystem.recurrent(A, W)
