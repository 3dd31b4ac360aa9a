"""Final boxes of stacks, layer by layer: true of runs, narrower than from gates, refused for a damaged part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stability import certify
from stability.kernel.format.claims import Claim
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.proposals import propose
from stability.search.input_sets.stack_bounds import stack_bounds
from stability.systems import DrivenSystem, LureSystem
from tests.stability.specimens import latch_of_tanh_map, network_of_one

LOW, HIGH = np.full(1, -0.2), np.full(1, 0.2)


def gated(kind: str, inputs: int, scale: float = 0.4, hidden: int = 2, seed: int = 0) -> GatedCell:
    rng, k = np.random.default_rng(seed), 3 if kind == "gru" else 4
    parts = (rng.normal(size=(k * hidden, s)) for s in (inputs, hidden))
    return GatedCell(kind, *(scale * part for part in parts), scale * rng.normal(size=k * hidden))


def leaky(inputs: int, activation: str = "tanh", n: int = 2) -> DrivenSystem:
    slopes = {"tanh": (0.0, 1.0), "relu": (0.0, 1.0)}[activation]
    system = LureSystem(0.5 * np.eye(n), 0.5 * np.eye(n), 0.3 * np.eye(n), None, slopes, 1.0)
    return DrivenSystem(system, activation, 0.4 * np.ones((n, inputs)), 0.2 * np.ones(n))


def far(layer: Any, rng: np.random.Generator, runs: int) -> np.ndarray:
    """Hidden units at their ends, cell states and other states far out."""
    x = rng.choice([-50.0, 50.0], size=(runs, layer.states))
    if isinstance(layer, GatedCell):
        x[:, : layer.hidden] /= 50.0
    return x


STACKS: dict[str, Callable[[], LayerStack]] = {
    "lstm on gru": lambda: LayerStack([gated("gru", 1), gated("lstm", 2)]),
    "gru on tanh": lambda: LayerStack([latch_of_tanh_map(0.5), gated("gru", 1)]),
    "tanh on lstm": lambda: LayerStack([gated("lstm", 1, hidden=1), network_of_one()]),
    "leaky on lstm on relu": lambda: LayerStack([leaky(1, "relu"), gated("lstm", 2), leaky(2)]),
    "leaky on leaky": lambda: LayerStack([leaky(1), leaky(2)]),
}


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.slow) if "leaky" in name else name for name in STACKS]
)
def proved(request: Any) -> tuple[LayerStack, Claim]:
    stack = STACKS[request.param]()
    claim = stack_bounds(stack, LOW, HIGH)
    assert claim is not None
    return stack, claim


def test_runs_from_far_out_end_in_the_box(proved, rng) -> None:
    stack, claim = proved
    data, runs = claim.proof.data, 60
    x = np.concatenate([far(layer, rng, runs) for layer in stack.layers], axis=1)
    for k in range(900):
        x = stack.advance(x, rng.choice([-0.2, 0.2], size=(runs, 1)) if k % 50 else rng.uniform(-0.2, 0.2, (runs, 1)))
        if k > 600:
            assert ((data["least"] <= x) & (x <= data["most"])).all()
    assert np.linalg.norm(data["most"] - data["least"]) <= claim.value


def test_layers_above_see_the_box_of_the_layer_below_and_not_its_activation() -> None:
    stack = LayerStack([latch_of_tanh_map(0.5), gated("gru", 1)])
    claim = stack_bounds(stack, LOW, HIGH)
    own = next(
        c for c in certify(stack.layers[1].with_inputs(-1.0, 1.0), refute=False).claims if c.name == "bounded_in_box"
    )
    assert claim.proof.data["layers"][1]["rate"] < 0.9 * own.value


def test_steps_are_added_up_where_every_layer_names_them(rng) -> None:
    stack = LayerStack([latch_of_tanh_map(0.5), network_of_one()])
    claim = stack_bounds(stack, LOW, HIGH)
    data = claim.proof.data
    x = rng.choice([-1e6, 1e6], size=(200, 2))
    for _ in range(data["since"]):
        x = stack.advance(x, rng.choice([-0.2, 0.2], size=(200, 1)))
    assert ((data["least"] <= x) & (x <= data["most"])).all()
    sooner = {**data, "since": data["since"] - 1}
    assert "add up" in RULES["cascade_bounds"](stack, propose(stack, "cascade_bounds", sooner))[1]
    leaking = LayerStack([leaky(1), leaky(2)])
    data = stack_bounds(leaking, LOW, HIGH).proof.data
    named = propose(leaking, "cascade_bounds", {**data, "since": 10**6})
    assert "names no step" in RULES["cascade_bounds"](leaking, named)[1]


def _part(whole: dict, k: int, **changes: Any) -> dict:
    parts = [dict(part) for part in whole["layers"]]
    parts[k] |= changes
    return {**whole, "layers": parts}


def _inner(data: dict, k: int, **changes: Any) -> dict:
    return _part(data, k, data={**data["layers"][k]["data"], **changes})


def test_bent_proofs_are_refused(proved) -> None:
    stack, claim = proved
    data, last = claim.proof.data, len(stack.layers) - 1
    rule = RULES["cascade_bounds"]
    width = data["most"] - data["least"]
    assert rule(stack, claim)[0]
    bent = {
        "narrower": {**data, "most": data["most"] - 0.3 * width},
        "wider inputs": {**data, "high": data["high"] + 5.0},
        "reversed": {**data, "low": data["high"], "high": data["low"]},
        "short": {**data, "diagonal": 0.99 * data["diagonal"]},
        "fewer": {**data, "layers": data["layers"][:-1]},
        "none": {**data, "layers": []},
        "no mapping": {**data, "layers": [None] * (last + 1)},
        "another kind": _part(data, last, kind="multiplier_lmi"),
        "swapped": {**data, "layers": data["layers"][::-1]},
        "rate": _part(data, 0, rate=0.5 * data["layers"][0]["rate"]),
        "rate NaN": _part(data, 0, rate=float("nan")),
        "more": _part(data, 0, more=1.0),
    }
    for k in range(last + 1):
        low, high = ("low", "high") if isinstance(stack.layers[k], GatedCell) else ("least", "most")
        inner = data["layers"][k]["data"]
        middle = 0.5 * (inner[low] + inner[high])
        bent[f"layer {k} narrower"] = _inner(data, k, **{low: middle, high: middle})
        bent[f"layer {k} NaN"] = _inner(data, k, **{low: np.full_like(middle, np.nan)})
        bent[f"layer {k} of another size"] = _inner(data, k, **{low: np.append(inner[low], 0.0)})
        if not isinstance(stack.layers[k], GatedCell):
            less = 0.5 * inner["high"] + 0.5 * inner["low"]
            bent[f"layer {k} reads less"] = _inner(data, k, low=less, high=less)
    for name, changed in bent.items():
        if name == "swapped" and last == 1 and stack.layers[0].states != stack.layers[1].states:
            continue
        valid, reason = rule(stack, propose(stack, "cascade_bounds", changed))
        assert not valid, name
        assert reason, name


def test_a_promise_about_what_a_layer_above_reads_is_not_believed() -> None:
    """A file may promise any layer any inputs; the box of its states is that of what the layer below puts out."""
    free = LayerStack([gated("gru", 1, 2.0), gated("gru", 2, 2.0, seed=1)])
    honest = stack_bounds(free, LOW, HIGH)
    promised = LayerStack([free.layers[0], free.layers[1].with_inputs(0.0, 1e-6)])
    claim = stack_bounds(promised, LOW, HIGH)
    assert claim.value == pytest.approx(honest.value)
