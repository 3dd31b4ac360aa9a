"""Bounds and equilibria of gated cells and stacks: they hold of simulated runs, and forged data are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stability import certify, verify
from stability.certificate import Certificate
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.proposals import propose
from tests.stability.specimens import latch_of_tanh_map, plain_map, small_cell


def claim_of(certificate: Certificate, name: str) -> Claim:
    return next(claim for claim in certificate.claims if claim.name == name)


@pytest.fixture(scope="module", params=["gru", "lstm"])
def proved(request) -> tuple[GatedCell, Certificate]:
    cell = small_cell(request.param, 3)
    return cell, certify(cell, refute=False)


def starts(cell: GatedCell, rng: np.random.Generator, count: int) -> np.ndarray:
    x = rng.choice([-1.0, 1.0], size=(count, cell.states))
    x[:, cell.hidden :] *= 20.0
    return x


def test_every_claim_is_verified(proved) -> None:
    _, certificate = proved
    assert {c.name for c in certificate.claims} >= {"equilibrium_in_box", "bounded_in_box"}
    assert verify(certificate).valid


def test_runs_under_any_inputs_end_in_the_box(proved, rng) -> None:
    cell, certificate = proved
    claim = claim_of(certificate, "bounded_in_box")
    data, x = claim.proof.data, starts(cell, rng, 200)
    for _ in range(150):
        x = cell.advance(x, rng.choice([-1.0, 1.0], size=(200, cell.inputs)))
    assert ((data["low"] <= x) & (x <= data["high"])).all()
    assert np.linalg.norm(data["high"] - data["low"]) <= claim.value


def test_under_a_constant_input_all_runs_come_to_one_point(proved, rng) -> None:
    cell, _ = proved
    u, x = rng.uniform(-1, 1, size=cell.inputs), starts(cell, rng, 50)
    for _ in range(300):
        x = cell.advance(x, u)
    assert np.ptp(x, axis=0).max() < 1e-12


def refused(subject, claim: Claim, **changes) -> str:
    data = {**claim.proof.data, **{k: v for k, v in changes.items() if v is not None}}
    data = {k: v for k, v in data.items() if changes.get(k, 0) is not None}
    valid, reason = RULES[claim.proof.kind](subject, propose(subject, claim.proof.kind, data, claim.name))
    assert not valid
    return reason


def test_bent_data_are_refused(proved) -> None:
    cell, certificate = proved
    ends, resting = (claim_of(certificate, n) for n in ("bounded_in_box", "equilibrium_in_box"))
    data = ends.proof.data
    assert "longer" in refused(cell, ends, diagonal=0.99 * data["diagonal"])
    assert "proved" in refused(cell, ends, high=0.5 * data["high"])
    assert "not proved" in refused(cell, resting, rate=0.5 * resting.proof.data["rate"])


def test_a_wider_box_of_inputs_refuses_the_same_proofs(proved) -> None:
    cell, certificate = proved
    wider = cell.with_inputs(-30.0, 30.0)
    for name in ("bounded_in_box", "equilibrium_in_box"):
        claim = claim_of(certificate, name)
        draft = propose(wider, claim.proof.kind, claim.proof.data, name)
        assert not RULES[claim.proof.kind](wider, draft)[0]


def test_a_cell_that_holds_two_states_has_no_one_equilibrium_nor_a_box_of_its_own() -> None:
    latch = GatedCell("gru", np.zeros((3, 1)), [[0.0], [0.0], [4.0]], [50.0, 0.0, 0.0], input_low=-1.0, input_high=1.0)
    certificate = certify(latch)
    assert certificate.verdict is Verdict.REFUTED
    assert not certificate.claims  # |h| <= 1 is known of every cell
    lstm = GatedCell("lstm", np.zeros((4, 1)), [[0.0], [0.0], [4.0], [0.0]], [2.0, 0.0, 0.0, 2.0], None, -1.0, 1.0)
    assert claim_of(certify(lstm), "bounded_in_box").value > 2.0


@pytest.fixture(scope="module")
def stack() -> tuple[LayerStack, Certificate]:
    doubled = LayerStack([latch_of_tanh_map(0.5), latch_of_tanh_map(0.1)])
    return doubled, certify(doubled, input_box=(-0.2, 0.2))


def test_a_stack_ends_in_its_box_and_has_one_equilibrium(stack, rng) -> None:
    doubled, certificate = stack
    assert verify(certificate).valid
    data = claim_of(certificate, "bounded_in_box").proof.data
    x, u = rng.choice([-5.0, 5.0], size=(100, 2)), rng.uniform(-0.2, 0.2, size=1)
    y = x.copy()
    for _ in range(60):
        x = doubled.advance(x, rng.choice([-0.2, 0.2], size=(100, 1)))
        y = doubled.advance(y, u)
    assert ((data["least"] <= x) & (x <= data["most"])).all()
    assert np.ptp(y, axis=0).max() < 1e-13
    assert claim_of(certificate, "equilibrium_in_box").verdict is Verdict.CERTIFIED


def test_bent_data_of_a_stack_are_refused(stack) -> None:
    doubled, certificate = stack
    ends, resting = (claim_of(certificate, n) for n in ("bounded_in_box", "equilibrium_in_box"))
    least, most = ends.proof.data["least"], ends.proof.data["most"]
    assert "may leave" in refused(doubled, ends, least=least + 0.5 * (most - least))
    assert "number of layers" in refused(doubled, ends, levels=1)
    assert "number of layers" in refused(doubled, resting, levels=3)
    assert "proved" in refused(doubled, resting, rate=0.2 * resting.proof.data["rate"])


def test_layers_composed_have_one_equilibrium(rng) -> None:
    layered = LayerStack([plain_map(), small_cell("gru", box=None)])
    certificate = certify(layered, refute=False)
    claim = claim_of(certificate, "equilibrium")
    assert verify(certificate).valid
    x, u = rng.uniform(-1, 1, size=(40, 4)), rng.normal(size=2)
    for _ in range(300):
        x = layered.advance(x, u)
    assert np.ptp(x, axis=0).max() < 1e-12
    parts = [dict(part) for part in claim.proof.data["layers"]]
    parts[0] = {**parts[0], "rate": 0.5 * parts[0]["rate"]}
    bent = replace(claim, proof=Proof("cascade_equilibrium", {**claim.proof.data, "layers": parts}))
    assert not RULES["cascade_equilibrium"](layered, bent)[0]
    draft = propose(layered, "cascade_equilibrium", claim.proof.data, "equilibrium_in_box")
    assert "the claim is equilibrium" in RULES["cascade_equilibrium"](layered, draft)[1]
