"""The boxes of inputs that a search goes through, and whether the states of a gated cell can come up in use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.gated.bounds import gate_bounds
from stability.gated.cell import GatedCell
from stability.refute.inputs import ANYWHERE, InputRange
from stability.rigor.intervals import Interval

__all__ = ["input_boxes", "states_reachable"]

Array = np.ndarray
WIDTHS = (1.0, 5.0, 50.0)
STATES = ("state", "first", "second")


def input_boxes(low: Array | None, high: Array | None, region: InputRange, size: int) -> list[tuple[Array, Array]]:
    """Boxes of inputs in the order in which a search goes through them.

    The data's range comes first; then the subject's own box, or, where every input is allowed, [0, 1], [-1, 1] and
    wider ones.

    Args:
        low: ``(p,)`` the subject's own box, or ``None``.
        high: its other end.
        region: the range of the data.
        size: number of inputs.

    Returns:
        Pairs of ``(p,)`` ends.

    Example:
        >>> [(a.tolist(), b.tolist()) for a, b in input_boxes(None, None, ANYWHERE, 1)][:2]
        [([0.0], [1.0]), ([-1.0], [1.0])]
    """
    boxes = []
    if region.low is not None and region.high is not None:
        inner = (region.low, region.high)
        if low is not None and high is not None:
            inner = np.maximum(low, region.low), np.minimum(high, region.high)
        if (inner[0] <= inner[1]).all():
            boxes.append(inner)
    if low is not None and high is not None:
        boxes.append((low, high))
    else:
        boxes += [(np.zeros(size), np.ones(size)), *((np.full(size, -w), np.full(size, w)) for w in WIDTHS)]
    return [box for k, box in enumerate(boxes) if not any(_same(box, other) for other in boxes[:k])]


def _same(first: tuple[Array, Array], second: tuple[Array, Array]) -> bool:
    return np.array_equal(first[0], second[0]) and np.array_equal(first[1], second[1])


def states_reachable(
    cell: GatedCell,
    data: Mapping[str, Any],
    start: Array | None,
    horizon: int,
    region: InputRange = ANYWHERE,
) -> bool | None:
    """Whether the states of a witness can come up within ``horizon`` steps from the start.

    The set of states after each step is enclosed in a box by interval arithmetic, for every input in the range (or
    the cell's own box): in one step a cell of an LSTM grows by at most one. A state outside of every box is out of
    reach; one that the run under the witness's own input comes to is reached.

    Args:
        cell: the cell.
        data: of the witness.
        start: ``(n,)`` initial state; zero by default.
        horizon: number of steps.
        region: the range of the data.

    Returns:
        True or False where it is known, else ``None``.
    """
    x = np.zeros(cell.states) if start is None else np.asarray(start, dtype=np.float64)
    points = [p for key in STATES if key in data for p in np.atleast_2d(data[key])[:1]]
    if "first_low" in data:
        return None
    read = cell.with_inputs(region.low, region.high) if region.bounded else cell
    inputs, box = np.atleast_2d(data["input"]), Interval.point(x)
    inside, near = [False] * len(points), [False] * len(points)
    with np.errstate(all="ignore"):
        for t in range(horizon + 1):
            for k, point in enumerate(points):
                inside[k] |= box.contains(Interval.point(point))
                near[k] |= bool(np.abs(x - point).max() <= 1e-6 * (1.0 + np.abs(point).max()))
            box, x = gate_bounds(read, box)["next"], cell.advance(x, inputs[t % len(inputs)])
    if not all(inside):
        return False
    return True if all(near) and region.contains(inputs) else None
