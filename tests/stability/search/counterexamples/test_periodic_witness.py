"""Maps that every constant input brings to rest, and a periodic one does not."""

from __future__ import annotations

import numpy as np
import pytest

from stability import DrivenSystem, LureSystem, Verdict, certify, refute, verify
from stability.search.counterexamples.limit_sets import search_separated_pairs
from stability.search.counterexamples.refutation import RefutationTask
from stability.search.solvers.deadline import Deadline

# With either unit saturated the other contracts (0.9); by turns one step leads to the other: |1.5 * (-1)| > 1.
W = np.array([[0.9, 1.5], [-1.0, -0.9]])


def network(W=W):
    return DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), W, dt=1.0), "tanh", np.eye(2))


def test_no_constant_slopes_are_to_blame(rng):
    for K in rng.uniform(0, 1, size=(2000, 2)):
        assert np.abs(np.linalg.eigvals(K[:, None] * W)).max() < 1.0


def test_units_that_saturate_by_turns_are_a_proof(tmp_path):
    answer = refute(network())
    assert answer.evidence == "proved"
    assert answer.proof.kind in ("periodic_orbits", "unstable_orbit")
    period = len(answer.proof.data["input"])
    assert period in (2, 3, 4)
    assert f"input of period {period}" in answer.statement
    certificate = certify(network())
    assert certificate.verdict is Verdict.REFUTED
    assert verify(certificate.save(tmp_path / "c.json")).valid


@pytest.mark.parametrize("factor", [0.3, 0.6])
def test_a_contracting_map_keeps_nothing_apart(factor):
    driven = network(factor * W)
    assert certify(driven).verdict is Verdict.CERTIFIED
    assert list(search_separated_pairs(RefutationTask(driven, 0, Deadline()), np.random.default_rng(0))) == []


def test_gradients_lead_to_periodic_inputs_in_a_range_that_drawn_ones_miss():
    """Constant inputs and drawn periodic ones let this network forget; one of period three in the box does not."""
    rng = np.random.default_rng((10, 6))
    W = rng.normal(size=(10, 10))
    W *= 1.1 / np.abs(np.linalg.eigvals(W)).max()
    U = rng.choice([-1.0, 1.0], size=(10, 1)) * (rng.random((10, 1)) < 0.5)
    system = LureSystem(np.zeros((10, 10)), np.eye(10), W, dt=1.0)
    driven = DrivenSystem(system, "tanh", U, 0.5 * rng.choice([-1.0, 1.0], size=10))
    answer = refute(driven, input_range=(-1.0, 1.0))
    assert answer.found
    assert answer.input_in_data_range
    data = answer.proof.data
    assert len(data["input"]) == len(data["orbit"]) > 1
    assert np.abs(data["input"]).max() <= 1.0
    x, product = data["orbit"][0], np.eye(10)
    for u in data["input"]:
        product = (1 - np.tanh(W @ x + U @ u + driven.b) ** 2)[:, None] * W @ product
        x = np.tanh(W @ x + U @ u + driven.b)
    assert x == pytest.approx(data["orbit"][0], abs=1e-9)
    assert np.abs(np.linalg.eigvals(product)).max() > 1.0
