"""Reachability in dense directed graphs."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def reached(graph: Array, start: int) -> Array:
    """The indices that a walk from one of them reaches, itself among them.

    Args:
        graph: ``(n, n)`` booleans; ``graph[i, j]`` is an edge from i to j.
        start: where the walk begins.

    Returns:
        ``(n,)`` booleans.

    Cost:
        ``n^2``.

    Example:
        >>> reached(np.array([[False, True], [False, False]]), 1).tolist()
        [False, True]
    """
    seen = np.zeros(len(graph), dtype=bool)
    seen[start] = True
    edge = seen
    while edge.any():
        edge = graph[edge].any(axis=0) & ~seen
        seen = seen | edge
    return seen


def is_strongly_connected(graph: Array) -> bool:
    """Whether each index reaches every other.

    Example:
        >>> is_strongly_connected(np.array([[False, True], [True, False]]))
        True
    """
    return len(graph) > 0 and bool(reached(graph, 0).all() and reached(graph.T, 0).all())


def components(graph: Array) -> Array:
    """The number of the connected part of each index, edges taken both ways; parts are numbered as they are met.

    Args:
        graph: ``(n, n)`` booleans.

    Returns:
        ``(n,)`` integers.

    Example:
        >>> components(np.array([[False, False, True], [False, False, False], [False, False, False]])).tolist()
        [0, 1, 0]
    """
    both = graph | graph.T
    part = np.full(len(graph), -1)
    for number in range(len(graph)):
        if not (waiting := np.flatnonzero(part < 0)).size:
            break
        part[reached(both, int(waiting[0]))] = number
    return part
