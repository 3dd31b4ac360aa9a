"""A valid claim of every kind of proof, small, with a known truth: what forgeries are made from."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from gated_specimens import gated_linear_claims

from stability.certificate import Certificate
from stability.certification import certify
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.sentences import undecided
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.residual_stack import ResidualStack
from stability.proposals import accepted_claim, propose
from stability.search.criteria.interval import fastest_gated_claim, interval_lmi_criterion
from stability.search.criteria.nonexpansive import nonexpansive_claim
from stability.search.gains.lure import incremental_gain
from stability.search.gains.stack import stack_gain
from stability.search.input_sets.bounded import bounded, equilibrium_claim
from stability.search.input_sets.driven import driven_contraction
from stability.search.input_sets.limit_sets import claims_in_box
from stability.search.input_sets.narrowing import initial_box, narrowed_bounds
from stability.search.input_sets.near_run import contraction_near_run
from stability.search.input_sets.regional import regional
from stability.search.input_sets.stack_bounds import stack_bounds
from stability.search.local.largest_radius import largest_balls
from stability.search.solvers.deadline import Deadline
from stability.systems import ControlLoop, DrivenSystem, LureSystem, PairwiseSystem
from stability.verification import verify_claim
from tests.stability.driven_runs import reservoir


@dataclass(frozen=True)
class Specimen:
    """One subject with one claim that its rule accepts."""

    name: str
    subject: Any
    claim: Claim

    @property
    def kind(self) -> str:
        assert self.claim.proof is not None
        return self.claim.proof.kind

    def certificate(self) -> Certificate:
        """The claim in a certificate: as the main claim if it is about contraction, else beside an open one."""
        claim, subject = self.claim, self.subject
        if claim.name == "contraction":
            cover = (
                (claim.value, claim.proof.data.get("overshoot")) if claim.verdict is Verdict.CERTIFIED else (None, None)
            )
            return Certificate(subject, claim, self.kind, *cover)
        return Certificate(subject, Claim("contraction", undecided(subject), Verdict.INCONCLUSIVE), claims=(claim,))


def remade(subject: Any, claim: Claim, **changes: Any) -> Claim:
    """The claim with other data or parts, under the sentence that its own rule would write: the rule has to decide."""
    data = {**claim.proof.data, **changes.pop("data", {})}
    for key in changes.pop("without", ()):
        data.pop(key, None)
    bent = replace(claim, proof=Proof(changes.pop("kind", claim.proof.kind), data), **changes)
    try:
        return worded(subject, bent) if bent.proof.kind in RULES else bent
    except Exception:  # noqa: BLE001 - bent data may break the sentence in any way; the rule has to refuse them
        return bent


def refusal(name: str, **changes: Any) -> str:
    """Return the verifier's reason to refuse a specimen with other data, or with another ``subject``."""
    subject = changes.pop("subject", specimens()[name].subject)
    check = verify_claim(subject, remade(subject, specimens()[name].claim, **changes))
    assert not check.valid, (name, changes)
    assert check.reason not in ("", "None"), (name, changes)
    return check.reason


def flow() -> LureSystem:
    """dh/dt = -2 h + phi(W h): every slope in [0, 1] contracts; the rate of slope 1 bounds what can be claimed."""
    return LureSystem.recurrent(-2.0 * np.eye(2), [[0.6, 0.4], [-0.4, 0.6]])


def network_map(gain: float = 0.5) -> DrivenSystem:
    return DrivenSystem(LureSystem(0.1 * np.eye(2), np.eye(2), gain * np.eye(2), dt=1.0), "tanh", np.eye(2), [0.1, 0.0])


def plain_map() -> DrivenSystem:
    return DrivenSystem(LureSystem(np.zeros((2, 2)), np.eye(2), 0.5 * np.eye(2), dt=1.0), "tanh", np.eye(2))


def two_levels() -> DrivenSystem:
    """x+ = tanh(3 x + 0.1 u): unstable at zero, two equilibria beside it."""
    return DrivenSystem(LureSystem(np.zeros((1, 1)), np.eye(1), [[3.0]], dt=1.0), "tanh", [[0.1, 0.0]])


def latch() -> GatedCell:
    """A GRU of one unit with h = +-0.9993 held for ever: n = tanh(4 h), z = 1/2."""
    w_hh = np.array([[0.0], [0.0], [4.0]])
    return GatedCell("gru", np.zeros((3, 1)), w_hh, np.array([50.0, 0.0, 0.0]), input_low=-1.0, input_high=1.0)


def random_cell(kind: str, reset_after: bool, rng, scale: float, m: int = 4, p: int = 2) -> GatedCell:
    g = 4 if kind == "lstm" else 3
    w = [scale * rng.normal(size=s) for s in ((g * m, p), (g * m, m), g * m)]
    return GatedCell(kind, *w, input_low=-1.0, input_high=1.0, reset_after=reset_after)


def turning(activation: str = "modrelu", bias: float = -0.1, size: float | None = None) -> PairwiseSystem:
    """Two pairs turned and mixed by an orthogonal W, or by one of another ``size``."""
    W = np.array([[0.6, 0.0, 0.0, -0.8], [0.0, 0.8, -0.6, 0.0], [0.0, 0.6, 0.8, 0.0], [0.8, 0.0, 0.0, 0.6]])
    b = np.full(2 if activation == "modrelu" else 4, bias)
    return PairwiseSystem(W if size is None else size * W, np.eye(4, 2), b, activation, orthogonal=size is None)


def residual_blocks() -> ResidualStack:
    """A map and a sorted layer in residual branches of two features, their scales and what stands between not one."""
    layers = [plain_map(), PairwiseSystem(0.5 * np.eye(2)[::-1], 0.5 * np.eye(2), np.zeros(2), "oplu")]
    mixing = [np.array([[0.1, 0.0], [0.2, -0.1]]), np.array([[0.3, 0.1], [0.0, 0.2]])]
    return ResidualStack(layers, np.eye(2), mixing, scales=np.array([[0.5, -0.25], [1.0, 0.5]]), between="gelu")


HELD = 0.9993256730151082  # tanh(4 h) = h


def small_cell(kind: str, seed: int = 0, box: float | None = 1.0) -> GatedCell:
    rng, gates = np.random.default_rng(seed), 3 if kind == "gru" else 4
    w = [0.1 * rng.normal(size=s) for s in ((2 * gates, 2), (2 * gates, 2), 2 * gates, 2 * gates)]
    return GatedCell(kind, *w, *((None, None) if box is None else (-box, box)))


def decider() -> Classifier:
    """Two classes by an LSTM cell of two units."""
    return Classifier(small_cell("lstm", 3, box=None), [[1.0, 2.0], [-1.0, 0.5]], [0.05, 0.0])


def bistable() -> DrivenSystem:
    return DrivenSystem(LureSystem.recurrent(-np.eye(2), [[3.0, 0.0], [0.2, 2.0]]), "tanh", np.eye(2), [0.1, 0.0])


def _equilibrium(network: DrivenSystem, start: list[float]) -> np.ndarray:
    x = np.array(start)
    for _ in range(4000):
        x = x + 0.05 * network.advance(x, np.zeros(network.inputs))
    return x


def latch_of_tanh_map(read: float) -> DrivenSystem:
    """``h+ = tanh(2 h + read u + 3)``: two equilibria at ``u = -3 / read``, one near zero."""
    return DrivenSystem(LureSystem([[0.0]], [[1.0]], [[2.0]], dt=1.0), "tanh", [[read]], [3.0])


def network_of_one() -> DrivenSystem:
    """``h+ = tanh(0.5 h + 0.3 u + 0.1)``: it is in its box from a step on, wherever it starts."""
    return DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[0.3]], [0.1])


def claims_near_a_run(driven: DrivenSystem, reach: float = 0.05) -> tuple[Claim, ...]:
    """Contraction, equilibria and bounds near one run, of a network that needs none of it."""
    low, high, deadline = np.full(driven.inputs, -reach), np.full(driven.inputs, reach), Deadline()
    box = initial_box(driven, low, high, deadline)
    assert not isinstance(box, str)
    found = contraction_near_run(
        driven, next(narrowed_bounds(driven, low, high, box, deadline)).data, "best", 1e-3, deadline
    )
    assert found is not None
    return found[0], *claims_in_box(driven, *found, deadline)


def linear(a: float, g: float, *, discrete: bool = True) -> DrivenSystem:
    """``x+ = a x + g u`` or ``dx/dt = -a x + g u``."""
    system = LureSystem.linear([[a if discrete else -a]], 1.0 if discrete else None)
    return DrivenSystem(system, "identity", np.zeros((0, 1)), None, [[g]])


def proof_of_linear(layer: DrivenSystem) -> Claim:
    """Contraction in ``|x|`` itself, at the rate of the scalar map or flow to nine digits."""
    a = abs(float(layer.system.A[0, 0]))
    rate = a * (1 + 1e-9) if layer.system.is_discrete else a * (1 - 1e-9)
    data = {"P": np.eye(1), "L": np.zeros(0), "rate": rate, "overshoot": 1.0 + 1e-8}
    claim = accepted_claim(layer, "multiplier_lmi", {**data, "p_min": 1 - 1e-9, "p_max": 1 + 1e-9})
    assert claim is not None
    return claim


@functools.cache
def specimens() -> dict[str, Specimen]:
    """One of every kind, by name; each is accepted by its rule."""
    out: dict[str, tuple[Any, Claim | None]] = {}
    W = [[0.6, 0.4], [-0.4, 0.6]]
    driven = DrivenSystem(flow(), "tanh", np.eye(2), [0.1, -0.2])
    linear = LureSystem.linear([[-1.0, 1.0], [0.0, -2.0]])
    for name, subject in (
        ("flow", flow()),
        ("network", driven),
        ("euler", LureSystem.recurrent(-2.0 * np.eye(2), W).euler(0.1)),
        ("midpoint", LureSystem.recurrent(-2.0 * np.eye(2), W).midpoint(0.1)),
        ("uneven slopes", LureSystem(-np.eye(2), np.eye(2), np.diag([5.0, 0.5]), slope=([0.0, 0.0], [0.1, 1.0]))),
        ("linear", linear),
        ("gru box", small_cell("gru")),
        ("lstm box", small_cell("lstm", 3)),
        ("stack", LayerStack([plain_map(), small_cell("gru", box=None)])),
    ):
        out[f"contraction of {name}"] = subject, certify(subject, rate="any", refute=False).claim
    main = certify(driven, rate="any", refute=False).claim
    out["equilibrium"] = driven, equilibrium_claim(driven, main)
    out["ball"] = driven, bounded(driven)
    out["box"] = network_map(), bounded(network_map())
    ode = DrivenSystem(LureSystem.recurrent(np.zeros((2, 2)), [[-1.0, 0.4], [-0.4, -1.0]]), "tanh", np.eye(2))
    out["region"] = ode, regional(ode, input_bound=0.01, rate=0.4)
    unstable = ControlLoop([[1.2, 0.1], [0.0, 0.8]], [[-1.0], [-0.3]], [[0.6, 0.1]], dt=1.0)
    out["region of attraction"] = unstable, regional(unstable)
    turn = LureSystem(np.zeros((2, 2)), np.eye(2), [[0.8, 0.6], [-0.6, 0.8]], dt=1.0)
    spin = DrivenSystem(LureSystem.recurrent([[-0.2, 1.0], [-1.0, -0.2]], np.eye(2)), "tanh", np.eye(2))
    latch_of_tanh = DrivenSystem(LureSystem([[0.3]], [[0.7]], [[2.0]], dt=1.0), "tanh", [[1.0]], [2.0])
    out["driven"] = latch_of_tanh, driven_contraction(latch_of_tanh, (-0.2, 0.2))[0]
    ends = claims_in_box(latch_of_tanh, *driven_contraction(latch_of_tanh, (-0.2, 0.2)), Deadline())
    out["driven equilibrium"], out["driven bounds"] = ((latch_of_tanh, claim) for claim in ends)
    turned = LureSystem([[0.6, 0.5], [-0.5, 0.6]], 0.2 * np.eye(2), 0.3 * np.eye(2), dt=1.0)  # |A| does not shrink
    spiral = DrivenSystem(turned, "tanh", np.eye(2), [1.0, -1.0])
    out["driven, from an ellipsoid"] = spiral, driven_contraction(spiral, (-0.2, 0.2))[0]
    leaky = reservoir(3, 1.1, 0.5, 1)
    for name, claim in zip(("near a run", "near a run, equilibrium", "near a run, bounds"), claims_near_a_run(leaky)):
        out[name] = leaky, claim
    doubled = LayerStack([latch_of_tanh_map(0.5), latch_of_tanh_map(0.1)])
    out["driven stack"] = doubled, driven_contraction(doubled, (-0.2, 0.2))[0]
    damped = LureSystem.recurrent([[-1.0, 0.5], [-0.5, -1.0]], [[1.5, 0.3], [-0.3, 1.2]])
    eddy = DrivenSystem(damped, "tanh", np.eye(2), [1.5, -2.0])
    found = driven_contraction(eddy, (-0.1, 0.1))
    out["driven flow"] = eddy, found[0]
    ends = claims_in_box(eddy, *found, Deadline())
    out["driven flow, equilibrium"], out["driven flow, bounds"] = ((eddy, claim) for claim in ends)
    ends = claims_in_box(doubled, *driven_contraction(doubled, (-0.2, 0.2)), Deadline())
    out["driven stack, equilibrium"], out["driven stack, bounds"] = ((doubled, claim) for claim in ends)
    for of, cell in (("gru", small_cell("gru")), ("lstm", small_cell("lstm", 3))):
        whole = certify(cell, refute=False)
        more = {claim.name: claim for claim in whole.claims}
        out[f"equilibrium of a {of}"] = cell, more["equilibrium_in_box"]
        out[f"bounds of a {of}"] = cell, more["bounded_in_box"]
    layered = LayerStack([plain_map(), small_cell("gru", box=None)])
    more = {claim.name: claim for claim in certify(layered, refute=False).claims}
    out["equilibrium of a stack"] = layered, more["equilibrium"]
    mixed = LayerStack(
        [latch_of_tanh_map(0.5), GatedCell("lstm", np.full((4, 1), 0.2), np.full((4, 1), 0.1)), network_of_one()]
    )
    out["bounds of a stack, layer by layer"] = mixed, stack_bounds(mixed, np.full(1, -0.2), np.full(1, 0.2))
    plain = LayerStack([latch_of_tanh_map(0.5), network_of_one()])  # both are in their boxes from a known step on
    out["bounds of a stack of networks"] = plain, stack_bounds(plain, np.full(1, -0.2), np.full(1, 0.2))
    eddies = LayerStack([eddy, eddy])
    out["bounds of a stack of flows"] = eddies, stack_bounds(eddies, np.full(2, -0.1), np.full(2, 0.1))
    out["ball of a spiral"] = spin, bounded(spin)
    cell = small_cell("lstm", 3)
    made = fastest_gated_claim(cell, [interval_lmi_criterion(cell)])
    out["contraction of lstm, quadratic"] = cell, None if made is None else made[0]
    out["nonexpansive"] = turn, nonexpansive_claim(turn)
    for name, pairs in (("orthogonal", turning()), ("rounded", turning("oplu", size=1.0))):
        out[f"nonexpansive pairs, {name}"] = pairs, nonexpansive_claim(pairs)
    shrunk = turning(size=0.5)
    out["contraction of pairs"] = shrunk, certify(shrunk, refute=False).claim
    grown = turning("oplu", size=1.1)
    for name, pairs, horizon in (("shrinking", shrunk, None), ("growing", grown, 5)):
        out[f"gain of pairs, {name}"] = pairs, incremental_gain(pairs, horizon=horizon).claim
    for measure, horizon in (("l2", None), ("final", None), ("final", 5), ("l2", 5)):
        out[f"gain of a flow, {measure}, {horizon}"] = (
            driven,
            incremental_gain(driven, measure=measure, horizon=horizon).claim,
        )
        step = network_map()
        out[f"gain of a map, {measure}, {horizon}"] = (
            step,
            incremental_gain(step, measure=measure, horizon=horizon).claim,
        )
    one = incremental_gain(network_map(), horizon=5, solver="cvxpy")  # one storage for all steps
    out["gain of a map, one storage"] = network_map(), one.claim
    cell = small_cell("gru")
    out["gain of a cell"] = cell, stack_gain(cell)
    both = LayerStack([plain_map(), small_cell("gru", box=None)])
    out["gain of a stack"] = both, stack_gain(both)
    sorted_twice = LayerStack([turning("oplu", size=0.5), PairwiseSystem(np.eye(4), np.eye(4), np.zeros(4), "abs")])
    out["gain of a stack of pairs"] = sorted_twice, stack_gain(sorted_twice, measure="final", horizon=6)
    blocks = residual_blocks()
    out["gain of blocks"] = blocks, stack_gain(blocks, head=np.ones((1, 2)), measure="final")
    out["contraction of blocks"] = blocks, certify(blocks).claim
    out["ball of inputs in l_inf"] = (
        decider(),
        largest_balls(decider(), np.full((1, 2, 2), 0.3), [1], epsilon=0.193, norm="linf")[0],
    )
    long = {
        "x": np.full((2, 2), 0.3),
        "label": 1,
        "norm": "linf",
        "radius": 0.17,
        "window": 1,
        "kept": 2,
        "mask": np.ones((2, 2)),
    }
    out["ball of inputs in l_inf by zonotopes"] = decider(), accepted_claim(decider(), "local_zonotopes", long)
    sums = DrivenSystem(LureSystem.linear([[1.0]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
    added = Classifier(sums, [[1.0], [-1.0]], [-1.0, 0.0])  # twice the steps are of the other class
    out["ball of inputs of an affine network"] = added, largest_balls(added, np.full((1, 2, 1), 0.2), [1])[0]
    out["ball of inputs in l2"] = decider(), largest_balls(decider(), np.full((1, 2, 2), 0.3), [1], epsilon=0.1)[0]
    out.update(gated_linear_claims())
    out.update(_runs_in_an_arithmetic())
    out.update(_witnesses())
    missing = [name for name, (_, claim) in out.items() if claim is None or claim.proof is None]
    assert not missing, missing
    return {name: Specimen(name, subject, claim) for name, (subject, claim) in out.items() if claim is not None}


def _runs_in_an_arithmetic() -> dict[str, tuple[Any, Claim | None]]:
    """Return a run in every kind of norm, in each kind of set of the computed states."""
    turned = LureSystem([[0.6, 0.5], [-0.5, 0.6]], 0.2 * np.eye(2), 0.3 * np.eye(2), dt=1.0)
    plain = LureSystem(np.zeros((2, 2)), np.eye(2), [[0.5, 0.2], [-0.2, 0.5]], dt=1.0)
    rotated = LureSystem.linear([[0.6, -0.5, 0.0], [0.5, 0.6, 0.0], [0.0, 0.0, 0.9]], dt=1.0)
    cases = {
        "a map": (network_map(), "int8"),
        "a spiral": (DrivenSystem(turned, "tanh", np.eye(2), [0.5, -0.5]), "float16"),
        "an unbounded map": (DrivenSystem(plain, "relu", np.eye(2), [0.1, 0.0]), "float32"),
        "a linear map": (DrivenSystem(rotated, "identity", np.zeros((0, 1)), None, np.ones((3, 1))), "int8:1"),
        "pairs": (turning(size=0.5), "bfloat16"),
        "pairs over steps": (PairwiseSystem(0.999 * np.eye(2), [[1e-3], [1e-3]], [0.1, 0.1], "oplu"), "bfloat16"),
        "a gru": (small_cell("gru"), "float32"),
        "a lstm": (small_cell("lstm", 3), "bfloat16"),
    }
    out: dict[str, tuple[Any, Claim | None]] = {}
    for name, (subject, arithmetic) in cases.items():
        options: dict[str, Any] = {"rate": "any" if name == "a gru" else "best", "input_box": (-1.0, 1.0)}
        claims = certify(subject, arithmetic=arithmetic, refute=False, horizon=20, **options).claims
        out[f"run of {name}"] = subject, next((claim for claim in claims if claim.name == "as_it_runs"), None)
    return out


def _witnesses() -> dict[str, tuple[Any, Claim]]:
    two = bistable()
    high, low = _equilibrium(two, [2.5, 2.0]), _equilibrium(two, [-2.5, -2.0])
    u = np.zeros(2)
    grown = DrivenSystem(LureSystem.recurrent([[0.5, 1.0], [0.0, -1.0]], np.eye(2)), "tanh", np.eye(2))
    cell = latch()
    orbits = {"first": np.array([[HELD]]), "second": np.array([[-HELD]]), "input": np.zeros(1)}
    stack = LayerStack([cell, GatedCell("gru", np.zeros((3, 1)), np.zeros((3, 1)))])
    merged = LayerStack([plain_map(), two_levels()])
    pushed = {"state": np.zeros(3), "input": np.zeros(2), "eigenvalue": [3.0, 0.0]}
    alone = {"state": np.zeros(1), "input": np.zeros(1), "eigenvalue": [3.0, 0.0]}
    upper = two_levels()
    held_up = GatedCell("gru", np.zeros((3, 2)), latch().w_hh, latch().b_ih)
    unmerged = LayerStack([plain_map(), held_up])
    resting = {
        "first": np.array([[0.0, 0.0, HELD]]),
        "second": np.array([[0.0, 0.0, -HELD]]),
        "input": np.zeros((1, 2)),
    }
    leaving = {"state": np.zeros(3), "input": np.zeros(2), "layer": 1, "eigenvalue": [2.5, 0.0]}
    once, flip = np.zeros((1, 2)), DrivenSystem(LureSystem([[0.0]], [[1.0]], [[-2.0]], dt=1.0), "tanh", [[1.0]])
    ode = DrivenSystem(LureSystem.recurrent(np.zeros((2, 2)), np.diag([1.0, -1.0])), "tanh", np.eye(2))
    turn = np.array([[0.9575040240772687], [-0.9575040240772687]])
    return {
        "periodic orbit": (flip, propose(flip, "periodic_orbits", {"first": turn, "input": np.zeros((1, 1))})),
        "unstable orbit": (
            upper,
            propose(upper, "unstable_orbit", {"orbit": np.zeros((1, 1)), "input": once, "eigenvalue": [3.0, 0.0]}),
        ),
        "unstable everywhere": (ode, propose(ode, "unstable_everywhere", {"eigenvalue": [1.0, 0.0]})),
        "unstable equilibrium": (upper, propose(upper, "unstable_equilibrium", {**alone, "input": np.zeros(2)})),
        "merged stack": (merged, propose(merged, "merged_stack", {"kind": "unstable_equilibrium", "data": pushed})),
        "orbits of a stack": (unmerged, propose(unmerged, "stack_orbits", resting)),
        "unstable stack": (unmerged, propose(unmerged, "stack_unstable", leaving)),
        "slopes": (
            s := LureSystem.recurrent([[-1.0]], [[2.0]]),
            propose(s, "destabilising_slopes", {"K": np.ones(1), "eigenvalue": [1.0, 0.0]}),
        ),
        "growing": (
            grown,
            propose(grown, "unstable_linear", {"eigenvalue": [0.5, 0.0], "difference": np.array([90.0, 0.0])}),
        ),
        "two equilibria": (two, propose(two, "two_equilibria", {"state1": high, "state2": low, "input": u})),
        "orbits": (cell, propose(cell, "gated_orbits", orbits)),
        "unstable cell": (
            cell,
            propose(cell, "gated_unstable", {"state": np.zeros(1), "input": np.zeros(1), "eigenvalue": [2.5, 0.0]}),
        ),
        "isometry": (turning("oplu"), propose(turning("oplu"), "pair_isometry", {})),
        "expansion": (turning("oplu", size=1.1), propose(turning("oplu", size=1.1), "pair_isometry", {})),
        "powers of W": (
            turning(size=1.1),
            propose(turning(size=1.1), "pair_linear", {"eigenvalue": [0.66, 0.88]}),
        ),
        "jump": (turning(bias=0.1, size=0.5), propose(turning(bias=0.1, size=0.5), "pair_jump", {"pair": 1})),
        "lowest layer": (
            stack,
            propose(stack, "cascade_layer", {"layer": 0, "kind": "gated_orbits", "data": orbits}),
        ),
    }
