"""The search for witnesses: it finds what exists, never finds what cannot, and what it finds is real."""

from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.systems.layer_stack import LayerStack
from stability.search.counterexamples.counterexample_search import refute
from stability.search.counterexamples.eigenvalue_gradient import leading_eigenvalue, leading_excess
from stability.search.counterexamples.equilibrium_manifold import newton_equilibrium
from stability.search.trajectories.simulation import advance_batch, natural_step
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

COUNTER_A = np.array([[-1, 13, 29], [-8, -26, -5], [-30, 18, -2]]) / 40
COUNTER_W = np.array([[-15, 8, 21], [24, -19, 25], [-9, -31, -16]]) / 8


def proved_again(subject, refutation):
    """The verifier's answer about a refutation, from its claim alone."""
    claim = Claim("contraction", refutation.statement, Verdict.REFUTED, refutation.proof)
    return verify_claim(subject, claim)


def published_b_holds(A, W):
    """The hypotheses of the paper's theorem 1 (b), by eigenvalues."""
    least = [np.linalg.eigvalsh(M + M.T).min() for M in (-A, -W, A.T @ W)]
    return min(least) > 0


def is_unstable_equilibrium(driven, data):
    """Return True for an unstable equilibrium, by finite differences of the network, without its Jacobian."""
    x, u = data["state"], data["input"]
    value = driven.advance(x, u) - (x if driven.system.is_discrete else 0.0)
    assert np.abs(value).max() < 1e-8 * (1 + np.abs(x).max())
    h = 1e-6
    columns = [driven.advance(x + h * e, u) - driven.advance(x - h * e, u) for e in np.eye(len(x))]
    values = np.linalg.eigvals(np.stack(columns, axis=1) / (2 * h))
    return (np.abs(values).max() - 1 if driven.system.is_discrete else values.real.max()) > 0


def counter_network(form, p):
    """The counterexample as a network: continuous or discretised; inputs everywhere, or a bias alone."""
    system = LureSystem.recurrent(COUNTER_A, COUNTER_W)
    copies = 1
    if form != "continuous":
        system, copies = system.discretise(form, 0.03), 2 if form == "midpoint" else 1
    v = np.array([4.0, 0.0, 4.0])
    bias = v + COUNTER_W @ np.linalg.solve(COUNTER_A, np.tanh(v))
    E = np.eye(3) if p == 3 else np.zeros((3, 1))
    b = np.tile(bias if p == 0 else 0 * bias, copies)
    return DrivenSystem(system, "tanh", np.tile(E, (copies, 1)), b)


class TestPublishedCounterexample:
    @pytest.mark.parametrize("form", ["continuous", "euler", "midpoint"])
    @pytest.mark.parametrize("p", [0, 3])
    def test_network_is_refuted_by_an_equilibrium_it_really_has(self, form, p):
        assert published_b_holds(COUNTER_A, COUNTER_W)
        driven = counter_network(form, p)
        answer = refute(driven)
        assert answer.proof is not None
        assert answer.proof.kind == "unstable_equilibrium"
        assert proved_again(driven, answer).valid
        assert is_unstable_equilibrium(driven, answer.proof.data)

    @pytest.mark.parametrize("form", ["continuous", "euler", "midpoint"])
    def test_bare_system_is_refuted_by_slopes(self, form):
        system = counter_network(form, 0).system
        answer = refute(system)
        assert answer.proof.kind == "destabilising_slopes"
        assert proved_again(system, answer).valid
        K = answer.proof.data["K"]
        assert ((K >= 0) & (K <= 1)).all()
        assert leading_excess(system, K)[0] > 0


class TestLinear:
    def test_verdict_is_the_sign_of_the_leading_eigenvalue(self, rng):
        stable = unstable = 0
        for _ in range(150):
            n = int(rng.integers(1, 7))
            A = rng.normal(size=(n, n)) - rng.uniform(0, 2) * np.eye(n)
            discrete = bool(rng.integers(2))
            system = LureSystem.linear(A / (2 if discrete else 1), 1.0 if discrete else None)
            values = np.linalg.eigvals(system.A)
            size = np.abs(values).max() - 1 if discrete else values.real.max()
            if abs(size) > 1e-9:
                assert refute(system).found == (size > 0)
                stable, unstable = stable + (size < 0), unstable + (size > 0)
        assert min(stable, unstable) >= 30

    @pytest.mark.parametrize(
        ("A", "dt"),
        [
            (np.eye(3), None),
            (np.zeros((2, 2)), None),
            ([[0.0, 1.0], [-1.0, 0.0]], None),
            (np.eye(4), 1.0),
            (-np.eye(2), 0.1),
            (np.diag([2.0, 2.0, 0.1]), 1.0),
            (np.diag([1.0, 1.0, -9.0, -9.0]), None),
            ([[1.1, 1.0, 0.0], [0.0, 1.1, 0.0], [0.0, 0.0, 0.5]], 1.0),
            ([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -9.0]], None),
        ],
    )
    def test_multiple_and_boundary_eigenvalues(self, A, dt):
        system = LureSystem.linear(A, dt)
        answer = refute(system)
        assert answer.found
        assert proved_again(system, answer).valid

    @pytest.mark.parametrize("dt", [None, 1.0])
    def test_linear_recurrences_with_input(self, dt):
        good, bad = ([[-0.5]], [[0.5]]) if dt is None else ([[0.5]], [[-1.5]])
        for A, expected in ((good, False), (bad, True)):
            driven = DrivenSystem(LureSystem.linear(A, dt), "tanh", np.zeros((0, 1)), F=[[1.0]])
            answer = refute(driven)
            assert answer.found is expected
            assert not expected or proved_again(driven, answer).valid


class TestNetworks:
    def test_unstable_linear_part_moves_trajectories_apart_under_any_input(self, rng):
        A = np.array([[0.05, 1.0, 0.0], [-1.0, 0.05, 0.0], [0.3, 0.0, -1.0]])
        flow = LureSystem.recurrent(A, rng.normal(size=(3, 3)))
        for system in (flow, flow.euler(0.05)):
            driven = DrivenSystem(system, "tanh", rng.normal(size=(3, 2)))
            answer = refute(driven)
            assert answer.proof.kind == "unstable_linear"
            assert proved_again(driven, answer).valid
            first = rng.normal(size=3)
            x = np.stack([first, first + answer.proof.data["difference"]])
            gaps, step = [], natural_step(driven)
            for _ in range(1500):
                u = np.broadcast_to(rng.normal(size=2) * 5, (2, 2))
                x = advance_batch(driven, x, u, step)
                gaps.append(np.linalg.norm(x[0] - x[1]))
            assert gaps[-1] > 2 * gaps[0]

    def test_bistable_network(self):
        driven = DrivenSystem(LureSystem.recurrent(-np.eye(2), 3 * np.eye(2)), "tanh", np.zeros((2, 1)))
        answer = refute(driven)
        assert answer.proof.kind == "unstable_equilibrium"
        assert proved_again(driven, answer).valid

    def test_flip_of_a_map(self):
        system = LureSystem(np.zeros((2, 2)), np.eye(2), np.diag([-2.0, 0.5]), dt=1.0)
        driven = DrivenSystem(system, "tanh", np.zeros((2, 1)))
        answer = refute(driven)
        assert answer.found
        assert proved_again(driven, answer).valid

    @pytest.mark.parametrize("name", ["relu", "sigmoid", "leaky_relu", "identity", "saturation", "deadzone"])
    def test_every_activation(self, name):
        slope = {"identity": (1.0, 1.0), "sigmoid": (0.0, 0.25)}.get(name, (0.0, 1.0))
        W = np.array([[8.0, -1.0], [2.0, -3.0]])
        system = LureSystem.recurrent(-np.eye(2), W, slope)
        driven = DrivenSystem(system, name, np.eye(2))
        answer = refute(driven)
        assert answer.found
        assert proved_again(driven, answer).valid
        assert is_unstable_equilibrium(driven, answer.proof.data)

    def test_unreachable_instability_is_found_by_climbing_along_the_inputs(self, rng):
        """Pre-activations are far from where the slopes destabilise unless the one input is chosen right."""
        system = LureSystem.recurrent(-np.eye(2), 3 * np.eye(2))
        driven = DrivenSystem(system, "tanh", np.array([[1.0], [0.7]]), np.array([40.0, 28.0]))
        u0 = np.zeros(1)
        start = newton_equilibrium(driven, np.ones(2), u0)
        assert leading_eigenvalue(system, 1 - np.tanh(driven.channel(start, u0)) ** 2).excess < -0.9
        answer = refute(driven)
        assert answer.proof.kind in ("unstable_equilibrium", "two_equilibria")
        assert proved_again(driven, answer).valid


class TestParts:
    def test_no_search_for_a_subject_proves_nothing(self):
        layer = DrivenSystem(LureSystem.recurrent([[-2.0]], [[1.0]]), "tanh", [[1.0]])
        answer = refute(LayerStack((layer, layer)))
        assert answer.proof is None
        assert "proves nothing" in answer.detail

    @pytest.mark.parametrize("scale", [1e-150, 1e150, 1e300])
    def test_extreme_entries_are_answered(self, scale):
        for system in (
            LureSystem.recurrent(-scale * np.eye(2), scale * np.eye(2)),
            LureSystem(scale * np.eye(2), np.eye(2), np.eye(2), dt=1.0),
        ):
            answer = refute(system)
            assert not answer.found or proved_again(system, answer).valid
            driven = DrivenSystem(system, "tanh", np.ones((2, 1)))
            answer = refute(driven)
            assert not answer.found or proved_again(driven, answer).valid
