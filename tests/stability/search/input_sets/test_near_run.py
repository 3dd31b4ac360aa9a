"""Contraction near one run: true of trajectories, refused where a datum is bent, and more than sets alone give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stability import certify, verify
from stability.certificate import Certificate
from stability.errors import StabilityError
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.invariant_zonotope import InvariantZonotope
from stability.kernel.theorems.absorbing_sets import Absorbed, Sets
from stability.kernel.theorems.near_run import (
    RunLmi,
    difference_system,
    distance_after,
    distance_bound,
    neighborhood_bounds,
)
from stability.proposals import propose
from stability.search.input_sets.driven import driven_contraction
from stability.search.input_sets.narrowing import initial_box, narrowed_bounds
from stability.search.input_sets.near_run import contraction_near_run
from stability.search.solvers.deadline import Deadline
from stability.systems import DrivenSystem, LureSystem
from tests.stability.driven_runs import assert_bent_is_refused, holds_on_trajectories, reservoir


@pytest.fixture(scope="module")
def crowded() -> tuple[DrivenSystem, Certificate]:
    """Forty units of spectral radius .9: the sets of all trajectories stay as wide as all states make them."""
    driven = reservoir(40, 0.9, 1.0, 2)
    return driven, certify(driven, input_box=(-0.05, 0.05), tol=1e-2, refute=False, time_limit=120)


HIDDEN = LureSystem([[-0.06, 0.785], [-0.785, -0.06]], [[0.0], [1e-3]], [[1e-3, 0.0]])
"""A flow with C B = 0: its midpoint map has a stored D of zero, and one that is not zero within its rounding."""


def found_near(driven: DrivenSystem, reach: float, rate="best") -> Claim | None:
    low, high = np.full(driven.inputs, -reach), np.full(driven.inputs, reach)
    sets = next(narrowed_bounds(driven, low, high, initial_box(driven, low, high, Deadline()), Deadline()))
    found = contraction_near_run(driven, sets.data, rate, 1e-2, Deadline())
    return None if found is None else found[0]


@pytest.mark.slow
def test_a_network_of_wide_sets_is_certified_near_a_run(crowded):
    driven, certificate = crowded
    claim = next(c for c in (certificate.claim, *certificate.claims) if c.name == "driven_contraction")
    assert claim.proof.kind == "run_lmi"
    assert claim.verdict is Verdict.CERTIFIED
    assert claim.value < 0.8
    assert verify(certificate).valid
    data = claim.proof.data
    alone = driven_contraction(driven, (-0.05, 0.05), tol=1e-2)[0].proof.data
    wide = np.subtract(*Absorbed.of(alone).enclosed(driven).states[::-1]).mean()
    near = np.subtract(*RunLmi.of(data).enclosed(driven).states[::-1]).mean()
    assert near < 0.5 * wide
    kinds = {c.name: c.proof.kind for c in certificate.claims if c.proof is not None}
    assert kinds["equilibrium_in_box"] == "run_equilibrium"
    assert kinds["bounded_in_box"] == "run_bounds"
    assert holds_on_trajectories(driven, claim, 3) <= 1.0


@pytest.mark.parametrize("seed", range(1))
def test_pairs_of_trajectories_keep_the_bound(seed):
    driven = reservoir(12, 1.1, 0.5, (1, 3, 4)[seed])
    claim = found_near(driven, 0.05)
    assert claim is not None
    assert holds_on_trajectories(driven, claim, seed) <= 1.0
    fast = replace(claim, proof=replace(claim.proof, data={**claim.proof.data, "rate": claim.value**6, "overshoot": 1}))
    assert holds_on_trajectories(driven, fast, seed) > 1.0


def test_every_trajectory_is_near_the_run_when_it_is_said_to_be():
    """Starts at the corners of the box, inputs at its ends: the run of the same inputs is as near as the proof says."""
    driven = reservoir(8, 1.1, 0.5, 1)
    claim = found_near(driven, 0.2)
    data, rng = claim.proof.data, np.random.default_rng(0)
    proof = RunLmi.of(data)
    x = data["r"] * rng.choice([-1.0, 1.0], size=(300, 8))
    y = np.tile(0.5 * (data["run_low"] + data["run_high"]), (300, 1))
    bounds = proof.enclosed(driven)
    for k in range(proof.settled + 30):
        u = rng.choice([-0.2, 0.2], size=(300, 1))
        if k >= data["turns"]:
            assert (data["run_low"] <= y).all() and (y <= data["run_high"]).all()  # noqa: PT018
        if k >= proof.settled:
            assert np.linalg.norm(x - y, axis=1).max() <= data["near"]
            z = x @ driven.system.C.T + u @ driven.E.T + driven.b
            assert (bounds.low <= z).all() and (z <= bounds.high).all()  # noqa: PT018
        x, y = driven.advance(x, u), driven.advance(y, u)


BENT = {
    "a smaller box of the run": {"run_low": lambda v: 0.5 * v, "run_high": lambda v: 0.5 * v},
    "a box of one point": {"run_high": lambda v: v - 10.0},
    "a box without the runs": {"run_low": lambda v: v + 0.5, "run_high": lambda v: v + 0.5},
    "sooner inside": {"turns": lambda v: 1},
    "too many turns": {"turns": lambda v: 10**6},
    "no time to settle": {"settling": lambda v: 1},
    "too long to settle": {"settling": lambda v: 10**6},
    "another entry": {"entry_P": lambda v: np.eye(len(v))},
    "an entry without multipliers": {"entry_L": lambda v: 0.0 * v},
    "negative multipliers": {"entry_L": lambda v: -v},
    "a faster entry": {"entry_rate": lambda v: 0.5},
    "no entry": {"entry_rate": lambda v: 1.0},
    "a rate that grows": {"entry_rate": lambda v: 1.01},
    "a better least": {"entry_least": lambda v: 2.0 * v},
    "a better top": {"entry_top": lambda v: 0.5 * v},
    "a least of nothing": {"entry_least": lambda v: 0.0},
    "a negative top": {"entry_top": lambda v: -v},
    "nearer": {"near": lambda v: 0.5 * v},
    "at the run": {"near": lambda v: 0.0},
    "beyond it": {"near": lambda v: -v},
    "less waiting": {"waits": lambda v: v - 20},
    "endless waiting": {"waits": lambda v: 10**9, "near": lambda v: 1e-150},
    "wider inputs": {"low": lambda v: 8.0 * v, "high": lambda v: 8.0 * v},
    "a faster rate": {"rate": lambda v: 0.9 * v},
    "sets of fewer steps": {"steps": lambda v: 1, "backward": lambda v: np.zeros((0, 5))},
}


@pytest.fixture(scope="module")
def leaky() -> tuple[DrivenSystem, Claim]:
    driven = reservoir(8, 1.1, 0.5, 5)
    claim = found_near(driven, 0.2)
    assert claim is not None
    return driven, claim


@pytest.mark.parametrize("bend", BENT.values(), ids=BENT)
def test_bent_proofs_are_refused(leaky, bend):
    assert_bent_is_refused(*leaky, bend)


def test_more_waiting_and_more_room_are_allowed_and_say_less(leaky):
    driven, claim = leaky
    data = dict(claim.proof.data)
    for change in ({"waits": data["waits"] + 7}, {"settling": data["settling"] + 3}, {"near": data["near"] * 1.01}):
        bent = replace(claim, proof=Proof("run_lmi", {**data, **change}))
        assert RULES["run_lmi"](driven, replace(bent, statement=RunLmi.of(bent.proof.data).sentence(driven, bent)))[0]


def test_the_bounds_are_those_of_the_runs_and_what_is_left_to_them():
    driven = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[3.0]], dt=1.0), "tanh", [[1.0]])
    one, wide = np.ones(1), np.full(1, 5.0)
    run, sets = Sets(-one, one, (-one, one)), Sets(-wide, wide, (-wide, 1.05 * one))
    found = neighborhood_bounds(driven, sets, run, 0.1)
    pair = DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), [[3.0, 4.0], [0.0, 1.0]], dt=1.0), "tanh", np.eye(2))
    two, far = np.ones(2), np.full(2, 9.0)
    longer = neighborhood_bounds(pair, Sets(-far, far, (-far, far)), Sets(-two, two, (-two, two)), 0.1)
    assert np.allclose(longer.high, (1.5, 1.1), atol=1e-12)  # the lengths of the rows: 5 and 1
    assert 1.3 < found.high[0] < 1.3 + 1e-12
    assert -1.3 - 1e-12 < found.low[0] < -1.3
    assert found.states[1][0] == 1.05  # what all states keep
    assert 6.0 <= distance_bound(sets, run) < 6.0 + 1e-9  # from -5 to 1, the farther side
    assert 2.0 * 0.5**3 * 7.0 <= distance_after(7.0, 1.0, 4.0, 0.5, 3) < 2.0 * 0.5**3 * 7.0 + 1e-9


def test_slopes_hold_the_quotients_between_the_sets_and_the_run(leaky):
    driven, _ = leaky
    rng = np.random.default_rng(2)
    middle = rng.normal(size=8)
    run, sets = (Sets(middle - w, middle + w, (middle, middle)) for w in (0.1, 2.0))
    system = difference_system(driven, sets, run)
    z, v = (rng.uniform(each.low, each.high, size=(20_000, 8)) for each in (sets, run))
    quotients = (np.tanh(z) - np.tanh(v)) / (z - v)
    assert (system.alpha <= quotients.min(axis=0) + 1e-9).all()
    assert (quotients.max(axis=0) - 1e-9 <= system.beta).all()
    assert (system.beta - system.alpha > quotients.max(axis=0) - quotients.min(axis=0) - 1e-9).all()
    assert float(np.mean(system.beta - system.alpha)) < 0.9  # of two states in the sets nearly one


def test_a_box_that_is_left_between_its_turns_is_refused():
    """A quarter turn a step: a box twice as wide as high is inside of itself after two steps, and not after three."""
    turn = LureSystem(np.zeros((2, 2)), np.eye(2), [[0.0, -0.8], [0.8, 0.0]], None, (0.0, 1.0), 1.0)
    driven, ends = DrivenSystem(turn, "tanh", 0.01 * np.eye(2)), np.full(2, 0.1)
    own = dict(driven_contraction(driven, (-0.1, 0.1), rate=0.9)[0].proof.data)
    entry = {"entry_P": own["P"], "entry_L": own["L"], "entry_rate": 0.9}
    entry |= {"entry_least": own["p_min"], "entry_top": own["p_max"], "near": 1e-3, "waits": 9999}
    box = {"run_low": -ends * (1.0, 0.5), "run_high": ends * (1.0, 0.5), "settling": 30}
    for turns, inside in ((2, False), (3, False), (5, True)):
        data = {**own, **entry, **box, "turns": turns}
        claim = propose(driven, "run_lmi", data)
        valid, reason = RULES["run_lmi"](driven, claim)
        assert valid == inside, reason
        assert inside or "leave its box" in reason


def test_sets_that_may_leave_their_box_are_none_where_rounding_hides_feedthrough():
    """Found by a forgery: such sets are cut with those of all steps, and seem to be inside of a box that runs leave."""
    driven = DrivenSystem(HIDDEN.midpoint(1.0), "tanh", np.zeros((2, 1)))
    assert not driven.system.D.any()
    with pytest.raises(StabilityError, match="feed one another"):
        InvariantZonotope(driven, np.zeros(1), np.zeros(1), np.ones(2), 5, -0.5 * np.ones(2), stays=False)
