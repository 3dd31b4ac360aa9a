"""What a step and all that follows cost: bounds of boxes, moves of fewer coordinates, planes that are proved."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from gated_specimens import GATES, cells_of, drawn, label_of, nearest, searched

from stability.gated.cell import GatedCell
from stability.local import togo
from stability.local.after import Ending
from stability.local.cells import Cells
from stability.local.classifier import Classifier
from stability.local.expansions import Boxes
from stability.local.moves import Moves, least
from stability.local.togo import above, checked, ending, gated_moves, image, split, unfit
from stability.local.unit import GatedUnit
from stability.rigor.intervals import Interval

Array = np.ndarray
UNITS = [("gru", 1), ("gru", 2), ("lstm", 1), ("lstm", 2)]


def step_of(kind: str, q: int, rng: np.random.Generator, unsure: float = 0.0) -> Moves:
    """One whose weights and biases are known up to a number."""
    rows = GATES[kind]
    weights, e = rng.uniform(-1.5, 1.5, (rows, q)), rng.uniform(-1.0, 1.0, rows)
    cell = GatedCell(kind, weights, rng.uniform(-1.5, 1.5, (rows, 1)), e, rng.uniform(-1.0, 1.0, rows))
    unit = GatedUnit(cell, Interval(weights - unsure, weights + unsure), Interval(e - unsure, e + unsure))
    return Moves(unit, np.full(q, -2.0), np.full(q, 2.0))


def boxes(step: Moves, rng: np.random.Generator, count: int, sizes: tuple[float, float]) -> Boxes:
    d, q = step.unit.cell.states, len(step.low)
    wide = 10.0 ** rng.uniform(*sizes, (count, 1))
    s, v = rng.uniform(-1.0, 1.0, (count, d)), rng.uniform(-1.5, 1.5, (count, q))
    ds, dv = wide * rng.uniform(0.1, 1.0, (count, d)), wide * rng.uniform(0.1, 1.0, (count, q))
    return Boxes(s, ds, v, dv, rng.normal(size=(count, d)) * rng.choice([0.0, 1.0, 10.0], (count, 1)))


def points(at: Boxes, rng: np.random.Generator, inside: int) -> list[tuple[Array, Array]]:
    """States and moves of boxes: all corners, and some inside."""
    d, q = at.s.shape[1], at.v.shape[1]
    parts = [np.array(part) for part in product([-1.0, 1.0], repeat=d + q)]
    parts += [rng.uniform(-1.0, 1.0, (len(at.s), d + q)) for _ in range(inside)]
    return [(at.s + part[..., :d] * at.ds, at.v + part[..., d:] * at.dv) for part in parts]


def led(step: Moves, s: Array, v: Array, rng: np.random.Generator, unsure: float) -> Array:
    """The next states, with weights and biases at the ends of what is known of them, and of what rounding makes."""
    unit, sign = step.unit, rng.choice([-1.0, 1.0], (2, len(step.unit.e.low)))
    E, e = unit.cell.w_ih + unsure * sign[0][:, None], unit.cell.b_ih + unsure * sign[1]
    return replace(unit.cell, w_ih=E, b_ih=e).advance(s, v)


def spent(at: Boxes, s: Array, v: Array) -> Array:
    return (v * v).sum(axis=1) - ((s - at.s) * at.slope).sum(axis=1)


def sloped(step: Moves, rng: np.random.Generator, size: float) -> Cells:
    """A single cell around all next states, its plane above what is least there."""
    low, high = image(step, np.full(step.unit.cell.states, -3.0), np.full(step.unit.cell.states, 3.0))
    cells = Cells(low - 0.1, high + 0.1)
    cells.slope[0] = size * rng.normal(size=len(low))
    cells.value[0] = (np.abs(cells.slope[0]) * (high - low)).sum() + 1.0
    cells.lift()
    return cells


@pytest.mark.parametrize("unsure", [0.0, 1e-3])
@pytest.mark.parametrize("sizes", [(-9.0, -5.0), (-3.0, -1.5), (-1.5, 0.0)])
@pytest.mark.parametrize(("kind", "q"), UNITS)
def test_no_state_and_move_of_a_box_costs_less(kind, q, sizes, unsure):
    for seed in range(6):
        rng = np.random.default_rng(seed)
        step = step_of(kind, q, rng, unsure)
        at = boxes(step, rng, 200, sizes)
        after = sloped(step, rng, 10.0 ** rng.uniform(0.0, 2.0))
        found = least(step, after, at)
        middle = after.boxes(np.zeros(1, dtype=int))[0]
        narrow = np.full(len(at.s), np.inf)
        for s, v in points(at, rng, 6):
            to = led(step, s, v, rng, unsure)
            assert (found.low - 1e-14 <= to).all()
            assert (to <= found.high + 1e-14).all()
            plane = after.value[0] + (to - middle) @ after.slope[0]
            assert (found.cost <= spent(at, s, v) + plane + 1e-11).all()
            assert (found.floor <= spent(at, s, v)).all()
            held = spent(at, s, at.v) + after.value[0] + (led(step, s, at.v, rng, 0.0) - middle) @ after.slope[0]
            narrow = np.minimum(narrow, held)
        assert (found.floor <= found.cost).all()
        assert (found.cost <= found.narrow + 1e-11).all()
        assert (found.narrow <= narrow + 1e-9).all()
        if sizes[1] < -4.0 and not unsure:
            lowest = np.min([spent(at, s, v) + after.value[0] + (led(step, s, v, rng, 0.0) - middle) @ after.slope[0]
                             for s, v in points(at, rng, 0)], axis=0)  # fmt: skip
            assert (found.cost >= lowest - 1e-6).all()


@pytest.mark.parametrize("sizes", [(-9.0, -3.0), (-3.0, 0.0)])
@pytest.mark.parametrize(("kind", "q"), UNITS)
def test_no_state_and_move_costs_less_where_there_are_many_cells(kind, q, sizes):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        step = step_of(kind, q, rng)
        at, whole = boxes(step, rng, 300, sizes), sloped(step, rng, 1.0)
        after = cells_of(rng, whole.low, whole.high, 7, 5.0)
        found = least(step, after, at)
        for s, v in points(at, rng, 6):
            bound = after.bound(led(step, s, v, rng, 0.0))
            assert (found.cost <= spent(at, s, v) + bound + 1e-11).all()


@pytest.mark.parametrize("sizes", [(-9.0, -3.0), (-3.0, 0.0)])
@pytest.mark.parametrize(("kind", "q"), UNITS)
def test_no_state_and_move_of_another_class_costs_less(kind, q, sizes):
    met = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        step = step_of(kind, q, rng)
        at = boxes(step, rng, 300, sizes)
        to = step.unit.cell.advance(at.s, at.v)[:, 0]
        low, high = np.quantile(to, [0.2, 0.8])
        end = [Ending(low, high), Ending(-np.inf, high), Ending(low, np.inf)][seed % 3]
        found = least(step, end, at)
        for s, v in points(at, rng, 10):
            to = led(step, s, v, rng, 0.0)[:, 0]
            other = (to < end.low) | (to > end.high)
            assert (found.cost <= spent(at, s, v) + 1e-11)[other].all()
            met += int(other.sum())
        kept = (found.low[:, 0] > end.low) & (found.high[:, 0] < end.high)
        assert kept.any()
        assert np.isinf(found.cost[kept]).all()
    assert met > 100


@pytest.mark.parametrize("kind", sorted(GATES))
def test_boxes_whose_bends_overflow_cost_no_more_than_their_moves(kind):
    for seed in range(3):
        net, x = drawn(kind, 1, seed, scale=1e150)
        (step,) = gated_moves(net, x, 3.0)
        zero = net.start[None]
        with np.errstate(all="ignore"):
            found = least(step, Ending(-1e-3, 1e-3), Boxes(zero, zero, np.zeros((1, 1)), np.full((1, 1), 3.0), zero))
        v = np.linspace(-3.0, 3.0, 1001)
        to = net.recurrent.advance(np.repeat(zero, len(v), axis=0), x + v[:, None])[:, 0]
        assert (found.cost <= (v * v)[np.abs(to) > 1e-3].min(initial=np.inf)).all()


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("features", [1, 2, 5])
@pytest.mark.parametrize("kind", sorted(GATES))
def test_moves_are_no_longer_than_perturbations_and_have_their_gates(kind, features, rank):
    rng, rows = np.random.default_rng(features), GATES[kind]
    weights = rng.normal(size=(rows, min(rank, features))) @ rng.normal(size=(min(rank, features), features))
    cell = GatedCell(kind, weights, rng.normal(size=(rows, 1)), rng.normal(size=rows), rng.normal(size=rows))
    net, x = Classifier(cell, [[1.0], [-1.0]]), rng.normal(size=(4, features))
    mask = np.ones(x.shape)
    mask[1, 1:], mask[2] = 0.0, 0.0
    for bounds in (None, (float(x.min()) - 0.1, float(x.max()) + 0.3)):
        steps, radius = gated_moves(net, x, 0.7, "l2", mask, bounds), 0.7
        assert [len(step.low) <= mask[t].sum() for t, step in enumerate(steps)] == [True] * 4
        for t, step in enumerate(steps):
            E, e = step.unit.E, step.unit.e
            middle, centre = 0.5 * (E.low + E.high), 0.5 * (e.low + e.high)
            for _ in range(50):
                d = rng.normal(size=features) * mask[t]
                d *= radius * rng.choice([1.0, rng.random()]) / max(float(np.linalg.norm(d)), 1e-9)
                d = d if bounds is None else np.clip(x[t] + d, *bounds) - x[t]
                told = cell.w_ih @ (x[t] + d) + cell.b_ih
                free = mask[t] != 0
                direct = len(step.low) == free.sum()
                v = d[free] if direct else np.linalg.lstsq(middle, told - centre, rcond=None)[0]
                assert np.linalg.norm(v) <= np.linalg.norm(d) * (1.0 + 1e-15)
                assert (step.low <= v).all()
                assert (v <= step.high).all()
                assert np.abs(middle @ v + centre - told).max() <= 1e-12
        assert max(float((step.unit.E.high - step.unit.E.low).max(initial=0.0)) for step in steps) < 1e-11


def test_parts_of_boxes_of_moves_are_these_boxes():
    rng = np.random.default_rng(0)
    v, dv = rng.normal(size=(4, 2)), rng.uniform(0.1, 1.0, (4, 2))
    cell, parts, half = split(np.arange(4), v, dv)
    for k in range(4):
        own = cell == k
        assert np.allclose((parts - half)[own].min(axis=0), v[k] - dv[k])
        assert np.allclose((parts + half)[own].max(axis=0), v[k] + dv[k])
        assert np.allclose(np.prod(2 * half[own], axis=1).sum(), np.prod(2 * dv[k]))


@pytest.mark.parametrize("kind", sorted(GATES))
def test_a_plane_above_the_cost_to_go_is_not_proved(kind):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        step = step_of(kind, 1, rng)
        v, d = np.linspace(-2.0, 2.0, 400_001)[:, None], step.unit.cell.states
        s = rng.uniform(-0.5, 0.5, (1, d))
        to = step.unit.cell.advance(np.broadcast_to(s, (len(v), d)), v)
        wide = sloped(step, rng, 3.0)
        bound = float(np.quantile(to[:, 0], 0.8))
        for after in (Ending(-np.inf, bound), wide):
            ends = isinstance(after, Ending)
            cost = (v * v)[:, 0] + (np.where(to[:, 0] > bound, 0.0, np.inf) if ends else after.bound(to))
            true, none = float(cost.min()), np.zeros((1, d))
            for part, kept in ((1.0 - 1e-4, True), (1.0 + 1e-4, False), (2.0, False)):
                good, count = above(step, after, s, none, none, np.array([part * true]), most=3000)
                assert good.tolist() == [kept], (ends, part)
                assert 1 <= count < 20_000


def test_a_plane_is_proved_for_all_states_of_its_cell():
    step = step_of("gru", 1, np.random.default_rng(1))
    v, states = np.linspace(-2.0, 2.0, 20_001), np.linspace(0.1, 0.3, 21)
    to = step.unit.cell.advance(np.repeat(states, len(v))[:, None], np.tile(v, len(states))[:, None])
    to = to.reshape(len(states), -1)
    end = Ending(-np.inf, 0.5 * float(to.max(axis=1).min() + to[:, len(v) // 2].max()))
    cost = np.where(to > end.high, v * v, np.inf).min(axis=1)
    slope = (cost[-1] - cost[0]) / 0.2
    true = float((cost - slope * (states - 0.2)).min())
    for part, kept in ((0.97, True), (1.03, False)):
        told = step, end, np.array([[0.2]]), np.array([[0.1]]), np.array([[slope]]), np.array([part * true])
        assert above(*told)[0].tolist() == [kept]
        assert not above(*told, room=1)[0].any()
    told = step, end, np.array([[0.2]]), np.array([[0.1]]), np.array([[slope]]), np.array([0.999 * true])
    assert above(*told)[1] > above(*told, most=12)[1]


@pytest.mark.parametrize(("kind", "seed"), [("gru", 3), ("lstm", 4)])
def test_whatever_is_less_than_the_cost_of_the_nearest_run_is_proved(kind, seed):
    net, x = drawn(kind, 2, seed)
    claim, _ = searched(net, x)
    assert claim is not None
    data = claim.proof.data
    square, steps = nearest(net, x) ** 2, gated_moves(net, x, data["reach"])
    read = Cells.of(data["low"][0], data["high"][0], data["cut"] != 0.0)
    assert read is not None
    cells, (_, leaves) = read[0], read[0].ordered()
    cells.value[leaves], cells.slope[leaves] = data["values"], data["slopes"]
    end = ending(net, label_of(net, x), Interval(*image(steps[1], cells.low, cells.high)))
    assert end is not None
    for part, holds in ((1.0 - 1e-6, True), (1.0 + 1e-6, False)):
        found = checked(steps, net.start, [cells], end, part * square, 30_000)
        assert found.holds is holds
        assert found.boxes > 2
    assert not checked(steps, net.start, [cells], end, 0.5 * square, 20).holds
    cells.value[leaves] *= 1.0 + 1e-3
    assert not checked(steps, net.start, [cells], end, 0.5 * square, 30_000).holds


def test_cells_of_every_step_have_to_pass(monkeypatch):
    net, x = drawn("gru", 4, 3)
    steps, cells = gated_moves(net, x, 1.0), [Cells(np.array([-1.0]), np.array([1.0])) for _ in range(3)]
    for failing in range(-1, 4):
        calls: list[int] = []

        def passed(step, after, s, ds, slope, value, room=0.0, failing=failing, calls=calls):
            calls.append(len(s))
            return np.full(len(s), len(calls) - 1 != failing), 1

        monkeypatch.setattr(togo, "above", passed)
        for own in cells:
            own.value[:] = 1.0
        found = checked(steps, net.start, cells, Ending(-0.5, 0.5), 1.0, 100)
        assert found.holds is (failing < 0)
        assert found.boxes == len(calls) == (4 if failing < 0 else failing + 1)
        assert set(calls) == {1}


def test_what_follows_the_last_step_is_nothing_for_states_of_another_class():
    net, x = drawn("gru", 1, 3)
    label, h = label_of(net, x), np.linspace(-1.0, 1.0, 4001)
    safe = (h[:, None] * net.weight[:, 0] + net.bias).argmax(axis=1) == label
    end = ending(net, label, Interval(np.array([-1.0]), np.array([1.0])))
    assert end is not None
    inside = (h >= end.low) & (h <= end.high)
    assert safe[inside].all()
    assert (safe & ~inside).sum() <= 2
    assert ending(net, (label + 1) % 3, Interval(h[safe][:1], h[safe][-1:])) is None


def test_other_networks_are_not_what_the_bounds_are_about():
    net, _ = drawn("lstm", 1, 0)
    assert unfit(net) is None
    assert unfit(Classifier(net.recurrent, net.weight, net.bias, "mean")) is None
    two = GatedCell("gru", np.ones((6, 1)), np.ones((6, 2)))
    assert "of one unit" in str(unfit(Classifier(two, np.ones((3, 2)))))
