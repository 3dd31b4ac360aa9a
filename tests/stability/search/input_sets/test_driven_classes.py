"""Claims about inputs in a box for activations that are piecewise linear, and for channels that feed one another."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from stability.kernel.arithmetic.activation_lines import Lines, line_offset, relaxation
from stability.kernel.arithmetic.activations import activation
from stability.kernel.format.claims import Proof, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.kernel.reachability.backward_bounds import BackwardBounds, Schedule
from stability.kernel.reachability.invariant_zonotope import InvariantZonotope
from stability.kernel.theorems.absorbing_sets import Absorbed
from stability.kernel.theorems.decaying_boxes import signed_balance, steepest_sides
from stability.kernel.theorems.driven_lmi import slopes_on
from stability.search.input_sets.driven import driven_contraction
from stability.systems import DrivenSystem, LureSystem
from tests.stability.driven_runs import assert_bent_is_refused, holds_on_trajectories, reservoir

KINKED = ["relu", "leaky_relu", "saturation", "deadzone", "identity"]
TENTH = Fraction(0.1)


def exact(name: str, z: Fraction) -> Fraction:
    cut = max(min(z, Fraction(1)), Fraction(-1))
    values = {"relu": max(z, Fraction(0)), "saturation": cut, "deadzone": z - cut, "identity": z}
    return values[name] if name in values else (z if z > 0 else TENTH * z)


def intervals(scale: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(int(10 * scale))
    low, high = np.sort(scale * rng.normal(size=(2, 20)) + rng.normal(size=20), axis=0)
    low[0] = high[0]
    return low, high


@pytest.mark.parametrize("name", KINKED)
@pytest.mark.parametrize("scale", [1e-12, 0.3, 3.0, 1e6])
def test_lines_hold_a_piecewise_linear_activation_exactly(name, scale) -> None:
    low, high = intervals(scale)
    slope, offset, error = relaxation(activation(name), low, high)
    lines, up = Lines.over(activation(name), low[None, None], high[None, None]), np.array([[[True], [False]]])
    rng = np.random.default_rng(0)
    sides = [
        tuple(v[0] for v in lines.at(points, up)) for points in (lines.start(up), scale * rng.normal(size=(1, 2, 20)))
    ]
    for i in range(20):
        kinks = [k for k in activation(name).kinks if low[i] <= k <= high[i]]
        for z in map(Fraction, (*np.linspace(low[i], high[i], 11), *kinks)):
            value = exact(name, z)
            assert abs(value - Fraction(slope[i]) * z - Fraction(offset[i])) <= Fraction(error[i])
            for s, o in sides:
                assert Fraction(s[0, i]) * z + Fraction(o[0, i]) >= value >= Fraction(s[1, i]) * z + Fraction(o[1, i])
    for points in (
        lines.start(up),
        scale * rng.normal(size=(1, 2, 20)),
    ):  # no line is farther at its point than a chord
        z = np.where(up, np.clip(points, low, high), -np.clip(points, -high, -low))
        (s, o), chord = lines.at(points, up), lines.chord
        gap = np.where(up, 1, -1) * (s * z + o - chord * z - line_offset(activation(name), chord, low, high, up))
        assert (gap <= 1e-12 * (1.0 + scale)).all()
    tight = 0.5 * np.ptp([activation(name).function(z) - slope * z for z in np.linspace(low, high, 4001)], axis=0)
    assert (error <= 1.01 * tight + 1e-11 * scale + 1e-11).all()


@pytest.mark.parametrize("seed", range(8))
def test_by_signs_no_step_leaves_the_box_and_every_state_comes_nearer(seed) -> None:
    """At the corners of ``V`` times the box, in exact arithmetic."""
    rng = np.random.default_rng(seed)
    name, n = ("relu", "leaky_relu", "deadzone", "identity")[seed % 4], 4
    A, (B, C) = np.diag(rng.uniform(-0.2, 0.3, n)), rng.normal(size=(2, n, n))
    system = LureSystem(A, B, C, None, activation(name).slope, 1.0)
    driven = DrivenSystem(system, name, rng.normal(size=(n, 1)), rng.normal(size=n), 0.1 * rng.normal(size=(n, 1)))
    up, down, low, high = rng.uniform(0.5, 2, n), rng.uniform(0.1, 2, n), np.array([-0.3]), np.array([0.5])
    kept, added = signed_balance(driven, up, down, low, high)
    for _ in range(100):
        V = Fraction(int(rng.integers(1, 5)))
        x = [V * Fraction(u) if side else -V * Fraction(d) for u, d, side in zip(up, down, rng.random(n) < 0.5)]
        u = Fraction(float(rng.choice([low[0], high[0]])))
        z = [
            sum((Fraction(c) * v for c, v in zip(row, x)), Fraction(b) + Fraction(e) * u)
            for row, b, e in zip(system.C, driven.b, driven.E[:, 0])
        ]
        w = [exact(name, value) for value in z]
        for i in range(n):
            after = sum(map(lambda a, v: Fraction(a) * v, system.A[i], x), Fraction(driven.F[i, 0]) * u)
            after += sum(map(lambda a, v: Fraction(a) * v, system.B[i], w), Fraction(0))
            assert after <= V * Fraction(kept[0][i]) + Fraction(added[0][i])
            assert -after <= V * Fraction(kept[1][i]) + Fraction(added[1][i])


def test_the_sides_of_zero_have_their_own_slopes() -> None:
    sides = {name: steepest_sides(activation(name)) for name in KINKED}
    assert sides == {
        "relu": (1.0, 0.0), "leaky_relu": (1.0, 0.1), "saturation": (1.0, 1.0), "deadzone": (1.0, 1.0),
        "identity": (1.0, 1.0),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_no_run_leaves_the_sets(seed, rng) -> None:
    """Tested with ReLU from a box that goes less far below zero, and with channels that feed later ones."""
    name, fed = (("relu", 0.0), ("tanh", 0.4), ("saturation", 0.4))[seed % 3]
    driven = reservoir(5, 0.8, (1.0, 0.5)[seed % 2], seed, name, fed)
    low, high = np.array([-0.4]), np.array([0.3])
    up, down = np.full(5, 3.0), np.full(5, 0.5 if name == "relu" else 3.0)
    tube = InvariantZonotope(driven, low, high, up, 4, down)
    bounds = None if fed else BackwardBounds(driven, low, high, (tube.low, tube.high), (-np.full(5, 99.0), up + 99.0))
    corners = np.where(rng.random((300, 5)) < 0.5, up, -down)
    x, runs = corners, [corners]
    for _ in range(9):
        for u in (low, high):
            z = driven.channel(x, u)
            if x is corners:
                assert ((tube.low <= z) & (z <= tube.high)).all()
        x = driven.advance(x, np.where(rng.random((300, 1)) < 0.5, low, high))
        runs.append(x)
        before = tube.low.copy()
        tube.step()
        least, most = tube.states()
        assert ((least <= x) & (x <= most)).all()
        assert (tube.low >= before).all()
    if bounds is not None:
        bounds.follow(Schedule(2, 3, 1))  # holds eight steps after a box that is kept, so that all lie inside it
        ends = driven.channel(runs[8], high)
        assert ((bounds.low <= ends) & (ends <= bounds.high)).all()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "fed"), [("relu", 0.0), ("saturation", 0.0), ("tanh", 0.2), ("saturation", 0.2)])
def test_pairs_of_trajectories_keep_the_bound(seed, name, fed) -> None:
    rng = np.random.default_rng(seed)
    driven = reservoir(int(rng.integers(2, 9)), float(rng.uniform(0.5, 1.2)), (1.0, 0.5)[seed % 2], seed, name, fed)
    claim, finding = driven_contraction(driven, (-0.4, 0.4), tol=1e-2)
    if claim.verdict is Verdict.CERTIFIED:
        assert holds_on_trajectories(driven, claim, seed, vanishes=name != "tanh") <= 1.0
    else:
        assert not finding.holds


@pytest.fixture(scope="module")
def proved() -> tuple:
    driven = reservoir(8, 1.2, 1.0, 1, "relu")
    claim, _ = driven_contraction(driven, (-0.3, 0.3), tol=1e-2)
    assert claim.verdict is Verdict.CERTIFIED
    return driven, claim


BENT = {
    "nothing below": {"falls": lambda v: 0.0 * v},
    "less above": {"r": lambda v: 0.5 * v},
    "negative": {"falls": lambda v: -v},
    "without": {"falls": None},
    "with an ellipsoid": {"Y": lambda _: np.eye(8)},
    "at once": {"share": lambda _: 0.0},
    "faster entry": {"share": lambda v: 0.5 * v},
    "wider inputs": {"high": lambda v: v + 5.0},
    "faster": {"rate": lambda v: 0.5 * v},
}


@pytest.mark.parametrize("bend", BENT.values(), ids=BENT)
def test_bent_proofs_are_refused(proved, bend) -> None:
    assert_bent_is_refused(*proved, bend)


def test_falls_and_rows_are_for_their_own_networks(proved) -> None:
    driven, claim = proved
    data = dict(claim.proof.data)
    smooth = replace(driven, activation="tanh")
    assert "piecewise" in RULES["driven_lmi"](smooth, claim)[1]
    fed = reservoir(6, 0.5, 1.0, 1, "saturation", 0.1)
    other, _ = driven_contraction(fed, (-0.3, 0.3), tol=1e-2)
    rows = {**other.proof.data, "backward": np.array([[1.0, 2.0, 1.0, 1.0, 0.0]])}
    valid, reason = RULES["driven_lmi"](fed, replace(other, proof=Proof("driven_lmi", rows)))
    assert not valid
    assert "feedthrough" in reason
    assert data["falls"].max() < data["r"].max()  # what is never negative needs no room below zero


def test_a_midpoint_map_is_enclosed_with_what_rounding_it_made() -> None:
    base = LureSystem(-np.eye(3), np.eye(3), np.random.default_rng(0).normal(size=(3, 3)), None, (0.0, 1.0))
    driven = DrivenSystem(base.discretise("midpoint", 0.2), "tanh", np.ones((6, 1)), 2.0 * np.tile([1.0, -1.0, 1.0], 2))
    assert driven.system.D.any()
    claim, _ = driven_contraction(driven, (-0.1, 0.1), tol=1e-2)
    assert claim.verdict is Verdict.CERTIFIED
    assert holds_on_trajectories(driven, claim, 0) <= 1.0
    sets = Absorbed.of(claim.proof.data).enclosed(driven)
    inner = slopes_on(driven, sets.low, sets.high)
    assert (inner.beta - inner.alpha < 0.9).all()
