"""The range of a task's inputs, and who is certified for inputs in it."""

from __future__ import annotations

from typing import Any

from stability.cascade import Cascade
from stability.errors import StabilityError
from stability.gated import GatedCell
from stability.subjects import as_subject

from .tasks import Task

__all__ = ["boxed", "data_range"]


def data_range(task: Task) -> tuple[float, float]:
    """Ends of the interval that the task's inputs lie in: its own bounds where it has them, else what occurs.

    Args:
        task: with training and test sequences.

    Returns:
        Low and high.
    """
    parts = [x for x, _ in (task.train, task.test) if x.numel()]
    low, high = min(float(x.min()) for x in parts), max(float(x.max()) for x in parts)
    return (low, high) if task.bounds is None else (min(low, task.bounds[0]), max(high, task.bounds[1]))


def boxed(subject: Any, task: Task | None) -> tuple[Any, tuple[float, float] | None]:
    """An LSTM or GRU (or a stack with one) with the range of the data as promise about its inputs.

    Claims about gated cells need such a promise; other claims are about every input, and nothing is promised for them.

    Args:
        subject: a module or a system.
        task: the data, or ``None``.

    Returns:
        The subject for ``certify`` and the box, or the subject as it was and ``None``.
    """
    try:
        system = as_subject(subject)
    except StabilityError:  # the certificate's step says why
        return subject, None
    parts = system.layers if isinstance(system, Cascade) else (system,)
    gated = [part for part in parts if isinstance(part, GatedCell)]
    promised = any(part.input_low is not None for part in gated)
    if task is None or not gated or promised:
        return subject, None
    box = data_range(task)
    return system.with_inputs(*box), box
