"""Every sentence a proof may carry, letter by letter: what is read here is what the certificates say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from specimens import decider, latch, network_map, plain_map, residual_blocks, small_cell, turning, two_levels

from stability.conversion.parts import subject_as_part
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.sentences import undecided
from stability.kernel.format.theorem_table import RULES, worded
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.residual_stack import ResidualStack
from stability.systems import DrivenSystem, LureSystem

HALF = [[0.5, 0.0], [0.0, 0.5]]
FLOW = LureSystem.recurrent(-2.0 * np.eye(2), HALF)
NETWORK = DrivenSystem(FLOW, "tanh", np.eye(2))
EULER, MIDPOINT = FLOW.euler(0.1), FLOW.midpoint(0.25)
LINEAR = LureSystem.linear([[-1.0, 1.0], [0.0, -2.0]])
UNEVEN = LureSystem(-np.eye(2), np.eye(2), np.eye(2), slope=([0.0, 0.25], [0.1, 1.0]))
MANY = LureSystem(-np.eye(5), np.eye(5), np.eye(5), slope=(np.zeros(5), np.array([0.5, 0.1, 0.2, 0.3, 0.4])))
FOUR = LureSystem(-np.eye(4), np.eye(4), np.eye(4), slope=(np.zeros(4), np.array([0.1, 0.2, 0.3, 0.4])))
IDENTITY = DrivenSystem(LINEAR, "identity", np.zeros((0, 2)), F=np.eye(2))
IDENTITY_MAP = DrivenSystem(LureSystem.linear(0.5 * np.eye(2), dt=1.0), "identity", np.zeros((0, 2)), F=np.eye(2))
MAP = network_map()
GRU, LSTM, FREE = small_cell("gru"), small_cell("lstm", box=0.5), small_cell("gru", box=None)
ODD = GatedCell("gru", np.zeros((3, 2)), np.zeros((3, 1)), input_low=[-1.0, 0.0], input_high=[1.0, 0.5])
DEEPER = LayerStack([plain_map(), small_cell("lstm", box=None)])
STACK, DECIDER = LayerStack([plain_map(), FREE]), decider()
PLAIN = LayerStack([plain_map(), two_levels()])
FLOWS = LayerStack([NETWORK, NETWORK])
BOTH = LayerStack([plain_map(), plain_map()], directions=2)
PART = subject_as_part(GRU, "cell", "Net")
BLOCKS = residual_blocks()
ONE_BLOCK = ResidualStack(BLOCKS.layers[:1], np.eye(2), BLOCKS.mixing[:1])
LMI = {"rate": 0.5, "overshoot": 3.0}
ONE, TWO, THREE = np.zeros((1, 2)), np.zeros((2, 2)), np.zeros((3, 2))
SCALAR, PAIR = np.zeros((1, 1)), np.array([[-0.25], [0.123456]])
PLUS, ROOT = {"eigenvalue": [1.25, 0.0]}, {"eigenvalue": [0.5, -2.0]}
BOX = {"low": np.array([-0.3, -0.2]), "high": np.array([0.1, 0.25])}
DEEP = {"low": np.array([-0.3, -0.2, -2.0, -1.0]), "high": np.array([0.1, 0.2, 1.5, 0.5])}
HELD = {"first": np.zeros((1, 1)), "second": np.ones((1, 1)), "input": SCALAR}
GAIN = {"mode": "running", "measure": "l2", "horizon": None}
NORM = {"H": np.eye(2, 4), "measure": "l2", "horizon": None}
REGION = {**LMI, "level": 1.0, "radius": 0.123456, "input_bound": 0.0}
PAIRS = np.zeros((2, 3))
CLASSES, MEAN = Classifier(MAP, HALF), Classifier(LayerStack([plain_map(), FREE]), np.ones((3, 2)), reduction="mean")
GATE = Classifier(GatedCell("gru", np.ones((3, 2)), np.ones((3, 1))), np.ones((3, 1)))
AFFINE = Classifier(IDENTITY_MAP, np.ones((2, 2)), [1.0, 0.0])
DECISION = {"radius": 0.123456, "label": 1}
DRIVEN = {**LMI, "low": -np.ones(2), "high": 0.25 * np.ones(2), "share": 0.0, "room": 0.0, "steps": 60}
NEAR = {**DRIVEN, "turns": 12, "settling": 23, "waits": 500}

ELLIPSOIDS = {
    "low": -np.ones(2),
    "high": 0.25 * np.ones(2),
    "mu": np.array([0.7654321]),
    "room": 0.0625,
    "time": 12.34567,
}
SIDES = {"low": -np.ones(2), "high": 0.25 * np.ones(2), "layers": []}

CASES: dict[str, tuple[Any, str, dict[str, Any], str, float | None]] = {
    "a flow": (FLOW, "multiplier_lmi", LMI, "contraction", None),
    "a network": (NETWORK, "multiplier_lmi", LMI, "contraction", None),
    "a map": (MAP, "multiplier_lmi", {"rate": 0.98765432, "overshoot": 1.0}, "contraction", None),
    "an Euler map": (EULER, "multiplier_lmi", LMI, "contraction", None),
    "a midpoint map": (MIDPOINT, "multiplier_lmi", LMI, "contraction", None),
    "a linear system": (LINEAR, "multiplier_lmi", LMI, "contraction", None),
    "uneven slopes": (UNEVEN, "multiplier_lmi", LMI, "contraction", None),
    "four intervals of slopes": (FOUR, "multiplier_lmi", LMI, "contraction", None),
    "five intervals of slopes": (MANY, "multiplier_lmi", LMI, "contraction", None),
    "a part that is a network": (subject_as_part(NETWORK, "cell", "Net"), "multiplier_lmi", LMI, "contraction", None),
    "a GRU": (GRU, "interval_jacobian", {**LMI, **BOX}, "contraction", None),
    "an LSTM": (LSTM, "interval_lmi", {**LMI, **DEEP}, "contraction", None),
    "an uneven box of inputs": (
        ODD, "interval_lmi", {**LMI, "low": -np.ones(1), "high": np.ones(1)}, "contraction", None,
    ),
    "a part that is a cell": (PART, "interval_jacobian", {**LMI, **BOX}, "contraction", None),
    "a stack of maps": (PLAIN, "cascade", LMI, "contraction", None),
    "a stack with a cell": (STACK, "cascade", LMI, "contraction", None),
    "a part that is a stack": (subject_as_part(STACK, "rnn", "Net"), "cascade", LMI, "contraction", None),
    "a stack of flows": (FLOWS, "cascade", LMI, "contraction", None),
    "both directions": (BOTH, "cascade", LMI, "contraction", None),
    "a ball of inputs in l_inf": (
        DECIDER, "local_planes", {"radius": 0.123456, "label": 1}, "local_robustness", 0.123456,
    ),
    "a ball of inputs in l_inf, cut": (
        DECIDER,
        "local_planes",
        {"radius": 0.123456, "label": 0, "mask": TWO, "bounds": (0.0, 1.0)},
        "local_robustness",
        0.123456,
    ),
    "an equilibrium": (NETWORK, "attracting_equilibrium", {}, "equilibrium", None),
    "an equilibrium of every activation": (FLOW, "attracting_equilibrium", {}, "equilibrium", None),
    "a ball": (NETWORK, "ball", {"radius": 1.23456}, "bounded", None),
    "a box": (MAP, "box", {"radius": 1.23456, "input_bound": 0.56789}, "bounded", None),
    "a box without input": (MAP, "box", {"radius": 1.23456, "input_bound": 0.0}, "bounded", None),
    "a region": (NETWORK, "regional_lmi", REGION, "regional", None),
    "a map in a box": (MAP, "driven_lmi", DRIVEN, "driven_contraction", None),
    "a map in a box of many sides": (
        MAP,
        "driven_lmi",
        {**DRIVEN, "low": np.array([-1.0, 0.1]), "share": 0.300001, "room": 0.0625, "rate": 0.98765432},
        "driven_contraction",
        None,
    ),
    "a map in a box, from an ellipsoid": (
        MAP, "driven_lmi", {**DRIVEN, "share": 0.3, "room": 0.0625, "Y": np.eye(2)}, "driven_contraction", None,
    ),
    "a map in a box, by signs": (
        MAP, "driven_lmi", {**DRIVEN, "share": 0.3, "room": 0.0625, "falls": np.ones(2)}, "driven_contraction", None,
    ),
    "a map near a run": (MAP, "run_lmi", NEAR, "driven_contraction", None),
    "a leaky map near a run": (MAP, "run_lmi", {**NEAR, "share": 0.3, "room": 0.0625}, "driven_contraction", None),
    "equilibria near a run": (MAP, "run_equilibrium", NEAR, "equilibrium_in_box", None),
    "where a map near a run ends": (MAP, "run_bounds", {**NEAR, "diagonal": 1.23456}, "bounded_in_box", None),
    "a flow in a box": (NETWORK, "flow_lmi", {**LMI, **ELLIPSOIDS}, "driven_contraction", None),
    "equilibria of a flow in a box": (NETWORK, "flow_equilibrium", {**LMI, **ELLIPSOIDS}, "equilibrium_in_box", None),
    "where a flow in a box ends": (
        NETWORK, "flow_bounds", {**ELLIPSOIDS, "diagonal": 1.23456}, "bounded_in_box", None,
    ),
    "equilibria in a box": (MAP, "driven_equilibrium", DRIVEN, "equilibrium_in_box", None),
    "where a map in a box ends": (MAP, "driven_bounds", {**DRIVEN, "diagonal": 1.23456}, "bounded_in_box", None),
    "where a leaky map in a box ends": (
        MAP, "driven_bounds", {**DRIVEN, "diagonal": 2.0, "share": 0.3, "room": 0.0625}, "bounded_in_box", None,
    ),
    "a stack in a box": (PLAIN, "stack_driven", {**DRIVEN, "levels": 2}, "driven_contraction", None),
    "a leaky stack in a box": (
        PLAIN, "stack_driven", {**DRIVEN, "levels": 2, "share": 0.3, "room": 0.0625}, "driven_contraction", None,
    ),
    "a stack in a box, by signs": (
        PLAIN,
        "stack_driven_bounds",
        {**DRIVEN, "levels": 2, "share": 0.3, "room": 0.0625, "falls": np.ones(4), "diagonal": 1.23456},
        "bounded_in_box",
        None,
    ),
    "equilibria of a stack in a box": (
        PLAIN, "stack_driven_equilibrium", {**DRIVEN, "levels": 2}, "equilibrium_in_box", None,
    ),
    "where a stack in a box ends": (
        PLAIN, "stack_driven_bounds", {**DRIVEN, "levels": 2, "diagonal": 1.23456}, "bounded_in_box", None,
    ),
    "where a stack with a cell ends": (
        DEEPER, "cascade_bounds", {**SIDES, "diagonal": 1.23456}, "bounded_in_box", None,
    ),
    "where a stack of networks ends": (
        PLAIN, "cascade_bounds", {**SIDES, "diagonal": 1.23456, "since": 62}, "bounded_in_box", None,
    ),
    "where a stack of flows ends": (
        FLOWS, "cascade_bounds", {**SIDES, "diagonal": 1.23456}, "bounded_in_box", None,
    ),
    "one equilibrium of a stack": (STACK, "cascade_equilibrium", LMI, "equilibrium", None),
    "equilibria of a GRU": (GRU, "gated_equilibrium", {**LMI, **BOX}, "equilibrium_in_box", None),
    "equilibria of a GRU under every input": (FREE, "gated_equilibrium", {**LMI, **BOX}, "equilibrium", None),
    "where an LSTM ends": (LSTM, "gated_bounds", {**DEEP, "diagonal": 1.23456}, "bounded_in_box", None),
    "a region of a map, moved": (MAP, "regional_lmi", {**REGION, "input_bound": 0.56789}, "regional", None),
    "non-expansive": (MAP, "growth_lmi", {"factor": 1.0000001}, "nonexpansive", None),
    "a gain": (NETWORK, "gain_lmi", GAIN, "gain", 1.23456),
    "a gain at the end": (MAP, "gain_lmi", {**GAIN, "measure": "final", "horizon": 5}, "gain", 1.23456),
    "a gain of steps": (MAP, "gain_steps", {"measure": "final", "horizon": 5}, "gain", 1.23456),
    "a gain over a time": (FLOW, "gain_lmi", {**GAIN, "horizon": 2.56789}, "gain", 1.23456),
    "a gain of a cell": (GRU, "stack_gain", {"gain": 1.23456}, "gain", None),
    "a gain of a stack": (PLAIN, "stack_gain", {"gain": 1.23456, "head": np.eye(1)}, "gain", None),
    "a gain of a stack at the end": (PLAIN, "stack_gain", {"gain": 1.23456, "measure": "final"}, "gain", None),
    "a gain of a stack over steps": (PLAIN, "stack_gain", {"gain": 1.23456, "horizon": 5}, "gain", None),
    "a gain of blocks": (
        BLOCKS, "residual_gain", {"gain": 1.23456, "measure": "l2", "horizon": None}, "gain", None,
    ),
    "a gain of blocks at the end": (
        BLOCKS, "residual_gain", {"gain": 1.23456, "measure": "final", "horizon": None, "head": HALF}, "gain", None,
    ),
    "a gain of blocks over steps": (
        subject_as_part(ONE_BLOCK, "body", "Net"),
        "residual_gain", {"gain": 1.2, "measure": "l2", "horizon": 5}, "gain", None,
    ),
    "contracting blocks": (BLOCKS, "residual_contraction", LMI, "contraction", None),
    "slopes": (FLOW, "destabilising_slopes", {"K": np.ones(2), **ROOT}, "contraction", None),
    "slopes without a name": (EULER, "destabilising_slopes", {"K": np.ones(2)}, "contraction", None),
    "a linear system's eigenvalue": (LINEAR, "destabilising_slopes", {"K": np.zeros(0), **PLUS}, "contraction", None),
    "growing differences": (
        NETWORK, "unstable_linear", {**PLUS, "difference": np.ones(2)}, "contraction", None,
    ),
    "growing without a bound": (
        NETWORK, "unstable_linear", {**PLUS, "difference": np.ones(2)}, "bounded", None,
    ),
    "no uniform rate": (MAP, "unstable_linear", {}, "contraction", None),
    "a linear network": (
        IDENTITY, "unstable_linear", {"difference": np.ones(2)}, "contraction", None,
    ),
    "unstable everywhere": (NETWORK, "unstable_everywhere", PLUS, "contraction", None),
    "no equilibrium attracts": (MAP, "unstable_everywhere", {}, "equilibrium", None),
    "an unstable equilibrium": (NETWORK, "unstable_equilibrium", PLUS, "contraction", None),
    "an equilibrium that does not attract": (MAP, "unstable_equilibrium", ROOT, "equilibrium", None),
    "two equilibria": (NETWORK, "two_equilibria", {}, "contraction", None),
    "two equilibria, neither attracting all": (NETWORK, "two_equilibria", {}, "equilibrium", None),
    "an orbit": (MAP, "periodic_orbits", {"first": TWO, "input": ONE}, "contraction", None),
    "an orbit under a periodic input": (
        MAP, "periodic_orbits", {"first": np.zeros((6, 2)), "input": THREE}, "contraction", None,
    ),
    "two orbits": (
        MAP, "periodic_orbits", {"first": TWO, "second": np.zeros((4, 2)), "input": TWO}, "contraction", None,
    ),
    "an unstable orbit": (MAP, "unstable_orbit", {"orbit": TWO, "input": ONE, **PLUS}, "contraction", None),
    "equilibria of a cell": (latch(), "gated_orbits", HELD, "contraction", None),
    "an orbit of a cell": (latch(), "gated_orbits", {"first": PAIR, "input": SCALAR}, "contraction", None),
    "an orbit of a cell, period 2": (
        latch(), "gated_orbits", {"first": np.zeros((4, 1)), "input": PAIR}, "contraction", None,
    ),
    "two orbits of a cell": (
        latch(), "gated_orbits", {"first": SCALAR, "second": PAIR, "input": SCALAR}, "contraction", None,
    ),
    "a cell without inputs": (
        latch(), "gated_orbits", {**HELD, "input": np.zeros((1, 0))}, "contraction", None,
    ),
    "an unstable equilibrium of a cell": (
        latch(), "gated_unstable", {"state": np.zeros(1), "input": np.zeros(1), **PLUS}, "contraction", None,
    ),
    "an unstable orbit of a cell": (
        latch(), "gated_unstable", {"state": PAIR, "input": PAIR}, "contraction", None,
    ),
    "equilibria of a stack": (STACK, "stack_orbits", {**HELD, "input": ONE}, "contraction", None),
    "an unstable stack": (
        STACK, "stack_unstable", {"state": PAIRS[:1], "input": ONE, "layer": 1, **PLUS}, "contraction", None,
    ),
    "an unstable orbit of a stack": (
        STACK, "stack_unstable", {"state": PAIRS, "input": ONE, "layer": 0}, "contraction", None,
    ),
    "a layer of a stack": (
        PLAIN, "cascade_layer", {"layer": 0, "kind": "two_equilibria", "data": {}}, "contraction", None,
    ),
    "a merged stack": (PLAIN, "merged_stack", {"kind": "unstable_equilibrium", "data": PLUS}, "contraction", None),
    "a stack that is no network": (
        STACK, "merged_stack", {"kind": "unstable_equilibrium", "data": PLUS}, "contraction", None,
    ),
    "pairs": (turning(size=0.5), "pair_norm", LMI, "contraction", None),
    "pairs that keep distances": (turning(), "pair_growth", {"factor": 1.0}, "nonexpansive", 1.0),
    "pairs, rounded": (turning("oplu", size=1.0), "pair_growth", {"factor": 1.000000123456}, "nonexpansive", None),
    "a gain of pairs": (turning(size=0.5), "norm_gain", {**NORM, "H": np.eye(4)}, "gain", 1.23456),
    "a gain of pairs at the end": (
        turning("oplu", size=0.5), "norm_gain", {**NORM, "measure": "final", "horizon": 5}, "gain", 1.23456,
    ),
    "an isometry": (turning("oplu"), "pair_isometry", {}, "contraction", None),
    "a part that is an isometry": (subject_as_part(turning(), "cell", "Net"), "pair_isometry", {}, "contraction", None),
    "powers of W": (turning(size=1.1), "pair_linear", {"eigenvalue": [0.66, 0.88]}, "contraction", None),
    "powers of W, unnamed": (turning(size=1.1), "pair_linear", {}, "contraction", None),
    "a jump": (turning(bias=0.061728), "pair_jump", {"pair": 1}, "contraction", None),
    "one decision of an affine network": (
        AFFINE, "local_linear", {**DECISION, "norm": "l2"}, "local_robustness", 0.123456,
    ),
    "one decision of an affine network, clipped": (
        AFFINE, "local_linear", {**DECISION, "norm": "linf", "mask": ONE, "bounds": (0.0, 1.0)}, "local_robustness",
        0.123456,
    ),
    "one decision over many steps": (CLASSES, "local_zonotopes", DECISION, "local_robustness", 0.123456),
    "one decision over many steps, clipped": (
        CLASSES, "local_zonotopes", {**DECISION, "mask": ONE, "bounds": (0.0, 1.0)}, "local_robustness", 0.123456,
    ),
    "one decision": (CLASSES, "local_ellipsoids", DECISION, "local_robustness", 0.123456),
    "one decision, some entries": (MEAN, "local_ellipsoids", {**DECISION, "mask": ONE}, "local_robustness", 0.123456),
    "one decision, step by step": (CLASSES, "local_ellipsoids", {**DECISION, "tau": ONE}, "local_robustness", 0.123456),
}  # fmt: skip

SENTENCES = dict(
    line.split(" | ", 1) for line in (Path(__file__).parent / "sentences.txt").read_text(encoding="utf-8").splitlines()
)


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_of_a_proof(name):
    subject, kind, data, about, value = CASES[name]
    draft = Claim(about, "", RULES[kind].verdict, Proof(kind, data), value)
    claim = worded(subject, draft)
    assert claim.statement == SENTENCES[name]
    assert claim.proof is draft.proof
    assert (claim.name, claim.verdict, claim.value) == (about, draft.verdict, value)


def test_every_kind_of_proof_is_read():
    assert {kind for _, kind, *_ in CASES.values()} == set(RULES)
    assert set(SENTENCES) == set(CASES)
    assert {RULES[kind].verdict for _, kind, *_ in CASES.values()} == {Verdict.CERTIFIED, Verdict.REFUTED}


WHOM = {
    "this linear system (its stored matrices, exact arithmetic) under every input": LINEAR,
    "this GRU cell (its stored weights and biases, exact arithmetic) under every input with entries in [-1, 1]": GRU,
    "this stack of 2 layers (their stored weights and biases, exact arithmetic) under every input": STACK,
}


@pytest.mark.parametrize("whom", WHOM)
def test_an_open_claim(whom):
    assert undecided(WHOM[whom]) == f"Whether trajectories of {whom} approach each other exponentially is open."


def test_no_sentence_without_a_proof():
    with pytest.raises(ValueError, match="without a proof"):
        worded(FLOW, Claim("contraction", "", Verdict.INCONCLUSIVE))
