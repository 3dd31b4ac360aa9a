"""Flows under inputs in a box: ellipsoids that trajectories enter in the time that is told, and the bound after it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stability import certify, verify
from stability.kernel.arithmetic.activations import activation
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.kernel.theorems.flow_lmi import FlowLmi
from stability.search.input_sets.driven import driven_contraction
from stability.search.trajectories.simulation import advance_batch, natural_step
from stability.systems import DrivenSystem, LureSystem

E = 0.15


def flow(n: int, gain: float, seed: int, name: str = "tanh") -> DrivenSystem:
    rng = np.random.default_rng(seed)
    M = rng.normal(size=(n, n)) / np.sqrt(n)
    W = gain * rng.normal(size=(n, n)) / np.sqrt(n) * (4.0 if name == "sigmoid" else 1.0)
    system = LureSystem(-np.eye(n) + 0.3 * (M - M.T), np.eye(n), W, slope=activation(name).slope)
    return DrivenSystem(
        system, name, rng.normal(size=(n, 1)), 2.0 * rng.choice([-1.0, 1.0], size=n), 0.1 * np.ones((n, 1))
    )


@pytest.fixture(scope="module")
def proved() -> tuple[DrivenSystem, Claim]:
    driven = flow(6, 1.5, 1)
    claim, _ = driven_contraction(driven, (-E, E), tol=1e-3)
    assert claim.verdict is Verdict.CERTIFIED
    return driven, claim


def runs(driven: DrivenSystem, states: np.ndarray, time: float, rng: np.random.Generator) -> np.ndarray:
    """Runge-Kutta steps; the input, an end of the box, changes now and then."""
    step = 0.5 * natural_step(driven)
    for k in range(int(np.ceil(time / step))):
        if k % 7 == 0:
            u = np.where(rng.random((states.shape[-2], driven.inputs)) < 0.5, -E, E)
        states = advance_batch(driven, states, u, step)
    return states


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["tanh", "sigmoid", "saturation"])
def test_pairs_of_trajectories_keep_the_bound(seed, name, rng) -> None:
    driven = flow(2 + seed, 1.4, seed, name)
    claim, _ = driven_contraction(driven, (-E, E), tol=1e-2)
    if claim.verdict is Verdict.INCONCLUSIVE:
        return
    data = claim.proof.data
    sets = FlowLmi.of(data).ranges(driven)
    half = np.sqrt(np.diagonal(data["shapes"][0]))
    x, y = data["centres"][0] + half * rng.choice([-1.0, 1.0], size=(2, 60, driven.states))
    states = np.stack(
        [runs(driven, x, float(data["time"]) + 5.0, rng), runs(driven, y, float(data["time"]) + 5.0, rng)]
    )
    start = np.linalg.norm(states[0] - states[1], axis=-1)
    for k in range(1, 5):
        states = runs(driven, states, 1.0, rng)
        z = driven.channel(states, np.array([E]))
        assert ((z >= sets.low) & (z <= sets.high)).all()
        gap = np.linalg.norm(states[0] - states[1], axis=-1)
        assert (gap <= data["overshoot"] * np.exp(-data["rate"] * 0.99 * k) * start + 1e-9).all()


def test_more_is_certified_than_without_the_box_and_sooner_than_told(proved, rng) -> None:
    driven, claim = proved
    assert certify(driven, refute=False, rate="any").verdict is Verdict.INCONCLUSIVE
    data = claim.proof.data
    assert len(data["mu"]) > 3
    x = 40.0 * rng.choice([-1.0, 1.0], size=(40, driven.states))
    y = x - data["centres"][0]
    V = float(np.einsum("ri,ij,rj->r", y, np.linalg.inv(data["shapes"][0]), y).max())
    wait = np.log((V - 1.0) / data["room"]) / data["mu"][0]
    x = runs(driven, x, wait + data["time"], rng)
    y = x - data["centres"][-1]
    assert np.einsum("ri,ij,rj->r", y, np.linalg.inv(data["shapes"][-1]), y).max() <= 1.0 + data["room"]


def test_the_certificate_names_box_and_time(proved) -> None:
    driven, _ = proved
    certificate = certify(driven, input_box=(-E, E), tol=1e-2, refute=False)
    assert (certificate.verdict, certificate.claim.name) == (Verdict.CERTIFIED, "driven_contraction")
    assert verify(certificate).valid
    assert "[-0.15, 0.15]" in certificate.claim.statement
    assert "t >= T" in certificate.claim.statement
    ends = {c.name: c for c in certificate.claims}
    assert ends["bounded_in_box"].value < 2.0 * ends["bounded"].value
    assert "equilibrium_in_box" in ends
    assert certificate.recovery_time(1.0, 1e-3).since is None


BENT = {
    "a wider box": {"high": lambda v: v + 1.5},
    "an empty box": {"low": lambda v: v + 9.0},
    "smaller ellipsoids": {"shapes": lambda v: 0.5 * v},
    "the first alone smaller": {"shapes": lambda v: np.concatenate([0.9 * v[:1], v[1:]])},
    "elsewhere": {"centres": lambda v: v + 0.3},
    "slopes at first": {"slopes": lambda v: v[::-1].copy()},
    "slopes too steep": {"slopes": lambda v: v + np.array([0.0, *[2.0] * (len(v) - 1)])[:, None]},
    "no ellipsoid": {k: (lambda v: v[:0]) for k in ("mu", "centres", "shapes", "slopes", "tau", "least")},
    "the first alone": {k: (lambda v: v[:1]) for k in ("mu", "centres", "shapes", "slopes", "tau", "least")},
    "sooner": {"time": lambda v: 0.5 * v},
    "more room below": {"least": lambda v: 10.0 * v},
    "larger weights": {"tau": lambda v: 2.0 * v},
    "weights that are none": {"tau": lambda v: -v},
    "faster entry": {"mu": lambda v: 1.5 * v},
    "no room": {"room": lambda _: 0.0},
    "room that rounds": {"room": lambda _: 0.1},
    "a faster rate": {"rate": lambda v: 1.2 * v},
    "less overshoot": {"overshoot": lambda v: 0.9 * v},
    "one row less": {"slopes": lambda v: v[1:]},
}


@pytest.mark.parametrize("bend", BENT.values(), ids=BENT)
def test_bent_proofs_are_refused(proved, bend) -> None:
    driven, claim = proved
    data = dict(claim.proof.data)
    for name, change in bend.items():
        data[name] = change(data[name])
    rule = RULES["flow_lmi"]
    assert rule(driven, claim)[0]
    assert not rule(driven, replace(claim, proof=Proof("flow_lmi", data), value=data["rate"]))[0]
