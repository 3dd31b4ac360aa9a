"""Boxes of moves that wait: the lower ones of each cell are cut, nothing is lost, and it comes to an end."""

from __future__ import annotations

import numpy as np
import pytest

from stability.local.pools import Met, Pool


def pool(cell: list[int], cost: list[float], q: int = 2) -> Pool:
    n = len(cell)
    wide = np.full((n, 1), 3.0)
    met = Met(np.array(cell, dtype=int), np.array(cost), -wide, wide, np.arange(n, dtype=float))
    return Pool(met, np.arange(n * q, dtype=float).reshape(n, q), np.tile([1.0, 2.0][:q], (n, 1)))


def test_each_cell_has_its_own_middle():
    cell, v, _, left, ended = pool([0, 0, 0, 1, 1], [0.0, 0.9, 1.1, 10.0, 13.0]).cut(np.array([2.0, 12.0]))
    assert sorted(cell.tolist()) == [0] * 8 + [1] * 4
    assert left.met.cost.tolist() == [1.1]
    assert left.v.tolist() == [[4.0, 5.0]]
    assert ended.cost.tolist() == [13.0]
    assert ended.floor.tolist() == [4.0]
    assert len(v) == 12


def test_parts_of_a_box_are_all_of_it():
    cell, v, dv, left, ended = pool([0], [0.0]).cut(np.array([1.0]))
    assert (cell == 0).all()
    assert (dv == [1.0, 0.5]).all()
    assert sorted((v[:, 1] - dv[:, 1]).tolist()) == [-1.0, 0.0, 1.0, 2.0]
    assert (v[:, 0] == 0.0).all()
    assert not len(left.v)
    assert not len(ended.cost)


@pytest.mark.parametrize("cost", [-np.inf, np.nan])
def test_what_has_no_bound_is_cut_or_done_with_and_never_waits(cost):
    cell, _, _, left, ended = pool([0, 0], [cost, 0.5]).cut(np.array([1.0]))
    assert len(cell) == 4
    assert len(ended.cost) == int(np.isnan(cost))
    assert len(left.v) == int(np.isinf(cost))


def test_nothing_is_needed_of_cells_that_are_given_up():
    cell, v, dv, left, ended = pool([0, 1], [0.0, 0.0]).cut(np.array([-np.inf, 1.0]))
    assert set(cell.tolist()) == {1}
    assert len(v) == len(dv) == 4
    assert not len(left.v)
    assert ended.cell.tolist() == [0]


def test_moves_of_no_coordinate_and_no_boxes_are_no_fault():
    for some in (Pool.empty(2, 0), Pool.empty(1, 2)):
        cell, v, dv, left, ended = some.cut(np.zeros(3))
        assert not len(cell)
        assert v.shape == dv.shape == some.v.shape
        assert not len(left.v)
        assert not len(ended.cost)
