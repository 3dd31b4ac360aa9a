"""Refuting stacks above their lowest level: nothing is refuted that the level below keeps from happening."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stability import Cascade, DrivenSystem, LureSystem, Verdict, certify, refute, verify
from stability.certificate import Claim, Proof
from stability.gated import GatedCell
from stability.merged import merged
from stability.refute.answer import witness_claim
from stability.rules.registry import RULES
from stability.verify import verify_claim


def plain(W, E, b=None, activation="tanh"):
    W = np.atleast_2d(W).astype(float)
    return DrivenSystem(LureSystem(np.zeros_like(W), np.eye(len(W)), W, dt=1.0), activation, E, b)


def flow(A, W, E, F=None):
    return DrivenSystem(LureSystem.recurrent(A, W), "tanh", E, None, F)


def small(rng, p, n):
    W = rng.normal(size=(n, n))
    return plain(0.3 * W / np.linalg.norm(W, 2), rng.normal(size=(n, p)), rng.normal(size=n))


@pytest.mark.parametrize("levels", [2, 3])
def test_the_merged_network_is_the_stack(levels, rng):
    stack = Cascade([small(rng, 2, 3), *(small(rng, 3, 3) for _ in range(levels - 1))])
    whole = merged(stack)
    x, u = rng.normal(size=(7, 3 * levels)), rng.normal(size=(7, 2))
    for _ in range(5):
        np.testing.assert_allclose(whole.advance(x, u), stack.advance(x, u), rtol=0, atol=1e-14)
        x = stack.advance(x, u)


def test_the_merged_flow_reads_the_state_of_the_level_below(rng):
    first = flow(-np.eye(2), rng.normal(size=(2, 2)), rng.normal(size=(2, 1)), rng.normal(size=(2, 1)))
    second = flow(-2 * np.eye(3), rng.normal(size=(3, 3)), rng.normal(size=(3, 2)), rng.normal(size=(3, 2)))
    whole = merged(Cascade([first, second]))
    x, u = rng.normal(size=5), rng.normal(size=1)
    expected = np.concatenate([first.advance(x[:2], u), second.advance(x[2:], x[:2])])
    np.testing.assert_allclose(whole.advance(x, u), expected, atol=1e-14)


def test_what_would_round_is_not_merged(rng):
    cell = small(rng, 2, 2)
    euler = DrivenSystem(LureSystem.recurrent(-np.eye(2), np.eye(2)).euler(0.1), "tanh", np.eye(2))
    moving = DrivenSystem(LureSystem(0.3 * np.eye(2), np.eye(2), np.eye(2), dt=1.0), "tanh", np.eye(2))
    assert merged(Cascade([cell, euler])) is None
    assert merged(Cascade([moving, cell])) is None
    assert merged(Cascade([cell, moving])) is not None  # what the top level does is read by nobody
    assert merged(Cascade([cell, plain(np.eye(2), np.eye(2), None, "relu")])) is None


def test_a_bistable_upper_layer_refutes_the_stack_by_proof(rng, tmp_path):
    stack = Cascade([small(rng, 2, 3), plain([[3.0]], 0.1 * rng.normal(size=(1, 3)))])
    certificate = certify(stack)
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.proof.kind == "merged_stack"
    assert certificate.proof.data["kind"] in ("two_equilibria", "unstable_equilibrium")
    assert verify(certificate.save(tmp_path / "c.json")).valid
    tame = Cascade([stack.layers[0], plain([[0.5]], stack.layers[1].E)])
    moved = Claim("contraction", certificate.claim.statement, Verdict.REFUTED, certificate.proof)
    assert not verify_claim(tame, moved).valid


@pytest.mark.parametrize("top", ["gru", "euler"])
def test_runs_of_the_whole_stack_refute_what_cannot_be_merged(top, rng, tmp_path):
    if top == "gru":
        zero, big = np.zeros((3, 2)), np.array([[0.0], [-9.0], [8.0]])
        upper = GatedCell("gru", zero, big, np.array([0.0, -3.0, 0.0]), np.zeros(3))
    else:
        upper = DrivenSystem(LureSystem.recurrent([[-1.0]], [[4.0]]).euler(0.25), "tanh", [[0.1, 0.1]])
    stack = Cascade([small(rng, 1, 2), upper])
    assert merged(stack) is None
    answer = refute(stack, time_limit=8.0)
    assert answer.evidence == "replayed"
    assert answer.proof.kind == "stack_trajectories"
    assert "not proved" in answer.statement
    certificate = certify(stack)
    assert certificate.verdict is Verdict.REFUTED
    assert verify(certificate.save(tmp_path / "c.json")).valid


def test_an_upper_layer_that_is_never_driven_there_refutes_nothing(rng):
    """Alone it has two equilibria for inputs near -9; the tanh below puts out no more than one."""
    upper = plain([[3.0]], [[1.0]], [9.0])
    assert refute(upper, time_limit=2.0).found
    stack = Cascade([small(rng, 1, 1), upper])
    assert not refute(stack, time_limit=2.0).found
    assert certify(stack, time_limit=4.0).verdict is Verdict.INCONCLUSIVE


def test_a_contracting_stack_is_not_refuted(rng):
    stack = Cascade([small(rng, 2, 3), small(rng, 3, 3)])
    assert not refute(stack, time_limit=2.0).found


def test_forged_runs_are_refused(rng):
    stack = Cascade([small(rng, 1, 2), small(rng, 2, 2)])
    good = {"first": np.zeros(4), "second": np.ones(4), "inputs": np.zeros((1, 1)), "steps": 2000, "gap": 0.1}
    bad = [
        good,
        {**good, "steps": 10},
        {**good, "gap": -1.0},
        {**good, "inputs": np.zeros((9, 1))},
        {**good, "inputs": np.zeros((1, 3))},
        {**good, "first": np.zeros(3)},
    ]
    for data in bad:
        assert not RULES["stack_trajectories"](stack, witness_claim(stack, "stack_trajectories", data))[0]
    other = witness_claim(stack, "stack_trajectories", good)
    assert not RULES["stack_trajectories"](stack.layers[0], other)[0]
    assert not RULES["merged_stack"](stack, dataclasses.replace(other, proof=Proof("merged_stack", {"kind": "ball"})))[
        0
    ]
    boxed = GatedCell("gru", *(np.zeros(s) for s in ((3, 1), (3, 1), 3, 3)), -1.0, 1.0)
    outside = witness_claim(
        Cascade([boxed]),
        "stack_trajectories",
        {**good, "first": np.zeros(1), "second": np.ones(1), "inputs": np.full((1, 1), 2.0)},
    )
    assert "outside the box" in RULES["stack_trajectories"](Cascade([boxed]), outside)[1]
