"""Numbers at the ends of the range of floats: what overflows or underflows proves nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stability.errors import ConfigurationError
from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.ellipsoid_operations import ellipsoid_extent
from stability.kernel.reachability.ellipsoid_tube import nominal_run
from stability.kernel.reachability.gated_tube import bent_tube, linear_part
from stability.kernel.reachability.network_stages import stages_of
from stability.kernel.systems.classifier import LARGEST, Classifier
from stability.kernel.theorems.local_ball import WIDEST
from stability.proposals import accepted_claim, propose
from stability.search.local.largest_radius import largest_balls
from stability.systems import DrivenSystem, LureSystem

NONE = np.zeros((2, 2))


def of_two(scale: float) -> Classifier:
    """``h = tanh(x)``, one class for a positive sum of ``h`` and one for a negative one."""
    cell = DrivenSystem(LureSystem(NONE, np.eye(2), NONE, dt=1.0), "tanh", np.eye(2))
    return Classifier(cell, [[scale, scale], [-scale, -scale]])


def of_one(E: Any, weight: Any, bias: Any = None, name: str = "tanh", b: float = 0.0, W: float = 0.0) -> Classifier:
    return Classifier(DrivenSystem(LureSystem([[0.0]], [[1.0]], [[W]], dt=1.0), name, E, [b]), weight, bias)


X = np.array([[1.0, 0.5]])
TRUE = 1.5 / 2.0**0.5  # where the sum is zero, next to X


@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e-300])
@pytest.mark.parametrize("budget", ["total", "step"])
def test_heads_of_any_scale_have_no_radius_beyond_the_true_one(scale, budget):
    net = of_two(scale)
    (claim,) = largest_balls(net, X[None], [0], norm="l2", budget=budget)
    radius = 0.0 if claim is None else claim.value or 0.0
    assert radius <= TRUE
    assert radius > 0.95 * TRUE or scale < 1e-100


@pytest.mark.parametrize("radius", [1.1, 1e6])
def test_forged_balls_under_a_head_that_underflows_are_refused(radius):
    ball = {"x": X, "label": 0, "norm": "l2", "radius": radius}
    for scale in (1e-160, 1e-170, 1e-300):
        assert accepted_claim(of_two(scale), "local_ellipsoids", {**ball, "T": np.full((1, 2), 1e7)}) is None


def test_lengths_and_reaches_do_not_underflow():
    w, Y = np.array([[3e-170, 4e-170]]), np.eye(2)
    assert ellipsoid_extent(w, Y)[0] >= 5e-170
    assert ellipsoid_extent(np.array([[3.0, 4.0]]), Y)[0] == pytest.approx(5.0, rel=1e-12)


def test_what_bends_add_does_not_underflow_with_the_radius():
    net = stages_of(of_one([[1.3e77]], [[1.0], [0.0]], b=0.66))
    run = nominal_run(net, np.zeros((1, 1)))
    one = [np.ones(len(at.out)) for at in run]
    r = 1.2e-81
    tube = bent_tube(net, linear_part(net, np.zeros((1, 1)), run, np.ones((1, 1)), one), r)
    assert tube is not None
    d = 1.3e77 * r
    bent = np.tanh(0.66) - d * (1.0 - np.tanh(0.66) ** 2) - np.tanh(0.66 - d)  # what the tangent leaves
    assert tube.Q[0, 0] ** 0.5 >= abs(bent)


@pytest.mark.parametrize("part", ["E", "W", "b", "head", "bias", "start"])
def test_every_number_of_a_network_counts(part):
    size = dict.fromkeys(("E", "W", "b", "head", "bias", "start"), 1.0) | {part: 2.0 * LARGEST}
    own = of_one([[size["E"]]], [[size["head"]], [-1.0]], [0.0, size["bias"]], b=size["b"], W=size["W"])
    net = Classifier(own.recurrent, own.weight, own.bias, start=[size["start"]])
    assert "2e+60" in (net.out_of_range or "")
    assert of_one([[LARGEST]], [[1.0], [-1.0]]).out_of_range is None


def test_radii_and_steps_beyond_what_proofs_are_made_for_are_refused():
    ball = {"x": np.ones((1, 1)), "label": 0, "norm": "linf", "tree": {"classes": []}}
    net = of_one([[1.0]], [[1.0], [-1.0]])
    assert accepted_claim(net, "local_planes", {**ball, "radius": 0.1}) is not None
    assert accepted_claim(net, "local_planes", {**ball, "radius": 1e-61}) is None
    wide = of_one(np.full((1, WIDEST + 1), 1e-6), [[1.0], [0.0]], [0.9, 0.0])
    ball |= {"x": np.zeros((1, WIDEST + 1)), "radius": 1e-3}
    holds, why = RULES["local_planes"](wide, propose(wide, "local_planes", ball))
    assert not holds
    assert "at most 10,000 features" in why
    with pytest.raises(ConfigurationError, match="at most 10,000 features"):
        largest_balls(wide, ball["x"][None], [0], norm="linf")


def cancelling(reduction: str) -> Classifier:
    """The margin of class 0 is -1/2; computed from left to right in floats it is +1/2."""
    line = DrivenSystem(LureSystem.linear(np.zeros((4, 4)), dt=1.0), "identity", np.zeros((0, 4)), F=np.eye(4))
    return Classifier(line, [[1e16, -1.0, -1e16, 0.5], [0.0, 0.0, 0.0, 0.0]], reduction=reduction)


@pytest.mark.parametrize("reduction", ["last", "mean"])
def test_a_margin_that_is_rounding_alone_is_no_margin(reduction):
    subject, x = cancelling(reduction), np.ones((1, 4))
    assert 1e16 - 1.0 - 1e16 + 0.5 > 0  # in floats; exactly it is -1/2
    ball = {"x": x, "label": 0, "radius": 1e-9}
    proofs: list[tuple[str, dict[str, Any]]] = [
        ("local_ellipsoids", {**ball, "norm": "l2", "T": np.ones((1, 0))}),
        ("local_ellipsoids", {**ball, "norm": "l2", "T": np.ones((1, 0)), "tau": np.full(1, 0.5)}),
        ("local_planes", {**ball, "norm": "linf", "tree": {"classes": []}}),
        ("local_zonotopes", {**ball, "norm": "linf", "window": 4, "kept": 4}),
        *(("local_linear", {**ball, "norm": norm}) for norm in ("l2", "linf")),
        ("local_linear", {**ball, "norm": "l2", "budget": "step", "bounds": (-2.0, 2.0)}),
    ]
    for kind, data in proofs:
        for radius in (1e-9, 1e-200, 5e-324):
            claim = propose(subject, kind, {**data, "radius": radius})
            assert not RULES[kind](subject, claim)[0], kind
    assert largest_balls(subject, x[None], [0]) == [None]
    assert largest_balls(subject, x[None], [0], norm="linf") == [None]
