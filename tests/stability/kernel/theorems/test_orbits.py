"""Refutations of networks by orbits and by equilibria under every input, near the edge of validity."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stability.kernel.format.claims import Proof
from stability.kernel.format.theorem_table import RULES
from stability.proposals import propose
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

ONE = np.zeros((1, 1))


def plain(W, name="tanh", E=None, b=None):
    W = np.atleast_2d(np.asarray(W, dtype=float))
    n = len(W)
    slope = {"sigmoid": (0.0, 0.25), "identity": (1.0, 1.0)}.get(name, (0.0, 1.0))
    system = LureSystem(np.zeros((n, n)), np.eye(n), W, slope=slope, dt=1.0)
    return DrivenSystem(system, name, np.eye(n) if E is None else E, b)


def check(subject, kind, data):
    claim = propose(subject, kind, data)
    answer = RULES[kind](subject, claim)
    assert verify_claim(subject, claim).valid is answer[0]
    return answer


def settled(driven, x, inputs, steps=4000):
    for t in range(steps):
        x = driven.advance(x, inputs[t % len(inputs)])
    return x


def run(driven, x, inputs, k):
    points = [x]
    for t in range(k - 1):
        points.append(driven.advance(points[-1], inputs[t % len(inputs)]))
    return np.array(points)


class TestPeriodicOrbits:
    def test_one_orbit_longer_than_its_input(self):
        """``tanh(-w x)`` flips for ``w > 1``; at ``w <= 1`` the origin attracts everything."""
        for w, size in ((1.5, 0.858), (1.01, 0.17)):
            flip = plain(-w)
            orbit = run(flip, settled(flip, np.array([size]), ONE, 3000), ONE, 2)
            assert check(flip, "periodic_orbits", {"first": orbit, "input": ONE})[0]
        flip = plain(-0.9999)
        for size in (1e-3, 1e-6, 0.0):
            assert not check(flip, "periodic_orbits", {"first": np.array([[size], [-size]]), "input": ONE})[0]

    def test_the_orbit_of_the_input_itself_proves_nothing(self):
        """Under an input of period two a contracting map runs an orbit of period two: no refutation."""
        calm, u = plain(0.5), np.array([[1.0], [-2.0]])
        orbit = run(calm, settled(calm, np.zeros(1), u), u, 2)
        assert "longer period" in check(calm, "periodic_orbits", {"first": orbit, "input": u})[1]
        twice = np.concatenate([orbit, orbit])
        assert not check(calm, "periodic_orbits", {"first": twice, "input": u})[0]
        shifted = {"first": orbit, "second": np.roll(orbit, 1, axis=0), "input": u}
        assert not check(calm, "periodic_orbits", shifted)[0]

    def test_two_orbits_under_an_input_of_period_two(self):
        bistable, u = plain(3.0), np.array([[0.1], [-0.2]])
        orbits = [run(bistable, settled(bistable, np.array([s]), u), u, 2) for s in (1.0, -1.0)]
        data = {"first": orbits[0], "second": orbits[1], "input": u}
        assert check(bistable, "periodic_orbits", data)[0]
        for bent in (
            {"input": u[::-1].copy()},
            {"input": np.zeros((3, 1))},
            {"first": orbits[0][:1]},
            {"first": orbits[0] + 0.1},
            {"first": np.tile(orbits[0], (40, 1))},
            {"input": np.zeros((2, 2))},
            {"first": np.zeros((2, 2))},
            {"input": u[0]},
        ):
            assert not check(bistable, "periodic_orbits", {**data, **bent})[0], bent

    def test_a_flow_has_no_steps(self):
        flow = DrivenSystem(LureSystem.recurrent([[-1.0]], [[2.0]]), "tanh", [[0.0]])
        for kind, data in (
            ("periodic_orbits", {"first": np.zeros((2, 1)), "input": ONE}),
            ("unstable_orbit", {"orbit": np.zeros((2, 1)), "input": ONE}),
        ):
            assert "maps" in check(flow, kind, data)[1]


class TestUnstableOrbit:
    def test_the_multiplier_at_its_edge(self):
        """Linear map under any input: the multiplier of period ``k`` is ``a^k``, its root ``a``."""
        for k in (1, 2, 3):
            for a, refuted in ((1.001, True), (1.0 + 1e-9, True), (1.0, False), (0.999, False), (-1.001, True)):
                driven = DrivenSystem(LureSystem.linear([[a]], 1.0), "tanh", np.zeros((0, 1)), F=[[1.0]])
                u = np.arange(1.0, k + 1.0)[:, None]
                orbit = np.zeros((k, 1))
                if a**k != 1.0:
                    total = sum(a ** (k - 1 - i) * u[i, 0] for i in range(k))
                    orbit = run(driven, np.array([total / (1 - a**k)]), u, k)
                data = {"orbit": orbit, "input": u, "eigenvalue": (a, 0.0)}
                assert check(driven, "unstable_orbit", data)[0] is refuted
                if refuted and abs(a) > 1.0005:
                    assert not check(driven, "unstable_orbit", {**data, "eigenvalue": (a * 1.0001, 0.0)})[0]
                    assert not check(driven, "unstable_orbit", {**data, "eigenvalue": (1 / a, 0.0)})[0]
                    assert not check(driven, "unstable_orbit", {**data, "orbit": orbit + 0.1 * np.abs(orbit)})[0]

    def test_by_turns_steep(self):
        """Each slope pattern alone contracts, one after the other does not."""
        driven = plain([[0.9, 1.5], [-1.0, -0.9]])
        target = np.array([[0.0, 5.0], [5.0, 0.0]])  # pre-activations: one channel steep, the other flat
        x = np.tanh(target[1])
        u = np.array([target[0] - driven.system.C @ x, target[1] - driven.system.C @ np.tanh(target[0])])
        orbit = np.array([x, np.tanh(target[0])])
        slopes = 1 - np.tanh(target) ** 2
        product = driven.system.jacobian(slopes[1]) @ driven.system.jacobian(slopes[0])
        multiplier = np.linalg.eigvals(product).astype(complex)
        root = np.sqrt(multiplier[np.argmax(np.abs(multiplier))])
        value = (float(root.real), float(abs(root.imag)))
        assert abs(root) > 1
        data = {"orbit": orbit, "input": u, "eigenvalue": value}
        assert check(driven, "unstable_orbit", data)[0]
        calm = plain(0.7 * driven.system.C)
        assert not check(calm, "unstable_orbit", data)[0]

    def test_a_kink_has_no_jacobian(self):
        driven = plain(-3.0, "relu")
        assert not check(driven, "unstable_orbit", {"orbit": np.zeros((2, 1)), "input": ONE})[0]


class TestUnstableEverywhere:
    W = np.array([[0.3, 1.0], [-1.0, 0.2]])

    def network(self, W=W, form=None, name="tanh", **more):
        system = LureSystem.recurrent(np.zeros((2, 2)), W, (1.0, 1.0) if name == "identity" else (0.0, 1.0))
        E = np.array([[1.0], [2.0]])
        copies = 1
        if form is not None:
            system, copies = system.discretise(form, 0.1), 2 if form == "midpoint" else 1
        return DrivenSystem(system, name, np.tile(E, (copies, 1)), np.tile([0.5, -0.5], copies), **more)

    @pytest.mark.parametrize("form", [None, "euler", "midpoint"])
    def test_the_same_jacobian_under_every_input(self, form, rng):
        driven = self.network(form=form)
        values = np.linalg.eigvals(driven.system.jacobian(np.ones(driven.system.channels)))
        top = values[np.argmax(np.abs(values) if form else values.real)]
        data = {"eigenvalue": (float(top.real), float(abs(top.imag)))}
        assert check(driven, "unstable_everywhere", data)[0]
        for _ in range(5):
            u = 10 * rng.normal(size=1)
            x = np.linalg.solve(self.W, -(driven.E[:2] @ u + driven.b[:2]))
            still = driven.advance(x, u) - (x if form else 0.0)
            assert np.abs(still).max() < 1e-12
            assert np.allclose(np.sort_complex(np.linalg.eigvals(driven.jacobian(x, u))), np.sort_complex(values))

    @pytest.mark.parametrize("form", [None, "euler", "midpoint"])
    def test_the_edge(self, form):
        """``W = w I``: unstable exactly for ``w > 0`` (a map: ``|1 + dt w + ...| > 1``)."""
        for w, refuted in ((1e-6, True), (1.0, True), (0.0, False), (-1e-6, False), (-1.0, False)):
            W = np.diag([w, 0.5 * w])
            driven = self.network(W, form)
            top = float(np.max(np.linalg.eigvals(driven.system.jacobian(np.ones(driven.system.channels))).real))
            for data in ({}, {"eigenvalue": (top, 0.0)}):
                assert check(driven, "unstable_everywhere", data)[0] in ((refuted, False) if not data else (refuted,))

    def test_what_the_theorem_does_not_cover(self, rng):
        value = np.linalg.eigvals(self.W)[0]
        data = {"eigenvalue": (float(value.real), float(abs(value.imag)))}
        assert check(self.network(), "unstable_everywhere", data)[0]
        assert check(self.network(name="identity"), "unstable_everywhere", data)[0]
        other = LureSystem.recurrent(np.zeros((2, 2)), self.W)
        E, b = np.ones((2, 1)), np.zeros(2)
        singular = LureSystem(np.zeros((3, 3)), np.zeros((3, 2)), np.ones((2, 3)))
        wide = LureSystem(np.zeros((1, 1)), np.ones((1, 2)), np.ones((2, 1)))
        covered = DrivenSystem(other, "tanh", E, b)
        assert check(covered, "unstable_everywhere", data)[0]
        for subject, word in (
            (DrivenSystem(other, "relu", E, b), "activation"),
            (DrivenSystem(other, "sigmoid", E, b), "activation"),
            (DrivenSystem(other, "tanh", E, b, F=np.ones((2, 1))), "linear part"),
            (DrivenSystem(LureSystem.recurrent(-1e-300 * np.eye(2), self.W), "tanh", E, b), "linear part"),
            (DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), self.W, dt=1.0), "tanh", E, b), "linear part"),
            (DrivenSystem(singular, "tanh", E, b), "rank"),
            (DrivenSystem(wide, "tanh", E, b), "rank"),
            (DrivenSystem(LureSystem.linear(np.zeros((2, 2))), "tanh", np.zeros((0, 1))), "activation"),
        ):
            answer = check(subject, "unstable_everywhere", data)
            assert not answer[0]
            assert word in answer[1]
        for change in ({"E": np.array([[1.0], [2.0], [1.0], [2.1]])}, {"b": np.array([0.5, -0.5, 0.5, -0.4])}):
            good = self.network(form="midpoint")
            bent = DrivenSystem(good.system, "tanh", change.get("E", good.E), change.get("b", good.b))
            assert "stages" in check(bent, "unstable_everywhere", data)[1]

    def test_a_map_with_the_identity(self):
        step = LureSystem(np.eye(2), 0.1 * np.eye(2), self.W, dt=1.0)
        driven = DrivenSystem(step, "tanh", np.ones((2, 1)))
        value = 1 + 0.1 * np.linalg.eigvals(self.W)[0]
        assert check(driven, "unstable_everywhere", {"eigenvalue": (float(value.real), float(abs(value.imag)))})[0]

    def test_the_equilibrium_claim_too(self):
        value = np.linalg.eigvals(self.W)[0]
        data = {"eigenvalue": (float(value.real), float(abs(value.imag)))}
        claim = propose(self.network(), "unstable_everywhere", data, "equilibrium")
        assert verify_claim(self.network(), claim).valid
        other = dataclasses.replace(claim, proof=Proof("periodic_orbits", data))
        assert not verify_claim(self.network(), other).valid
