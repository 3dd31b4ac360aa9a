"""Systems in stretched coordinates, where inequalities cancel, and what the checker computes of them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from stability.kernel.theorems.multiplier_lmi import majorant
from stability.systems import LureSystem


def skewed(seed: int, kind: str, spread: float, n: int = 2, m: int = 2, p: int = 1, slope=(0.0, 1.0)):
    """A contracting system with input and output in coordinates stretched by ``10**spread``; a metric, multipliers."""
    rng = np.random.default_rng(seed)
    one, two = (np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2))
    turn = one @ np.diag(10.0 ** np.linspace(0, -spread, n)) @ two
    back = np.linalg.inv(turn)
    a = (0.3 if kind == "map" else 1.0) * (-np.eye(n) + 0.15 * rng.normal(size=(n, n)))
    b, c = 0.2 * rng.normal(size=(n, m)), 0.2 * rng.normal(size=(m, n))
    e, f, h = 0.2 * rng.normal(size=(m, p)), rng.normal(size=(n, p)), 0.3 * rng.normal(size=(2, n))
    system = LureSystem(turn @ a @ back, turn @ b, c @ back, slope=slope, dt=1.0 if kind == "map" else None)
    if kind in ("euler", "midpoint"):
        system, e = system.discretise(kind, 0.1), np.vstack([e] * (2 if kind == "midpoint" else 1))
        f, h = 0.1 * f, 0.2 * h
    P = 2.0 * back.T @ back
    return system, 0.5 * (P + P.T), np.ones(system.channels), e, turn @ f, h @ back


def absolute(system, P, L, rate, exact, gain=None) -> np.ndarray:
    """``exact.dissipation`` with all signs plus and all entries absolute, of the majorant's matrices."""
    big = majorant(system)
    a, b, c, d = (exact.of(x) for x in (big.A, big.B, big.C, big.D))
    p, weights, r = exact.of(np.abs(P)), exact.of(L), abs(Fraction(rate))
    product = 2 * abs(exact.of(system.alpha) * exact.of(system.beta)) * weights
    total = abs(exact.of(system.alpha) + exact.of(system.beta)) * weights
    n, m = system.states, system.channels
    rows = exact.of(np.eye(n + m + (0 if gain is None else gain[1].shape[1])))
    x, w, u = rows[:n], rows[n : n + m], rows[n + m :]
    z, step, paid = c @ x + d @ w, a @ x + b @ w, 0
    if gain is not None:
        e, f, h, g = gain
        z, step, paid = z + exact.of(np.abs(e)) @ u, step + exact.of(np.abs(f)) @ u, Fraction(g) ** 2 * (u.T @ u)
        if h is not None:
            paid = paid + x.T @ exact.of(np.abs(h)).T @ exact.of(np.abs(h)) @ x
    out = z.T @ (product[:, None] * z) + z.T @ (total[:, None] * w) + w.T @ (total[:, None] * z)
    out = out + 2 * w.T @ (weights[:, None] * w) + paid
    if system.is_discrete:
        return out + step.T @ p @ step + r * r * (x.T @ p @ x)
    return out + step.T @ p @ x + x.T @ p @ step + 2 * r * (x.T @ p @ x)


def watched(monkeypatch, theorem, check, *data, **options) -> tuple[bool, list]:
    """Return the result of a check, and each matrix that it proves positive definite with its error bound."""
    asked, prove = [], theorem.prove_positive_definite

    def watch(matrix, action=None, **options):
        bound = None if action is None else np.column_stack([action(row) for row in np.eye(len(matrix))])
        asked.append((matrix.copy(), bound))
        return prove(matrix, action, **options)

    with monkeypatch.context() as patch:
        patch.setattr(theorem, "prove_positive_definite", watch)
        return check(*data, **options)[0], asked
