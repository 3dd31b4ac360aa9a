"""A hundred claims of every kind about sets of states under inputs in a box: runs that ascend on it break none.

python -m pytest -m slow tests/stability/search/input_sets/test_sets_soundness.py -k "flow and part-0"
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from stability.certificate import Certificate
from stability.certification import certify
from stability.kernel.arithmetic.activations import activation
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.reachability.backward_bounds import steps_made
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.near_run import RunLmi
from stability.systems import DrivenSystem, LureSystem
from tests.stability.driven_runs import ROUNDING, reservoir
from tests.stability.set_attacks import RUNS, farthest_out, of_flow, of_map, share_of_bound, spread_at_rest

PARTS, EACH = 10, 10
EVERY, MOST = 0.25, 20_000
"""Time in which the input of a flow is held; most steps to an equilibrium that are made."""
Array = np.ndarray


def flow(seed: int) -> tuple[DrivenSystem, float]:
    """A flow of 2 to 7 units with a stable linear part, and how far its inputs go."""
    rng = np.random.default_rng(seed)
    n, name = int(rng.integers(2, 8)), ("tanh", "sigmoid", "saturation")[seed % 3]
    M = rng.normal(size=(n, n)) / np.sqrt(n)
    W = rng.uniform(0.8, 1.6) * rng.normal(size=(n, n)) / np.sqrt(n) * (4.0 if name == "sigmoid" else 1.0)
    system = LureSystem(-np.eye(n) + 0.3 * (M - M.T), np.eye(n), W, slope=activation(name).slope)
    b = 2.0 * rng.choice([-1.0, 1.0], size=n)
    return DrivenSystem(system, name, rng.normal(size=(n, 1)), b, 0.1 * np.ones((n, 1))), float(rng.uniform(0.05, 0.3))


def rectified(seed: int) -> tuple[DrivenSystem, float]:
    """A map of ReLU or leaky ReLU."""
    rng = np.random.default_rng(seed)
    name = ("relu", "relu", "leaky_relu")[seed % 3]
    gain = 0.6 if name == "leaky_relu" else 1.0
    driven = reservoir(int(rng.integers(2, 8)), gain * rng.uniform(0.5, 1.3), (1.0, 0.5)[seed % 2], seed, name)
    return driven, float(rng.uniform(0.1, 0.5))


def stack(seed: int) -> tuple[LayerStack, float]:
    """Two or three layers of tanh."""
    rng = np.random.default_rng(seed)
    sizes = (1, *rng.integers(2, 5, size=2 + seed % 2))
    layers = []
    for below, n in pairwise(sizes):
        W = rng.normal(size=(n, n))
        W *= rng.uniform(0.7, 1.1) / np.abs(np.linalg.eigvals(W)).max()
        system = LureSystem(np.zeros((n, n)), np.eye(n), W, None, (0.0, 1.0), 1.0)
        E = 0.3 * rng.normal(size=(n, below))
        layers.append(DrivenSystem(system, "tanh", E, rng.choice([-1.0, 1.0], size=n)))
    return LayerStack(layers), float(rng.uniform(0.1, 0.5))


def cell(seed: int, kind: str | None = None, p: int = 2) -> tuple[GatedCell, float]:
    """An LSTM or a GRU of 2 to 4 units."""
    rng = np.random.default_rng(seed)
    kind = kind or ("lstm", "gru")[seed % 2]
    m, k, s = int(rng.integers(2, 5)), 4 if kind == "lstm" else 3, float(rng.uniform(0.2, 0.6))
    w_ih, w_hh = s * rng.normal(size=(k * m, p)), s / np.sqrt(m) * rng.normal(size=(k * m, m))
    made = GatedCell(kind, w_ih, w_hh, s * rng.normal(size=k * m), None)
    return made, float(rng.uniform(0.3, 1.0))


def gated_stack(seed: int) -> tuple[LayerStack, float]:
    """Two gated layers."""
    first, e = cell(seed)
    second, _ = cell(seed + 1000, ("lstm", "gru")[(seed // 2) % 2], first.hidden)
    return LayerStack([first, second]), e


def mixed_stack(seed: int) -> tuple[LayerStack, float]:
    """Layers of tanh, a gated one above them and, of every second, one of tanh above that."""
    below, e = stack(seed)
    middle, _ = cell(seed, None, below.layers[-1].states)
    n = middle.hidden
    system = LureSystem(np.zeros((n, n)), np.eye(n), 0.5 * np.roll(np.eye(n), 1, axis=0), None, (0.0, 1.0), 1.0)
    above = DrivenSystem(system, "tanh", 0.5 * np.eye(n), np.full(n, 0.5))
    return LayerStack([*below.layers, middle, *([above] if seed % 2 else [])]), e


def keeping_stack(seed: int) -> tuple[LayerStack, float]:
    """Two or three layers of ReLU, or leaky ones of tanh: the start says when their first box is entered."""
    rng, name = np.random.default_rng(seed), ("relu", "tanh", "leaky_relu")[seed % 3]
    layers, below = [], 1
    for k in range(2 + seed % 2):
        n = int(rng.integers(2, 5))
        gain, leak = (0.5 if name == "leaky_relu" else 1.0) * rng.uniform(0.5, 1.1), 0.5 if name == "tanh" else 1.0
        made = reservoir(n, gain, leak, 10 * seed + k, name)
        layers.append(DrivenSystem(made.system, name, 0.4 * rng.normal(size=(n, below)), made.b))
        below = n
    return LayerStack(layers), float(rng.uniform(0.1, 0.4))


def midpoint(seed: int) -> tuple[DrivenSystem, float]:
    """A midpoint map, whose channels feed one another: of an antisymmetric part, or of any weights."""
    rng = np.random.default_rng(seed)
    n, name = int(rng.integers(2, 7)), ("tanh", "sigmoid", "saturation")[seed % 3]
    M, W = rng.normal(size=(2, n, n)) / np.sqrt(n)
    W = (W - W.T - 0.1 * np.eye(n) if seed % 2 else rng.uniform(0.8, 1.6) * W) * (4.0 if name == "sigmoid" else 1.0)
    base = LureSystem.recurrent(-np.eye(n) + 0.3 * (M - M.T), W, slope=activation(name).slope)
    step = base.midpoint(float(rng.uniform(0.1, 0.8)))
    copies = step.channels // n
    E, b = (np.tile(v, (copies, 1)) for v in (rng.normal(size=(n, 1)), 2.0 * rng.choice([-1.0, 1.0], size=(n, 1))))
    return DrivenSystem(step, name, E, b[:, 0], np.zeros((n, 1))), float(rng.uniform(0.05, 0.3))


def crowded(seed: int) -> tuple[DrivenSystem, float]:
    """A network of many units, whose sets stay wide where its runs are narrow."""
    leak, n, e = ((0.5, 20, 0.2), (1.0, 40, 0.05))[seed % 2]
    return reservoir(n, (1.1, 0.9)[seed % 2], leak, seed), e


def echo(seed: int) -> tuple[DrivenSystem, float]:
    """A reservoir of 2 to 32 units."""
    rng = np.random.default_rng(seed)
    n, leak = int(rng.integers(2, 33)), float(rng.choice([1.0, 0.6, 0.3]))
    return reservoir(n, float(rng.uniform(0.6, 1.1)), leak, seed), float(rng.uniform(0.1, 1.0))


KINDS = {
    "echo": echo,
    "crowded": crowded,
    "midpoint": midpoint,
    "keeping stack": keeping_stack,
    "flow": flow,
    "rectified": rectified,
    "stack": stack,
    "cell": cell,
    "gated stack": gated_stack,
    "mixed stack": mixed_stack,
}


def proved(kind: str, seed: int) -> tuple[Any, Certificate]:
    subject, e = KINDS[kind](seed)
    certificate = certify(subject, input_box=(-e, e), tol=1e-2, refute=False)
    return certificate.subject, certificate


def attack(subject: Any, claim: Claim, seed: int) -> float | None:
    """Return the share of a claim's allowance that runs use, above one if they break it; ``None`` for other claims."""
    rule = ATTACKS.get(claim.proof.kind)
    return None if rule is None else rule(subject, dict(claim.proof.data), seed)


def _of_sets(subject: Any, data: dict, seed: int) -> tuple[Any, Array, int]:
    """A map, pairs of starts at the corners of its first box, and the steps until the claim's first."""
    attacked = of_map(subject, data["low"], data["high"], seed)
    corner = attacked.rng.choice([-1.0, 1.0], size=(2, RUNS, subject.states))
    up, down = ((1.0 + data["room"]) * data[side] for side in ("r", "falls" if "falls" in data else "r"))
    settled = RunLmi.of(data).settled if "waits" in data else steps_made(data["steps"], data.get("backward"))
    wait = settled + (data["share"] == 0.0) + data.get("levels", 1) - 1
    return attacked, np.where(corner > 0, up, -down), int(wait)


def rate_of_map(subject: Any, data: dict, seed: int) -> float:
    attacked, (x, y), wait = _of_sets(subject, data, seed)

    def skew(d: Array) -> Array:
        ends = np.cumsum([0, *(layer.states for layer in subject.layers)])
        parts = [np.roll(d[..., a:b], k, axis=0) for k, (a, b) in enumerate(pairwise(ends))]
        return np.concatenate(parts, axis=-1)

    bound = data["overshoot"] * data["rate"] ** np.arange(11.0)
    bound[0] = max(bound[0], 1.0)
    return share_of_bound(attacked, x, y, bound, wait, skew if isinstance(subject, LayerStack) else lambda d: d)


def ends_of_map(subject: Any, data: dict, seed: int) -> float:
    attacked, (x, _), wait = _of_sets(subject, data, seed)
    return _beyond(farthest_out(attacked, x, data["least"], data["most"], wait), data["most"] - data["least"])


def rest_of_map(subject: Any, data: dict, seed: int) -> float:
    attacked, (x, y), wait = _of_sets(subject, data, seed)
    return _apart(attacked, np.concatenate([x, 5.0 * y]), wait, data["rate"], data["overshoot"])


def rate_of_flow(subject: Any, data: dict, seed: int) -> float:
    attacked, (x, y), wait = _of_flow(subject, data, seed)
    return share_of_bound(attacked, x, y, data["overshoot"] * np.exp(-data["rate"] * EVERY * np.arange(9.0)), wait)


def ends_of_flow(subject: Any, data: dict, seed: int) -> float:
    attacked, (x, _), wait = _of_flow(subject, data, seed)
    least, most = data["least_state"], data["most_state"]
    return _beyond(farthest_out(attacked, x, least, most, wait), most - least)


def rest_of_flow(subject: Any, data: dict, seed: int) -> float:
    attacked, (x, y), wait = _of_flow(subject, data, seed, 1.0)
    return _apart(attacked, np.concatenate([x, 5.0 * y]), wait, np.exp(-data["rate"]), data["overshoot"])


def _of_flow(subject: Any, data: dict, seed: int, every: float = EVERY) -> tuple[Any, Array, int]:
    attacked = of_flow(subject, data["low"], data["high"], seed, every, 0.3 if every == EVERY else 1.0)
    way = attacked.rng.normal(size=(2, RUNS, subject.states))
    way /= np.linalg.norm(way, axis=-1, keepdims=True)
    edge = np.sqrt(1.0 + data["room"]) * way @ np.linalg.cholesky(data["shapes"][0]).T
    return attacked, data["centres"][0] + edge, int(np.ceil(data["time"] / every))


def ends_of_layers(subject: Any, data: dict, seed: int) -> float:
    """Runs from far out, and with inputs that ascend once they are inside."""
    attacked = of_map(subject, data["low"], data["high"], seed)
    x = attacked.run(_outside(subject, attacked.rng), attacked.inputs(data.get("since", 1500)))[-1]
    out = farthest_out(attacked, x, data["least"], data["most"], 0, 12)
    return _beyond(out, data["most"] - data["least"])


def ends_of_cell(subject: Any, data: dict, seed: int) -> float:
    attacked = of_map(subject, subject.input_low, subject.input_high, seed)
    low, high = data["low"], data["high"]
    corner = attacked.rng.random((RUNS, subject.states)) < 0.5
    kept = farthest_out(attacked, np.where(corner, low, high), low, high, 0, 12)
    x = attacked.run(_outside(subject, attacked.rng), attacked.inputs(1500))[-1]
    return _beyond(max(kept, float(np.maximum(x - high, low - x).max())), high - low)


def rest_of_cell(subject: Any, data: dict, seed: int) -> float:
    first = subject.layers[0] if isinstance(subject, LayerStack) else subject
    free = np.ones(subject.inputs)  # a claim about every constant input
    low, high = (-free, free) if first.input_low is None else (first.input_low, first.input_high)
    attacked = of_map(subject, low, high, seed)
    return _apart(attacked, _outside(subject, attacked.rng), 500, data["rate"], data["overshoot"])


def _outside(subject: Any, rng: np.random.Generator) -> Array:
    """Hidden units at their ends, cell states far out, other states farther still."""
    x = []
    for layer in subject.layers if isinstance(subject, LayerStack) else [subject]:
        part = rng.choice([-1.0, 1.0], size=(RUNS, layer.states))
        part[:, layer.outputs if isinstance(layer, GatedCell) else 0 :] *= 20.0
        x.append(part)
    return np.concatenate(x, axis=1)


def _beyond(out: float, width: Array) -> float:
    """One where runs just stay in the box."""
    return 1.0 + (out - ROUNDING) / float(width.max())


def _apart(attacked: Any, starts: Array, wait: int, rate: float, overshoot: float) -> float:
    steps = np.log(1e-9 / (1e3 * overshoot)) / np.log(rate)
    return 0.0 if steps > MOST else spread_at_rest(attacked, starts, wait + int(np.ceil(steps))) / 1e-7


ATTACKS = {
    "driven_lmi": rate_of_map,
    "driven_bounds": ends_of_map,
    "driven_equilibrium": rest_of_map,
    "run_lmi": rate_of_map,
    "run_bounds": ends_of_map,
    "run_equilibrium": rest_of_map,
    "stack_driven": rate_of_map,
    "stack_driven_bounds": ends_of_map,
    "stack_driven_equilibrium": rest_of_map,
    "flow_lmi": rate_of_flow,
    "flow_bounds": ends_of_flow,
    "flow_equilibrium": rest_of_flow,
    "gated_bounds": ends_of_cell,
    "cascade_bounds": ends_of_layers,
    "gated_equilibrium": rest_of_cell,
    "cascade_equilibrium": rest_of_cell,
}
BOXES = {
    "driven_bounds": ("least", "most"),
    "run_bounds": ("least", "most"),
    "stack_driven_bounds": ("least", "most"),
    "flow_bounds": ("least_state", "most_state"),
    "gated_bounds": ("low", "high"),
    "cascade_bounds": ("least", "most"),
}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS), ids=lambda k: f"part-{k}")
@pytest.mark.parametrize("kind", KINDS)
def test_no_run_breaks_a_claim(kind: str, part: int) -> None:
    held = 0
    for seed in range(part * EACH, (part + 1) * EACH):
        subject, certificate = proved(kind, seed)
        for claim in (certificate.claim, *certificate.claims):
            used = attack(subject, claim, seed) if claim.verdict is Verdict.CERTIFIED else None
            if used is not None:
                held += 1
                assert used <= 1.0, (claim.proof.kind, seed, used)
    assert held >= EACH // 3


@pytest.mark.parametrize(
    "kind", [k if k in ("cell", "echo", "rectified") else pytest.param(k, marks=pytest.mark.slow) for k in KINDS]
)
def test_the_attacks_find_claims_that_are_false(kind: str) -> None:
    """Boxes of a fifth of their size, and rates that are far too fast, are broken by the same runs."""
    subject, certificate = proved(kind, 1)
    broken = set()
    for claim in (c for c in (certificate.claim, *certificate.claims) if c.proof is not None):
        data = dict(claim.proof.data)
        if claim.proof.kind in BOXES:
            a, b = BOXES[claim.proof.kind]
            middle, half = 0.5 * (data[a] + data[b]), 0.1 * (data[b] - data[a])
            data |= {a: middle - half, b: middle + half}
        elif "rate" in data:
            fast = data["rate"] ** 6 if subject.is_discrete else 6.0 * data["rate"]
            data |= {"rate": fast, "overshoot": 1.0}
        if claim.proof.kind in ATTACKS and "equilibrium" not in claim.name:
            assert attack(subject, replace(claim, proof=replace(claim.proof, data=data)), 1) > 1.0, claim.proof.kind
            broken.add(claim.proof.kind)
    assert broken
