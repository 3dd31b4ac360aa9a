"""Final range of the cell state of an LSTM: enclosed, sharper than from separate gates; no smaller box is accepted."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest

from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.sentences import undecided
from stability.kernel.systems import gated_bounds as bounds
from stability.kernel.systems.gated_bounds import absorbs, gate_bounds, invariant_box, is_invariant
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.lstm_cell_range import settling_range
from stability.search.input_sets.stack_bounds import gated_bounds
from stability.verification import verify_claim


def cell_of(m, scale, seed, p=2) -> GatedCell:
    rng = np.random.default_rng(seed)
    w_ih, w_hh = scale * rng.normal(size=(4 * m, p)), scale / np.sqrt(m) * rng.normal(size=(4 * m, m))
    low = rng.uniform(-1.5, 0.5, size=p)
    high = low + rng.uniform(0.0, 2.0, size=p)
    return GatedCell("lstm", w_ih, w_hh, scale * rng.normal(size=4 * m), scale * rng.normal(size=4 * m), low, high)


def quotient(cell, h, u):
    """i g / (1 - f), 1 - f as a logistic function of its own."""
    m, z = cell.hidden, u @ cell.w_ih.T + cell.b_ih + h @ cell.w_hh.T + cell.b_hh
    i, shut = (1.0 / (1.0 + np.exp(-s)) for s in (z[..., :m], -z[..., m : 2 * m]))
    return i * np.tanh(z[..., 2 * m : 3 * m]) / shut


def extremes(cell, h, rng, starts=24):
    """The ends of i g / (1 - f) that flips of one entry after another reach, from random corners and points."""
    m = cell.hidden
    low, high = np.concatenate([h.low, cell.input_low]), np.concatenate([h.high, cell.input_high])
    found = []
    for sign in (1.0, -1.0):
        best = np.full(m, -np.inf)
        for unit in range(m):
            x = rng.uniform(low, high, size=(starts, len(low)))
            x[::2] = np.where(rng.random(x.shape) < 0.5, low, high)[::2]

            def value(y, sign=sign, unit=unit):
                return sign * quotient(cell, y[:, :m], y[:, m:])[:, unit]

            best[unit] = max(best[unit], value(x).max())
            for k in list(range(len(low))) * 3:
                tried = [x.copy() for _ in range(4)]
                for y, end in zip(tried[1:], (low[k], high[k], rng.uniform(low[k], high[k], size=starts))):
                    y[:, k] = end
                x = np.stack(tried)[np.argmax([value(y) for y in tried], axis=0), np.arange(starts)]
            best[unit] = max(best[unit], value(x).max())
        found.append(best)
    return -found[1], found[0]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0])
def test_no_point_of_the_boxes_lies_outside(scale, seed):
    rng, cell = np.random.default_rng(seed), cell_of(4, scale, seed)
    a, b = rng.uniform(-1.0, 1.0, size=(2, 4))
    h = Interval(np.minimum(a, b), np.maximum(a, b))
    found, (low, high) = settling_range(cell, h), extremes(cell, h, rng)
    slack = 1e-12 * (1.0 + np.maximum(np.abs(low), np.abs(high)))  # this test's own roundings
    assert (found.low <= np.minimum(low, 0.0) + slack).all()
    assert (found.high >= np.maximum(high, 0.0) - slack).all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("far", [0.0, 3.0, -40.0])
def test_a_step_from_any_box_is_enclosed(far, seed):
    """Boxes that hold nothing of where the cell state settles, too: a step goes but a part of the way."""
    rng, cell = np.random.default_rng(seed), cell_of(4, 1.0, seed)
    a, b = rng.uniform(-1.0, 1.0, size=(2, cell.states))
    shift = np.repeat([0.0, far], cell.hidden)
    box = Interval(np.minimum(a, b) + shift, np.maximum(a, b) + shift)
    gates = gate_bounds(cell, box)
    x = rng.uniform(box.low, box.high, size=(2000, cell.states))
    x[::2] = np.where(rng.random(x.shape) < 0.5, box.low, box.high)[::2]
    u = rng.uniform(cell.input_low, cell.input_high, size=(2000, cell.inputs))
    u[::3] = np.where(rng.random(u.shape) < 0.5, cell.input_low, cell.input_high)[::3]
    parts = cell._parts(x, u)
    assert (gates["next"].low - 1e-13 <= parts["next"]).all()
    assert (parts["next"] <= gates["next"].high + 1e-13).all()
    assert (np.abs(np.tanh(parts["c_next"])) <= gates["t"].magnitude + 1e-13).all()


def one_unit(w_ih, w_hh=(0.0, 0.0, 0.0, 0.0), b=(0.0, 0.0, 0.0, 0.0), reach=1.0) -> GatedCell:
    w = [np.asarray(x, dtype=float).reshape(4, -1) for x in (w_ih, w_hh)]
    return GatedCell("lstm", *w, np.asarray(b, dtype=float), None, -reach, reach)


NOTHING = Interval(np.zeros(1), np.zeros(1))


@pytest.mark.parametrize("forget", [-3.0, -1.0, 0.5, 2.0, 4.0])
@pytest.mark.parametrize("candidate", [-2.0, -0.5, 1.0])
@pytest.mark.parametrize("enter", [-1.0, 0.0, 2.0])
def test_one_input_of_all_gates_is_bounded_nearly_sharply(forget, candidate, enter):
    cell = one_unit([enter, forget, candidate, 0.3], b=(0.2, 0.4, 0.1, 0.0))
    u = np.linspace(-1.0, 1.0, 4001)[:, None]
    seen = quotient(cell, np.zeros_like(u), u)[:, 0]
    found = settling_range(cell, NOTHING)
    assert seen.max() <= found.high[0] <= 1.15 * max(seen.max(), 0.0) + 0.02
    assert -seen.min() <= -found.low[0] <= 1.15 * max(-seen.min(), 0.0) + 0.02


def test_gates_with_nothing_in_common_reach_the_ends():
    """Each reads an input of its own: the bound is attained where all are at their ends."""
    cell = one_unit(np.eye(4), b=(0.3, 0.5, -0.2, 0.0))
    high = np.tanh(0.8) / (1 + np.exp(-1.3)) * (1 + np.exp(1.5))
    low = -np.tanh(1.2) / (1 + np.exp(-1.3)) * (1 + np.exp(1.5))
    found = settling_range(cell, NOTHING)
    assert low - 1e-12 <= found.low[0] <= low
    assert high <= found.high[0] <= high + 1e-12


@pytest.mark.parametrize(("m", "share"), [(8, 0.65), (16, 0.55), (32, 0.55)])
def test_the_box_is_a_part_of_that_of_the_gates_apart_and_both_are_accepted(m, share, monkeypatch):
    rng = np.random.default_rng(0)
    w_ih, w_hh = 0.3 * rng.normal(size=(4 * m, 2)), 0.3 / np.sqrt(m) * rng.normal(size=(4 * m, m))
    cell = GatedCell("lstm", w_ih, w_hh, 0.3 * rng.normal(size=4 * m), None, -1.0, 1.0)
    sharp = invariant_box(cell)
    with monkeypatch.context() as m_p:
        m_p.setattr(bounds, "settling_range", lambda cell, h: Interval(np.full(m, -np.inf), np.full(m, np.inf)))
        wide = invariant_box(cell)
        assert not is_invariant(cell, sharp)
    assert wide.contains(sharp)
    assert ((sharp.high - sharp.low)[m:]).mean() <= share * (wide.high - wide.low)[m:].mean()
    for box in (wide, sharp):
        assert is_invariant(cell, box)
        assert absorbs(cell, box)


def worst_input(cell, x, direction, rng):
    """The input of some at random and at the corners after which ``direction x`` is largest, run by run."""
    u = rng.uniform(cell.input_low, cell.input_high, size=(12, len(x), cell.inputs))
    u[::2] = np.where(rng.random(u.shape) < 0.5, cell.input_low, cell.input_high)[::2]
    after = np.stack([cell.advance(x, v) for v in u])
    return after[np.argmax((after * direction).sum(-1), axis=0), np.arange(len(x))]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scale", [0.4, 1.0])
def test_runs_that_push_outwards_enter_and_stay(scale, seed):
    rng, cell = np.random.default_rng(seed), cell_of(5, scale, 100 + seed)
    box = invariant_box(cell)
    m, eye = cell.hidden, np.eye(cell.states)
    direction = np.concatenate([eye, -eye, rng.normal(size=(12, cell.states))])
    inside = np.where(direction > 0, box.high, box.low)  # the corner each run is pushed to
    outside = np.concatenate([np.sign(inside[:, :m]), 5.0 * inside[:, m:]], axis=1)
    x = np.concatenate([inside, outside])
    push, runs = np.concatenate([direction, direction]), len(direction)
    for _ in range(400):
        x = worst_input(cell, x, push, rng)
        assert (x[:runs] >= box.low).all()
        assert (x[:runs] <= box.high).all()
    f = float(gate_bounds(cell, box)["f"].high.max())
    if f**400 < 1e-6:
        assert (x >= box.low).all()
        assert (x <= box.high).all()


@pytest.mark.parametrize("seed", range(3))
def test_steps_from_the_corners_stay_inside_to_forty_digits(seed):
    """One unit, one input: the corners and points between them, one step in mpmath."""
    rng = np.random.default_rng(seed)
    cell = one_unit(rng.normal(size=4), rng.normal(size=4), 0.5 * rng.normal(size=4))
    box, rows = invariant_box(cell), [part.reshape(-1) for part in (cell.w_ih, cell.w_hh, cell.b_ih)]
    with mpmath.workdps(40):

        def logistic(x):
            return 1 / (1 + mpmath.exp(-x))

        def points(low, high):
            return [
                mpmath.mpf(float(low)) + k * (mpmath.mpf(float(high)) - mpmath.mpf(float(low))) / 4 for k in range(5)
            ]

        for h in points(box.low[0], box.high[0]):
            for u in points(-1.0, 1.0):
                z = [float(w) * u + float(r) * h + float(b) for w, r, b in zip(*rows)]
                i, f, g, o = logistic(z[0]), logistic(z[1]), mpmath.tanh(z[2]), logistic(z[3])
                for c in points(box.low[1], box.high[1]):
                    after = f * c + i * g
                    assert float(box.low[1]) <= after <= float(box.high[1])
                    assert float(box.low[0]) <= o * mpmath.tanh(after) <= float(box.high[0])


@pytest.mark.parametrize("seed", range(2))
def test_a_box_that_runs_leave_is_refused(seed):
    """Every end of the cell state's box is drawn in to just before what a run under a constant input reaches."""
    cell = one_unit([1.0, 1.5, -1.0 + 0.2 * seed, 0.5], [0.3, 0.2, 0.4, 0.1], (0.1, 0.2, 0.1 * seed, 0.0))
    box = invariant_box(cell)
    claim = gated_bounds(cell, Claim("contraction", undecided(cell), Verdict.INCONCLUSIVE))
    assert verify_claim(cell, claim).valid
    for side in (0, 1):
        reach = 0.0
        for u in np.linspace(-1.0, 1.0, 41):
            x = np.zeros(2)
            for _ in range(500):
                x = cell.advance(x, np.array([u]))
                reach = max(reach, x[1] if side else -x[1])
        low, high = box.low.copy(), box.high.copy()
        (high if side else low)[1] = (1.0 if side else -1.0) * 0.999 * reach
        assert not (is_invariant(cell, Interval(low, high)) and absorbs(cell, Interval(low, high)))
        forged = Proof("gated_bounds", {**claim.proof.data, "low": low, "high": high})
        answer = verify_claim(cell, replace(claim, proof=forged))
        assert not answer.valid
        assert "box" in str(answer)


def test_nothing_is_known_without_a_box_or_where_a_gate_may_stay_open():
    w, h = np.ones((4, 1)), Interval(-np.ones(1), np.ones(1))
    free = GatedCell("lstm", w, 0.1 * w)
    assert np.isinf(settling_range(free, h).high).all()
    for bias, known in ((20.0, True), (60.0, False)):
        cell = GatedCell("lstm", w, 0.1 * w, np.array([0.0, bias, 0.0, 0.0]), None, -1.0, 1.0)
        found = settling_range(cell, h)
        assert np.isfinite(found.high).all() == np.isfinite(found.low).all() == known, bias


def test_weights_of_every_size():
    for size in (0.0, 1e-308, 1e-12, 1e3, 1e155, 1e300):
        cell = GatedCell("lstm", size * np.ones((4, 1)), -size * np.ones((4, 1)), None, None, -1.0, 1.0)
        found = settling_range(cell, Interval(-np.ones(1), np.ones(1)))
        assert found.low[0] <= 0.0 <= found.high[0]
