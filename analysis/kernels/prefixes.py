r"""Sequences that begin alike are one until they part: their states, and what is known of them, are kept once.

Images begin with rows that are empty, sentences with the same word, and a state knows of its sequence what came so far.
At each time there is a row for each different beginning, and ``parents`` says from which row of the time before it
comes; backward in time the rows that come from one are added up. All rows lie one after another, time by time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

_WORTH = 0.97
"""Of the rows of sequences each for itself: with more the beginnings are not joined."""


@dataclass(frozen=True)
class Prefixes:
    """Which rows there are at each time.

    Attributes:
        sizes: rows at each time.
        parents: for each time the row of the time before (at first: of the start) that each row comes from; ``None``
            where each comes from the one in its place.
        leaves: the row at the last time of each sequence; ``None``: in their order.
        lineage: the rows of all times of each sequence, ``(time, batch)``; ``None``: in their order.
    """

    sizes: tuple[int, ...]
    parents: tuple[Tensor | None, ...]
    leaves: Tensor | None = None
    lineage: Tensor | None = None
    offsets: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", (0, *np.cumsum(self.sizes).tolist()))

    def cut(self, rows: Tensor) -> Sequence[Tensor]:
        """Views of the rows of each time."""
        return rows.split(self.sizes)

    def flat(self, rows: Tensor) -> Sequence[Tensor]:
        """Views ``(rows k, n)`` of the rows ``(rows, k, n)`` of each time."""
        k = rows.shape[1]
        return rows.flatten(0, 1).split([k * size for size in self.sizes])

    def at(self, t: int, rows: Tensor) -> Tensor:
        """The rows of time t."""
        return rows[self.offsets[t] : self.offsets[t + 1]]

    def grown(self, t: int, rows: Tensor) -> Tensor:
        """Rows of the time before, as those of time t."""
        parents = self.parents[t]
        return rows if parents is None else rows.index_select(0, parents)

    def gathered(self, t: int, rows: Tensor) -> Tensor:
        """Rows of time t, added up over what they come from."""
        parents = self.parents[t]
        if parents is None:
            return rows
        before = self.sizes[t - 1] if t else int(parents.max()) + 1
        return rows.new_zeros(before, *rows.shape[1:]).index_add_(0, parents, rows)

    def last(self, rows: Tensor) -> Tensor:
        """Rows of the last time ``(rows, n)`` as sequences ``(batch, n)``."""
        return rows if self.leaves is None else rows.index_select(0, self.leaves)

    def everywhere(self, rows: Tensor) -> Tensor:
        """All rows as ``(time, batch, n)``."""
        if self.lineage is None:
            return rows.unflatten(0, (len(self.sizes), -1))
        return rows.index_select(0, self.lineage.flatten()).unflatten(0, self.lineage.shape)


def apart(time: int, batch: int) -> Prefixes:
    """Each sequence for itself.

    Example:
        >>> apart(3, 2).offsets
        (0, 2, 4, 6)
    """
    return Prefixes((batch,) * time, (None,) * time)


def joined(x: Tensor) -> tuple[Prefixes, Tensor]:
    """Sequences joined while they are equal, and their inputs row by row; each for itself where that saves nothing.

    Args:
        x: ``(batch, time, d)``, all from one start.

    Returns:
        The prefixes and ``(rows, d)``.

    Example:
        >>> prefixes, rows = joined(torch.tensor([[[0.0], [1.0]], [[0.0], [2.0]], [[0.0], [1.0]]]))
        >>> prefixes.sizes, prefixes.everywhere(rows)[..., 0].tolist()
        ((1, 2), [[0.0, 0.0, 0.0], [1.0, 2.0, 1.0]])
    """
    values = x.detach().cpu().numpy()
    batch, time = values.shape[:2]
    groups, count = np.zeros(batch, dtype=np.int64), 1
    parents: list[Tensor | None] = []
    lineage, chosen = np.empty((time, batch), dtype=np.int64), []
    for t in range(time):
        came = None
        if count < batch:
            sizes = np.bincount(groups, minlength=count)
            open_ = np.flatnonzero(sizes[groups] > 1)
            kinds = np.zeros(batch, dtype=np.int64)
            kinds[open_] = _kinds(values[open_, t])
            pairs, new = np.unique(groups * batch + kinds, return_inverse=True)
            if len(pairs) > count or t == 0:
                came = pairs // batch
                groups, count = new.reshape(-1), len(pairs)
        parents.append(None if came is None else torch.from_numpy(came).to(x.device))
        lineage[t] = groups
        _, places = np.unique(groups, return_index=True) if came is not None or t == 0 else (None, chosen[-1])
        chosen.append(places)
    total = sum(len(places) for places in chosen)
    if total > _WORTH * batch * time:
        return apart(time, batch), x.transpose(0, 1).flatten(0, 1)
    sizes = tuple(len(places) for places in chosen)
    times = np.repeat(np.arange(time), sizes)
    rows = x[torch.from_numpy(np.concatenate(chosen)).to(x.device), torch.from_numpy(times).to(x.device)]
    lineage += np.concatenate([[0], np.cumsum(sizes)[:-1]])[:, None]
    on_device = torch.from_numpy(groups).to(x.device), torch.from_numpy(lineage).to(x.device)
    return Prefixes(sizes, tuple(parents), *on_device), rows


def _kinds(rows: np.ndarray) -> np.ndarray:
    """A number for each different row, by its bytes."""
    whole = np.ascontiguousarray(rows).reshape(len(rows), -1)
    return np.unique(whole.view(np.dtype((np.void, whole.shape[1] * whole.itemsize))), return_inverse=True)[1].ravel()
