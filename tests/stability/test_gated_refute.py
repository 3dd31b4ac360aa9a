"""Witnesses against gated cells: what is proved is true in simulation, and bent witnesses are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stability.balls import Ball
from stability.certificate import Claim, Proof, Verdict
from stability.certify import certify
from stability.gated import GatedCell
from stability.gated_balls import enclose_orbit, step_and_jacobian
from stability.refute import refute
from stability.rules.registry import RULES, STATEMENTS, verdict_of
from stability.verify import verify, verify_claim

KINDS = [("lstm", True), ("gru", True), ("gru", False)]


HELD = 0.9
for _ in range(200):
    HELD = float(np.tanh(4 * HELD))  # n equals h at an equilibrium, and r is 1 up to e^-50


def random_cell(kind, reset_after, rng, scale, m=4, p=2) -> GatedCell:
    g = 4 if kind == "lstm" else 3
    w = [scale * rng.normal(size=s) for s in ((g * m, p), (g * m, m), g * m)]
    return GatedCell(kind, *w, input_low=-1.0, input_high=1.0, reset_after=reset_after)


def latch() -> GatedCell:
    """A GRU of one unit with h = +-0.95 or so held for ever: n = tanh(4 h), z = 1/2."""
    w_hh = np.array([[0.0], [0.0], [4.0]])
    return GatedCell("gru", np.zeros((3, 1)), w_hh, np.array([50.0, 0.0, 0.0]), input_low=-1.0, input_high=1.0)


def flipper() -> GatedCell:
    """A GRU that changes its sign every step: n = tanh(-4 h), z = 0."""
    w_hh = np.array([[0.0], [0.0], [-4.0]])
    return GatedCell("gru", np.zeros((3, 1)), w_hh, np.array([50.0, -50.0, 0.0]), input_low=-1.0, input_high=1.0)


def claimed(cell, kind, data) -> Claim:
    draft = Claim("contraction", "", verdict_of(kind, data), Proof(kind, data))
    return replace(draft, statement=STATEMENTS[kind](cell, draft))


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_ball_arithmetic_contains_steps_and_jacobians(kind, reset_after, rng):
    cell = random_cell(kind, reset_after, rng, 1.0)
    centre, u, radius = rng.normal(size=cell.states), rng.normal(size=2), 1e-3
    value, jacobian = step_and_jacobian(cell, Ball(centre, np.full(cell.states, radius)), u)
    for _ in range(100):
        x = centre + radius * np.sign(rng.normal(size=cell.states)) * rng.random()
        assert (np.abs(cell.advance(x, u) - value.mid) <= value.rad + 1e-14).all()
        assert (np.abs(cell.jacobian(x, u) - jacobian.mid) <= jacobian.rad + 1e-14).all()
    sharp, slope = step_and_jacobian(cell, Ball.exact(centre), u)
    np.testing.assert_allclose(sharp.mid, cell.advance(centre, u), atol=1e-13)
    np.testing.assert_allclose(slope.mid, cell.jacobian(centre, u), atol=1e-13)
    assert sharp.rad.max() < 1e-12


def test_an_equilibrium_known_by_hand_is_enclosed():
    box = enclose_orbit(latch(), np.array([[HELD + 1e-5]]), np.zeros(1))
    assert abs(box.mid[0, 0] - HELD) <= box.rad[0, 0] + 1e-14
    assert box.rad[0, 0] < 1e-12


def test_no_orbit_is_proved_where_there_is_none():
    cell = GatedCell("lstm", np.zeros((4, 1)), np.zeros((4, 1)), np.array([0.0, 60.0, 3.0, 0.0]))  # c grows for ever
    assert enclose_orbit(cell, np.array([[0.3, 1.0]]), np.zeros(1)) is None


def test_two_equilibria_are_found_and_proved():
    found = refute(latch(), time_limit=5.0)
    assert found.proof.kind in ("gated_orbits", "gated_unstable")
    certificate = certify(latch())
    assert certificate.verdict is Verdict.REFUTED
    assert verify(certificate).valid


def test_an_orbit_of_period_two_is_found_and_proved():
    cell = flipper()
    data = {"first": np.array([[HELD], [-HELD]]), "input": np.zeros(1)}
    claim = claimed(cell, "gated_orbits", data)
    assert "period 2" in claim.statement
    assert verify_claim(cell, claim).valid
    assert refute(cell, time_limit=5.0).proof is not None


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_refuted_cells_really_do_not_contract(kind, reset_after):
    rng, seen = np.random.default_rng(5), 0
    for _ in range(4):
        cell = random_cell(kind, reset_after, rng, 2.5)
        found = refute(cell, time_limit=2.0, seed=1)
        if found.proof is None:
            continue
        seen += 1
        data, u = found.proof.data, found.proof.data["input"]
        assert (u >= cell.input_low).all()
        assert (u <= cell.input_high).all()
        if found.proof.kind == "gated_orbits":
            first = data["first"][0]
            second = data["second"][0] if "second" in data else data["first"][1]
            period = len(data["first"]) * len(data.get("second", [0]))
            x, y = first, second
            for _ in range(period):
                x, y = cell.advance(x, u), cell.advance(y, u)
            np.testing.assert_allclose(x, first, atol=1e-6)
            np.testing.assert_allclose(y, second, atol=1e-6)
        elif found.proof.kind == "gated_unstable":
            radius = np.abs(np.linalg.eigvals(cell.jacobian(data["state"], u))).max()
            assert radius > 1
            np.testing.assert_allclose(cell.advance(data["state"], u), data["state"], atol=1e-9)
        else:
            assert "not proved" in found.statement
        assert verify_claim(cell, found.claim).valid
    assert seen >= 2


def test_no_witness_is_found_against_a_certified_cell(rng):
    for kind, reset_after in KINDS:
        cell = random_cell(kind, reset_after, rng, 0.1)
        assert certify(cell).verdict is Verdict.CERTIFIED
        found = refute(cell, time_limit=0.5)
        assert found.proof is None
        assert "proves nothing" in found.detail


def test_bent_witnesses_are_refused(rng):
    cell = latch()
    good = {"first": np.array([[HELD]]), "second": np.array([[-HELD]]), "input": np.zeros(1)}
    assert verify_claim(cell, claimed(cell, "gated_orbits", good)).valid
    bad = {
        "twice the same": {**good, "second": good["first"]},
        "no orbit": {**good, "second": np.array([[0.4]])},
        "far from any orbit": {**good, "second": np.full((1, 1), 1e99)},
        "an input outside the box": {**good, "input": np.array([2.0])},
        "an input of another size": {**good, "input": np.zeros(2)},
        "one equilibrium": {"first": good["first"], "input": good["input"]},
        "an equilibrium run twice": {"first": np.array([[HELD], [HELD]]), "input": good["input"]},
        "no data": {},
        "a list": {**good, "first": [[HELD]]},
        "another size": {**good, "first": np.zeros((1, 2))},
        "empty": {**good, "first": np.zeros((0, 1))},
    }
    for name, data in bad.items():
        assert not verify_claim(cell, claimed(cell, "gated_orbits", data)).valid, name
    state = {"state": np.zeros(1), "input": np.zeros(1), "eigenvalue": [2.5, 0.0]}
    assert verify_claim(cell, claimed(cell, "gated_unstable", state)).valid
    stable = {"state": np.array([0.9993]), "input": np.zeros(1), "eigenvalue": [0.5, 0.0]}
    assert not verify_claim(cell, claimed(cell, "gated_unstable", stable)).valid
    assert not verify_claim(cell, claimed(cell, "gated_unstable", {**state, "eigenvalue": [5.0, 0.0]})).valid
    calm = random_cell("gru", True, rng, 0.1)
    runs = {"first": np.ones(4), "second": -np.ones(4), "input": np.zeros(2), "steps": 2000, "gap": 0.1}
    assert not verify_claim(calm, claimed(calm, "gated_trajectories", runs)).valid
    held = {"first": np.ones(1), "second": -np.ones(1), "input": np.zeros(1), "steps": 2000, "gap": 1.9}
    assert verify_claim(cell, claimed(cell, "gated_trajectories", held)).valid
    assert not verify_claim(cell, claimed(cell, "gated_trajectories", {**held, "gap": 2.5})).valid
    assert not verify_claim(cell, claimed(cell, "gated_trajectories", {**held, "steps": 10})).valid
    assert {"gated_orbits", "gated_unstable", "gated_trajectories"} <= set(RULES)
