"""Joined sequences against sequences one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stability.analysis.kernels.prefixes import Prefixes, apart, joined


def words(seed: int, batch: int, time: int, letters: int = 2) -> torch.Tensor:
    """Sequences of few letters: many begin alike, and some are one to the end."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, letters, (batch, time, 1)).astype(float))


def beginnings(x: torch.Tensor) -> list[int]:
    """How many different beginnings there are, time by time."""
    return [len({tuple(row) for row in x[:, : t + 1, 0].tolist()}) for t in range(x.shape[1])]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("batch", "time"), [(1, 3), (2, 1), (5, 4), (40, 9), (64, 3)])
def test_each_beginning_has_one_row_and_every_sequence_finds_its_own(seed, batch, time):
    x = words(seed, batch, time)
    tree, rows = joined(x)
    together = sum(beginnings(x))
    assert sum(tree.sizes) == (together if together <= 0.97 * batch * time else batch * time)
    torch.testing.assert_close(tree.everywhere(rows), x.transpose(0, 1), rtol=0, atol=0)
    torch.testing.assert_close(tree.last(tree.cut(rows)[-1]), x[:, -1], rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(6))
def test_rows_grow_from_their_parents_and_are_gathered_there(seed):
    x = words(seed, 40, 9)
    tree, rows = joined(x)
    sums = torch.zeros(1, 1, dtype=x.dtype)
    for t, part in enumerate(tree.cut(rows)):
        sums = tree.grown(t, sums) + part
    torch.testing.assert_close(tree.last(sums), x.sum(1))
    for t in range(1, 9):
        a = torch.randn(tree.sizes[t], 2, dtype=x.dtype)
        b = torch.randn(tree.sizes[t - 1], 2, dtype=x.dtype)
        torch.testing.assert_close((tree.grown(t, b) * a).sum(), (b * tree.gathered(t, a)).sum())


def test_nothing_is_joined_where_sequences_part_at_once():
    x = torch.randn(6, 4, 2)
    tree, rows = joined(x)
    assert tree == apart(4, 6) == Prefixes((6,) * 4, (None,) * 4)
    assert torch.equal(rows, x.transpose(0, 1).flatten(0, 1))
