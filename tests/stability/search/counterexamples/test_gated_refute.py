"""Witnesses against gated cells: what is proved is true in simulation, and bent witnesses are refused."""

from __future__ import annotations

import numpy as np
import pytest
from specimens import HELD, latch, random_cell

from stability.certification import certify
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import Refused
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.reachability.gated_orbits import enclose_orbit, orbit_jacobian
from stability.kernel.systems.gated_cell import GatedCell
from stability.search.counterexamples.counterexample_search import refute
from stability.verification import verify, verify_claim

KINDS = [("lstm", True), ("gru", True), ("gru", False)]


def flipper() -> GatedCell:
    """A GRU that changes its sign every step: n = tanh(-4 h), z = 0."""
    w_hh = np.array([[0.0], [0.0], [-4.0]])
    return GatedCell("gru", np.zeros((3, 1)), w_hh, np.array([50.0, -50.0, 0.0]), input_low=-1.0, input_high=1.0)


def claimed(cell, kind, data) -> Claim:
    draft = Claim("contraction", "", RULES[kind].verdict, Proof(kind, data))
    try:
        RULES[kind].read(cell, draft)
    except Refused:
        return draft
    return worded(cell, draft)


def test_an_equilibrium_known_by_hand_is_enclosed():
    box = enclose_orbit(latch(), np.array([[HELD + 1e-5]]), np.zeros((1, 1)))
    assert abs(box.mid[0, 0] - HELD) <= box.rad[0, 0] + 1e-14
    assert box.rad[0, 0] < 1e-12


def test_two_equilibria_are_found_and_proved():
    found = refute(latch(), seed=0)
    assert found.proof.kind in ("gated_orbits", "gated_unstable")
    certificate = certify(latch())
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.evidence == "proved"
    assert verify(certificate).valid


def test_an_orbit_of_period_two_is_found_and_proved():
    cell = flipper()
    data = {"first": np.array([[HELD], [-HELD]]), "input": np.zeros(1)}
    claim = claimed(cell, "gated_orbits", data)
    assert "period 2" in claim.statement
    assert verify_claim(cell, claim).valid
    assert refute(cell).found


@pytest.mark.parametrize(("kind", "reset_after"), KINDS)
def test_refuted_cells_really_do_not_contract(kind, reset_after):
    """Simulation by independent code shows the behavior that the witness states."""
    rng, seen = np.random.default_rng(5), 0
    for _ in range(4):
        cell = random_cell(kind, reset_after, rng, 2.5)
        found = refute(cell, seed=1)
        if not found.found or "first_low" in found.proof.data:
            continue
        seen += 1
        data, u = found.proof.data, np.atleast_2d(found.proof.data["input"])
        assert (u >= cell.input_low).all()
        assert (u <= cell.input_high).all()
        if found.proof.kind == "gated_orbits":
            first = data["first"][0]
            second = data["second"][0] if "second" in data else data["first"][len(u)]
            assert np.abs(first - second).max() > 1e-9
            for points in (data[key] for key in ("first", "second") if key in data):
                for t, x in enumerate(points):
                    ahead = points[(t + 1) % len(points)]
                    np.testing.assert_allclose(cell.advance(x, u[t % len(u)]), ahead, atol=1e-7)
        else:
            points, product = np.atleast_2d(data["state"]), np.eye(cell.states)
            for t, x in enumerate(points):
                np.testing.assert_allclose(cell.advance(x, u[t % len(u)]), points[(t + 1) % len(points)], atol=1e-7)
                product = cell.jacobian(x, u[t % len(u)]) @ product
            assert np.abs(np.linalg.eigvals(product)).max() > 1
        assert verify_claim(cell, found.claim).valid
    assert seen >= 2


def test_no_witness_is_found_against_a_certified_cell(rng):
    for kind, reset_after in KINDS:
        cell = random_cell(kind, reset_after, rng, 0.1, m=2, p=1)
        assert certify(cell).verdict is Verdict.CERTIFIED
        found = refute(cell)
        assert found.proof is None
        assert "proves nothing" in found.detail


# ---- periodic inputs ---------------------------------------------------------------------------------------------


def toggled() -> GatedCell:
    """A GRU of one unit whose input flips the sign of its state: n = tanh(4 h + 9 u), z = 0."""
    w_ih, w_hh = np.array([[0.0], [0.0], [9.0]]), np.array([[0.0], [0.0], [4.0]])
    return GatedCell("gru", w_ih, w_hh, np.array([50.0, -50.0, 0.0]), input_low=-1.0, input_high=1.0)


def test_orbits_under_a_periodic_input():
    cell = latch()
    inputs = np.array([[0.5], [-0.5]])
    x = np.array([[HELD], [HELD]])
    pair = claimed(cell, "gated_orbits", {"first": x, "second": -x, "input": inputs})
    assert "input of period 2" in pair.statement
    assert verify_claim(cell, pair).valid
    # one orbit as long as the input is one trajectory: nothing to compare it with
    assert not verify_claim(cell, claimed(cell, "gated_orbits", {"first": x, "input": inputs})).valid
    assert not verify_claim(cell, claimed(cell, "gated_orbits", {"first": x, "second": x, "input": inputs})).valid
    # an orbit shorter than the input, or no multiple of it
    for length in (1, 3):
        points = np.full((length, 1), HELD)
        bad = claimed(cell, "gated_orbits", {"first": points, "second": -points, "input": inputs})
        assert not verify_claim(cell, bad).valid
    # the orbit that the other phase of the input would have is none under this one
    moved = toggled()
    up = np.array([[float(np.tanh(9 - 4 * HELD))], [0.0]])
    up[1] = np.tanh(4 * up[0] - 9)
    for _ in range(60):
        up[0] = np.tanh(4 * up[1] + 9)
        up[1] = np.tanh(4 * up[0] - 9)
    inputs = np.array([[-1.0], [1.0]])
    state = claimed(moved, "gated_unstable", {"state": up, "input": inputs, "eigenvalue": [1.5, 0.0]})
    assert not verify_claim(moved, state).valid
    box = enclose_orbit(moved, up, inputs)
    assert box is not None
    assert enclose_orbit(moved, up, inputs[::-1]) is None
    product = orbit_jacobian(moved, box, inputs)
    expected = 16 * (1 - up[0, 0] ** 2) * (1 - up[1, 0] ** 2)
    assert abs(product.mid[0, 0] - expected) <= product.rad[0, 0] + 1e-12


def test_an_unstable_orbit_under_a_periodic_input():
    """At the zero state of the latch the slope of a step is (1 + 4) / 2, of two steps 6.25."""
    cell = latch()
    data = {"state": np.zeros((2, 1)), "input": np.array([[0.5], [-0.5]]), "eigenvalue": [6.25, 0.0]}
    claim = claimed(cell, "gated_unstable", data)
    assert "orbit of period 2 along which the product of the Jacobians has the eigenvalue 6.25 " in claim.statement
    assert verify_claim(cell, claim).valid
    for wrong in ([2.5, 0.0], [-6.25, 0.0], [6.2, 0.0], [0.0, 0.0]):
        assert not verify_claim(cell, claimed(cell, "gated_unstable", {**data, "eigenvalue": wrong})).valid


@pytest.mark.parametrize("slope", [0.999, 1.001])
def test_unstable_means_a_multiplier_above_one(slope):
    """n = tanh(w h) has the slope w at the equilibrium 0, and with z = 1/2 a step has (1 + w) / 2."""
    cell = GatedCell("gru", np.zeros((3, 1)), np.array([[0.0], [0.0], [slope]]), np.array([50.0, 0.0, 0.0]))
    data = {"state": np.zeros(1), "input": np.zeros(1), "eigenvalue": [0.5 * (1 + slope), 0.0]}
    assert verify_claim(cell, claimed(cell, "gated_unstable", data)).valid is (slope > 1)
