"""Loss and metric of a model on given sequences."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError

from ..guard import check_dense, check_int, in_evaluation
from ..tasks import Task
from ..tasks.scores import counted


def evaluate(model: nn.Module, x: Tensor, y: Tensor, task: Task, batch_size: int = 1000) -> tuple[float, float]:
    """Return loss and metric on given sequences, in evaluation mode, without a graph.

    Args:
        model: called as ``model(x)``; its mode is restored, also when it fails.
        x: ``(n, time, features)``, or ``(n, time)`` of tokens.
        y: targets, one entry a sequence.
        task: gives loss and metric.
        batch_size: sequences at a time.

    Returns:
        Loss and metric over all targets that count. A network that diverges has a loss that is not finite.

    Raises:
        ConfigurationError: no module, no task, no dense tensors, classes that the task does not have, no target
            that counts, or a batch below one.
        DimensionError: no sequences, or another number of targets.

    Example:
        >>> from stability.analysis import make_task
        >>> task = make_task("digits", limit=100, test_limit=50)
        >>> class Three(nn.Module):
        ...     def forward(self, x):
        ...         return torch.eye(10)[torch.full((len(x),), 3)]
        >>> loss, accuracy = evaluate(Three(), *task.test, task)
        >>> accuracy == (task.test[1] == 3).double().mean().item()
        True
    """
    size = check_int("batch_size", batch_size)
    _check(model, x, y, task)
    loss = score = count = 0.0
    with in_evaluation(model), torch.no_grad():
        for xb, yb in zip(x.split(size), y.split(size)):
            outputs, weight = model(xb), task.weight(yb)
            loss += float(task.loss(outputs, yb)) * weight
            score += task.score(outputs, yb) * weight
            count += weight
    return loss / count, task.reported(score / count)


def _check(model: Any, x: Any, y: Any, task: Any) -> None:
    for name, value, kind in (("model", model, nn.Module), ("task", task, Task), ("x", x, Tensor), ("y", y, Tensor)):
        if not isinstance(value, kind):
            raise ConfigurationError(f"{name} must be a {kind.__name__}, got {type(value).__name__}")
    check_dense("x", x)
    check_dense("y", y)
    if not x.dim() or not len(x):
        raise DimensionError("x", "(n, time, features)", tuple(x.shape), "at least one sequence")
    if not y.dim() or len(y) != len(x):
        raise DimensionError("y", f"({len(x)}, ...)", tuple(y.shape), "one target per sequence of x")
    if task.kind == "classes" and (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool):
        raise ConfigurationError(f"y must hold classes, integers from 0 to {task.output_size - 1}, got {y.dtype}")
    labels = y[counted(y)]
    if not len(labels):
        raise ConfigurationError("y must hold at least one target that is not ignored")
    if task.kind == "classes" and not 0 <= int(labels.min()) <= int(labels.max()) < task.output_size:
        received = f"{int(labels.min())} to {int(labels.max())}"
        raise ConfigurationError(f"y must hold classes, integers from 0 to {task.output_size - 1}, got {received}")
