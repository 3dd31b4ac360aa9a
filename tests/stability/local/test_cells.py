"""Cells of states: what is cut, found, put in order and read again; and planes that lie below those of all parts."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from gated_specimens import cells_of

from stability.local.after import Tolled
from stability.local.cells import DEEPEST, Cells, Piece

Array = np.ndarray


def made(seed: int, d: int, rounds: int = 6) -> tuple[Cells, np.random.Generator]:
    rng = np.random.default_rng(seed)
    low = rng.normal(size=d)
    return cells_of(rng, low, low + rng.uniform(0.5, 3.0, d), rounds, 2.0), rng


def holding(cells: Cells, s: Array) -> Array:
    """``(N, L)``: which leaves hold a state, borders included."""
    middle, half = cells.boxes(cells.leaves)
    return (np.abs(s[:, None] - middle) <= half * (1.0 + 1e-12)).all(axis=2)


def heights(cells: Cells, s: Array) -> Array:
    """``(N, L)``: the planes of leaves, where they are above their least values."""
    leaves = cells.leaves
    planes = cells.value[leaves] + ((s[:, None] - cells.boxes(leaves)[0]) * cells.slope[leaves]).sum(axis=2)
    return np.maximum(planes, cells.least[leaves])


def states(cells: Cells, rng: np.random.Generator, count: int) -> Array:
    """Some anywhere, some on the borders and corners of leaves."""
    d = len(cells.low)
    middle, half = cells.boxes(rng.choice(cells.leaves, count))
    border = middle + half * rng.choice([-1.0, 1.0], (count, d))
    inside = rng.uniform(cells.low, cells.high, (count, d))
    return np.concatenate([inside, border, np.where(rng.random((count, d)) < 0.5, border, inside)])


def exactly(value: float, slope: Array, off: list[Fraction]) -> Fraction:
    return Fraction(float(value)) + sum((Fraction(float(g)) * part for g, part in zip(slope, off)), Fraction(0))


@pytest.mark.parametrize("d", [1, 2])
def test_parts_of_a_cell_are_its_box_and_have_its_plane(d):
    cells, rng = made(0, d, 2)
    cell = rng.choice(cells.leaves, 1)
    before, (middle, half) = len(cells), cells.boxes(cell)
    value, slope = cells.value[cell], cells.slope[cell]
    cells.cut(cell)
    parts = np.arange(before, len(cells))
    assert len(parts) == 2**d
    assert cells.first[cell] == before
    own, size = cells.boxes(parts)
    assert np.allclose(size, 0.5 * half)
    assert np.allclose(sorted(map(tuple, own)), sorted(map(tuple, middle + (2 * cells.corners - 1) * 0.5 * half)))
    assert np.allclose(cells.value[parts], value + ((own - middle) * slope).sum(axis=1))
    assert (cells.slope[parts] == slope).all()
    assert not np.isin(cell, cells.leaves).any()


@pytest.mark.parametrize("d", [1, 2])
def test_planes_of_larger_cells_lie_below_those_of_all_their_parts(d):
    for seed in range(4):
        cells, rng = made(seed, d)
        s = states(cells, rng, 200)
        inside, planes = holding(cells, s), heights(cells, s)
        assert inside.any(axis=1).all()
        for cell in np.flatnonzero(cells.first >= 0):
            middle, half = cells.boxes(np.array([cell]))
            there = (np.abs(s - middle) <= half * (1.0 + 1e-12)).all(axis=1)
            plane = np.maximum(cells.value[cell] + (s - middle) @ cells.slope[cell], cells.least[cell])
            own = (np.abs(cells.boxes(cells.leaves)[0] - middle) < half).all(axis=1)
            allowed = np.where(inside & own, planes, np.inf).min(axis=1)
            assert (plane <= allowed + 1e-12)[there].all()
            parts = cells.first[cell] + np.arange(2**d)
            centres, size = cells.boxes(parts)
            off = (2 * cells.corners - 1) * size[:, None]
            at = cells.value[parts][:, None] + (off * cells.slope[parts][:, None]).sum(axis=2)
            apart = at - cells.value[cell] - (centres[:, None] + off - middle) @ cells.slope[cell]
            assert abs(apart.min()) < 1e-9
        assert (cells.least >= 0.0).all()


@pytest.mark.parametrize("d", [1, 2])
def test_planes_lie_below_a_little_around_cells_far_from_zero_too(d):
    """There a plane and the bounds of cells differ by more than what the planes' own rounding comes to."""
    rng = np.random.default_rng(5)
    low = np.full(d, 2.0**20)
    cells = cells_of(rng, low, low + 1.0, 2, 50.0)
    middles, halves = cells.boxes(np.arange(len(cells)))
    for cell in np.flatnonzero(cells.first >= 0):
        for part in cells.first[cell] + np.arange(2**d):
            for corner in cells.corners:
                apart = [Fraction(float(a)) for a in (halves[part] + cells.around) * (2 * corner - 1)]
                beyond = [Fraction(float(a)) - Fraction(float(b)) for a, b in zip(middles[part], middles[cell])]
                own = exactly(cells.value[part], cells.slope[part], apart)
                assert exactly(cells.value[cell], cells.slope[cell], [a + b for a, b in zip(apart, beyond)]) <= own
                if cells.first[part] < 0:
                    assert Fraction(float(cells.least[part])) <= max(own, Fraction(0))


def drawn(cells: Cells, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of all sizes, some of them points, and some outside."""
    wide, d = cells.high - cells.low, len(cells.low)
    centre = np.concatenate([states(cells, rng, 400), cells.low + wide * rng.uniform(-0.2, 1.2, (300, d))])
    half = wide * 10.0 ** rng.uniform(-9.0, 0.0, (len(centre), 1)) * rng.random((len(centre), d))
    half[::7] = 0.0
    return centre - half, centre + half


@pytest.mark.parametrize("d", [1, 2])
def test_no_state_of_a_box_is_below_all_its_pieces(d):
    for seed in range(4):
        cells, rng = made(seed, d)
        low, high = drawn(cells, rng)
        count = len(low)
        pieces = cells.pieces(low, high)
        assert 1 <= len(pieces) <= 2**d
        out = ((low > cells.high) | (high < cells.low)).any(axis=1)
        assert 10 < out.sum() < 300
        for turn in range(24):
            part = rng.random((count, d)) if turn >= 4 else np.array([turn & 1, turn >> 1])[:d] * np.ones((count, d))
            s = np.clip(low + part * (high - low), cells.low, cells.high)
            lower = np.full(count, np.inf)
            for piece in pieces:
                plane = np.maximum(piece.value + ((s - piece.at) * piece.slope).sum(axis=1), piece.least)
                lower = np.where(piece.there, np.minimum(lower, plane), lower)
            truth = np.where(holding(cells, s), heights(cells, s), -np.inf).max(axis=1)
            assert (lower <= truth + 1e-11)[~out].all()
            assert np.isinf(lower[out]).all()


@pytest.mark.parametrize("toll", [0.0, 3.0])
@pytest.mark.parametrize("d", [1, 2])
def test_no_state_of_a_box_is_below_the_plane_of_the_box(d, toll):
    for seed in range(4):
        cells, rng = made(seed, d)
        low, high = drawn(cells, rng)
        count = len(low)
        (plane,) = (Tolled(cells, toll) if toll else cells).below(low, high)
        out = ((low > cells.high) | (high < cells.low)).any(axis=1)
        assert (plane.there == ~out).all()
        for turn in range(24):
            part = rng.random((count, d)) if turn >= 4 else np.array([turn & 1, turn >> 1])[:d] * np.ones((count, d))
            s = np.clip(low + part * (high - low), cells.low, cells.high)
            found = np.maximum(plane.value + ((s - plane.at) * plane.slope).sum(axis=1), plane.least)
            truth = np.where(holding(cells, s), heights(cells, s), -np.inf).max(axis=1) + toll * s[:, 0]
            assert (found <= truth + 1e-11)[~out].all()


def test_the_plane_of_a_box_is_near_a_function_that_is_convex():
    """Planes of single cells go on over all of a box, where they are far below it."""
    cells = Cells(np.full(2, -1.0), np.full(2, 1.0))
    for _ in range(6):
        cells.cut(cells.leaves)
    leaves = cells.leaves
    middle = cells.boxes(leaves)[0]
    cells.value[leaves], cells.slope[leaves] = (middle * middle).sum(axis=1), 2.0 * middle
    cells.lift()
    rng = np.random.default_rng(0)
    centre, half = rng.uniform(-0.9, 0.9, (500, 2)), rng.uniform(0.01, 0.06, (500, 1)) * np.ones(2)
    (plane,), pieces = cells.below(centre - half, centre + half), cells.pieces(centre - half, centre + half)

    def lost(p: Piece) -> np.ndarray:
        """At the middle of a box."""
        return (centre * centre).sum(axis=1) - p.value - ((centre - p.at) * p.slope).sum(axis=1)

    each = [np.where(p.there, lost(p) + (abs(p.slope - 2.0 * centre) * half).sum(axis=1), -np.inf) for p in pieces]
    near = lost(plane) + (abs(plane.slope - 2.0 * centre) * half).sum(axis=1)
    assert (near < 0.6 * np.max(each, axis=0)).mean() > 0.9
    assert (near < 4.0 * (half * half).sum(axis=1) + 1e-3).all()


def test_a_box_that_is_wider_than_a_cell_by_rounding_has_no_cell_between_its_pieces():
    cells = Cells(np.zeros(1), np.ones(1))
    for _ in range(2):
        cells.cut(cells.leaves)
    cells.value[:] = np.where(np.abs(cells.boxes(np.arange(len(cells)))[0][:, 0] - 0.375) < 0.1, 1.0, 5.0)
    cells.lift()
    pieces = cells.pieces(np.nextafter([[0.25]], 0.0), np.array([[0.5]]))
    assert min(float(np.maximum(p.value, p.least)[0]) for p in pieces if p.there[0]) <= 1.0


@pytest.mark.parametrize("d", [1, 2])
def test_the_piece_of_a_small_box_is_the_plane_of_its_leaf(d):
    cells, rng = made(1, d)
    s = rng.uniform(cells.low, cells.high, (300, d))
    pieces, bound, leaf = cells.pieces(s, s), cells.bound(s), cells.find(s)
    assert (cells.slopes(s) == cells.slope[leaf]).all()
    assert holding(cells, s)[np.arange(300), np.searchsorted(cells.leaves, leaf)].all()
    planes = [np.maximum(p.value + ((s - p.at) * p.slope).sum(axis=1), p.least) for p in pieces]
    lowest = np.where([p.there for p in pieces], planes, np.inf).min(axis=0)
    assert np.allclose(lowest, bound, rtol=0, atol=1e-12)
    assert np.allclose(bound, np.where(holding(cells, s), heights(cells, s), np.inf).min(axis=1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2])
def test_cells_of_a_level_are_found(d):
    cells, rng = made(2, d)
    s = states(cells, rng, 300)
    for level in (0, 1, 3, DEEPEST, rng.integers(0, 7, len(s))):
        found = cells.find(s, level)
        middle, half = cells.boxes(found)
        assert (np.abs(s - middle) <= half * (1.0 + 1e-9)).all()
        assert ((cells.level[found] == level) | ((cells.level[found] < level) & (cells.first[found] < 0))).all()


@pytest.mark.parametrize("d", [1, 2])
def test_cells_are_read_as_they_are_told(d):
    cells, _ = made(3, d)
    cut, leaves = cells.ordered()
    rest = np.array([True, False])
    read = Cells.of(cells.low, cells.high, np.concatenate([cut, rest]))
    assert read is not None
    again, count = read
    assert count == len(cut) == len(again) == len(cells)
    for one, other in zip(cells.boxes(leaves), again.boxes(again.ordered()[1])):
        assert (one == other).all()
    assert sorted(leaves) == cells.leaves.tolist()
    assert all(Cells.of(cells.low, cells.high, cut[:k]) is None for k in range(len(cut)))


@pytest.mark.parametrize("d", [1, 2])
def test_cells_that_are_cut_too_often_are_not_read(d):
    one = np.arange(2**d) == 1
    for halvings, fits in ((1, True), (DEEPEST - 1, True), (DEEPEST + 1, False), (4 * DEEPEST, False)):
        chain = np.concatenate([[True], *([one] * (halvings - 1)), np.zeros(2**d, dtype=bool)])
        read = Cells.of(np.zeros(d), np.ones(d), chain)
        assert (read is not None) is fits, halvings
        if read is not None:
            assert read[0].level.max() == halvings


@pytest.mark.parametrize("d", [1, 2])
def test_values_are_spread_to_the_cells_that_boxes_meet(d):
    for seed in range(4):
        cells, rng = made(seed, d)
        wide = cells.high - cells.low
        low = cells.low + wide * rng.uniform(-0.2, 1.0, (25, d))
        high = low + wide * 10.0 ** rng.uniform(-4.0, 0.0, (25, 1)) * rng.random((25, d))
        value, leaves = rng.normal(size=25), cells.leaves
        middle, half = cells.boxes(leaves)
        meets = ((low[:, None] <= middle + half) & (high[:, None] >= middle - half)).all(axis=2)
        reached = np.where(meets, value[:, None], -np.inf).max(axis=0)
        found = cells.spread(low, high, value, np.full(25, np.inf))
        assert (found[leaves] == reached).all()
        assert (found[cells.first >= 0] == -np.inf).all()
        most = rng.uniform(0.0, 1.5, 25)
        may = meets & (cells.least[leaves] <= most[:, None])
        some = cells.spread(low, high, value, most)[leaves]
        assert (some >= np.where(may, value[:, None], -np.inf).max(axis=0)).all()
        assert (some <= reached).all()
        assert (some < reached).any()
