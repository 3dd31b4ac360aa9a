"""Step ``performance``: accuracy or error of a model on undisturbed data."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ..guard import in_evaluation
from ..tasks import Task
from ..tasks.scores import counted
from ..training.measured import evaluate
from .fitting import answers_of
from .work import Work

BATCH = 1000  # sequences per forward pass
MOST_CLASSES = 50  # most classes whose accuracies are listed


def performance(model: nn.Module, task: Task) -> dict[str, Any]:
    """Return accuracy or mean squared error on the task's test sequences.

    Args:
        model: called as ``model(x)``.
        task: the data, on the model's device.

    Returns:
        ``metric``, ``value``, ``loss``, ``chance``, ``sequences``; if every sequence has one of at most fifty classes
        also ``by_class``, each with ``name``, ``sequences``, ``accuracy`` and ``taken_for`` (the class that its
        sequences are most often mistaken for, ``None`` if there is no mistake).

    Raises:
        UnsupportedError: a model whose outputs cannot be compared with targets.
        DimensionError: outputs whose shape does not fit the targets.

    Example:
        >>> from stability.analysis import task_from_arrays
        >>> x = torch.tensor([0.0, 0.2, 0.8, 1.0])[:, None, None]
        >>> class Above(nn.Module):
        ...     def forward(self, x):
        ...         return torch.cat([0.5 - x[:, 0], x[:, 0] - 0.5], 1)
        >>> performance(Above(), task_from_arrays(x, torch.tensor([0, 1, 1, 1])))["value"]
        0.75
    """
    answers_of(model, task)
    x, y = task.test
    loss, value = evaluate(model, x, y, task, BATCH)
    out = {"metric": task.metric_name, "value": value, "loss": loss, "chance": task.chance, "sequences": len(x)}
    asked = counted(y)
    one_each = bool((asked.reshape(len(y), -1).sum(1) == 1).all())
    if task.kind == "classes" and one_each and task.output_size <= MOST_CLASSES:
        with in_evaluation(model), torch.no_grad():
            answers = torch.cat([model(batch).argmax(-1) for batch in x.split(BATCH)])
        table = torch.zeros(task.output_size, task.output_size, dtype=torch.long)
        table.index_put_((y[asked].cpu(), answers[asked].cpu()), torch.tensor(1), accumulate=True)
        out["by_class"] = [_class(task, table, k) for k in range(task.output_size) if int(table[k].sum())]
    return out


def _class(task: Task, table: torch.Tensor, k: int) -> dict[str, Any]:
    row = table[k].clone()
    total, right = int(row.sum()), int(row[k])
    row[k] = 0
    other = None if right == total else _name(task, int(row.argmax()))
    return {"name": _name(task, k), "sequences": total, "accuracy": right / total, "taken_for": other}


def _name(task: Task, k: int) -> str:
    return str(k) if task.classes is None else task.classes[k]


def performance_step(work: Work) -> None:
    """Run the step ``performance`` of an analysis and write its files."""
    work.write_json("performance.json", performance(*work.with_data()))
