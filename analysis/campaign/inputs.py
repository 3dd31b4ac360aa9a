"""Input range of a task, the input box of a certificate, and the models that need one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, StabilityError
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.parts import part_of
from stability.search.input_sets.limit_sets import allows_box_claims

from ...models.embedding import BehindEmbedding
from ...models.wrapped import unwrapped
from ..tasks import Range, Task
from ..unroll import watch

CHUNK = 256  # sequences per forward pass while the inputs of a part are recorded
SCALES = 2.0
"""Ratio of the range of all features to that of a feature from which on each feature gets its own range."""


def check_box(box: Any) -> tuple[float, float]:
    """Check an input box given by two numbers.

    Raises:
        ConfigurationError: when its ends are not finite, or crossed.

    Example:
        >>> check_box((-1, 2))
        (-1.0, 2.0)
    """
    low, high = (float(end) for end in box)
    if not (np.isfinite([low, high]).all() and low <= high):
        raise ConfigurationError(f"an input box needs finite ends, LOW <= HIGH, got {low:g} {high:g}")
    return low, high


def data_range(task: Task) -> Range:
    """Return the range of the task's inputs: its own bounds if it has them, else the extremes of the data.

    Args:
        task: with training and test sequences.

    Returns:
        Low and high: numbers, or one a feature where the task states one a feature.
    """
    if task.bounds is not None and _is_by_feature(task.bounds):
        least, most = _by_feature(task)
        low, high = np.minimum(least, task.bounds[0]), np.maximum(most, task.bounds[1])
        return tuple(float(v) for v in low), tuple(float(v) for v in high)
    least, most = _occurring(task)
    if task.bounds is None:
        return least, most
    return min(least, float(np.min(task.bounds[0]))), max(most, float(np.max(task.bounds[1])))


def feature_range(task: Task) -> Range:
    """Return the range of the task's inputs for claims: per feature if the features differ in scale.

    One range of all features is that of the widest, which says of a small one what it never is. Bounds that a task
    states are kept as they are stated.

    Args:
        task: with training and test sequences.

    Returns:
        Low and high: numbers, or one a feature where all of them together lie in a range at least ``SCALES`` times as
        wide as the narrowest of those that move.
    """
    observed = task.data.get("bounds") != "stated" and (task.bounds is None or task.bounds == _occurring(task))
    if observed:
        least, most = _by_feature(task)
        width = most - least
        if width.any() and float(most.max() - least.min()) >= SCALES * float(width[width > 0].min()):
            return tuple(least.tolist()), tuple(most.tolist())
    return data_range(task)


def _is_by_feature(bounds: Range) -> bool:
    return any(np.ndim(end) for end in bounds)


def _by_feature(task: Task) -> tuple[np.ndarray, np.ndarray]:
    """Return the least and the largest input of each feature."""
    parts = [x for x, _ in (task.train, task.test) if x.numel()]
    least = torch.stack([x.amin((0, 1)) for x in parts]).amin(0)
    most = torch.stack([x.amax((0, 1)) for x in parts]).amax(0)
    return least.double().cpu().numpy(), most.double().cpu().numpy()


def _occurring(task: Task) -> tuple[float, float]:
    low, high = _by_feature(task)
    return float(low.min()), float(high.max())


def part_range(subject: Any, model: nn.Module | None, task: Task) -> tuple[Range | None, str]:
    """Return the range of the inputs of the certified part, which may differ from that of the data.

    A recurrent part inside a user's network reads the outputs of the layers before it: these are recorded
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
        path = part_of(as_subject(subject)).partition(" of ")[0]
    except StabilityError:  # the certificate's step says why
        path = ""
    if not path or model is None:
        return feature_range(task), ""
    span = _read_inside(model, path, task)
    if span is None or not np.isfinite(span).all():
        return None, path
    low, high = float(span[0].min()), float(span[1].max())
    if _is_by_feature(feature_range(task)):  # features in another order have other ranges
        untouched = all(np.array_equal(one, other) for one, other in zip(span, _by_feature(task)))
    else:
        untouched = (low, high, len(span[0])) == (*_occurring(task), task.input_size)
    return (feature_range(task), "") if untouched else ((low, high), path)


class _Seen:
    """Least and largest input of each feature so far, or one range for all if widths differ."""

    bounds: tuple[Tensor, Tensor] | None = None

    def add(self, value: Any) -> None:
        value = value.data if isinstance(value, PackedSequence) else value
        if not isinstance(value, Tensor) or not value.is_floating_point() or not value.numel():
            return
        rows = value.detach().flatten(0, -2)
        low, high = rows.amin(0), rows.amax(0)
        if self.bounds is not None:
            least, most = self.bounds
            if least.shape != low.shape:
                low, high, least, most = low.min()[None], high.max()[None], least.min()[None], most.max()[None]
            low, high = torch.minimum(low, least), torch.maximum(high, most)
        self.bounds = (low, high)


def _read_inside(model: nn.Module, path: str, task: Task) -> list[np.ndarray] | None:
    """Return the inputs' extremes of each feature of a part, recorded while the model runs on all data; or ``None``."""
    seen = _Seen()
    named = unwrapped(model)
    named = named.model if isinstance(named, BehindEmbedding) else named  # whose paths claims know
    try:
        watch(
            model, named.get_submodule(path), seen.add, (b for x, _ in (task.train, task.test) for b in x.split(CHUNK))
        )
    except AttributeError:  # a name with characters that a path in a claim cannot hold
        return None
    except ConfigurationError:  # the step that needs its answers says what is wrong with it
        return None
    return None if seen.bounds is None else [end.double().cpu().numpy() for end in seen.bounds]


def about_inputs(
    subject: Any, model: nn.Module | None, task: Task | None, stated: Range | None
) -> tuple[Any, dict[str, Any]]:
    """Return the subject for ``certify`` with its assumption about inputs, and a description of that assumption.

    Args:
        subject: a module or a system.
        model: the network around it, if there is one.
        task: data with the range of inputs, if known.
        stated: the range that the user states, if so.

    Returns:
        The subject, see ``boxed``; the box ``input_box`` that is promised, what says so, ``input_from`` (``stated``,
        ``bounds`` of the data, or what occurs in the ``data``), the range ``input_seen`` in the data, and the part
        ``input_of`` of the network that reads it, see ``part_range``.
    """
    span, part = (None, "") if task is None else part_range(subject, model, task)
    target, box = boxed(subject, span if stated is None else stated, stated=stated is not None)
    bounds = task is not None and task.data.get("bounds") == "stated" and not part
    origin = "stated" if stated is not None else "bounds" if bounds else "data"
    origin = None if box is None else origin
    return target, {"input_box": box, "input_from": origin, "input_seen": span, "input_of": part}


def boxed(subject: Any, box: Range | None, *, stated: bool = False) -> tuple[Any, Range | None]:
    """Return an LSTM or GRU (or a stack with one) with an assumption about its inputs.

    Claims about gated cells need such a promise; other claims are about every input, and nothing is promised for them.

    Args:
        subject: a module or a system.
        box: the range that its inputs stay in, or ``None``.
        stated: whether the user states it, in place of the subject's own box.

    Returns:
        The subject for ``certify`` and the box, or the subject as it was and ``None``.
    """
    try:
        system = as_subject(subject)
    except StabilityError:  # the certificate's step says why
        return subject, None
    parts = system.layers if isinstance(system, LayerStack) else (system,)
    gated = [part for part in parts if isinstance(part, GatedCell)]
    promised = any(part.input_low is not None for part in gated)
    if box is None or not gated or (promised and not stated):
        return subject, None
    return system.with_inputs(*box), box


def reads_box(subject: Any) -> bool:
    """Return True if some claim about the subject is restricted to an input box.

    Example:
        >>> from stability.models import LSTM, ElmanRNN, HouseholderRNN
        >>> orthogonal = HouseholderRNN(2, 4, reflections=2, activation="oplu")
        >>> [reads_box(layer) for layer in (LSTM(2, 4), ElmanRNN(2, 4), orthogonal)]
        [True, True, False]
    """
    if boxed(subject, (-1.0, 1.0), stated=True)[1] is not None:
        return True
    try:
        system = as_subject(subject)
    except StabilityError:
        return False
    return allows_box_claims(system) and bool(system.inputs)
