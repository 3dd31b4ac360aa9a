"""Contraction under inputs in a box: true of trajectories, refused where a datum is bent, beside a refutation."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from stability import certify, verify
from stability.certificate import Finding
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.kernel.theorems.absorbing_sets import Absorbed
from stability.recovery import SETS
from stability.search.input_sets.driven import driven_contraction
from stability.search.input_sets.limit_sets import claims_in_box
from stability.search.input_sets.narrowing import ROOM
from stability.search.solvers.deadline import Deadline
from stability.systems import DrivenSystem, LureSystem
from tests.stability.driven_runs import assert_bent_is_refused, holds_on_trajectories, reservoir


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("leak", "name"), [(1.0, "tanh"), (0.4, "tanh"), (1.0, "sigmoid")])
def test_pairs_of_trajectories_keep_the_bound(seed, leak, name):
    driven = reservoir(8, 0.9, leak, seed, name)
    claim, finding = driven_contraction(driven, (-0.5, 0.5), tol=1e-2)
    if claim.verdict is Verdict.CERTIFIED:
        assert finding.holds
        assert holds_on_trajectories(driven, claim, seed) <= 1.0
    else:
        assert not finding.holds
        assert "neither proved nor refuted" in claim.statement


@pytest.mark.slow
def test_a_leak_is_traced_back_over_its_time_constant():
    """Zonotopes prove nothing here, and bounds over a few steps little: the state keeps .7 of itself a step."""
    driven = reservoir(8, 0.95, 0.3, 2)
    claim, _ = driven_contraction(driven, (-0.5, 0.5), tol=1e-2)
    assert claim.verdict is Verdict.CERTIFIED
    assert claim.value < 0.98
    assert holds_on_trajectories(driven, claim, 0) <= 1.0


@pytest.fixture(scope="module")
def proved() -> tuple[DrivenSystem, Claim]:
    driven = reservoir(6, 0.9, 0.5, 1)
    claim, _ = driven_contraction(driven, (-0.4, 0.5), tol=1e-6)
    assert claim.verdict is Verdict.CERTIFIED
    return driven, claim


BENT = {
    "a wider box above": {"high": lambda v: v + 1.5},
    "a wider box below": {"low": lambda v: v - 1.5},
    "an empty box": {"low": lambda v: v + 10},
    "a smaller set": {"r": lambda v: 0.99 * v},
    "a much smaller set": {"r": lambda v: 0.3 * v},
    "a negative set": {"r": lambda v: -v},
    "fewer steps": {"steps": lambda v: 1},
    "too many steps": {"steps": lambda v: 10**9},
    "too wide a window": {"window": lambda v: 10**6},
    "a faster rate": {"rate": lambda v: 0.9 * v},
    "no decay": {"rate": lambda v: 1.0},
    "faster entry": {"share": lambda v: 0.5 * v},
    "entry at once": {"share": lambda v: 0.0},
    "no room": {"room": lambda v: 0.0},
    "room that rounds": {"room": lambda v: 0.1},
    "less overshoot": {"overshoot": lambda v: 0.9 * v},
    "other multipliers": {"L": lambda v: 3.0 * v},
    "another metric": {"P": lambda v: v + 0.5 * v[0, 0] * np.eye(len(v))},
}


@pytest.mark.parametrize("bend", BENT.values(), ids=BENT)
def test_bent_proofs_are_refused(proved, bend):
    assert_bent_is_refused(*proved, bend)


def test_the_box_of_states_takes_in_every_start_in_the_time_that_is_told(proved):
    driven, claim = proved
    data = claim.proof.data
    assert data["room"] == ROOM
    rng = np.random.default_rng(0)
    x = 50.0 * rng.choice([-1.0, 1.0], size=(64, driven.states))
    largest = np.abs(x / data["r"]).max()
    steps = int(np.ceil(np.log((largest - 1) / data["room"]) / -np.log(data["share"])))
    for t in range(steps + 20):
        if t >= steps:
            assert (np.abs(x) <= (1 + data["room"]) * data["r"]).all()
        x = driven.advance(x, rng.choice([-0.4, 0.5], size=(64, 1)))


@pytest.mark.parametrize(("n", "leak"), [(4, 1.0), (8, 0.3)])
def test_no_corner_of_the_box_of_states_is_left_in_exact_arithmetic(n, leak):
    """Every corner of states, of what the activation can be and of inputs, in rational numbers."""
    driven = reservoir(n, 0.8, leak, 3)
    claim, _ = driven_contraction(driven, (-0.3, 0.2), rate="any")
    assert claim.verdict is Verdict.CERTIFIED
    data, system = claim.proof.data, driven.system
    half = [Fraction(1 + data["room"]) * Fraction(r) for r in data["r"]]
    largest = [max(abs(Fraction(a)), abs(Fraction(b))) for a, b in zip(data["low"], data["high"])]
    for i in range(n):  # a row is largest at one corner, the signs of its entries
        kept = sum(abs(Fraction(a)) * r for a, r in zip(system.A[i], half))
        added = sum(abs(Fraction(b)) for b in system.B[i])
        assert kept + added + sum(abs(Fraction(f)) * u for f, u in zip(driven.F[i], largest)) <= half[i]
        assert kept <= Fraction(data["share"]) * half[i]


@pytest.fixture(scope="module")
def traced() -> tuple[DrivenSystem, Claim]:
    """Make a network for which zonotopes from all states do not suffice, but backward linear bounds do."""
    driven = reservoir(8, 1.0, 1.0, 1)
    claim, _ = driven_contraction(driven, (-0.5, 0.5), tol=1e-4)
    assert claim.verdict is Verdict.CERTIFIED
    return driven, claim


FEWER = {
    "no bounds traced back": lambda v: None,
    "one round": lambda v: v[:1] * np.array([0, 1, 1, 1, 1]) + np.array([1, 0, 0, 0, 0]),
    "half a round": lambda v: v + np.array([0.5, 0, 0, 0, 0]),
    "less than none": lambda v: v - np.array([1000, 0, 0, 0, 0]),
    "rounds without end": lambda v: v + np.array([1e9, 0, 0, 0, 0]),
    "more memory than depth": lambda v: v + np.array([0, 0, 0, 0, 60]),
    "histories without end": lambda v: v + np.array([0, 50, 0, 3, 50]),
    "another shape": lambda v: v[:, :4],
}


@pytest.mark.parametrize("change", FEWER.values(), ids=FEWER)
def test_bounds_that_are_not_made_prove_nothing(traced, change):
    assert_bent_is_refused(*traced, {"backward": change})


def test_where_trajectories_end_and_what_constant_inputs_lead_to_stand_beside_it(tmp_path):
    driven = reservoir(8, 1.0, 0.6, 1)
    found = certify(driven, input_box=(-0.4, 0.3), tol=1e-2)
    assert found.claim.name == "driven_contraction"
    assert verify(found.save(tmp_path / "c.json")).valid
    ends = next(c for c in found.claims if c.name == "bounded_in_box")
    assert "equilibrium_in_box" in [c.name for c in found.claims]
    data, rng = ends.proof.data, np.random.default_rng(0)
    assert ends.value < np.linalg.norm(2 * data["r"]) / 2
    x = data["r"] * rng.choice([-1.0, 1.0], size=(400, 8))
    for t in range(Absorbed.of(found.claim.proof.data).settled + 60):
        if t >= Absorbed.of(data).settled:
            assert ((data["least"] <= x) & (x <= data["most"])).all()
        x = driven.advance(x, rng.choice([-0.4, 0.3], size=(400, 1)))
    assert (x.max(axis=0) - x.min(axis=0) > 0.1 * (data["most"] - data["least"])).mean() > 0.5
    settled = data["r"] * rng.choice([-1.0, 1.0], size=(40, 8))
    for _ in range(400):
        settled = driven.advance(settled, np.full((40, 1), 0.2))
    assert np.ptp(settled, axis=0).max() < 1e-9
    shorter = found.memory_horizon(1e-3)
    assert shorter.size == ends.value
    assert replace(found, claims=()).memory_horizon(1e-3).time > shorter.time


BENT_ENDS = {
    "less above": {"most": lambda v: v - 0.05 * np.eye(len(v))[0]},
    "less below": {"least": lambda v: v + 0.05 * np.eye(len(v))[3]},
    "crossed": {"least": lambda v: v + 10.0},
    "a shorter diagonal": {"diagonal": lambda v: 0.99 * v},
    "fewer steps": {"steps": lambda v: 1},
    "a wider box of inputs": {"high": lambda v: v + 0.5},
    "a smaller set": {"r": lambda v: 0.5 * v},
}


@pytest.mark.parametrize("bend", BENT_ENDS.values(), ids=BENT_ENDS)
def test_bent_ends_are_refused(proved, bend):
    _, ends = claims_in_box(*proved, Finding("driven", True, None), Deadline())
    assert_bent_is_refused(proved[0], ends, bend)


@pytest.fixture(scope="module")
def turning() -> tuple[DrivenSystem, Claim]:
    """A linear part that shrinks in an ellipsoid and in no box, inputs that enter the state, too."""
    rng = np.random.default_rng(5)
    S, W = rng.normal(size=(2, 6, 6))
    A = 0.8 * np.eye(6) + 0.08 * (S - S.T)
    assert np.abs(np.linalg.eigvals(np.abs(A))).max() > 1.05
    system = LureSystem(A, 0.2 * np.eye(6), W / np.abs(np.linalg.eigvals(W)).max(), None, (0.0, 1.0), 1.0)
    driven = DrivenSystem(system, "tanh", 0.3 * rng.normal(size=(6, 1)), rng.choice([-1.5, 1.5], size=6), np.eye(6, 1))
    claim, _ = driven_contraction(driven, (-0.1, 0.2), tol=1e-2)
    assert claim.verdict is Verdict.CERTIFIED
    return driven, claim


def test_an_ellipsoid_takes_in_every_start_in_the_time_that_is_told(turning):
    driven, claim = turning
    data, rng = claim.proof.data, np.random.default_rng(0)
    assert "s^T Y^-1 s" in claim.statement
    x, y = 30.0 * rng.normal(size=(2, 100, 6))
    inverse, limit = np.linalg.inv(data["Y"]), 1.0 + data["room"]
    largest = max(float(np.einsum("ri,ij,rj->r", v, inverse, v).max()) for v in (x, y))
    wait = int(np.ceil(np.log((largest - 1) / data["room"]) / -np.log(data["share"])))
    settled, first = Absorbed.of({k: data[k] for k in SETS if k in data}).settled, None
    for t in range(wait + settled + 40):
        if t >= wait:
            assert np.einsum("ri,ij,rj->r", x, inverse, x).max() <= limit
            assert (np.abs(x) <= limit * data["r"]).all()
        if t >= wait + settled:
            d = np.linalg.norm(x - y, axis=1)
            first = d if first is None else first
            assert (d <= data["overshoot"] * data["rate"] ** (t - wait - settled) * first + 1e-12).all()
        u, v = rng.choice([-0.1, 0.2], size=(2, 100, 1))
        x, y = driven.advance(x, u), driven.advance(y, u if t >= wait + settled else v)


BENT_ELLIPSOIDS = {
    "a smaller ellipsoid": {"Y": lambda v: 0.5 * v},
    "no ellipsoid": {"Y": lambda v: -v},
    "a smaller box": {"r": lambda v: 0.99 * v},
    "faster entry": {"share": lambda v: 0.9 * v},
    "entry at once": {"share": lambda v: 0.0},
    "weights that leave values out": {"tau": lambda v: 1.01 * v},
    "weights below zero": {"tau": lambda v: -v},
    "too few weights": {"tau": lambda v: v[:-1]},
    "larger inputs": {"high": lambda v: v + 3.0},
    "no weights": {"tau": None},
    "no inequality": {"Y": None},
}


@pytest.mark.parametrize("bend", BENT_ELLIPSOIDS.values(), ids=BENT_ELLIPSOIDS)
def test_bent_ellipsoids_are_refused(turning, bend):
    assert_bent_is_refused(*turning, bend)


def test_where_trajectories_end_is_known_though_contraction_is_open():
    driven = reservoir(8, 1.6, 1.0, 0)
    claim, finding = driven_contraction(driven, (-1, 1), rate="any")
    assert claim.verdict is Verdict.INCONCLUSIVE
    (ends,) = claims_in_box(driven, claim, finding, Deadline())
    assert ends.name == "bounded_in_box"
    assert RULES["driven_bounds"](driven, ends)[0]
    assert ends.value < 2 * np.sqrt(8)
    assert claims_in_box(driven, claim, replace(finding, witness={}), Deadline()) == ()
    for radius, said in ((0.1, ()), (10.0, (ends,))):  # a box wider than the ball says nothing new
        ball = Claim("bounded", "", Verdict.CERTIFIED, value=radius)
        found = claims_in_box(driven, claim, finding, Deadline(), (ball,))
        assert [c.value for c in found] == [c.value for c in said]


def test_states_of_a_linear_map_end_near_those_of_the_inputs_in_the_box():
    linear = DrivenSystem(
        LureSystem.linear(0.5 * np.eye(2), dt=1.0), "identity", np.zeros((0, 1)), None, np.ones((2, 1))
    )
    claims = {claim.name: claim for claim in certify(linear, input_box=(0.9, 1.0)).claims}
    data = claims["bounded_in_box"].proof.data
    assert (data["least"] <= 1.8).all()
    assert (data["most"] >= 2.0).all()
    assert claims["bounded_in_box"].value < 0.5
