"""Regional certificates: in the region pairs obey the rate and nobody leaves; outside nothing is claimed."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stability.certification import certify
from stability.kernel.format.claims import Verdict
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.input_sets.regional import regional
from stability.search.trajectories.simulation import advance_batch
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify, verify_claim


def network(rng, form, n=4):
    """A neural ODE or an antisymmetric network (A = 0), or its Euler or midpoint map."""
    W = rng.normal(size=(n, n)) / np.sqrt(n) - 1.5 * np.eye(n)
    system = LureSystem.recurrent(np.zeros((n, n)), W)
    if form == "antisymmetric":
        system = LureSystem.recurrent(np.zeros((n, n)), W - W.T - 0.3 * np.eye(n)).euler(0.1)
    elif form != "continuous":
        system = system.discretise(form, 0.1)
    copies = system.channels // n
    E, b = np.tile(rng.normal(size=(n, 2)), (copies, 1)), np.tile(0.3 * rng.normal(size=n), copies)
    return DrivenSystem(system, "tanh", E, b)


def inside(claim, rng, count):
    """Random states of the ellipsoid, half of them on its boundary."""
    data = claim.proof.data
    directions = rng.normal(size=(count, len(data["centre"])))
    sizes = np.sqrt(np.einsum("ij,jk,ik->i", directions, data["P"], directions))
    radii = np.where(np.arange(count) % 2, 1.0, rng.random(count)) * np.sqrt(data["level"])
    return data["centre"] + directions / sizes[:, None] * radii[:, None]


@pytest.mark.parametrize("form", ["continuous", "euler", "midpoint", "antisymmetric"])
@pytest.mark.parametrize("input_bound", [0.0, 0.002])
def test_rate_and_invariance_hold_in_simulation(rng, form, input_bound):
    driven = network(rng, form)
    claim = regional(driven, input_bound=input_bound)
    assert claim.verdict is Verdict.CERTIFIED
    assert verify_claim(driven, claim).valid
    data, discrete = claim.proof.data, driven.system.is_discrete
    x = np.stack([inside(claim, rng, 40), inside(claim, rng, 40)])
    first, step = np.linalg.norm(x[0] - x[1], axis=1), 1.0 if discrete else 0.02
    for k in range(1, 300):
        u = data["input"] + input_bound * np.sign(rng.normal(size=(40, 2)))
        x = advance_batch(driven, x, np.broadcast_to(u, (2, 40, 2)), step)
        gaps = np.linalg.norm(x[0] - x[1], axis=1)
        decay = data["rate"] ** k if discrete else np.exp(-data["rate"] * step * k)
        assert (gaps <= data["overshoot"] * decay * first * (1 + 1e-6) + 1e-12).all()
        d = x - data["centre"]
        assert (np.einsum("aij,jk,aik->ai", d, data["P"], d) <= data["level"] * (1 + 1e-6)).all()


def test_scalar_region_is_nearly_the_largest_there_is():
    """``dh/dt = -tanh(h)``: rate 1/4 holds where ``sech^2 h >= 1/4``: ``|h| <= atanh(sqrt(3) / 2)``."""
    driven = DrivenSystem(LureSystem.recurrent([[0.0]], [[-1.0]]), "tanh", [[1.0]])
    claim = regional(driven, rate=0.25)
    exact = np.arctanh(np.sqrt(0.75))
    assert 0.97 * exact < claim.proof.data["radius"] <= exact * (1 + 1e-9)


def test_a_region_is_a_claim_on_request_that_a_certificate_can_hold(rng, tmp_path):
    driven = network(rng, "continuous")
    found = certify(driven)
    assert "regional" not in {claim.name for claim in found.claims}
    with_region = dataclasses.replace(found, claims=(*found.claims, regional(driven)))
    assert verify(with_region.save(tmp_path / "c.json")).valid


def test_unstable_equilibrium_has_no_region():
    driven = DrivenSystem(LureSystem.recurrent([[0.0]], [[1.0]]), "tanh", [[1.0]])
    claim = regional(driven)
    assert claim.verdict is Verdict.INCONCLUSIVE
    assert "not stable" in claim.statement


def test_bistable_network_contracts_around_one_of_its_equilibria():
    driven = DrivenSystem(LureSystem.recurrent([[-1.0]], [[3.0]]), "tanh", [[1.0]])
    claim = regional(driven)
    assert claim.verdict is Verdict.CERTIFIED
    assert verify_claim(driven, claim).valid
    assert abs(claim.proof.data["centre"][0]) > claim.proof.data["radius"]  # the unstable one, 0, is not in it


def test_the_inequality_does_not_hold_without_the_region(rng):
    driven = network(rng, "continuous")
    data = regional(driven).proof.data
    assert not check_lmi(driven.system, data["P"], data["L"], data["rate"])[0]
