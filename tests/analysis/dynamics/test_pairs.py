"""Distances of two trajectories: against runs by hand, under proved bounds, and along counterexamples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis.dynamics.pairs import counterexample_distance, counterexample_pair, pair_distances
from stability.certification import certify
from stability.errors import UnsupportedError
from stability.models import ContractingRNN, ElmanRNN
from stability.recovery import proved_pairs
from stability.systems import DrivenSystem, LureSystem


def test_distances_are_those_of_two_runs_by_hand() -> None:
    torch.manual_seed(1)
    layer = ElmanRNN(2, 3).double()
    x = torch.randn(4, 5, 2, dtype=torch.float64)
    seen = pair_distances(layer, x, steps=7, seed=3)
    assert (seen.pairs, seen.steps) == (4, 7)
    shift = 1 + int(np.random.default_rng(3).integers(3))
    system = layer.driven()
    for i in range(4):
        first, second = np.zeros(3), np.zeros(3)
        for t in range(5):
            first, second = (system.advance(h, x[k, t].numpy()) for h, k in ((first, i), (second, (i - shift) % 4)))
        start = np.linalg.norm(first - second)
        for t in range(8):
            assert seen.distance[t, i] == pytest.approx(np.linalg.norm(first - second) / start, rel=1e-9)
            first, second = (system.advance(h, x[i, t % 5].numpy()) for h in (first, second))


def test_no_pair_of_a_certified_network_leaves_its_envelope() -> None:
    torch.manual_seed(0)
    layer = ContractingRNN(2, 6, rate=0.8)
    certificate = certify(layer)
    seen = pair_distances(layer, torch.rand(5, 4, 2), steps=30)
    bound = np.array([min(c * r**k for r, c in proved_pairs(certificate)) for k in range(31)])
    assert (seen.distance <= bound[:, None] * (1 + 1e-6)).all()
    assert seen.distance[30].max() < 0.05
    assert counterexample_pair(certificate, 10) is None


def test_pairs_take_two_sequences() -> None:
    with pytest.raises(UnsupportedError):
        pair_distances(ElmanRNN(1, 2), torch.rand(1, 3, 1), steps=2)


REFUTED = {
    "unstable_everywhere": DrivenSystem(
        LureSystem(np.eye(2), 0.5 * np.eye(2), [[1.2, 0.5], [-0.5, 1.2]], dt=1.0), "tanh", np.eye(2)
    ),
    "two_equilibria": DrivenSystem(LureSystem(np.zeros((1, 1)), [[1.0]], [[3.0]], dt=1.0), "tanh", [[1.0]]),
    "unstable_linear": DrivenSystem(LureSystem([[1.5]], [[1.0]], [[0.1]], dt=1.0), "tanh", [[1.0]]),
}


@pytest.mark.parametrize("kind", REFUTED)
def test_the_pair_of_a_counter_example_stays_apart(kind: str) -> None:
    certificate = certify(REFUTED[kind])
    assert certificate.verdict.value == "refuted"
    found = counterexample_distance(certificate, 40)
    assert found is not None
    distance, words = found
    assert words
    assert distance[0] == 1.0
    assert distance[-1] > 0.9
    if certificate.proof is not None and certificate.proof.kind != "two_equilibria":
        assert distance[-1] > 5.0


def test_what_is_no_map_has_no_pair() -> None:
    flow = certify(LureSystem.recurrent([[0.5]], [[0.0]]))
    assert flow.verdict.value == "refuted"
    assert counterexample_pair(flow, 10) is None
