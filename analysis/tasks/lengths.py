"""Padded batches: lengths, masks and targets of sequences shorter than their batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.errors import ConfigurationError, DimensionError

from .base import Pair
from .scores import IGNORED, read_out


def check_lengths(name: str, lengths: Any, x: Tensor) -> np.ndarray:
    """Check the lengths of the sequences of a batch.

    Args:
        name: name in error messages.
        lengths: ``(n,)`` integers; ``None``: all sequences are as long as the batch.
        x: ``(n, time, features)``.

    Returns:
        ``(n,)`` int64.

    Raises:
        ConfigurationError: no integers, or lengths outside of ``[1, time]``.
        DimensionError: another number of lengths than sequences.

    Example:
        >>> check_lengths("lengths", [1, 3], torch.zeros(2, 3, 1))
        array([1, 3])
    """
    n, steps = x.shape[:2]
    if lengths is None:
        return np.full(n, steps)
    array = np.asarray(lengths)
    if array.dtype.kind not in "iu":
        raise ConfigurationError(f"{name} must hold integers, it has dtype {array.dtype}")
    if array.shape != (n,):
        raise DimensionError(name, (n,), array.shape, "one length for each sequence")
    if array.min() < 1 or array.max() > steps:
        raise ConfigurationError(f"{name} must lie in [1, {steps}], got {array.min()} to {array.max()}")
    return array.astype(np.int64)


def lengths_of_mask(name: str, mask: Any) -> np.ndarray:
    """Return the length of each sequence from the mask of its own steps.

    Args:
        name: name in error messages.
        mask: ``(n, time)``, True or 1 at the steps before the padding, which come first.

    Returns:
        ``(n,)`` int64.

    Raises:
        ConfigurationError: other entries, a sequence without a step, or padding before or between its steps.

    Example:
        >>> lengths_of_mask("mask", [[1, 1, 0], [1, 0, 0]])
        array([2, 1])
    """
    array = np.asarray(mask)
    if array.ndim != 2 or array.dtype.kind not in "biuf" or not np.isin(array, (0, 1)).all():
        raise ConfigurationError(f"{name} must be (n, time) of zeros and ones, it has shape {array.shape}")
    integers = array.astype(np.int64)
    lengths = integers.sum(1)
    gaps = (np.diff(integers, axis=1) > 0).any(1) | (lengths == 0)
    if gaps.any():
        k = int(np.argmax(gaps))
        raise ConfigurationError(f"{name}[{k}] must begin with at least one step, and padding must come last")
    return lengths


def padded(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Stack sequences of unequal length in one array, continued by zeros, and return their lengths.

    Args:
        rows: arrays ``(time_i, features)``, or ``(time_i,)`` tokens.

    Returns:
        ``(n, time, features)`` or ``(n, time)``, and ``(n,)`` int64.

    Raises:
        ConfigurationError: rows of different kinds.

    Example:
        >>> padded([[1, 2, 3], [4]])[0].tolist()
        [[1, 2, 3], [4, 0, 0]]
    """
    arrays = [np.asarray(row.detach().cpu() if isinstance(row, Tensor) else row) for row in rows]
    if len({(a.shape[1:], a.dtype.kind, a.ndim) for a in arrays}) != 1 or arrays[0].ndim not in (1, 2):
        raise ConfigurationError("the sequences of x are not all (time, features), or all tokens (time,), of one kind")
    lengths = np.array([len(a) for a in arrays])
    out = np.zeros((len(arrays), int(lengths.max()), *arrays[0].shape[1:]), np.result_type(*arrays))
    for row, array in zip(out, arrays):
        row[: len(array)] = array
    return out, lengths


def cut_to(lengths: np.ndarray, x: Tensor, y: Tensor) -> Pair:
    """Replace each sequence's padding by its own last step, without target.

    Args:
        lengths: see ``check_lengths``.
        x: ``(n, time, features)``; values in the padding are not used.
        y: classes ``(n,)`` or ``(n, time)``, or values ``(n,)``, ``(n, k)`` or ``(n, time, k)``.

    Returns:
        ``(x, y)`` with a target at every step, NaN or ``IGNORED`` where there is none.

    Example:
        >>> x, y = cut_to(np.array([1, 2]), torch.tensor([[[1.0], [9.0]], [[2.0], [3.0]]]), torch.tensor([4, 5]))
        >>> x.flatten(1).tolist(), y.tolist()
        ([[1.0, 1.0], [2.0, 3.0]], [[4, -100], [-100, 5]])
    """
    counts, steps = torch.from_numpy(lengths), x.shape[1]
    at = torch.minimum(torch.arange(steps), counts[:, None] - 1)
    x = x.gather(1, at[:, :, None].expand_as(x))
    inside = torch.arange(steps) < counts[:, None]
    if not y.is_floating_point():
        y = read_out(y.numpy(), lengths.tolist(), steps + 1)[:, :steps] if y.dim() == 1 else y
        return x, y.masked_fill(~inside, IGNORED)
    if y.dim() < 3:
        last = torch.full((*x.shape[:2], y.shape[1] if y.dim() == 2 else 1), torch.nan)
        last[torch.arange(len(x)), counts - 1] = y.reshape(len(x), -1)
        return x, last
    return x, y.masked_fill(~inside[:, :, None], torch.nan)
