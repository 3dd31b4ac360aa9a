"""Laws of bounds in the theorems: rounded outwards in exact arithmetic, and no claim beyond what trajectories do."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from specimens import latch, network_map, network_of_one, plain_map, refusal, remade, small_cell, specimens, two_levels

from stability.certification import certify
from stability.kernel.arithmetic.definiteness import prove_positive_definite
from stability.kernel.arithmetic.fixed_point import ExactMatrix
from stability.kernel.arithmetic.floating_point import EPS, UNIT
from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.backward_bounds import steps_made
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.residual_stack import ResidualStack
from stability.kernel.theorems.absorbing_sets import Sets, box_balance
from stability.kernel.theorems.decaying_boxes import signed_balance
from stability.kernel.theorems.driven_bounds import DrivenBounds
from stability.kernel.theorems.eigenvalue_phrase import eigenvalue_phrase
from stability.kernel.theorems.flow_lmi import enclosing_box
from stability.kernel.theorems.flow_sets import Ranges
from stability.kernel.theorems.local_planes import DEEPEST
from stability.kernel.theorems.local_zonotopes import margin_bounds
from stability.kernel.theorems.multiplier_lmi import majorant
from stability.kernel.theorems.near_run import neighborhood_bounds
from stability.kernel.theorems.norm_gain import prove_dissipates
from stability.kernel.theorems.stack_bounds import steps_named
from stability.proposals import propose
from stability.search.gains.lure import incremental_gain
from stability.search.gains.stack import stack_gain
from stability.search.input_sets.driven import driven_contraction
from stability.systems import DrivenSystem, LureSystem, PairwiseSystem
from stability.verification import verify_claim

ENDPOINTS = (
    ("low", "high"), ("least", "most"), ("least_state", "most_state"), ("run_low", "run_high"), ("p_min", "p_max"),
    ("entry_least", "entry_top"),
)  # fmt: skip


def test_swapped_endpoints_are_refused() -> None:
    swapped = 0
    for name, specimen in specimens().items():
        data = specimen.claim.proof.data
        for low, high in ENDPOINTS:
            if low in data and data.get(high) is not None and not np.array_equal(data[low], data[high]):
                refusal(name, data={low: data[high], high: data[low]})
                swapped += 1
    assert swapped > 50


def test_a_rate_of_one_is_no_decay_of_a_map_and_a_flow_may_decay_faster() -> None:
    checked = 0
    for name, specimen in specimens().items():
        data = specimen.claim.proof.data
        if "rate" in data and getattr(getattr(specimen.subject, "system", specimen.subject), "is_discrete", True):
            changes = {"value": 1.0} if RULES[specimen.kind].value == "rate" else {}
            refusal(name, data={"rate": 1.0}, **changes)
            checked += 1
    assert checked > 10
    fast = DrivenSystem(LureSystem.recurrent([[-4.0]], [[0.5]]), "tanh", [[1.0]])
    found = driven_contraction(fast, (-0.1, 0.1))
    assert found[0].value > 1.0
    assert verify_claim(fast, found[0]).valid


def runs(subject, low, high, steps: int = 400, count: int = 60) -> np.ndarray:
    """Late states of runs under inputs at the ends of a box: constant ones and switching ones, ``(k, n)``."""
    rng, seen = np.random.default_rng(0), []
    discrete, constant = getattr(subject, "is_discrete", True), rng.random((count, len(low))) < 0.5
    x, h = np.zeros((count, subject.states)), 1.0 if discrete else 0.05
    for t in range(steps):
        ends = np.where(np.arange(count)[:, None] % 2, constant, rng.random((count, len(low))) < 0.5)
        after = subject.advance(x, np.where(ends, high, low))
        x = after if discrete else x + h * after
        if t > steps // 2:
            seen.append(x)
    return np.concatenate(seen)


BOXES = {"driven_bounds": ("least", "most"), "run_bounds": ("least", "most"), "gated_bounds": ("low", "high"),
         "flow_bounds": ("least_state", "most_state")}  # fmt: skip


def test_no_box_ends_inside_of_what_runs_reach() -> None:
    tried = set()
    for name, specimen in specimens().items():
        sides, data, subject = BOXES.get(specimen.kind), specimen.claim.proof.data, specimen.subject
        if sides is None:
            continue
        box = (subject.input_low, subject.input_high) if isinstance(subject, GatedCell) else (data["low"], data["high"])
        seen = runs(subject, *(np.broadcast_to(end, subject.inputs) for end in box))
        for side, reached, way in zip(sides, (seen.min(axis=0), seen.max(axis=0)), (1.0, -1.0)):
            assert (way * (data[side] - reached) <= 1e-9).all(), (name, side)
            inside = data[side].copy()
            inside[0] = reached[0] + way * 1e-6
            refusal(name, data={side: inside})
        tried.add(specimen.kind)
    assert tried == set(BOXES)


def test_bounds_that_just_hold_are_accepted() -> None:
    specimen = specimens()["driven bounds"]
    proof = DrivenBounds.of(specimen.claim.proof.data)
    least, most = proof.enclosed(specimen.subject).states
    for high, valid in ((most, True), (np.nextafter(most, -np.inf), False)):
        claim = remade(specimen.subject, specimen.claim, data={"least": least, "most": high})
        assert RULES["driven_bounds"](specimen.subject, claim)[0] is valid


def test_what_inputs_add_to_a_box_of_states_is_bounded_exactly(exact, rng) -> None:
    system = LureSystem(0.2 * np.eye(3), rng.normal(size=(3, 3)), np.eye(3), dt=1.0)
    network = DrivenSystem(system, "tanh", np.zeros((3, 2)), np.zeros(3), rng.normal(size=(3, 2)))
    low, high = np.array([-0.3, -2.0]), np.array([1.0, 0.5])
    kept, added = box_balance(network, np.ones(3), low, high)
    largest = exact.of(np.maximum(np.abs(low), np.abs(high)))
    truth = np.abs(exact.of(system.B)).sum(axis=1) + np.abs(exact.of(network.F)) @ largest
    assert (exact.of(added) >= truth).all()
    assert (exact.of(added) <= truth * (1 + Fraction(1, 10**12))).all()
    assert (exact.of(kept) >= np.abs(exact.of(system.A)).sum(axis=1)).all()


def test_a_box_around_an_ellipsoid_is_rounded_outwards(exact, rng) -> None:
    for _ in range(50):
        centre, root = rng.normal(size=3), rng.normal(size=(3, 3))
        Y, room = root @ root.T, float(rng.random())
        squares = (1 + Fraction(room)) * np.diagonal(exact.of(Y))
        for end in enclosing_box(centre, Y, room):
            assert ((exact.of(end) - exact.of(centre)) ** 2 >= squares).all()


def test_states_near_a_run_are_those_of_the_run_and_the_distance(exact, rng) -> None:
    network, near = network_map(), 0.125
    low, wide = -np.ones(2), Sets(-9 * np.ones(2), 9 * np.ones(2), (-9 * np.ones(2), 9 * np.ones(2)))
    run = Sets(low, low + rng.random(2), (low, low + rng.random(2)))
    out = neighborhood_bounds(network, wide, run, near)
    for share, inner, outer in ((0.5, (run.low, run.high), (out.low, out.high)), (1.0, run.states, out.states)):
        assert (exact.of(outer[0]) <= exact.of(inner[0]) - Fraction(share * near)).all()
        assert (exact.of(outer[1]) >= exact.of(inner[1]) + Fraction(share * near)).all()


def test_weights_of_an_ellipsoid_admit_every_value_exactly(exact) -> None:
    specimen = specimens()["driven flow, bounds"]
    data = specimen.claim.proof.data
    stage = Ranges.under(specimen.subject, data["low"], data["high"]).stage(data["slopes"][0], data["centres"][0])

    def accepts(scale: float) -> bool:
        tau = np.concatenate([data["tau"][:1] * scale, data["tau"][1:]])
        claim = remade(specimen.subject, specimen.claim, data={"tau": tau})
        return RULES["flow_bounds"](specimen.subject, claim)[0]

    last = exact.bisect(accepts, 1.0, 2.0)
    assert (exact.of(data["tau"][0] * last) * exact.of(stage.bounds) ** 2).sum() <= 1


@pytest.mark.parametrize("large", ["sides", "bias", "least"])
def test_margins_of_zonotopes_include_their_rounding(exact, rng, large) -> None:
    head = rng.normal(size=(3, 4))
    for _ in range(30):
        size = {"sides": 1.0, "bias": 1.0, "least": 1.0, large: 1e6}
        y, sides = rng.normal(size=4), size["sides"] * rng.random(4)
        least, bias = size["least"] * rng.normal(size=3), size["bias"] * rng.normal(size=3)
        tube = SimpleNamespace(y=y, half_widths=sides, lower_bounds=lambda w, least=least: (least, None))
        subject = SimpleNamespace(reduction="last", bias=bias)
        lower, _ = margin_bounds(subject, head, tube, 1, 7)
        error = (exact.of(np.abs(head)) + np.abs(exact.of(head[1]))) @ exact.of(sides)  # of what the sides multiply
        wide = exact.of(head[1] * np.ones((3, 1))) - exact.of(head)
        truth = wide @ exact.of(y) + exact.of(bias[1]) - exact.of(bias) + exact.of(least)
        sure = truth - Fraction(4 * EPS) * error - Fraction(EPS) * np.abs(exact.of(least))
        sure -= Fraction(EPS) * (np.abs(exact.of(bias)) + abs(Fraction(float(bias[1]))))
        assert (exact.of(lower[[0, 2]]) <= sure[[0, 2]]).all()


def test_norms_of_weights_are_proved_with_the_rounding_of_their_products(exact, rng) -> None:
    for _ in range(40):
        W = rng.uniform(0.3, 2.0) * np.linalg.qr(rng.normal(size=(2, 2)))[0]  # of one norm in every direction
        network = PairwiseSystem(W, np.zeros((2, 1)), np.zeros(2), "oplu")
        growth = exact.bisect(lambda g, n=network: prove_dissipates(n, np.ones(1), g, 1.0).holds, 10.0, 0.01)
        W = exact.of(network.W)
        assert exact.is_definite(Fraction(growth) ** 2 * exact.of(np.eye(2)) - W.T @ W)


def test_a_linear_network_of_pairs_without_inputs_has_a_gain() -> None:
    network = PairwiseSystem(0.5 * np.eye(2), np.zeros((2, 0)), np.zeros(2), "oplu")
    data = {"weights": np.array([1.1]), "H": np.eye(2), "gain": 0.1, "growth": 0.6, "measure": "final"}
    claim = propose(network, "norm_gain", {**data, "horizon": None}, value=0.2)
    assert RULES["norm_gain"](network, claim)[0]
    assert incremental_gain(network).value is not None


def test_smaller_branches_have_a_smaller_gain() -> None:
    blocks = specimens()["gain of blocks"].subject
    gains = [
        stack_gain(ResidualStack(blocks.layers, np.eye(2), blocks.mixing, scales=scales, between="gelu")).value
        for scales in (blocks.scales * [[1.0], [size]] for size in (0.1, 0.5))
    ]
    assert gains[0] < 0.99 * gains[1]


def test_the_steps_of_a_stack_count_those_of_bounds_traced_back() -> None:
    backward = np.array([[3.0, 2.0, 0.0, 1.0, 0.0]])
    assert steps_named({"share": 0.0, "steps": 2, "backward": backward}) == steps_made(2, backward) + 1 > 3
    claim = specimens()["bounds of a stack of networks"].claim
    assert "step" in refusal("bounds of a stack of networks", data={"since": claim.proof.data["since"] - 1})


def test_one_equilibrium_of_a_cell_by_either_proof_of_contraction() -> None:
    cell = small_cell("gru")
    contraction = certify(cell, rate="any", refute=False).claim
    assert contraction.proof.kind == "interval_jacobian"
    data = dict(contraction.proof.data)
    claim = propose(cell, "gated_equilibrium", data)
    assert verify_claim(cell, claim).valid
    assert not verify_claim(cell, remade(cell, claim, data={"p_min": 1.0})).valid
    assert not verify_claim(cell, remade(cell, claim, data={"rate": 1e-3})).valid
    only_candidate = np.where(np.arange(6)[:, None] < 4, 0.0, cell.w_ih)  # gates that read no input need no box
    free = GatedCell("gru", only_candidate, cell.w_hh, cell.b_ih, cell.b_hh)
    (claim,) = [c for c in certify(free, refute=False).claims if c.name == "equilibrium"]
    assert verify_claim(free, claim).valid
    assert not verify_claim(free, remade(free, claim, name="equilibrium_in_box")).valid


def test_orbits_of_a_stack_stay_in_the_input_box_of_its_lowest_layer() -> None:
    held = specimens()["orbits"].claim.proof.data
    stack = LayerStack([latch(), GatedCell("gru", np.zeros((3, 1)), np.zeros((3, 1)))])
    orbits = {key: np.hstack([held[key], [[0.0]]]) for key in ("first", "second")}
    for size, valid in ((1.0, True), (1.5, False), (-1.5, False)):
        claim = propose(stack, "stack_orbits", {**orbits, "input": np.full(1, size)})
        assert verify_claim(stack, claim).valid is valid


def test_a_refused_orbit_of_a_stack_says_why() -> None:
    for data in ({"layer": 7}, {"state": np.zeros(5)}, {"state": np.full(3, 0.5)}):
        assert refusal("unstable stack", data=data)
    assert "stack's size" in refusal("orbits of a stack", data={"first": np.zeros((1, 7))})


def test_a_slack_of_storages_lies_between_zero_and_one() -> None:
    for slack, inside in ((0.0, True), (1.0, True), (-1e-9, False), (1.1, False)):
        assert ("slack" not in refusal("gain of a map, final, 5", data={"slack": slack})) is inside


def test_an_eigenvalue_on_the_boundary_is_not_exponentially_stable() -> None:
    for system in (LureSystem.linear([[0.0, 1.0], [-1.0, 0.0]]), LureSystem.linear([[1.0]], dt=1.0)):
        check = verify_claim(system, propose(system, "destabilising_slopes", {"K": np.zeros(0)}))
        assert check.valid
        assert " >= " in check.reason


def test_two_equilibria_refute_a_merged_stack() -> None:
    stack, x = LayerStack([plain_map(), two_levels()]), 0.9
    for _ in range(60):
        x = float(np.tanh(3.0 * x))
    inner = {"state1": np.array([0.0, 0.0, x]), "state2": np.array([0.0, 0.0, -x]), "input": np.zeros(2)}
    claim = propose(stack, "merged_stack", {"kind": "two_equilibria", "data": inner})
    assert verify_claim(stack, claim).valid
    one = two_levels()
    for second, valid in ((-x, True), (0.0, True), (x, False)):
        orbits = {"first": np.full((1, 1), x), "second": np.full((1, 1), second), "input": np.zeros((1, 2))}
        assert verify_claim(one, propose(one, "periodic_orbits", orbits)).valid is valid
    same = {**inner, "state2": inner["state1"]}
    assert not verify_claim(stack, propose(stack, "merged_stack", {"kind": "two_equilibria", "data": same})).valid


@pytest.mark.parametrize("bounds", [(0.0, 0.2), (0.4, 1.0)])
def test_an_input_outside_of_its_bounds_is_refused(bounds) -> None:
    assert "within the bounds" in refusal("ball of inputs in l_inf by zonotopes", data={"bounds": list(bounds)})


def test_constants_of_rounding_are_those_of_double_precision() -> None:
    assert np.finfo(float).eps == EPS == 2 * UNIT
    assert [ExactMatrix.of(np.eye(2) * 2.0**-k).cost for k in (0, 256)] == [4.0, 8.0]


def test_eigenvalues_are_written_to_six_digits() -> None:
    for size, text in ((1.23456789e-8, "1.23457e-08"), (1.23456789e12, "1.23457e+12"), (1234567.0, "1234567")):
        assert text in eigenvalue_phrase(complex(size), False)
    assert eigenvalue_phrase(None, False) == eigenvalue_phrase(None, False, strict=True)
    assert eigenvalue_phrase(None, False) != eigenvalue_phrase(None, False, strict=False)
    assert prove_positive_definite(-np.eye(2)).shift == 0.0


def test_trees_of_boxes_and_cuts_have_two_parts_and_an_end() -> None:
    network, leaf, at = Classifier(network_of_one(), [[1.0], [-1.0]], [1.0, -1.0]), {"classes": []}, 0.3
    data = {"x": np.full((1, 1), at), "label": 0, "norm": "linf", "radius": 1e-3}

    def valid(tree: object) -> bool:
        return RULES["local_planes"](network, propose(network, "local_planes", {**data, "tree": tree}))[0]

    def cuts(depth: int) -> object:
        tree: dict = {}
        for _ in range(depth):
            tree = {"value": 0, "at": at, "parts": [{}, tree]}
        return {"classes": [{"class": 1, "cuts": tree}]}

    for parts, accepted in (([leaf, leaf], True), ([leaf], False), ([leaf, leaf, leaf], False)):
        assert valid({"entry": 0, "at": at, "parts": parts}) is accepted
    assert [valid(cuts(depth)) for depth in (DEEPEST, DEEPEST + 1)] == [True, False]


def test_a_box_by_signs_needs_no_inputs() -> None:
    system = LureSystem([[0.0]], [[1.0]], [[-0.5]], None, (0.0, 1.0), 1.0)
    network = DrivenSystem(system, "relu", np.zeros((1, 0)), [0.5])
    _, (above, below) = signed_balance(network, np.ones(1), np.ones(1), np.zeros(0), np.zeros(0))
    assert 0.5 <= above[0] < 0.5 + 1e-12
    assert 0.0 <= below[0] < 1e-12


def test_the_majorant_of_a_step_is_near(rng) -> None:
    flow = LureSystem.recurrent(rng.normal(size=(3, 3)), rng.normal(size=(3, 3)))
    A = np.abs(flow.A)
    upper = np.eye(3) + 0.1 * A + 0.005 * A @ A + 1e-9
    assert (upper >= majorant(flow.midpoint(0.1)).A).all()
