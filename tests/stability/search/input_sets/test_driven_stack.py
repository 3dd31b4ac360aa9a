"""Stacks of maps under inputs in a box: one network in the skewed state, and claims that the stack's own runs keep."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from stability import certify, verify
from stability.kernel.format.claims import Verdict
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.delayed_stack import delayed_network
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.stack_driven import StackDriven
from stability.proposals import propose
from stability.recovery import first_step
from stability.search.input_sets.driven import driven_contraction
from stability.systems import DrivenSystem, LureSystem
from tests.stability.specimens import small_cell


def layer(n: int, inputs: int, size: float, seed: int, leak: float = 1.0, name: str = "tanh") -> DrivenSystem:
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(n, n))
    W /= np.abs(np.linalg.eigvals(W)).max()
    system = LureSystem((1 - leak) * np.eye(n), leak * np.eye(n), W, None, (0.0, 1.0), 1.0)
    return DrivenSystem(system, name, size * rng.normal(size=(n, inputs)), rng.choice([-1.0, 1.0], size=n))


def euler() -> DrivenSystem:
    return DrivenSystem(LureSystem.recurrent([[-1.0]], [[0.5]]).euler(0.1), "tanh", [[1.0]])


def turned(inputs: int) -> DrivenSystem:
    """Make a layer whose linear part shrinks in an ellipsoid, not in a box."""
    system = LureSystem([[0.6, 0.5], [-0.5, 0.6]], 0.2 * np.eye(2), 0.3 * np.eye(2), dt=1.0)
    return DrivenSystem(system, "tanh", np.ones((2, inputs)), [1.0, -1.0])


def mixed(inputs: int, seed: int) -> DrivenSystem:
    """With everything that a layer may have: leak, channels that feed later ones, inputs into the state."""
    rng = np.random.default_rng(seed)
    D = 0.2 * np.tril(rng.normal(size=(3, 3)), -1)
    system = LureSystem(0.3 * np.eye(2), rng.normal(size=(2, 3)) / 3, rng.normal(size=(3, 2)) / 2, D, (0.0, 1.0), 1.0)
    E, F = rng.normal(size=(3, inputs)), 0.1 * rng.normal(size=(2, inputs))
    return DrivenSystem(system, "tanh", E, rng.normal(size=3), F)


@pytest.fixture(scope="module")
def proved():
    stack = LayerStack([layer(4, 1, 0.3, 0), layer(3, 4, 0.3, 5)])
    certificate = certify(
        stack, input_box=(-0.3, 0.3), tol=1e-2, refute=False
    )  # not under every input: it would say so
    assert (certificate.verdict, certificate.claim.name) == (Verdict.CERTIFIED, "driven_contraction")
    return stack, certificate


@pytest.mark.parametrize("of", ["plain", "leaky, fed and feeding"])
def test_the_skewed_state_is_the_stack_a_step_later_layer_by_layer(of, rng) -> None:
    stack = LayerStack([layer(3, 2, 1.0, 1), layer(2, 3, 1.0, 2), layer(4, 2, 1.0, 3)])
    if of != "plain":
        stack = LayerStack([layer(3, 2, 1.0, 1, 0.4), mixed(3, 4), layer(4, 2, 1.0, 3, 0.7)])
    network = delayed_network(stack)
    assert not isinstance(network, str)
    u = rng.normal(size=(12, 2))
    run = [rng.normal(size=9)]
    for k in range(11):
        run.append(stack.advance(run[-1], u[k]))
    run, ends = np.array(run), (0, 3, 5, 9)
    shifted = [np.concatenate([run[k - j, ends[j] : ends[j + 1]] for j in range(3)]) for k in range(2, 12)]
    for k, (before, after) in enumerate(itertools.pairwise(shifted)):
        assert network.advance(before, u[k + 2]) == pytest.approx(after, abs=1e-14)


def test_runs_of_the_stack_keep_the_bound(proved, rng) -> None:
    stack, certificate = proved
    assert verify(certificate).valid
    data, first = certificate.claim.proof.data, first_step(certificate.claim)
    assert first is not None
    assert first == StackDriven.of(data).settled + 2
    x, y = 3.0 * rng.normal(size=(2, 100, 7))
    older, gaps = None, []
    for k in range(first + 30):
        u, other = np.where(rng.random((2, 100, 1)) < 0.5, -0.3, 0.3)
        other = other if k < first - 1 else u  # far apart until the bound begins
        if older is not None and k >= first:
            skew = np.hstack([(x - y)[:, :4], older[:, 4:]])
            gaps.append(np.linalg.norm(skew, axis=1))
        older = x - y
        x, y = stack.advance(x, u), stack.advance(y, other)
    bound = data["overshoot"] * data["rate"] ** np.arange(len(gaps))[:, None] * gaps[0]
    assert gaps[0].max() > 1e-6
    assert (np.array(gaps) <= bound + 1e-13).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"levels": 1}, "number of layers"),
        ({"share": 0.5, "room": 0.1, "Y": np.eye(7), "tau": np.ones(7)}, "first set is a box"),
        ({"share": 0.5, "room": 0.0625, "falls": np.ones(7)}, "piecewise linear"),
        ({"rate": 0.3}, "not"),
        ({"high": np.array([2.0])}, "not"),
        ({"L": np.ones(3)}, "L (7,)"),
    ],
)
def test_bent_data_are_refused(proved, changes, words) -> None:
    stack, certificate = proved
    data = {**certificate.claim.proof.data, **changes}
    valid, reason = RULES["stack_driven"](stack, propose(stack, "stack_driven", data))
    assert not valid
    assert words in reason


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([euler(), euler()], "no integrator"),
        ([layer(2, 1, 1.0, 0), replace(layer(2, 2, 1.0, 1), activation="relu")], "one activation"),
        ([layer(2, 1, 1.0, 0), small_cell("gru", box=None)], "without gates"),
        ([replace(layer(2, k, 1.0, 3), activation="relu") for k in (1, 2)], "is unbounded"),
        ([turned(1), turned(2)], "absolute values decay"),
    ],
)
def test_stacks_that_it_is_not_about(layers, words) -> None:
    claim, finding = driven_contraction(LayerStack(layers), (-1.0, 1.0))
    assert claim.verdict is Verdict.INCONCLUSIVE
    assert words in finding.detail


def rectified(inputs: int, seed: int) -> DrivenSystem:
    """Weights mostly negative: by their signs they decay."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(3, 3)) - 1.5 * np.abs(rng.normal(size=(3, 3)))
    W *= 0.9 / np.abs(np.linalg.eigvals(W)).max()
    system = LureSystem(np.zeros((3, 3)), np.eye(3), W, None, (0.0, 1.0), 1.0)
    return DrivenSystem(system, "relu", 0.4 * rng.normal(size=(3, inputs)), rng.choice([-1.0, 1.0], size=3))


KEEPING = {
    "relu": lambda: LayerStack([rectified(1, 10), rectified(3, 81), rectified(3, 3)]),
    "leaky tanh": lambda: LayerStack([layer(3, 1, 0.3, 0, 0.5), layer(3, 3, 0.2, 5, 0.8)]),
}


@pytest.mark.parametrize("of", [pytest.param(of, marks=[pytest.mark.slow] * (of == "relu")) for of in KEEPING])
def test_stacks_that_keep_a_share_of_their_state_are_in_their_sets_when_they_say(of, rng) -> None:
    """From starts far out, V, at step N + settled + levels - 1, inputs at the ends of the box."""
    stack = KEEPING[of]()
    certificate = certify(stack, input_box=(-0.2, 0.2), tol=1e-2, refute=False)
    assert verify(certificate).valid
    claim = next(c for c in certificate.claims if c.name == "bounded_in_box")
    data = claim.proof.data
    assert claim.proof.kind == "stack_driven_bounds"
    assert data["share"] > 0.0
    falls = data.get("falls", data["r"])
    for far in (1.0, 30.0, 1e4):
        x = far * np.where(rng.random((300, stack.states)) < 0.5, -falls, data["r"])
        N = 0 if far <= 1.0 else int(np.ceil(np.log((far - 1) / data["room"]) / -np.log(data["share"])))
        for _ in range(N + StackDriven.of(data).settled + data["levels"] - 1):
            x = stack.advance(x, rng.choice([-0.2, 0.2], size=(300, 1)))
        assert ((data["least"] <= x) & (x <= data["most"])).all()
