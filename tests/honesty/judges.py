"""Search for a trajectory, slopes or an input that contradicts a certified claim, without looking at its proof.

A judge that finds nothing says nothing; one that finds a contradiction has shown the claim false.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import expm

from stability import LureSystem
from stability.kernel.format.claims import Claim
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.search.trajectories.simulation import advance_batch
from stability.systems import DrivenSystem

from .constructions import contracts_no_faster, worst_slopes

Array = np.ndarray
Rng = np.random.Generator
TOLERANCE = 1.0 + 1e-7


def contradicted(subject: Any, claim: Claim, rng: Rng) -> bool:
    """Return True if a contradiction to a certified claim was found."""
    assert claim.proof is not None
    data = dict(claim.proof.data)
    system = subject.system if isinstance(subject, DrivenSystem) else subject
    with np.errstate(all="ignore"):
        if claim.name == "contraction":
            return _contraction(subject, data, rng)
        if claim.name == "equilibrium":
            return worst_slopes(system, rng, 10) > (1.0 + 1e-9 if system.is_discrete else 1e-9)
        if claim.name == "nonexpansive":
            steps = (_corner(system, rng) for _ in range(20))
            growth = max(np.linalg.norm(J if system.is_discrete else expm(J), 2) for J in steps)
            return growth > float(data["factor"]) * TOLERANCE
        if claim.name == "bounded":
            return _escapes(subject, float(data["radius"]), data.get("input_bound"), rng)
        if claim.name == "regional":
            return _regional(subject, data, rng)
        assert claim.name == "gain", claim.name
        many = isinstance(subject, (GatedCell, LayerStack))
        return (_stack_gain if many else _lure_gain)(subject, float(claim.value or 0.0), data, rng)


def _corner(system: LureSystem, rng: Rng) -> Array:
    return system.jacobian(np.where(rng.random(system.channels) < 0.5, system.alpha, system.beta))


def _is_rate(subject: Any, data: dict[str, Any]) -> bool:
    rate = float(data["rate"])
    return float(data["overshoot"]) >= 1.0 and (0.0 < rate < 1.0 if subject.is_discrete else rate > 0.0)


def _contraction(subject: Any, data: dict[str, Any], rng: Rng) -> bool:
    if not _is_rate(subject, data):
        return True
    rate, overshoot, n = float(data["rate"]), float(data["overshoot"]), subject.states
    if isinstance(subject, LureSystem):
        return contracts_no_faster(subject, rate, rng, 6) or _switched(subject, rate, overshoot, rng)
    low, high = data.get("low", -np.ones(n)), data.get("high", np.ones(n))
    first, second = rng.uniform(low, high, (2, 20, n))
    second = np.where(rng.random((20, 1)) < 0.5, first + 1e-3 * (second - first), second)
    start = np.linalg.norm(first - second, axis=1)
    for k in range(1, 40):
        u = rng.choice([-1.0, -0.3, 0.0, 1.0], size=(20, subject.inputs))
        first, second = subject.advance(first, u), subject.advance(second, u)
        if (np.linalg.norm(first - second, axis=1) > overshoot * rate**k * start * TOLERANCE + 1e-12).any():
            return True
    return False


def _switched(system: LureSystem, rate: float, overshoot: float, rng: Rng) -> bool:
    """Compare the growth of a difference under slopes that switch between corners with the claimed bound."""
    for _ in range(6):
        d = rng.standard_normal(system.states)
        size, time = np.linalg.norm(d), 0.0
        for _ in range(12):
            step = 1.0 if system.is_discrete else float(rng.exponential() / (1.0 + rate))
            J = _corner(system, rng)
            d, time = (J if system.is_discrete else expm(step * J)) @ d, time + step
            bound = overshoot * (rate**time if system.is_discrete else np.exp(-rate * time)) * size
            if np.linalg.norm(d) > bound * TOLERANCE:
                return True
    return False


def _escapes(driven: DrivenSystem, radius: float, bound: float | None, rng: Rng) -> bool:
    """Look for final states outside the ball in which every trajectory is claimed to end."""
    x, size = rng.standard_normal((30, driven.system.states)), 5.0 if bound is None else bound
    u = size * rng.choice([-1.0, 0.0, 1.0], size=(30, driven.inputs))
    step, steps = (1.0, 600) if driven.system.is_discrete else (0.05, 1500)
    for k in range(steps):
        if k % 7 == 0 and k < steps - 100:
            u = size * rng.choice([-1.0, 0.0, 1.0], size=(30, driven.inputs))
        x = advance_batch(driven, x, u, step)
    return not radius > 0 or bool((np.linalg.norm(x, axis=1) > radius * (1.0 + 1e-3)).any())


def _regional(driven: DrivenSystem, data: dict[str, Any], rng: Rng) -> bool:
    level, P, centre = float(data["level"]), data["P"], data["centre"]
    values, vectors = np.linalg.eigh(P)
    fits = (values > 0).all() and float(data["radius"]) ** 2 * values[-1] <= level * TOLERANCE
    if not (fits and _is_rate(driven.system, data)):
        return True
    ball = rng.standard_normal((2, 40, driven.system.states))
    ball *= np.sqrt(level) / np.linalg.norm(ball, axis=2, keepdims=True)
    first, second = centre + (ball / np.sqrt(values)) @ vectors.T
    start, discrete, rate = np.linalg.norm(first - second, axis=1), driven.system.is_discrete, float(data["rate"])
    step, steps = (1.0, 60) if discrete else (0.01, 300)
    for k in range(1, steps):
        u = data["input"] + float(data["input_bound"]) * rng.choice([-1.0, 1.0], size=(40, driven.inputs))
        first, second = advance_batch(driven, first, u, step), advance_batch(driven, second, u, step)
        bound = float(data["overshoot"]) * (rate**k if discrete else np.exp(-rate * k * step)) * start
        left = np.einsum("ki,ij,kj->k", first - centre, P, first - centre) > level * (1 + 1e-5)
        if (np.linalg.norm(first - second, axis=1) > bound * (1 + 1e-5) + 1e-10).any() or left.any():
            return True
    return False


def _lure_gain(subject: Any, value: float, data: dict[str, Any], rng: Rng) -> bool:
    """Compare the norm of the lifted linear map at corner slopes with the gain; discrete time only."""
    system = subject.system if isinstance(subject, DrivenSystem) else subject
    if not system.is_discrete:
        return not value > 0.0
    n, k = system.states, np.where(rng.random(system.channels) < 0.5, system.alpha, system.beta)
    inner = k[:, None] * np.linalg.solve(np.eye(system.channels) - system.D * k, np.hstack([system.C, data["E"]]))
    A, F = system.A + system.B @ inner[:, :n], data["F"] + system.B @ inner[:, n:]
    steps = range(int(min(data["horizon"] or 40, 40)))
    rows = [[(data["H"] @ np.linalg.matrix_power(A, max(i - j, 0)) @ F) * (j <= i) for j in steps] for i in steps]
    lifted = np.hstack(rows[-1]) if data["measure"] == "final" else np.block(rows)
    return not value > 0.0 or float(np.linalg.norm(lifted, 2)) > value * TOLERANCE


def _stack_gain(subject: Any, value: float, data: dict[str, Any], rng: Rng) -> bool:
    last = (subject.layers if isinstance(subject, LayerStack) else (subject,))[-1]
    n = last.outputs if isinstance(last, GatedCell) else last.system.states
    end = slice(0, n) if isinstance(subject, GatedCell) else slice(subject.states - n, None)
    head = data.get("head", np.eye(n))
    for _ in range(20):
        x = y = np.zeros(subject.states)
        energy, output, direction = 0.0, 0.0, rng.uniform(-0.4, 0.4, subject.inputs)
        for _ in range(40):
            u = rng.uniform(-0.5, 0.5, subject.inputs)
            x, y = subject.advance(x, u), subject.advance(y, u + direction)
            energy += float((direction**2).sum())
            output += float(((head @ (x - y)[end]) ** 2).sum())
        if np.sqrt(output) > value * np.sqrt(energy) * TOLERANCE:
            return True
    return not value > 0.0
