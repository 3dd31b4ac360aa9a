"""The range of a task's inputs, what of it the certified part gets, and who is certified for inputs in it."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from stability.cascade import Cascade
from stability.errors import ConfigurationError, StabilityError
from stability.gated import GatedCell
from stability.subjects import as_subject

from .guard import answer
from .tasks import Task

__all__ = ["boxed", "data_range", "part_range"]

CHUNK = 256


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


def part_range(subject: Any, model: nn.Module | None, task: Task) -> tuple[tuple[float, float] | None, str]:
    """The range of inputs of what claims are about, which need not be that of the data.

    A recurrent part inside a network of one's own gets what the layers before it make of the data: that is looked at
    while the network runs on all of them.

    Args:
        subject: a module or a system.
        model: the module that the part is in, on the device of the task; ``None`` for a bare system.
        task: the data.

    Returns:
        Low and high, and the path of the part (empty where it gets the data themselves); ``None`` for the range of a
        part that cannot be looked into.
    """
    try:
        path = str(getattr(as_subject(subject), "part", "")).partition(" of ")[0]
    except StabilityError:  # the certificate's step says why
        path = ""
    if not path or model is None:
        return data_range(task), ""
    seen: set[tuple[float, float, int]] = set()  # low, high, width: one entry at most

    def look(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        value = next(iter((*arguments, *keywords.values())), None)
        value = value.data if isinstance(value, PackedSequence) else value
        if isinstance(value, Tensor) and value.is_floating_point() and value.numel():
            ends = [(float(value.min()), float(value.max()), value.shape[-1]), *seen]
            seen.clear()
            seen.add((min(e[0] for e in ends), max(e[1] for e in ends), ends[0][2]))

    try:
        handle = model.get_submodule(path).register_forward_pre_hook(look, with_kwargs=True)
    except AttributeError:  # a name with characters that a path in a claim cannot hold
        return None, path
    sequences = [x for x, _ in (task.train, task.test)]
    try:
        for batch in (batch for x in sequences for batch in x.split(CHUNK)):
            answer(model, batch, type(model).__name__)
    except ConfigurationError:  # the step that needs its answers says what is wrong with it
        return None, path
    finally:
        handle.remove()
    if not seen:
        return None, path
    low, high, width = seen.pop()
    untouched = (min(float(x.min()) for x in sequences), max(float(x.max()) for x in sequences), task.input_size)
    return (data_range(task), "") if (low, high, width) == untouched else ((low, high), path)


def boxed(subject: Any, box: tuple[float, float] | None) -> tuple[Any, tuple[float, float] | None]:
    """An LSTM or GRU (or a stack with one) with a promise about its inputs.

    Claims about gated cells need such a promise; other claims are about every input, and nothing is promised for them.

    Args:
        subject: a module or a system.
        box: the range that its inputs stay in, or ``None``.

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
    if box is None or not gated or promised:
        return subject, None
    return system.with_inputs(*box), box
