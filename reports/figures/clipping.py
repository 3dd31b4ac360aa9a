"""Clipping of polylines to the frame of a drawing."""

from __future__ import annotations

import numpy as np


def with_crossings(points: np.ndarray) -> np.ndarray:
    """Insert the points at which a polyline crosses an edge of the unit square, or the edge's extension.

    Args:
        points: ``(n, 2)``, finite.

    Example:
        >>> with_crossings(np.array([[0.0, 0.5], [1.0, 1.5]])).tolist()
        [[0.0, 0.5], [0.5, 1.0], [1.0, 1.5]]
    """
    for axis, edge in ((0, 0.0), (0, 1.0), (1, 0.0), (1, 1.0)):
        beyond = points[:, axis] - edge
        at = np.flatnonzero(beyond[:-1] * beyond[1:] < 0)
        share = (beyond[at] / (beyond[at] - beyond[at + 1]))[:, None]
        found = points[at] + share * (points[at + 1] - points[at])
        found[:, axis] = edge
        points = np.insert(points, at + 1, found, axis=0)
    return points


def clipped(points: np.ndarray) -> list[np.ndarray]:
    """Return the pieces of a polyline that lie in the unit square; it is also broken at points that are not finite."""
    out = []
    for piece in _runs(points, np.isfinite(points)):
        whole = with_crossings(piece)
        out += _runs(whole, (whole > -1e-9) & (whole < 1 + 1e-9))
    return out


def _runs(points: np.ndarray, keep: np.ndarray) -> list[np.ndarray]:
    """Return the longest stretches of points of which both coordinates are kept."""
    keep = np.logical_and(keep[:, 0], keep[:, 1])
    pieces = np.split(np.arange(len(points)), np.flatnonzero(~keep))
    return [points[k] for piece in pieces if len(k := piece[keep[piece]])]
