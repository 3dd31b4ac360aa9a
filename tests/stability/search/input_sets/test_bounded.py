"""Boundedness: the radius holds in simulation, is exact where that is known, and absent where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.search.input_sets.bounded import bounded, equilibrium_claim
from stability.search.trajectories.simulation import advance_batch, natural_step
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim


def worst_norm(driven, rng, input_bound=None, start=50.0, steps=4000, tail=1500):
    """The largest norm over the tail of trajectories that start far out, under switching inputs."""
    n, p, batch = driven.system.states, driven.inputs, 12
    x, step, largest = rng.normal(size=(batch, n)) * start, natural_step(driven), 0.0
    size = 20.0 if input_bound is None else input_bound
    u = rng.uniform(-size, size, size=(batch, p))
    for i in range(steps):
        if rng.random() < 0.02:
            u = np.where(rng.random((batch, p)) < 0.5, -size, size)
        x = advance_batch(driven, x, u, step)
        if i > steps - tail:
            largest = max(largest, float(np.linalg.norm(x, axis=1).max()))
    return largest


def stable(rng, n):
    A = rng.normal(size=(n, n))
    return A - (np.linalg.eigvals(A).real.max() + rng.uniform(0.3, 1.5)) * np.eye(n)


@pytest.mark.parametrize("form", ["continuous", "euler", "midpoint"])
@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_radius_holds_in_simulation(rng, form, name):
    for _ in range(3):
        n = int(rng.integers(1, 6))
        system = LureSystem.recurrent(stable(rng, n), 2 * rng.normal(size=(n, n)))
        if form != "continuous":
            edge = np.linalg.eigvals(system.A)
            system = system.discretise(form, 0.3 * float((-2 * edge.real / np.abs(edge) ** 2).min()))
        E = rng.normal(size=(system.channels, 2))
        driven = DrivenSystem(system, name, E, rng.normal(size=system.channels))
        claim = bounded(driven)
        assert claim.verdict is Verdict.CERTIFIED
        assert verify_claim(driven, claim).valid
        assert worst_norm(driven, rng) <= claim.value


def test_exact_radii():
    """Scalar and diagonal systems: the radius is that of ``sum |B| / |a|``; A = 0: the unit box."""
    one = DrivenSystem(LureSystem.recurrent([[-4.0]], [[1.0]]), "tanh", [[1.0]])
    assert bounded(one).value == pytest.approx(0.25, rel=1e-6)
    cell = DrivenSystem(LureSystem(np.zeros((9, 9)), np.eye(9), np.eye(9), dt=1.0), "tanh", np.eye(9))
    assert bounded(cell).value == pytest.approx(3.0, rel=1e-6)
    spin = DrivenSystem(LureSystem([[-1.0, 9.0], [-9.0, -1.0]], [[1.0], [0.0]], [[0.0, 0.0]]), "tanh", [[1.0]])
    assert bounded(spin).value < 1.0  # |A| says nothing here: only an ellipsoid sees the rotation
    assert bounded(spin).proof.kind == "ball"


def test_contraction_gives_one_attracting_equilibrium(rng):
    system = LureSystem.recurrent(-2 * np.eye(2), np.array([[0.0, 0.9], [-0.9, 0.0]]))
    driven = DrivenSystem(system, "tanh", np.eye(2))
    data = {"P": np.eye(2), "L": np.ones(2), "rate": 0.5, "overshoot": 1.1, "p_min": 0.9, "p_max": 1.1}
    for subject in (system, driven):
        claim = equilibrium_claim(
            subject, Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", data), 0.5)
        )
        assert claim.name == "equilibrium"
        assert verify_claim(subject, claim).valid
    x, step = rng.normal(size=(8, 2)) * 10, natural_step(driven)
    u = np.broadcast_to(rng.normal(size=2), (8, 2))
    for _ in range(2000):
        x = advance_batch(driven, x, u, step)
    assert np.ptp(x, axis=0).max() < 1e-9
    bent = dict(data, L=np.zeros(2))
    claim = equilibrium_claim(system, Claim("contraction", "", Verdict.CERTIFIED, Proof("multiplier_lmi", bent), 0.5))
    assert not verify_claim(system, claim).valid
    assert equilibrium_claim(system, Claim("contraction", "", Verdict.REFUTED, Proof("destabilising_slopes"))) is None
