"""Data of an analysis: selection of the task, and one trial run that matches model and data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, NonFiniteError, UnsupportedError

from ...models.embedding import BehindEmbedding, behind_embedding
from ...models.wrapped import TwoLogits, WithLengths, takes_lengths, two_logits
from ..guard import answer
from ..tasks import Task, make_task
from ..tasks.scores import counted
from ..training.runs import RUN_FILE, read_run


def examined_on(task: tuple[str, dict[str, Any]], source: Path, data_dir: str | None, seed: int) -> Task:
    """Return the task on which a given model is analyzed; a run trained on this very file keeps its own test part.

    Args:
        task: name and options.
        source: the model's path.
        data_dir: folder with the full data, or ``None``.
        seed: seed of the task.

    Returns:
        The task.

    Raises:
        FileFormatError: data or a run that cannot be read, or a file that is not the one of the options' digest.
        ConfigurationError: no such task or option.
    """
    name, options = task
    if name == "data" and (source / RUN_FILE).is_file():
        run = read_run(source)
        trained = run.document["task"]
        if trained.get("name") == "data" and trained.get("options", {}).get("digest") == options.get("digest"):
            return run.task(file=options["file"])
    return make_task(name, data_dir=data_dir, seed=seed, **options)


def check_features(subject: Any, task: Task, name: str) -> None:
    """Raise an error if the data have another number of features than a model or system takes.

    Raises:
        DimensionError: another number of features.
    """
    size = next((n for key in ("input_size", "inputs") if isinstance(n := getattr(subject, key, None), int)), None)
    if size is not None and size != task.input_size:
        hint = f"the data have {task.input_size} features a step, {name} takes {size}"
        raise DimensionError(
            f"the input of {name}", f"(..., {task.input_size}) for task {task.name}", f"(..., {size})", hint
        )


def joined(task: Task, model: nn.Module, name: str, *, answers: bool = True) -> tuple[nn.Module, Task]:
    """Match a model and its data: put an embedding behind tokens, pass lengths, then see ``fitted``.

    Args:
        task: the data; for tokens, see ``task_from_arrays``.
        model: called as ``model(x)``, with tokens ``(batch, time)`` where the data are such.
        name: name in error messages.
        answers: whether its outputs are compared with targets.

    Returns:
        The model, behind its embedding where the data are tokens, and the task for it.

    Raises:
        UnsupportedError: tokens for a model without an embedding, or one that also reads them elsewhere.
        ConfigurationError: see ``fitted``.
        DimensionError: see ``fitted``.
        NonFiniteError: see ``fitted``.
    """
    if not task.data.get("tokens"):
        if takes_lengths(model) and task.data.get("source") == "arrays":
            model, task = _with_lengths(task, model, name)
        task = fitted(task, model, name, answers=answers)
        whole = answers and task.labels_sequences and task.data.get("source") == "arrays"
        return (_two_logits(model, task, name) if whole else model), task
    parameter = next(model.parameters(), None)
    device = None if parameter is None else parameter.device
    if isinstance(model, BehindEmbedding):
        behind = model
    else:
        behind = behind_embedding(model, task.test[0][:2, :, 0].long().to(device), name)
    task = embedded(task, behind)
    return behind, fitted(task, behind, name, answers=answers)


def _with_lengths(task: Task, model: nn.Module, name: str) -> tuple[nn.Module, Task]:
    """Return a model called as ``model(x, lengths)`` with its task, whose padding marks the lengths.

    Raises:
        ConfigurationError: data without lengths.
    """
    if task.reduction != "all":
        raise ConfigurationError(f"{name} takes the lengths of its sequences: save lengths (n,) beside x and y")
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    rows = torch.cat([x[_own(task, x, y)] for x, y in (task.train, task.test)])
    low, high = rows.amin(0), rows.amax(0)  # a mark within the range of the data, and equal to none of their steps
    marks = (low + share * (high - low) for share in (0.618034, 0.381966, 0.512345))
    mark = next((m for m in marks if (rows != m).any(1).all()), low + 1.0)
    kind = {} if parameter is None else {"dtype": parameter.dtype, "device": parameter.device}
    model = WithLengths(model, mark.to(**kind))
    task = task.mapped(lambda x, y: (torch.where(_own(task, x, y)[:, :, None], x, mark), y))
    outputs = answer(model, task.test[0][:2].to(**kind), name)
    single = all(int(counted(y).sum(1).max()) == 1 for _, y in (task.train, task.test))
    if isinstance(outputs, Tensor) and outputs.dim() < 3 and single:
        task = task.mapped(lambda x, y: (x, y[torch.arange(len(y)), _own(task, x, y).sum(1) - 1]), reduction="last")
    return model, task


def _own(task: Task, x: Tensor, y: Tensor) -> Tensor:
    real_steps = task.own_steps(y)
    return torch.ones(x.shape[:2], dtype=torch.bool) if real_steps is None else real_steps


def _two_logits(model: nn.Module, task: Task, name: str) -> nn.Module:
    """Return the model with the logits ``(0, z)`` if it has one logit ``z`` for each labelled sequence."""
    parameter, x = next(model.parameters(), None), task.test[0][:2]
    outputs = answer(model, x if parameter is None else x.to(parameter.device), name)
    return model if two_logits(outputs, len(x)) is outputs else TwoLogits(model)


def embedded(task: Task, model: BehindEmbedding) -> Task:
    """Replace the tokens of a task by their embeddings; return the task with its new input range and description.

    Raises:
        ConfigurationError: tokens beyond the embedding.
    """
    size = int(model.embedding.num_embeddings)
    most = int(max(float(x.max()) for x, _ in (task.train, task.test)))
    if most >= size:
        raise ConfigurationError(f"the data hold token {most}, the embedding {model.path} has {size} tokens")
    device = model.embedding.weight.device

    def vectors(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return model.embed(x[:, :, 0].long().to(device)).to(x.device), y

    out = task.mapped(vectors, input_size=model.input_size)
    inputs = [x for x, _ in (out.train, out.test)]
    bounds = (min(float(x.min()) for x in inputs), max(float(x.max()) for x in inputs))
    what = f"{task.data.get('what', 'arrays')}, embedded by {model.path}"
    data = {k: v for k, v in task.data.items() if k != "tokens"} | {"what": what, "embedded_by": model.path}
    return replace(out, bounds=bounds, data=data)


def fitted(task: Task, model: nn.Module, name: str, *, answers: bool = True) -> Task:
    """Return the task in the model's floating type and, for user data, with targets in the shape of its outputs.

    Args:
        task: the data.
        model: called as ``model(x)``.
        name: name in error messages.
        answers: whether its outputs are compared with targets.

    Returns:
        The task for this model. An output that is no tensor is left unchecked.

    Raises:
        ConfigurationError: a model that raises on these sequences, or labels that are none of its classes.
        DimensionError: another number of features, or answers that do not fit the targets.
        NonFiniteError: NaN or infinities come out.

    Example:
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> from stability.analysis import task_from_arrays
        >>> task = task_from_arrays(torch.rand(6, 4, 2), torch.arange(6) % 2)
        >>> fitted(task, SequenceModel(ElmanRNN(2, 3), 5), "the model").output_size  # three classes do not occur
        5
    """
    if task.data.get("tokens"):
        raise ConfigurationError(f"the data are tokens and {name} has no embedding: pass real inputs")
    check_features(model, task, name)
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    if parameter is not None and parameter.dtype != task.train[0].dtype:
        task = _as_type(task, parameter.dtype)
    x = task.test[0][:2]
    outputs = answer(model, x if parameter is None else x.to(parameter.device), name)
    if not answers or not isinstance(outputs, Tensor) or task.data.get("source") != "arrays":
        return task
    if not torch.isfinite(outputs).all():
        raise NonFiniteError(f"the output of {name} on the data", "the model diverges")
    return (_classes if task.kind == "classes" else _values)(task, tuple(outputs.shape), name)


def answers_of(model: nn.Module, task: Task) -> None:
    """Raise an error if the outputs are no tensor, for measurements that need a number for each target.

    Raises:
        UnsupportedError: a model such as ``torch.nn.GRU``, which returns outputs and states.
    """
    x = task.test[0][:2]
    outputs = answer(model, x, type(model).__name__)
    if not isinstance(outputs, Tensor):
        raise UnsupportedError(
            f"{type(model).__name__} returns a {type(outputs).__name__}, expected one tensor: add a "
            "head that returns the predictions"
        )


def _as_type(task: Task, dtype: torch.dtype) -> Task:
    out = task.mapped(lambda x, y: (x.to(dtype), y.to(dtype) if y.is_floating_point() else y))
    if not torch.isfinite(out.train[0]).all() or not torch.isfinite(out.test[0]).all():
        raise NonFiniteError(f"the data in the model's {dtype}", "scale them")
    return out


def _classes(task: Task, shape: tuple[int, ...], name: str) -> Task:
    per_step = task.reduction == "all"
    rows = len(task.test[0][:2])
    if not per_step and shape in ((rows,), (rows, 1)):  # one logit z: read as (0, z), see ``joined``
        shape = (rows, 2)
    want = (rows, task.steps, "classes") if per_step else (rows, "classes")
    if shape[:-1] != want[:-1]:
        hint = "one row of logits " + ("a step" if per_step else "a sequence: give those of the last step")
        if per_step and shape == (rows, shape[-1]):
            hint += ". A network that finds each sequence's end itself takes the data as they are: leave lengths out"
        raise DimensionError(f"the output of {name}", want, shape, hint)
    if shape[-1] < 2:
        raise DimensionError(f"the output of {name}", want, shape, "two classes need two logits")
    if task.classes is not None and len(task.classes) != shape[-1]:
        raise ConfigurationError(f"{name} has {shape[-1]} classes, the data name {len(task.classes)}")
    if task.output_size > shape[-1]:
        raise ConfigurationError(
            f"labels must lie in [0, {shape[-1] - 1}], the classes of {name}; they go up to {task.output_size - 1}"
        )
    return replace(task, output_size=shape[-1])


def _values(task: Task, shape: tuple[int, ...], name: str) -> Task:
    """Return the task with targets in the shape of the outputs, if only axes of length one differ."""

    def shaped(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        want = (len(y), *shape[1:])
        squeezed = [tuple(n for n in s[1:] if n != 1) for s in (y.shape, want)]
        if squeezed[0] != squeezed[1]:
            hint = "y is floating, so values: for classes save integers, y.astype('int64')"
            raise DimensionError(f"the output of {name}", tuple(y.shape), want, hint)
        return x, y.reshape(want)

    per_step = len(shape) == 3
    size = shape[-1] if len(shape) > 1 else 1
    return task.mapped(shaped, output_size=size, reduction="all" if per_step else "last")
