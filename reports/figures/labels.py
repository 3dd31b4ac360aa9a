"""Where the names of points go in a drawing: beside them, else at the end of a line, never over a dot or a word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in units of the drawing."""
HIGH, WIDE = 11.0, 6.3
"""Of a line of letters, and of one letter, at the most common sizes."""
_CELL = 2.0  # of the raster on which places are looked for
_NEAR, _APART = 300, 12  # places at the end of a line: the nearest ones, then every twelfth
OUTSIDE = 9.0
"""How far from its point a line begins: outside the square that the dot takes, in its corners too."""
_PLACES = (
    (7.0, 3.5, "start"), (-7.0, 3.5, "end"), (7.0, -7.0, "start"), (7.0, 13.0, "start"), (-7.0, -7.0, "end"),
    (-7.0, 13.0, "end"), (7.0, -17.0, "start"), (-7.0, -17.0, "end"), (7.0, 23.0, "start"), (-7.0, 23.0, "end"),
)  # fmt: skip


@dataclass(frozen=True)
class Label:
    """A name and its place.

    Attributes:
        box: what it covers; letters stand on the line two units above its bottom.
        leader: both ends of the line from its point; ``None`` where it stands beside it.
        anchor: ``start`` or ``end``, the side of the box at which the words begin or end: that of the point.
    """

    box: Box
    leader: tuple[tuple[float, float], tuple[float, float]] | None = None
    anchor: str = "start"


def box_of(words: str, left: float, base: float) -> Box:
    """What words cover that begin at ``left`` and stand on ``base``.

    Example:
        >>> box_of("ab", 10.0, 20.0)
        (10.0, 11.0, 22.6, 22.0)
    """
    return left, base - HIGH + 2, left + WIDE * len(words), base + 2


class _Raster:
    """What is covered, in small squares over the part of a drawing in which names may stand."""

    def __init__(self, room: Box) -> None:
        self.left, self.top, right, bottom = room
        shape = (bottom - self.top, right - self.left)
        self.covered = np.zeros([max(1, int(length / _CELL)) for length in shape], bool)

    def cover(self, box: Box) -> None:
        """Every square that a box touches."""
        rows, columns = self._span(box)
        self.covered[rows, columns] = True

    def free(self, box: Box) -> bool:
        """Whether a box lies inside and on nothing."""
        high, wide = self.covered.shape
        x, y = box[0] - self.left, box[1] - self.top
        fits = x >= 0 and y >= 0 and box[2] - self.left <= wide * _CELL and box[3] - self.top <= high * _CELL
        rows, columns = self._span(box)
        return fits and not self.covered[rows, columns].any()

    def crossed(self, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Which of the lines between points ``(k, 2)`` touch anything covered."""
        longest = float(np.hypot(*(ends - starts).T).max(initial=2.0))
        share = np.linspace(0.0, 1.0, int(longest) + 1)[:, None]
        high, wide = self.covered.shape
        x, y = (starts[:, k] + share * (ends - starts)[:, k] for k in (0, 1))
        row = np.clip(((y - self.top) / _CELL).astype(int), 0, high - 1)
        column = np.clip(((x - self.left) / _CELL).astype(int), 0, wide - 1)
        return np.asarray(self.covered[row, column].any(axis=0))

    def places(self, wide: float, high: float) -> np.ndarray:
        """Left and top of every free place of a size, ``(k, 2)``."""
        sums = np.zeros([n + 1 for n in self.covered.shape], int)
        sums[1:, 1:] = self.covered.cumsum(0).cumsum(1)
        rows, columns = (int(np.ceil(length / _CELL)) for length in (high, wide))
        if rows >= len(sums) or columns >= sums.shape[1]:
            return np.zeros((0, 2))
        inside = sums[rows:, columns:] - sums[:-rows, columns:] - sums[rows:, :-columns] + sums[:-rows, :-columns]
        row, column = np.nonzero(inside == 0)
        return np.column_stack([self.left + _CELL * column, self.top + _CELL * row])

    def _span(self, box: Box) -> tuple[slice, slice]:
        low = [max(0, int(np.floor((box[k] - start) / _CELL))) for k, start in ((1, self.top), (0, self.left))]
        end = [max(0, int(np.floor((box[k] - start) / _CELL)) + 1) for k, start in ((3, self.top), (2, self.left))]
        return slice(low[0], end[0]), slice(low[1], end[1])


def placed(
    names: Iterable[tuple[str, tuple[float, float]]], room: Box, taken: Iterable[Box], strokes: Iterable[Box]
) -> list[Label | None]:
    """A place for every name: first beside its point for as many as there is room, then the nearest free one.

    Args:
        names: words, and the point that they name.
        room: where names may stand.
        taken: what neither a name nor its line may touch; a point's own surroundings may be left by its line.
        strokes: what no name may touch.

    Returns:
        One label a name; ``None`` where no place is free.

    Example:
        >>> beside, away = placed([("a", (50.0, 50.0)), ("b", (50.0, 50.0))], (0, 0, 200, 200), [], [])
        >>> beside.box, beside.leader is None
        ((57.0, 44.5, 63.3, 55.5), True)
    """
    names = list(names)
    words, all_of_it = _Raster(room), _Raster(room)
    for box in taken:
        words.cover(box)
        all_of_it.cover(box)
    for box in strokes:
        all_of_it.cover(box)
    found: list[Label | None] = [None] * len(names)

    def keep(k: int, label: Label) -> None:
        found[k] = label
        words.cover(label.box)
        all_of_it.cover(label.box)

    for k, (name, (x, y)) in enumerate(names):
        for dx, dy, anchor in _PLACES:
            box = box_of(name, x + dx - (WIDE * len(name) if anchor == "end" else 0.0), y + dy)
            if all_of_it.free(box):
                keep(k, Label(box, anchor=anchor))
                break
    for k, (name, point) in enumerate(names):
        if found[k] is None and (label := _led(name, point, words, all_of_it)) is not None:
            keep(k, label)
            assert label.leader is not None
            (a, b), (c, d) = label.leader
            for t in np.linspace(0.0, 1.0, max(2, int(np.hypot(c - a, d - b)))):
                x, y = a + t * (c - a), b + t * (d - b)
                words.cover((x, y, x, y))
                all_of_it.cover((x - 1, y - 1, x + 1, y + 1))
    return found


def _led(name: str, point: tuple[float, float], words: _Raster, all_of_it: _Raster) -> Label | None:
    """The nearest free place from which a straight line to the point touches no word, other point or other line."""
    wide = WIDE * len(name)
    corners = all_of_it.places(wide + _CELL, HIGH + _CELL)
    x, y = point
    near = np.column_stack(
        [np.clip(x, corners[:, 0], corners[:, 0] + wide), np.clip(y, corners[:, 1], corners[:, 1] + HIGH)]
    )
    distance = np.hypot(near[:, 0] - x, near[:, 1] - y)
    order = np.argsort(distance, kind="stable")
    order = order[distance[order] > OUTSIDE + 1.0]
    for tried in (order[:_NEAR], order[_NEAR::_APART]):
        ends, far = near[tried], distance[tried, None]
        starts = np.array(point) + (ends - np.array(point)) * (OUTSIDE / far)
        good = np.flatnonzero(~words.crossed(starts, ends))
        if len(good):
            (a, b), (c, d) = starts[good[0]].tolist(), ends[good[0]].tolist()
            left, top = corners[tried[good[0]]].tolist()
            side = "end" if c > left + 0.5 * wide else "start"
            return Label((left, top, left + wide, top + HIGH), ((a, b), (c, d)), side)
    return None
