"""Sequences with several labels: one at every step, or one at the last step of each of several lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, NonFiniteError

from ..guard import check_batch, check_labels, check_model
from ..tasks.scores import counted


def check_step_labelled(model: Any, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Check sequences with labels at some steps.

    Args:
        model: any module.
        x: ``(batch, time, features)``.
        y: ``(batch, time)`` integers, ``IGNORED`` (-100) at steps without label; every sequence has at least one label.

    Returns:
        Both, checked; ``y`` as int64.

    Raises:
        ConfigurationError: no model, no tensor that fits, or a sequence without any class.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in the data.
    """
    x = check_batch(check_model(model), x)
    if tuple(y.shape) != tuple(x.shape[:2]):
        raise DimensionError("y", tuple(x.shape[:2]), tuple(y.shape), "a class at every step of x, or one a sequence")
    y = check_labels(y.flatten(), y.numel(), x.device).reshape(y.shape)
    if not bool(counted(y).any(dim=1).all()):
        raise ConfigurationError("some sequences have no labeled step: remove them")
    return x, y


def step_logits(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the model's checked logits at every step.

    Args:
        model: called as ``model(x)``.
        x: ``(batch, time, features)``.
        y: ``(batch, time)`` classes, which must be among those of the logits where they count.

    Returns:
        ``(batch, time, classes)``.

    Raises:
        DimensionError: the output has another shape.
        NonFiniteError: a logit is NaN or infinite.
        ConfigurationError: a label is no class of the output.
    """
    logits = model(x)
    if not isinstance(logits, Tensor) or logits.dim() != 3 or logits.shape[:2] != y.shape or logits.shape[2] < 2:
        received = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        expected = f"({len(x)}, {x.shape[1]}, classes >= 2)"
        raise DimensionError(
            "the model's output", expected, received, "a row of logits at every step (reduction='all')"
        )
    if not torch.isfinite(logits).all():
        raise NonFiniteError("the model's output (logits)", "the model diverges on this input")
    labels = y[counted(y)]
    if not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[2]:
        known = f"[0, {logits.shape[2] - 1}]"
        raise ConfigurationError(f"labels must lie in {known}, got {int(labels.min())} to {int(labels.max())}")
    return logits


def by_row(values: NDArray[Any], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return each sequence's mean over the selected entries.

    Args:
        values: ``(batch,)`` or ``(batch, time)``.
        mask: mask in the same shape.

    Returns:
        ``(batch,)``.

    Example:
        >>> by_row(np.array([[1.0, 7.0], [0.0, 1.0]]), np.array([[True, False], [True, True]])).tolist()
        [1.0, 0.5]
    """
    shape = (len(values), -1)
    values, mask = values.reshape(shape), mask.reshape(shape)
    return np.where(mask, values, 0.0).sum(axis=1) / mask.sum(axis=1)
