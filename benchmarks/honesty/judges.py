"""Judges that know nothing of the proofs: they look for one run, one slope, one input that contradicts a claim.

A judge who finds none says nothing; one who finds one is right. Continuous time is followed by exact exponentials of
piecewise constant slopes where the claim is about every activation.
"""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
from scipy.linalg import expm

from stability import LureSystem
from stability.kernel.format.claims import Claim
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.search.trajectories.simulation import advance_batch
from stability.systems import DrivenSystem

from .systems import contracts_no_faster, worst_slopes

__all__ = ["contradicted", "is_unstable"]

Array = np.ndarray
Rng = np.random.Generator
ROOM = 1.0 + 1e-7


def contradicted(subject: Any, claim: Claim, rng: Rng) -> bool:
    """Whether something was found that contradicts a certified claim."""
    assert claim.proof is not None
    data = dict(claim.proof.data)
    system = subject.system if isinstance(subject, DrivenSystem) else subject
    with np.errstate(all="ignore"):
        if claim.name == "contraction":
            rate, overshoot = float(data["rate"]), float(data["overshoot"])
            return _contraction(subject, rate, overshoot, data, rng)
        if claim.name == "equilibrium":
            return worst_slopes(system, rng, 10) > (1.0 + 1e-9 if system.is_discrete else 1e-9)
        if claim.name == "nonexpansive":
            return _growth(system, rng) > float(data["factor"]) * ROOM
        if claim.name == "bounded":
            return _escapes(subject, float(data["radius"]), data.get("input_bound"), rng)
        if claim.name == "regional":
            return _regional(subject, data, rng)
        if claim.name == "gain":
            return _gain(subject, float(claim.value or 0.0), data, rng)
    raise ValueError(f"no judge for {claim.name}")


def _corner(system: LureSystem, rng: Rng) -> Array:
    return system.jacobian(np.where(rng.random(system.channels) < 0.5, system.alpha, system.beta))


def _contraction(subject: Any, rate: float, overshoot: float, data: dict[str, Any], rng: Rng) -> bool:
    discrete = subject.is_discrete
    if overshoot < 1.0 or not (0.0 < rate < 1.0 if discrete else rate > 0.0):
        return True
    if isinstance(subject, LureSystem):
        return contracts_no_faster(subject, rate, rng, 6) or _switched(subject, rate, overshoot, rng)
    low, high = data.get("low"), data.get("high")
    n = subject.states
    first, second = (rng.uniform(-1, 1, (20, n)) if low is None else rng.uniform(low, high, (20, n)) for _ in range(2))
    second = np.where(rng.random((20, 1)) < 0.5, first + 1e-3 * (second - first), second)
    start = np.linalg.norm(first - second, axis=1)
    for k in range(1, 40):
        u = rng.choice([-1.0, -0.3, 0.0, 1.0], size=(20, subject.inputs))
        first, second = subject.advance(first, u), subject.advance(second, u)
        gap = np.linalg.norm(first - second, axis=1)
        if (gap > overshoot * rate**k * start * ROOM + 1e-12).any():
            return True
    return False


def _switched(system: LureSystem, rate: float, overshoot: float, rng: Rng) -> bool:
    """Slopes that switch from corner to corner."""
    for _ in range(6):
        d = rng.standard_normal(system.states)
        size, time = np.linalg.norm(d), 0.0
        for _ in range(12):
            step = 1.0 if system.is_discrete else float(rng.exponential() / (1.0 + rate))
            J = _corner(system, rng)
            d, time = (J if system.is_discrete else expm(step * J)) @ d, time + step
            bound = overshoot * (rate**time if system.is_discrete else np.exp(-rate * time)) * size
            if np.linalg.norm(d) > bound * ROOM:
                return True
    return False


def _growth(system: LureSystem, rng: Rng) -> float:
    if system.is_discrete:
        return max(float(np.linalg.norm(_corner(system, rng), 2)) for _ in range(20))
    return max(float(np.linalg.norm(expm(_corner(system, rng)), 2)) for _ in range(20))


def _escapes(driven: DrivenSystem, radius: float, bound: float | None, rng: Rng) -> bool:
    """Runs whose last states lie outside the ball that every trajectory is said to end in."""
    if not radius > 0:
        return True
    x = rng.standard_normal((30, driven.system.states))
    size = 5.0 if bound is None else bound
    u = size * rng.choice([-1.0, 0.0, 1.0], size=(30, driven.inputs))
    step, late = (1.0, 600) if driven.system.is_discrete else (0.05, 1500)
    for k in range(late):
        if k % 7 == 0 and k < late - 100:
            u = size * rng.choice([-1.0, 0.0, 1.0], size=(30, driven.inputs))
        x = advance_batch(driven, x, u, step)
    return bool((np.linalg.norm(x, axis=1) > radius * (1.0 + 1e-3)).any())


def _regional(driven: DrivenSystem, data: dict[str, Any], rng: Rng) -> bool:
    rate, overshoot, level = float(data["rate"]), float(data["overshoot"]), float(data["level"])
    discrete = driven.system.is_discrete
    if overshoot < 1.0 or not (0.0 < rate < 1.0 if discrete else rate > 0.0):
        return True
    n, centre = driven.system.states, data["centre"]
    values, vectors = np.linalg.eigh(data["P"])
    if not (values > 0).all():
        return True
    if float(data["radius"]) ** 2 * values[-1] > level * ROOM:
        return True
    ball = rng.standard_normal((2, 40, n))
    ball *= np.sqrt(level) / np.linalg.norm(ball, axis=2, keepdims=True)
    first, second = centre + (ball / np.sqrt(values)) @ vectors.T
    start, step = np.linalg.norm(first - second, axis=1), 1.0 if discrete else 0.01
    for k in range(1, 60 if discrete else 300):
        u = data["input"] + float(data["input_bound"]) * rng.choice([-1.0, 1.0], size=(40, driven.inputs))
        first, second = advance_batch(driven, first, u, step), advance_batch(driven, second, u, step)
        decay = rate**k if discrete else np.exp(-rate * k * step)
        if (np.linalg.norm(first - second, axis=1) > overshoot * decay * start * (1 + 1e-5) + 1e-10).any():
            return True
        out = np.einsum("ki,ij,kj->k", first - centre, data["P"], first - centre)
        if (out > level * (1 + 1e-5)).any():
            return True
    return False


def _gain(subject: Any, value: float, data: dict[str, Any], rng: Rng) -> bool:
    """Energy of the answer over that of the input along corners of the slopes, the input by power iteration."""
    if not value > 0.0:
        return True
    if isinstance(subject, (GatedCell, LayerStack)):
        return _stack_gain(subject, value, data, rng)
    system = subject.system if isinstance(subject, DrivenSystem) else subject
    horizon = int(min(data["horizon"] or 40, 40)) if system.is_discrete else 40
    step = 1.0 if system.is_discrete else min(float(data["horizon"] or 20.0), 20.0) / 40
    k = np.where(rng.random(system.channels) < 0.5, system.alpha, system.beta)
    inner = k[:, None] * np.linalg.solve(np.eye(system.channels) - system.D * k, np.hstack([system.C, data["E"]]))
    n = system.states
    A, F = system.A + system.B @ inner[:, :n], data["F"] + system.B @ inner[:, n:]
    if not system.is_discrete:  # inputs constant over steps; the output sampled at their ends is below its norm
        big = expm(step * np.block([[A, F], [np.zeros((F.shape[1], n + F.shape[1]))]]))
        A, F = big[:n, :n], big[:n, n:]
    rows = [[(data["H"] @ np.linalg.matrix_power(A, i - j) @ F) if j <= i else 0 * data["H"] @ F
             for j in range(horizon)] for i in range(horizon)]  # fmt: skip
    final = float(np.linalg.norm(np.hstack(rows[-1]), 2)) / np.sqrt(step)
    if data["measure"] == "final":
        return final > value * ROOM
    if system.is_discrete:
        return float(np.linalg.norm(np.block(rows), 2)) > value * ROOM
    return False  # in continuous time only values at an instant are judged


def _stack_gain(subject: Any, value: float, data: dict[str, Any], rng: Rng) -> bool:
    layers = subject.layers if isinstance(subject, LayerStack) else (subject,)
    last = layers[-1].outputs if isinstance(layers[-1], GatedCell) else layers[-1].system.states
    head = data.get("head", np.eye(last))
    for _ in range(20):
        x = np.zeros(subject.states)
        y, energy, out = x.copy(), 0.0, 0.0
        direction = rng.standard_normal(subject.inputs)
        for _ in range(40):
            u = rng.uniform(-0.5, 0.5, subject.inputs)
            v = u + 0.4 * direction / np.abs(direction).max()
            x, y = subject.advance(x, u), subject.advance(y, v)
            energy += float(((u - v) ** 2).sum())
            end = slice(len(x) - last, None) if not isinstance(subject, GatedCell) else slice(0, last)
            out += float(((head @ (x - y)[end]) ** 2).sum())
        if np.sqrt(out) > value * np.sqrt(energy) * ROOM:
            return True
    return False


def is_unstable(system: LureSystem, K: Array) -> bool:
    """Whether these slopes are admissible and destabilise, by 40-digit arithmetic."""
    if ((system.alpha > K) | (system.beta < K)).any():
        return False
    with mpmath.workdps(40):
        k, one = mpmath.diag(list(map(float, K))), mpmath.eye(system.channels)
        A, B, C, D = (mpmath.matrix(x.tolist()) for x in (system.A, system.B, system.C, system.D))
        J = A + B * k * mpmath.inverse(one - D * k) * C
        values = mpmath.eig(J, left=False, right=False) if system.states > 1 else [J[0, 0]]
        if system.is_discrete:
            return max(abs(v) for v in values) >= 1 - mpmath.mpf(10) ** -30
        return max(mpmath.re(v) for v in values) >= -(mpmath.mpf(10) ** -30)
