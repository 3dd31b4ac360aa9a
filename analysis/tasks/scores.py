"""Scores of outputs: one number per target, averaged to the loss and the metric.

A class target ``IGNORED``, or a value NaN, has no score, so that sequences of unequal length fit in one batch. Their
padding repeats the last step and has no target. The class of a whole sequence is the target of its own last step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stability.errors import DimensionError

IGNORED = -100
"""Class label of a step without a target; equal to torch's ``ignore_index``."""


def counted(targets: Tensor) -> Tensor:
    """Return the mask of entries with a target, in the shape of ``targets``.

    Example:
        >>> counted(torch.tensor([2, IGNORED])), counted(torch.tensor([0.5, torch.nan]))
        (tensor([ True, False]), tensor([ True, False]))
    """
    return ~targets.isnan() if targets.is_floating_point() else targets != IGNORED


def own_steps(targets: Tensor, every_step: bool) -> Tensor | None:
    """Return the mask of steps before the padding: all up to the last one with a target.

    Args:
        targets: the ``y`` of a task.
        every_step: whether its second axis is time.

    Returns:
        ``(n, time)`` bool; ``None`` where all steps of all sequences are their own.

    Example:
        >>> own_steps(torch.tensor([[IGNORED, 1, IGNORED], [0, 0, 0]]), True)
        tensor([[ True,  True, False],
                [ True,  True,  True]])
    """
    if not every_step:
        return None
    asked = counted(targets).flatten(2).any(-1) if targets.is_floating_point() else counted(targets)
    if bool(asked[:, -1].all()):
        return None
    return asked.flip(1).cummax(1).values.flip(1)


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(-1) == targets).double()


def _nats(outputs: Tensor, targets: Tensor) -> Tensor:
    flat = functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="none")
    return flat.reshape(targets.shape)


def _squared(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - torch.where(targets.isnan(), outputs.detach(), targets)).double().square()


@dataclass(frozen=True)
class Metric:
    """Metric: a score per target, and the reported function of its mean.

    Attributes:
        of: ``(outputs, targets)`` to one number a target, of the shape of the targets.
        reported: reported function of the mean score.
        loss: the same for what training and attacks push, with a gradient.
    """

    of: Callable[[Tensor, Tensor], Tensor]
    reported: Callable[[float], float]
    loss: Callable[[Tensor, Tensor], Tensor]


def _exp(nats: float) -> float:
    return math.exp(min(nats, 700.0))  # NaN stays NaN; beyond this float64 ends


METRICS = {
    "accuracy": Metric(_right, float, _nats),
    "mse": Metric(_squared, float, _squared),
    "bits_per_character": Metric(_nats, lambda nats: nats / math.log(2.0), _nats),
    "perplexity": Metric(_nats, _exp, _nats),
}
"""Metrics by name; larger is better for ``accuracy`` only."""


def by_sequence(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of ``scores`` over the targets of each sequence that count.

    Args:
        scores: one number a target.
        targets: targets in the same shape.

    Returns:
        ``(n,)``; 0 for a sequence without any target.
    """
    keep = counted(targets).flatten(1) if targets.dim() > 1 else counted(targets)[:, None]
    values = torch.where(keep, scores.reshape(keep.shape), 0.0)
    return values.sum(1) / keep.sum(1).clamp(min=1)


def entropy(targets: Tensor) -> float:
    """Return the entropy of the targets' frequencies in nats: the loss of the best guess that ignores the input.

    Example:
        >>> round(entropy(torch.tensor([0, 1, 0, 1, IGNORED])) / math.log(2), 6)
        1.0
    """
    counts = torch.bincount(targets[counted(targets)]).double()
    share = counts[counts > 0] / counts.sum()
    return float(-(share * share.log()).sum())


def read_out(labels: np.ndarray, lengths: Sequence[int], length: int) -> Tensor:
    """Return targets ``(n,)`` of labelled sequences, or ``(n, length)`` at each last step if lengths differ.

    Args:
        labels: ``(n,)`` classes.
        lengths: lengths of the sequences.
        length: length of the batch.

    Returns:
        int64: ``(n,)`` where all are as long as the batch, else ``(n, length)``.

    Example:
        >>> read_out(np.array([4, 7]), [1, 2], 2).tolist()
        [[4, -100], [-100, 7]]
    """
    y = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    if all(steps == length for steps in lengths):
        return y
    out = torch.full((len(y), length), IGNORED)
    out[torch.arange(len(y)), torch.as_tensor(lengths) - 1] = y
    return out


def as_loss(value: Any) -> Tensor:
    """Check the value of a user's loss and return it as a scalar.

    Raises:
        DimensionError: no tensor of one number.

    Example:
        >>> as_loss(torch.tensor([2.0]))
        tensor(2.)
    """
    if not isinstance(value, Tensor) or value.numel() != 1:
        received = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise DimensionError("the value of the loss", "a scalar tensor", received)
    return value.reshape(())
