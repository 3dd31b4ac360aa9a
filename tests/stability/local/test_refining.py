"""What is needed of planes: how much is told of cells that runs come to at a cost, and that nothing more is."""

from __future__ import annotations

import numpy as np
import pytest
from gated_specimens import cells_of, drawn, label_of, nearest

from stability.local.gated_runs import GatedRuns
from stability.local.needed import Needed
from stability.local.parts import Part
from stability.local.refining import Refining
from stability.local.togo import ending, gated_moves
from stability.rigor.intervals import Interval

Array = np.ndarray


def refining(kind: str, steps: int, seed: int, features: int = 1) -> tuple[Refining, float]:
    """The cells of a sequence before the first pass, and what the nearest run of another class costs."""
    net, x = drawn(kind, steps, seed, features)
    reach = nearest(net, x)
    runs = GatedRuns(gated_moves(net, x, reach), net.start)
    boxes = runs.boxes(Part.whole(0, steps))
    assert boxes is not None
    low, high = boxes
    end = ending(net, label_of(net, x), Interval(low[-1, :1], high[-1, :1]))
    assert end is not None
    return Refining(runs, end, low[:-1], high[:-1], cap=reach * reach), reach * reach


@np.errstate(all="ignore")  # as the search has it: infinity is what costs too much
def passed(made: Refining, goal: float, turns: int) -> list[float]:
    """The bounds of some passes."""
    gap, out = np.inf, list[float]()
    for _ in range(turns):
        value = made.back(gap)
        assert value is not None
        out.append(value)
        gap = goal - value
        made.forward(value, gap)
    return out


@pytest.mark.parametrize("d", [1, 2])
def test_what_is_needed_of_parts_is_what_is_needed_of_their_cell(d):
    rng = np.random.default_rng(d)
    cells = cells_of(rng, np.full(d, -1.0), np.full(d, 2.0), 3)
    need = Needed(rng.normal(size=len(cells)), rng.normal(size=(len(cells), d)))
    which, before = cells.leaves[::2], len(cells)
    cells.cut(which)
    parts = need.cut(cells, which)
    assert np.array_equal(parts.value[:before], need.value)
    assert len(parts.value) == len(parts.slope) == len(cells)
    for k, cell in enumerate(which):
        for part in range(before + k * 2**d, before + (k + 1) * 2**d):
            off = cells.boxes(np.array([part]))[0][0] - cells.boxes(np.array([cell]))[0][0]
            assert abs(off).min() > 0.0
            assert np.isclose(parts.value[part], need.value[cell] + need.slope[cell] @ off, rtol=0, atol=1e-12)
            assert np.array_equal(parts.slope[part], need.slope[cell])


def test_a_plane_of_another_slope_is_enough_where_it_is_nowhere_below_and_no_higher():
    rng = np.random.default_rng(0)
    need, slope, ds = (
        Needed(rng.normal(size=50), rng.normal(size=(50, 2))),
        rng.normal(size=(50, 2)),
        rng.random((50, 2)),
    )
    most = need.most(slope, ds)
    corners = [ds * sign for sign in ([1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0])]
    above = [most + (slope * s).sum(axis=1) - need.value - (need.slope * s).sum(axis=1) for s in corners]
    assert np.min(above, axis=0) == pytest.approx(np.zeros(50), abs=1e-12)


@pytest.mark.parametrize(("kind", "features"), [("gru", 2), ("lstm", 1), ("lstm", 2)])
def test_planes_are_told_up_to_what_is_needed_in_fewer_boxes(kind, features):
    made, goal = refining(kind, 3, 1, features)
    passed(made, goal, 3)
    own, t = made.cells[0], 1
    live = own.leaves[made.spare[0][own.leaves] >= 0.0]
    s, half = own.boxes(live)
    free = Needed(np.full(len(live), np.inf), np.zeros((len(live), len(own.low))))
    with np.errstate(all="ignore"):
        whole = made.planes(t, s, half, 1e-3, free)
    assert (whole.value > 0.0).mean() > 0.5
    enough = Needed(0.25 * whole.value, np.zeros((len(live), len(own.low))))
    with np.errstate(all="ignore"):
        found = made.planes(t, s, half, 1e-3, enough)
    most = enough.most(found.slope, half)
    assert (found.value <= most + 1e-12).all()
    assert (found.value >= np.minimum(most, whole.value) - 0.05 * goal).all()
    assert found.boxes < whole.boxes


@pytest.mark.parametrize(("kind", "seed"), [("gru", 3), pytest.param("gru", 4, marks=pytest.mark.slow)])
def test_what_is_needed_leaves_the_bound_of_the_start_where_it_was(kind, seed, monkeypatch):
    """Runs that cost less than the nearest one have no more to spare: so passes with what is needed are as good."""
    made, goal = refining(kind, 3, seed, 2)
    values = passed(made, goal, 6)
    monkeypatch.setattr(Needed, "most", lambda need, slope, ds: np.full(len(slope), np.inf))
    other, goal = refining(kind, 3, seed, 2)
    others = passed(other, goal, 6)
    assert values[-1] > 0.8 * goal
    assert abs(values[-1] - others[-1]) < 0.01 * goal
    assert made.boxes < other.boxes


@np.errstate(all="ignore")
def test_cells_that_no_run_comes_to_are_made_anew_and_not_cut():
    made, goal = refining("lstm", 2, 4)
    gap = goal - passed(made, goal, 4)[-1]
    (own,) = made.cells
    leaves, before = own.leaves, own.value[own.leaves].copy()
    own.value[leaves] = before + 10.0  # what nothing proves
    made.need[0] = Needed(np.full(len(own), np.inf), own.slope.copy())
    made.spare[0] = np.full(len(own), -1.0)
    made.back(gap)
    assert np.array_equal(own.leaves, leaves)
    assert (own.value[leaves] < before + 9.0).sum() > len(leaves) // 2  # in others nothing leads to another class
    own.value[leaves] = before + 10.0
    made.spare[0] = np.full(len(own), gap)
    made.back(gap)
    assert len(own.leaves) > len(leaves)
