"""Certified radii: exact where the truth is known, never beyond an attack, and no forged proof is accepted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from local_specimens import attacked, classifiers

from stability.kernel.format.claims import Claim, Proof
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.classifier import Classifier
from stability.search.local.largest_radius import largest_balls
from stability.systems import DrivenSystem, LureSystem

KEPT = ("tanh", "relu", "midpoint", "lstm", "gru")
MADE = {name: made for name, made in classifiers(1).items() if name in KEPT}
RNG = np.random.default_rng(8)
X = RNG.normal(size=(1, 4, 2))
Y = {name: made.logits(X).argmax(axis=1) for name, made in MADE.items()}
MASK = np.array([[True, False], [True, True], [False, False], [False, True]])


@pytest.fixture(scope="module")
def claims() -> dict[str, list[Claim | None]]:
    return {name: largest_balls(made, X, Y[name]) for name, made in MADE.items()}


def affine(reduction: str) -> Classifier:
    A, F = 0.5 * RNG.normal(size=(3, 3)), RNG.normal(size=(3, 2))
    line = DrivenSystem(LureSystem.linear(A, dt=1.0), "identity", np.zeros((0, 2)), F=F)
    return Classifier(line, RNG.normal(size=(4, 3)), RNG.normal(size=4), reduction)


@pytest.mark.parametrize("reduction", ["last", "mean"])
@pytest.mark.parametrize("mask", [None, MASK])
@pytest.mark.parametrize("budget", ["total", "step"])
def test_the_radius_of_an_affine_network_is_its_distance_to_the_boundary(reduction, mask, budget):
    made = affine(reduction)
    origin = made.logits(np.zeros((4, 2)))
    kernel = np.stack([made.logits(e) - origin for e in np.eye(8).reshape(8, 4, 2)], axis=1).reshape(4, 4, 2)
    kernel = kernel if mask is None else kernel * mask
    label = made.logits(X).argmax(axis=1)
    for i, claim in enumerate(largest_balls(made, X, label, mask=mask, budget=budget)):
        logits = made.logits(X[i])
        rows, others = kernel - kernel[label[i]], np.arange(4) != label[i]
        sizes = np.sqrt((rows**2).sum(axis=(1, 2))) if budget == "total" else np.sqrt((rows**2).sum(axis=2)).sum(axis=1)
        true = ((logits[label[i]] - logits)[others] / sizes[others]).min()
        assert claim is not None
        assert claim.value <= true * (1 + 1e-12)
        if budget == "total":  # the ellipsoids of a budget for each step are a bound, close where few directions count
            assert claim.value == pytest.approx(true, rel=1e-6)
        else:
            assert claim.value >= 0.5 * true


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "relu", "leaky_relu"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_radius_of_one_unit_is_where_it_crosses_the_boundary(name, sign):
    E, b, x = np.array([[0.8, -0.6]]), 0.3, np.array([[[0.4, -0.2]]])
    unit = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], slope=(0.0, 1.0), dt=1.0), name, E, [b])
    z = float(E[0] @ x[0, 0] + b)
    from stability.kernel.arithmetic.activations import activation

    true = 0.37
    level = float(activation(name).function(np.array(z + sign * true)))  # |E| = 1: the boundary is this far away
    made = Classifier(unit, [[-sign], [sign]], [sign * level, -sign * level])
    (claim,) = largest_balls(made, x, [0])
    assert claim is not None
    assert claim.value == pytest.approx(true, rel=1e-6)
    assert claim.value <= true


@pytest.mark.parametrize("name", MADE)
def test_no_attack_succeeds_inside_a_certified_ball(name, claims):
    for x, y, claim in zip(X, Y[name], claims[name]):
        assert claim is not None
        assert RULES["local_ellipsoids"](MADE[name], claim)[0]
        assert not attacked(MADE[name], x, y, claim.value)
        assert attacked(MADE[name], x, y, 60.0 * claim.value)  # the attack is none that always fails


@pytest.mark.parametrize("name", ["tanh"])
def test_masks_and_budgets_by_step(name):
    made, y = MADE[name], Y[name]
    whole = largest_balls(made, X, y)
    some, step = largest_balls(made, X, y, mask=MASK), largest_balls(made, X, y, budget="step")
    for x, label, a, b, c in zip(X, y, whole, some, step):
        assert a is not None
        assert b is not None
        assert c is not None
        assert c.value < a.value < b.value  # more freedom, smaller ball
        assert not attacked(made, x, label, b.value, MASK)
        assert not attacked(made, x, label, c.value, step=True)
        assert "mask" in b.statement
        assert "every step" in c.statement


@pytest.mark.parametrize("budget", ["total", "step"])
@pytest.mark.parametrize("name", ["tanh"])
def test_steps_that_may_not_change_before_the_others(name, budget):
    """Before them nothing moves but roundings, which the multipliers have to exceed all the same."""
    made, y, late = MADE[name], Y[name], np.zeros(X.shape[1:], dtype=bool)
    late[2:] = True
    whole, some = largest_balls(made, X, y, budget=budget), largest_balls(made, X, y, mask=late, budget=budget)
    for x, label, a, b in zip(X, y, whole, some):
        assert a is not None
        assert b is not None
        assert b.value > a.value
        assert not attacked(made, x, label, b.value, late, step=budget == "step")


def altered(claim: Claim, **data: Any) -> Claim:
    assert claim.proof is not None
    given = {k: v for k, v in {**claim.proof.data, **data}.items() if v is not None}
    return replace(claim, proof=Proof(claim.proof.kind, given), value=given["radius"])


@pytest.mark.parametrize("name", MADE)
def test_a_proof_of_something_else_is_refused(name, claims):
    made, rule = MADE[name], RULES["local_ellipsoids"]
    claim = claims[name][0]
    assert claim is not None
    assert claim.proof is not None
    data = claim.proof.data
    forged = {
        "radius": 1.02 * data["radius"],
        "label": (data["label"] + 1) % 3,
        "norm": "linf",
        "x": data["x"][:-1],
        "T": -data["T"],
        "mask": np.full(data["x"].shape, 0.5),
        "tau": np.full(4, 1.5),
    }
    for key, value in forged.items():
        assert not rule(made, altered(claim, **{key: value}))[0], key
    assert not rule(made, altered(claim, T=1e-6 * data["T"]))[0]
    assert not rule(made, altered(claim, T=data["T"][:, :-1]))[0]
    assert not rule(made, altered(claim, x=data["x"][:, :1]))[0]
    assert not rule(made, replace(claim, value=2.0 * data["radius"]))[0]
    assert not rule(made, altered(claim, tau=np.full(4, 0.5)))[0]  # a budget for each step is a larger set
    other = Classifier(made.recurrent, -made.weight, -made.bias, made.reduction)
    assert not rule(other, claim)[0]


@pytest.mark.parametrize("name", ["tanh", "relu", "gru"])
def test_the_last_accepted_radius_is_no_larger_than_the_truth(name, claims):
    """The law at the edge: bisect to it, and attack there."""
    made, claim = MADE[name], claims[name][0]
    assert claim is not None
    low, high = claim.value, 2.0 * claim.value
    for _ in range(12):
        middle = 0.5 * (low + high)
        good = RULES["local_ellipsoids"](made, altered(claim, radius=middle))[0]
        low, high = (middle, high) if good else (low, middle)
    assert low < 1.01 * claim.value
    assert not attacked(made, X[0], Y[name][0], low)


def test_the_errors_of_the_run_count(monkeypatch, claims):
    """Rounding errors enter the ellipsoids: a run with large errors proves nothing."""
    made, claim = MADE["tanh"], claims["tanh"][0]
    assert claim is not None
    from stability.kernel.reachability import stages

    keep = stages.Activated.nominal

    def coarse(self: Any, y: Any) -> Any:
        at = keep(self, y)
        return replace(at, error=at.error + 0.5)

    monkeypatch.setattr(stages.Activated, "nominal", coarse)
    assert not RULES["local_ellipsoids"](made, claim)[0]


def test_with_a_budget_for_each_step_affine_networks_are_exact() -> None:
    rng = np.random.default_rng(9)
    system = LureSystem(0.5 * np.eye(3), np.eye(3), rng.normal(size=(3, 3)) / 2, dt=1.0, slope=(1.0, 1.0))
    network = Classifier(DrivenSystem(system, "identity", rng.normal(size=(3, 2))), rng.normal(size=(3, 3)))
    x = rng.normal(size=(4, 4, 2))
    labels = network.logits(x).argmax(axis=1)
    zero = network.logits(np.zeros((1, 4, 2)))[0]
    rows = np.stack([network.logits(unit.reshape(1, 4, 2))[0] - zero for unit in np.eye(8)])  # (8, k)
    for k, claim in enumerate(largest_balls(network, x, labels, norm="l2", budget="step")):
        margin = network.logits(x[k])[labels[k]] - network.logits(x[k])
        steep = np.linalg.norm((rows - rows[:, [labels[k]]]).reshape(4, 2, 3), axis=1).sum(axis=0)
        truth = min(margin[j] / steep[j] for j in range(3) if j != labels[k])
        assert claim is not None
        assert abs(claim.value / truth - 1.0) < 1e-6
        assert claim.value <= truth
