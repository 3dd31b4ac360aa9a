"""Proofs by cells where each step has a ball or a box of its own: bounds of margins, radii, and wrong files."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gated_specimens import GATES, cells_of, drawn, label_of, searched
from scipy.optimize import minimize
from test_togo import boxes, points, sloped, step_of

from stability.local.after import Margins
from stability.local.balls import largest_balls
from stability.local.cells import Cells
from stability.local.moves import Moves, least
from stability.local.togo import gated_moves, margins
from stability.rules.registry import RULES, accepted, propose

Array = np.ndarray
BALLS = {"l2": {"norm": "l2", "budget": "step"}, "linf": {"norm": "linf"}}


def nearest(net, x: Array, norm: str) -> float:
    """The least radius of all steps that descents find."""
    label, rng, best = label_of(net, x), np.random.default_rng(0), np.inf

    def room(y: Array) -> Array:
        d = y[:-1].reshape(x.shape)
        return np.append(y[-1] - y[:-1], y[-1] + y[:-1]) if norm == "linf" else y[-1] ** 2 - (d * d).sum(axis=1)

    for other in set(range(net.classes)) - {label}:

        def lost(y: Array, other: int = other) -> float:
            logits = net.logits((x + y[:-1].reshape(x.shape))[None])[0]
            return float(logits[other] - logits[label])

        for size in (0.3, 1.0, 1.0, 3.0):
            start = np.append(size * rng.normal(size=x.size), 2.0 * size)
            limits = [{"type": "ineq", "fun": lost}, {"type": "ineq", "fun": room}]
            found = minimize(
                lambda y: y[-1], start, jac=lambda y: np.eye(len(y))[-1], method="SLSQP", constraints=limits,
                options={"maxiter": 200, "ftol": 1e-14},
            ).x  # fmt: skip
            d = found[:-1].reshape(x.shape)
            whole = np.abs(d).max() if norm == "linf" else np.sqrt((d * d).sum(axis=1)).max()
            if lost(found) >= -1e-11:
                best = min(best, float(whole))
    return best


@pytest.fixture(autouse=True)
def room(monkeypatch):
    """Enough boxes for what is true here; what is false takes all that there are."""
    monkeypatch.setattr("stability.rules.local_cells.ROOM", 60_000)


def limited(step: Moves, longest: float) -> Moves:
    return replace(step, longest=longest)


@pytest.mark.parametrize("longest", [1.0, np.inf])
@pytest.mark.parametrize("sizes", [(-9.0, -5.0), (-3.0, -1.0), (-1.0, 0.3)])
@pytest.mark.parametrize(("kind", "q"), [("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 3)])
def test_no_move_of_a_ball_leads_below_the_bound(kind, q, sizes, longest):
    beyond, below = 0, 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        step, weights = limited(step_of(kind, q, rng), longest), rng.normal(size=(2, 2))
        at, whole = boxes(step, rng, 200, sizes), sloped(step, rng, 1.0)
        cells = cells_of(rng, whole.low, whole.high, 4, 3.0)
        signed = Cells(whole.low, whole.high, signed=True)
        signed.first, signed.level, signed.index = cells.first, cells.level, cells.index
        signed.value, signed.slope, signed.least = cells.value - 4.0, cells.slope, cells.least.copy()
        signed.lift()
        for after in (Margins(weights[0], weights[1], np.zeros(2)), signed):
            found = least(step, after, at)
            for s, v in points(at, rng, 6):
                inside = (v * v).sum(axis=1) <= longest**2
                cost = after.bound(step.unit.cell.advance(s, v)) - ((s - at.s) * at.slope).sum(axis=1)
                assert (found.cost <= cost + 1e-10)[inside].all()
            below += int((found.cost[np.isfinite(found.cost)] < 0.0).sum())
            nearest_move = np.maximum(np.abs(at.v) - at.dv, 0.0)
            out = (nearest_move**2).sum(axis=1) > longest**2 * (1.0 + 1e-9)
            assert np.isinf(found.cost[out]).all()
            beyond += int(out.sum())
    assert (beyond > 0) is (longest == 1.0)
    assert below > 100


def test_the_price_of_a_ball_makes_boxes_on_its_sphere_sharp():
    rng = np.random.default_rng(0)
    step = limited(step_of("gru", 2, rng), 1.0)
    after, states = Margins(np.array([1.0]), np.zeros(1), np.zeros(1)), np.zeros((1, 1))
    angle = np.linspace(0.0, 2.0 * np.pi, 100_001)
    to = step.unit.cell.advance(np.zeros((len(angle), 1)), np.stack([np.cos(angle), np.sin(angle)], axis=1))[:, 0]
    v = np.array([[np.cos(angle[to.argmin()]), np.sin(angle[to.argmin()])]])
    at = boxes(step, rng, 1, (-9.0, -5.0))
    for half in (1e-3, 1e-4):
        one = replace(at, s=states, ds=states, v=v, dv=np.full((1, 2), half), slope=states)
        lost = float(to.min()) - least(step, after, one).cost[0]
        plain = float(to.min()) - least(limited(step, np.inf), after, one).cost[0]
        assert -1e-12 <= lost <= min(4.0 * half**2, 0.2 * plain)


def test_margins_are_those_of_the_head():
    net, x = drawn("gru", 1, 3)
    label, h = label_of(net, x), np.linspace(-1.0, 1.0, 201)[:, None]
    end = margins(net, label)
    logits = h @ net.weight.T + net.bias
    least_margin = (logits[:, [label]] - np.delete(logits, label, axis=1)).min(axis=1)
    assert np.allclose(end.bound(h), least_margin, rtol=0, atol=1e-14)
    own = np.min([p.value + p.slope[:, 0] * h[:, 0] for p in end.pieces(h, h)], axis=0)
    assert (own <= least_margin).all()
    assert (own >= least_margin - 1e-13).all()
    assert (
        np.allclose(end.slopes(h[:-1])[:, 0], np.diff(least_margin) / np.diff(h[:, 0]), atol=1e-9) or len(end.bias) > 1
    )


@pytest.mark.parametrize(
    ("kind", "steps", "features", "seed", "norm"),
    [
        ("gru", 2, 2, 3, "linf"),
        ("lstm", 2, 1, 1, "l2"),
        pytest.param("gru", 2, 2, 3, "l2", marks=pytest.mark.slow),
        pytest.param("lstm", 2, 1, 1, "linf", marks=pytest.mark.slow),
        pytest.param("gru", 3, 1, 3, "l2", marks=pytest.mark.slow),
        pytest.param("gru", 3, 1, 3, "linf", marks=pytest.mark.slow),
    ],
)
def test_the_radius_of_steps_is_that_of_the_nearest_run(kind, steps, features, seed, norm):
    net, x = drawn(kind, steps, seed, features=features)
    true = nearest(net, x, norm)
    told = {} if norm == "linf" else {"budget": "step"}
    claim, settled = searched(net, x, norm=norm, **told)
    assert settled
    assert claim is not None
    assert claim.proof.kind == "local_cells"
    assert true * (1.0 - 1e-6) <= claim.value <= true * (1.0 + 1e-9)
    data = claim.proof.data
    for part in (1.0 + 1e-6, 2.0):
        assert accepted(net, "local_cells", {**data, "radius": part * true, "reach": part * true}) is None
        holds, words = RULES["local_cells"](net, propose(net, "local_cells", {**data, "radius": part * true}))
        assert not holds
        assert "reach must not be less" in words
    values = data["values"].copy()
    values[np.argsort(values)[: len(values) // 2]] += 0.5 * np.abs(values).max()
    assert accepted(net, "local_cells", {**data, "values": values}) is None
    for part, kept in ((0.99, True), (1.001, False)):
        claim, _ = searched(net, x, norm=norm, epsilon=part * true, **told)
        assert (claim is not None) is kept


def test_boxes_of_all_steps_are_no_balls_in_total():
    net, x = drawn("gru", 3, 3)
    claim, _ = searched(net, x, budget="step")
    assert claim is not None
    data = dict(claim.proof.data)
    del data["budget"]
    assert accepted(net, "local_cells", {**data, "radius": 3.0 * data["radius"], "reach": 3.0 * data["reach"]}) is None
    claim, _ = searched(net, x)
    assert claim is not None
    assert accepted(net, "local_cells", {**claim.proof.data, "budget": "step"}) is None


def test_masked_and_clipped_steps_have_the_ranges_that_are_left():
    net, x = drawn("gru", 3, 3, features=2)
    mask = np.array([[True, False], [False, False], [True, True]])
    low, high = float(x.min()) - 0.2, float(x.max()) + 0.1
    steps = gated_moves(net, x, 0.5, "linf", mask.astype(float), (low, high))
    assert [len(step.low) for step in steps] == [1, 0, 2]
    for step, u, free in zip(steps, x, mask):
        assert step.longest == np.inf
        assert np.allclose(step.low, np.maximum(u[free] - 0.5, low) - u[free])
        assert np.allclose(step.high, np.minimum(u[free] + 0.5, high) - u[free])
    whole, _ = searched(net, x, norm="linf")
    (some,) = largest_balls(net, x[None], [label_of(net, x)], norm="linf", mask=mask)
    assert whole is not None
    assert some is not None
    assert some.value > 1.01 * whole.value


@pytest.mark.parametrize("kind", sorted(GATES))
@pytest.mark.parametrize("norm", sorted(BALLS))
def test_a_class_that_no_step_changes_is_kept_in_a_large_ball(kind, norm):
    net, x = drawn(kind, 2, 0)
    net = replace(net, weight=1e-3 * net.weight, bias=np.array([1.0, 0.0, 0.0]))
    claim, settled = searched(net, x, norm=norm, **({} if norm == "linf" else {"budget": "step"}))
    assert claim is not None
    assert claim.value >= 64.0
    assert not settled
