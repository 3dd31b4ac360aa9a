"""Random systems near the boundary of stability, and the slopes that come closest to destabilising them."""

from __future__ import annotations

import numpy as np

from stability import LureSystem

__all__ = ["contracts_no_faster", "feasible_system", "random_system", "worst_slopes"]

Array = np.ndarray


def random_system(rng: np.random.Generator) -> LureSystem:
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


def worst_slopes(system: LureSystem, rng: np.random.Generator, tries: int) -> float:
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


def contracts_no_faster(system: LureSystem, rate: float, rng: np.random.Generator, tries: int = 30) -> bool:
    """Whether constant slopes decay more slowly than a claimed rate: then the claim is false."""
    slowest = rate if system.is_discrete else -rate
    return worst_slopes(system, rng, tries) > slowest + 1e-9 * max(1.0, abs(slowest))


def feasible_system(rng: np.random.Generator, margin: float) -> LureSystem:
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
