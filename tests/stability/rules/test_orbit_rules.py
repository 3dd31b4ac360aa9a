"""Orbits, boxes, equilibria under every input: the proofs against a network, at the edge of what is true."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from stability.certificate import Proof
from stability.refute.answer import witness_claim
from stability.rigor.boxes import box_image, is_left_nowhere
from stability.rules.disjoint_boxes import box_distance
from stability.rules.registry import RULES
from stability.systems import DrivenSystem, LureSystem
from stability.verify import verify_claim

ONE = np.zeros((1, 1))


def plain(W, name="tanh", E=None, b=None):
    W = np.atleast_2d(np.asarray(W, dtype=float))
    n = len(W)
    slope = {"sigmoid": (0.0, 0.25), "identity": (1.0, 1.0)}.get(name, (0.0, 1.0))
    system = LureSystem(np.zeros((n, n)), np.eye(n), W, slope=slope, dt=1.0)
    return DrivenSystem(system, name, np.eye(n) if E is None else E, b)


def check(subject, kind, data):
    claim = witness_claim(subject, kind, data)
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

    def test_an_equilibrium_run_twice_is_one_orbit(self):
        bistable = plain(2.0)
        x = settled(bistable, np.ones(1), ONE)
        twice = np.array([x, x])
        assert "same" in check(bistable, "periodic_orbits", {"first": twice, "input": ONE})[1]
        assert not check(bistable, "periodic_orbits", {"first": x[None], "input": ONE})[0]
        two = {"first": x[None], "second": -x[None], "input": ONE}
        assert check(bistable, "periodic_orbits", two)[0]
        assert not check(bistable, "periodic_orbits", {**two, "second": x[None]})[0]

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


class TestDisjointBoxes:
    def test_scalar_at_its_edge(self):
        """``tanh(w x)``: ``[a, 1]`` is kept as long as ``a <= tanh(w a)``: between zero and the equilibrium."""
        bistable = plain(2.0)
        x = float(settled(bistable, np.ones(1), ONE)[0])

        def accepted(a, gap=None):
            low, high = np.array([[a]]), np.ones((1, 1))
            data = {"low1": low, "high1": high, "low2": -high, "high2": -low, "input": ONE}
            return check(bistable, "disjoint_boxes", {**data, "gap": 2 * a if gap is None else gap})[0]

        for a in (1e-6, 0.1, 0.5, x - 1e-9):
            assert accepted(a, 2 * a * (1 - 1e-12))
            assert not accepted(a, 2 * a * (1 + 1e-12))
        for a in (x + 1e-9, 0.99, 0.0, -0.1):
            assert not accepted(a, abs(a) or 1e-3)
        assert not accepted(0.5, 0.0)
        assert not accepted(0.5, -1.0)

    def test_no_boxes_where_the_map_contracts(self):
        for w in (0.5, 0.99):
            calm = plain(w)
            for a in (1e-9, 1e-3, 0.5):
                low, high = np.array([[a]]), np.ones((1, 1))
                data = {"low1": low, "high1": high, "low2": -high, "high2": -low, "input": ONE, "gap": 1e-10}
                assert "invariant" in check(calm, "disjoint_boxes", data)[1]

    def test_chaos_beside_a_switch(self, rng):
        """One unit remembers its sign, three others do what they like: no orbit is needed."""
        W = np.zeros((4, 4))
        W[0, 0], W[1:, 1:], W[1:, 0] = 3.0, 4.0 * rng.normal(size=(3, 3)), rng.normal(size=3)
        driven, ones = plain(W), np.ones((1, 4))
        low1 = np.array([[0.9, -1.0, -1.0, -1.0]])
        data = {"low1": low1, "high1": ones, "low2": -ones, "high2": -low1, "input": np.zeros((1, 4)), "gap": 1.79}
        assert check(driven, "disjoint_boxes", data)[0]
        leak = plain(W + np.outer([1, 0, 0, 0], [0, 1.0, 0.5, 0.5]))  # now they can push the switch over
        assert not check(leak, "disjoint_boxes", data)[0]
        assert not check(driven, "disjoint_boxes", {**data, "low1": data["high1"] + 1})[0]

    def test_phases(self):
        """``x+ = tanh(-3 x + u)`` with the input by turns: the boxes swap sides with it."""
        flip, u = plain(-3.0), np.array([[0.1], [-0.1]])
        low, high = np.array([[0.9], [-1.0]]), np.array([[1.0], [-0.9]])
        data = {"low1": low, "high1": high, "low2": -high, "high2": -low, "input": u, "gap": 1.8 - 1e-12}
        assert check(flip, "disjoint_boxes", data)[0]
        same = {**data, "low1": low[::-1].copy(), "high1": high[::-1].copy()}
        assert not check(flip, "disjoint_boxes", same)[0]
        still = np.tile(low[:1], (2, 1)), np.tile(high[:1], (2, 1))
        assert not check(flip, "disjoint_boxes", {**data, "low1": still[0], "high1": still[1]})[0]

    def test_a_flow_at_its_edge(self):
        """``-x + tanh(2 x)``: the side ``a`` lets nothing out as long as ``tanh(2 a) >= a``."""
        flow = DrivenSystem(LureSystem.recurrent([[-1.0]], [[2.0]]), "tanh", [[0.0]])
        x = float(settled(plain(2.0), np.ones(1), ONE)[0])
        for a, fine in ((1e-3, True), (0.5, True), (x - 1e-9, True), (x + 1e-9, False), (0.99, False)):
            low, high = np.array([[a]]), np.ones((1, 1))
            data = {"low1": low, "high1": high, "low2": -high, "high2": -low, "input": ONE, "gap": a}
            assert check(flow, "disjoint_boxes", data)[0] is fine
        two = np.zeros((2, 1))
        long = {"low1": two + 0.5, "high1": two + 1, "low2": two - 1, "high2": two - 0.5, "input": two, "gap": 0.5}
        assert not check(flow, "disjoint_boxes", long)[0]

    def test_every_side_of_a_flow_counts(self, rng):
        """A linear flow that leaves a box through exactly one side."""
        for i in range(3):
            for side in (-1.0, 1.0):
                F = np.zeros((3, 1))
                F[i, 0] = side * 1.01
                flow = DrivenSystem(LureSystem.linear(-np.eye(3)), "tanh", np.zeros((0, 1)), F=F)
                assert is_left_nowhere(flow, -np.ones(3), np.ones(3), np.array([0.9]))
                assert not is_left_nowhere(flow, -np.ones(3), np.ones(3), np.array([1.0]))

    @pytest.mark.parametrize("name", ["tanh", "sigmoid", "relu", "leaky_relu", "identity", "saturation", "deadzone"])
    @pytest.mark.parametrize("with_d", [False, True])
    def test_images_hold_what_is_sampled(self, rng, name, with_d):
        slope = {"sigmoid": (0.0, 0.25), "identity": (1.0, 1.0)}.get(name, (0.0, 1.0))
        for _ in range(5):
            n, m = 3, 4
            shapes = ((n, n), (n, m), (m, n))
            A, B, C = (rng.normal(size=s) for s in shapes)
            D = np.tril(rng.normal(size=(m, m)), -1) if with_d else None
            driven = DrivenSystem(
                LureSystem(A, B, C, D, slope, dt=1.0), name, rng.normal(size=(m, 2)), rng.normal(size=m),
                rng.normal(size=(n, 2)),
            )  # fmt: skip
            low = rng.normal(size=n)
            high, u = low + 10.0 ** rng.uniform(-3, 0, size=n), rng.normal(size=2)
            image = box_image(driven, low, high, u)
            if with_d and name in ("relu", "leaky_relu", "identity", "deadzone"):
                assert image is None
                continue
            corners = np.array(np.meshgrid(*zip(low, high))).reshape(n, -1).T
            x = np.concatenate([corners, rng.uniform(low, high, size=(200, n))])
            after = driven.advance(x, np.broadcast_to(u, (len(x), 2)))
            assert (after >= image[0]).all()
            assert (after <= image[1]).all()
            if not with_d:
                width = (np.abs(A) + np.abs(B) @ np.abs(C)) @ (high - low)
                assert (image[1] - image[0] <= width * (1 + 1e-9) + 1e-12).all()

    def test_a_single_unit_is_exact(self):
        low, high = box_image(plain(2.0), np.array([0.25]), np.array([0.5]), np.zeros(1))
        assert low[0] <= np.tanh(0.5) < low[0] + 1e-13
        assert high[0] >= np.tanh(1.0) > high[0] - 1e-13

    def test_distance(self):
        zero = np.zeros(2)
        assert box_distance(zero, zero + 1, np.array([0.5, 3.0]), np.array([0.6, 4.0])) == pytest.approx(2.0, rel=1e-12)
        assert box_distance(np.array([0.5, 3.0]), np.array([0.6, 4.0]), zero, zero + 1) <= 2.0
        assert not box_distance(zero, zero + 1, zero + 1, zero + 2) > 0


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
        claim = witness_claim(self.network(), "unstable_everywhere", data, "equilibrium")
        assert verify_claim(self.network(), claim).valid
        other = dataclasses.replace(claim, proof=Proof("periodic_orbits", data))
        assert not verify_claim(self.network(), other).valid
