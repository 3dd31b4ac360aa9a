"""Refusals and acceptances at places where one word in the checker would decide otherwise."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from specimens import remade, specimens

from stability.certification import certify
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.proposals import propose
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify, verify_claim


def scalar(gain: float, name: str = "tanh") -> DrivenSystem:
    return DrivenSystem(LureSystem([[0.0]], [[1.0]], [[gain]], dt=1.0), name, [[1.0]])


def test_an_exact_check_that_breaks_down_is_no_proof(monkeypatch):
    certificate = certify(specimens()["contraction of flow"].subject)
    assert verify(certificate, method="exact").valid

    def broken(system, data):
        raise ArithmeticError("no")

    monkeypatch.setattr(sys.modules["stability.verification"], "check_exact", broken)
    answer = verify(certificate, method="exact")
    assert not answer.valid
    assert "malformed (ArithmeticError: no)" in answer.reason


def test_equilibria_need_not_be_far_apart():
    network = DrivenSystem(LureSystem.recurrent([[-1.0]], [[1.1]]), "tanh", [[1.0]])
    x = 0.5
    for _ in range(2000):
        x = np.tanh(1.1 * x)
    data = {"state1": np.zeros(1), "state2": np.array([x]), "input": np.zeros(1)}
    assert 0.4 < x < 0.7
    assert verify_claim(network, propose(network, "two_equilibria", data)).valid


def test_there_is_no_jacobian_at_a_kink():
    """At zero every slope of the leaky ReLU would make x+ = 2 x + phi(x / 2) unstable, but there is no derivative."""
    for name, word in (("leaky_relu", "kink"), ("tanh", "")):
        network = DrivenSystem(LureSystem([[2.0]], [[1.0]], [[0.5]], dt=1.0), name, [[1.0]])
        claim = propose(network, "unstable_equilibrium", {"state": np.zeros(1), "input": np.zeros(1)})
        check = verify_claim(network, claim)
        assert check.valid is (name == "tanh")
        assert word in check.reason


def test_one_orbit_of_a_stack_is_enough():
    stack = LayerStack([scalar(-2.0), GatedCell("gru", np.zeros((3, 1)), np.zeros((3, 1)))])
    orbit = np.array([[0.9575040240772687, 0.0], [-0.9575040240772687, 0.0]])
    claim = propose(stack, "stack_orbits", {"first": orbit, "input": np.zeros((1, 1))})
    check = verify_claim(stack, claim)
    assert check.valid, check.reason
    assert "Two trajectories on it, 1 step apart" in claim.statement
    still = propose(stack, "stack_orbits", {"first": orbit * 0, "input": np.zeros((1, 1))})
    assert not verify_claim(stack, still).valid


@pytest.mark.parametrize("gains", [(0.3, 0.8), (0.8, 0.3)])
def test_the_slower_of_two_directions_sets_the_rate(gains):
    stack = LayerStack([scalar(g) for g in gains], directions=2)
    claim = certify(stack, rate="any", refute=False).claim
    assert claim.verdict is Verdict.CERTIFIED
    rates = [part["rate"] for part in claim.proof.data["layers"]]
    assert min(rates) < max(rates) == claim.value
    assert not verify_claim(stack, remade(stack, claim, data={"rate": min(rates)}, value=min(rates))).valid
