"""Ranges of inputs: inclusion and width."""

from __future__ import annotations

import numpy as np

Range = tuple[float | tuple[float, ...], float | tuple[float, ...]]
"""Lower and upper bound of inputs: numbers, or one per feature."""


def covers(box: Range | None, span: Range | None) -> bool:
    """Return True if all inputs of a range lie in a box; False if either is unknown.

    Example:
        >>> covers((-1, 1), (0, 1)), covers((-1, 1), ((0, 0), (1, 2))), covers((0, 1), None)
        (True, False, False)
    """
    if box is None or span is None:
        return False
    (low, high), (least, most) = ([np.asarray(end, float) for end in ends] for ends in (box, span))
    return bool((low <= least).all() and (most <= high).all())


def width(bounds: Range) -> float:
    """Return the width of a range, that of the widest feature where each has its own.

    Example:
        >>> width((-1.0, 3.0)), width(((0.0, 10.0), (1.0, 12.0)))
        (4.0, 2.0)
    """
    low, high = bounds
    return float(np.max(np.subtract(high, low)))
