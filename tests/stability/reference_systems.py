"""Random systems of every kind, and the rates and overshoots that an earlier search found for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stability import LureSystem
from stability.errors import StabilityError


def systems(count: int, seed: int = 0) -> Iterator[tuple[int, LureSystem]]:
    """Identity and narrow inputs, slopes of one size and of many, reducible loops, direct terms; flows and maps."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        n = int(rng.choice([2, 3, 4, 6, 8, 10, 12, 16]))
        m = int(rng.choice([max(1, n // 2), n, n]))
        kind, dt = number % 5, None if number % 2 else float(rng.choice([0.1, 0.5, 1.0]))
        A = rng.standard_normal((n, n)) / n**0.5
        B = rng.standard_normal((n, m)) / n**0.5 if kind != 0 else np.eye(n)[:, :m]
        C = rng.standard_normal((m, n)) / n**0.5
        if kind == 3:
            A, C = np.triu(A), np.triu(np.ones((m, n))) * C
        A = A - (np.max(np.linalg.eigvals(A).real) + rng.uniform(0.5, 2)) * np.eye(n)
        D = np.zeros((m, m)) if kind != 4 else 0.1 * rng.standard_normal((m, m))
        high = rng.uniform(0.3, 1.2, m)
        low = np.where(rng.random(m) < 0.7, 0, -0.3 * rng.random(m)) if kind == 2 else np.zeros(m)
        high = np.ones(m) if kind == 1 else high
        if dt:
            A = np.eye(n) + 0.5 * dt * A if kind != 4 else A / (1.2 * np.max(np.abs(np.linalg.eigvals(A))))
            radius = np.max(np.abs(np.linalg.eigvals(A)))
            A, B = (A * 0.9 / radius if radius >= 1 else A), 0.5 * dt * B
        C = C * rng.uniform(0.2, 1.0)
        try:
            yield number, LureSystem(A, B, C, D, slope=(low, high), dt=dt)
        except StabilityError:  # a direct term that is not known to be well posed
            continue
