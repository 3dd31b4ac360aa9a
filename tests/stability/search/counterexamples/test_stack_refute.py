"""Refuting stacks above their lowest level: nothing is refuted that the level below keeps from happening."""

from __future__ import annotations

import numpy as np
import pytest

from stability import DrivenSystem, LayerStack, LureSystem, Verdict, certify, refute, verify
from stability.kernel.format.claims import Claim
from stability.kernel.reachability.stack_orbits import enclose_stack_orbit
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.merged_stack import merged_network
from stability.proposals import propose
from stability.verification import verify_claim


def plain(W, E, b=None, activation="tanh"):
    W = np.atleast_2d(W).astype(float)
    return DrivenSystem(LureSystem(np.zeros_like(W), np.eye(len(W)), W, dt=1.0), activation, E, b)


def small(rng, p, n):
    W = rng.normal(size=(n, n))
    return plain(0.3 * W / np.linalg.norm(W, 2), rng.normal(size=(n, p)), rng.normal(size=n))


@pytest.mark.parametrize("levels", [2, 3])
def test_the_merged_network_is_the_stack(levels, rng):
    stack = LayerStack([small(rng, 2, 3), *(small(rng, 3, 3) for _ in range(levels - 1))])
    whole = merged_network(stack)
    x, u = rng.normal(size=(7, 3 * levels)), rng.normal(size=(7, 2))
    for _ in range(5):
        np.testing.assert_allclose(whole.advance(x, u), stack.advance(x, u), rtol=0, atol=1e-14)
        x = stack.advance(x, u)


def test_what_would_round_is_not_merged(rng):
    cell = small(rng, 2, 2)
    euler = DrivenSystem(LureSystem.recurrent(-np.eye(2), np.eye(2)).euler(0.1), "tanh", np.eye(2))
    moving = DrivenSystem(LureSystem(0.3 * np.eye(2), np.eye(2), np.eye(2), dt=1.0), "tanh", np.eye(2))
    assert merged_network(LayerStack([cell, euler])) is None
    assert merged_network(LayerStack([moving, cell])) is None
    assert merged_network(LayerStack([cell, moving])) is not None  # what the top level does is read by nobody
    assert merged_network(LayerStack([cell, plain(np.eye(2), np.eye(2), None, "relu")])) is None


def test_a_bistable_upper_layer_refutes_the_stack_by_proof(rng, tmp_path):
    stack = LayerStack([small(rng, 2, 3), plain([[3.0]], 0.1 * rng.normal(size=(1, 3)))])
    certificate = certify(stack)
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.proof.kind == "merged_stack"
    assert certificate.proof.data["kind"] in ("two_equilibria", "unstable_equilibrium")
    assert verify(certificate.save(tmp_path / "c.json")).valid
    tame = LayerStack([stack.layers[0], plain([[0.5]], stack.layers[1].E)])
    moved = Claim("contraction", certificate.claim.statement, Verdict.REFUTED, certificate.proof)
    assert not verify_claim(tame, moved).valid


def latched(top, rng) -> LayerStack:
    """A layer with three equilibria for every input that the small one below puts out."""
    if top == "gru":
        zero, big = np.zeros((3, 2)), np.array([[0.0], [-9.0], [8.0]])
        upper = GatedCell("gru", zero, big, np.array([0.0, -3.0, 0.0]), np.zeros(3))
    else:
        system = LureSystem.recurrent([[-1.0]], [[4.0]])
        upper = DrivenSystem(system.euler(0.25) if top == "euler" else system.midpoint(0.25), "tanh", _read(top))
    return LayerStack([small(rng, 1, 2), upper])


def _read(top):
    return [[0.1, 0.1]] if top == "euler" else [[0.1, 0.1], [0.1, 0.1]]


@pytest.mark.parametrize("top", ["gru", "euler", "midpoint"])
def test_orbits_of_the_whole_stack_refute_what_cannot_be_merged(top, rng, tmp_path):
    stack = latched(top, rng)
    assert merged_network(stack) is None
    answer = refute(stack)
    assert answer.found
    assert answer.proof.kind in ("stack_orbits", "stack_unstable")
    certificate = certify(stack)
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.evidence == "proved"
    assert verify(certificate.save(tmp_path / "c.json")).valid


@pytest.mark.parametrize("top", ["gru", "euler", "midpoint"])
def test_what_is_proved_of_a_stack_is_seen_in_simulation(top, rng):
    stack = latched(top, rng)
    u = np.array([[0.3]])
    starts = np.array([[0.0, 0.0, 0.9], [0.0, 0.0, -0.9]])
    for _ in range(6000):
        starts = stack.advance(starts, np.broadcast_to(u, (2, 1)))
    good = {"first": starts[:1] + 1e-6, "second": starts[1:], "input": u}
    claim = propose(stack, "stack_orbits", good)
    assert claim.verdict is Verdict.REFUTED
    assert verify_claim(stack, claim).valid
    boxes = enclose_stack_orbit(stack, starts[:1], u)
    ends = np.concatenate([part.points.mid[0] for part in boxes])
    assert np.abs(ends - starts[0]).max() < 1e-9
    assert max(part.points.rad.max() for part in boxes) < 1e-9
    for part, layer, x, below in zip(boxes, stack.layers, (starts[0, :2], starts[0, 2:]), (u[0], starts[0, :2])):
        expected = layer.jacobian(x, below)
        assert (np.abs(part.jacobian.mid - expected) <= part.jacobian.rad + 1e-9).all()
    for bent in (
        {"second": starts[:1]},
        {"first": starts[:1] + 0.1},
        {"input": np.array([[0.8]])},
        {"input": np.zeros((1, 2))},
        {"first": starts[:1, :2]},
    ):
        assert not verify_claim(stack, propose(stack, "stack_orbits", {**good, **bent})).valid, list(bent)
    alone = {"first": starts[:1], "input": u}
    assert not verify_claim(stack, propose(stack, "stack_orbits", alone)).valid
    other = latched(top, np.random.default_rng(77))
    assert not verify_claim(other, propose(other, "stack_orbits", good)).valid


@pytest.mark.parametrize("slope", [0.999, 1.001])
def test_a_stack_is_unstable_where_a_layer_is(slope):
    """x+ = tanh(0.5 x + u), y+ = tanh(w y + x - x*) at its zero: multipliers 0.5 (1 - x*^2) and w."""
    below, x = plain([[0.5]], [[1.0]], [0.25]), 0.0
    for _ in range(200):
        x = float(np.tanh(0.5 * x + 0.25))
    stack = LayerStack([below, plain([[slope]], [[1.0]], [-x])])
    data = {"state": np.array([x, 0.0]), "input": np.zeros(1), "layer": 1, "eigenvalue": [slope, 0.0]}
    assert verify_claim(stack, propose(stack, "stack_unstable", data)).valid is (slope > 1)
    for bent in ({"layer": 0}, {"layer": 2}, {"eigenvalue": [1.2, 0.0]}, {"state": np.array([x, 0.1])}):
        assert not verify_claim(stack, propose(stack, "stack_unstable", {**data, **bent})).valid, bent


def test_an_upper_layer_that_is_never_driven_there_refutes_nothing(rng):
    """Alone it has two equilibria for inputs near -9; the tanh below puts out no more than one."""
    upper = plain([[3.0]], [[1.0]], [9.0])
    assert refute(upper).found
    stack = LayerStack([small(rng, 1, 1), upper])
    assert not refute(stack).found
    assert certify(stack).verdict is Verdict.INCONCLUSIVE


def test_a_contracting_stack_is_not_refuted(rng):
    stack = LayerStack([small(rng, 2, 3), small(rng, 3, 3)])
    assert refute(stack).proof is None
