"""Parts of graphs, against scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse.csgraph import connected_components

from stability.search.solvers.graphs import components, is_strongly_connected, reached


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.3])
def test_parts_are_those_of_scipy(share):
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 30):
        for _ in range(20):
            graph = rng.random((n, n)) < share
            parts = components(graph)
            count, labels = connected_components(graph, directed=False)
            assert parts.max() + 1 == count == len({*zip(parts.tolist(), labels.tolist())})
            strong, labels = connected_components(graph, connection="strong")
            assert is_strongly_connected(graph) == (strong == 1)
            walks = np.linalg.matrix_power(np.eye(n) + graph, n) > 0
            assert (reached(graph, n - 1) == walks[n - 1]).all()
    assert not is_strongly_connected(np.zeros((0, 0), dtype=bool))
    assert components(np.zeros((0, 0), dtype=bool)).shape == (0,)
