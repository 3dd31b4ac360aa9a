"""Tasks (data, loss, metric and chance level) and the registry of tasks by name.

A task consists of data, ``x (n, time, features)`` float32 and targets, the training loss, the reported metric, and the
metric of the best guess that ignores the input.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from stability.errors import ConfigurationError, DimensionError
from stability.kernel.checks import as_choice

from ..guard import check_int
from .ranges import Range
from .scores import METRICS, as_loss, by_sequence, counted, own_steps

Pair = tuple[Tensor, Tensor]
MAX_NUMBERS = 2**30  # entries of a generated part: 4 GiB in float32
TASKS: dict[str, Callable[..., "Task"]] = {}


@dataclass(frozen=True, eq=False)
class Task:
    """Sequences with targets, a loss, a metric and a chance level.

    Attributes:
        name: the name in ``TASKS``.
        input_size: features per time step.
        output_size: number of outputs of a model (classes, or regression targets).
        steps: time steps of a sequence.
        reduction: ``"last"`` when the target belongs to the whole sequence, ``"all"`` when every step has
            one.
        kind: ``"classes"`` (cross entropy) or ``"values"`` (mean squared error).
        chance: the metric of the best guess that ignores the input (for ``pendulum``, of a guess that repeats the
            input).
        train: ``(x, y)``; ``x (n, time, input_size)`` float32; ``y (n,)`` or ``(n, time)`` int64 for classes,
            ``(n, output_size)`` or ``(n, time, output_size)`` float32 for values. Targets ``scores.IGNORED`` and NaN
            are ignored.
        test: sequences and targets for testing, of the same form.
        options: options with which ``make_task(name, **options)`` makes the task again.
        data: origin of the data.
        scored: mask of the steps that the metric counts, ``(time,)`` bool; ``None`` for all.
        bounds: range of the inputs, for attacks: two numbers, or two tuples with one for each feature;
            ``None`` for no range.
        classes: names of the classes, if known.
        sample: ``sample(n, seed) -> (x, y)`` generates ``n`` further sequences; ``None`` for stored data.
        prepare: function that converts raw records to ``x``; ``None`` for generated tasks.
        own_loss: ``own_loss(outputs, targets) -> scalar``, a user's loss that replaces the default of the kind.
        measured_by: the metric, a key of ``scores.METRICS``; empty for the default of the kind, accuracy or mean
            squared error.
    """

    name: str
    input_size: int
    output_size: int
    steps: int
    reduction: str
    kind: str
    chance: float
    train: Pair
    test: Pair
    options: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    scored: Tensor | None = None
    bounds: Range | None = None
    classes: tuple[str, ...] | None = None
    sample: Callable[[int, int], Pair] | None = None
    prepare: Callable[[np.ndarray], Tensor] | None = None
    measured_by: str = ""
    own_loss: Callable[[Tensor, Tensor], Tensor] | None = None

    @property
    def metric_name(self) -> str:
        """Name of the metric: ``accuracy``, ``mse``, ``bits_per_character`` or ``perplexity``."""
        return self.measured_by or ("accuracy" if self.kind == "classes" else "mse")

    @property
    def labels_sequences(self) -> bool:
        """True if each sequence has one class and all have the same length."""
        return self.kind == "classes" and self.reduction == "last"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the training loss, a mean over the targets that are not ignored.

        Args:
            outputs: ``(n, output_size)``, or ``(n, time, output_size)`` where every step has a target.
            targets: the ``y`` of the same sequences.

        Returns:
            A scalar.
        """
        self._check(outputs, targets)
        if self.own_loss is not None:
            return as_loss(self.own_loss(outputs, targets))
        if self.kind == "values":
            keep = counted(targets)
            if not keep.all():
                return (outputs - targets)[keep].square().mean()
            return functional.mse_loss(outputs, targets)
        return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())

    def metric(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the metric over the targets that are not ignored.

        Args:
            outputs: see ``loss``.
            targets: see ``loss``.

        Returns:
            A number.
        """
        return self.reported(self.score(outputs, targets))

    def score(self, outputs: Tensor, targets: Tensor) -> float:
        """Return the mean score, from which ``reported`` computes the metric; parts are averaged with ``weight``.

        Args:
            outputs: see ``loss``.
            targets: see ``loss``.

        Returns:
            A number.
        """
        self._check(outputs, targets)
        outputs, targets = self._scored(outputs.detach(), targets)
        return float(METRICS[self.metric_name].of(outputs, targets)[counted(targets)].double().mean())

    def reported(self, score: float) -> float:
        """Return the metric whose mean over targets is ``score``."""
        return METRICS[self.metric_name].reported(score)

    def scores(self, outputs: Tensor, targets: Tensor, *, loss: bool = False) -> Tensor:
        """Return the score of each sequence, the mean over its own targets.

        Args:
            outputs: see ``loss``.
            targets: see ``loss``.
            loss: return the training loss in place of the metric's score, with a gradient.

        Returns:
            ``(n,)``.
        """
        self._check(outputs, targets)
        outputs, targets = self._scored(outputs, targets)
        metric = METRICS[self.metric_name]
        return by_sequence((metric.loss if loss else metric.of)(outputs, targets), targets)

    def weight(self, targets: Tensor) -> float:
        """Return the weight of these targets in a mean over several parts, as a number of sequences."""
        return float(counted(targets).sum()) / max(1, math.prod(targets.shape[1:]))

    def own_steps(self, targets: Tensor) -> Tensor | None:
        """Return the mask ``(n, time)`` of steps before the padding; ``None`` if no sequence is padded."""
        return own_steps(targets, self.reduction == "all")

    def _scored(self, outputs: Tensor, targets: Tensor) -> Pair:
        if self.scored is None:
            return outputs, targets
        keep = self.scored.to(outputs.device)
        return outputs[:, keep], targets[:, keep]

    def to(self, device: str | torch.device) -> Task:
        """Return the same task with its sequences and targets on a device."""
        return self.mapped(lambda x, y: (x.to(device), y.to(device)))

    def mapped(self, change: Callable[[Tensor, Tensor], Pair], **more: Any) -> Task:
        """Return the task with training and test part changed by a function, and with further fields replaced."""
        train = change(*self.train)
        test = train if self.test[0] is self.train[0] else change(*self.test)
        return replace(self, train=train, test=test, **more)

    def describe(self) -> dict[str, Any]:
        """Return the task as plain numbers and strings, for run files and reports."""
        return {
            "name": self.name,
            "options": dict(self.options),
            "data": dict(self.data),
            "steps": self.steps,
            "input_size": self.input_size,
            "output_size": self.output_size,
            "reduction": self.reduction,
            "metric": self.metric_name,
            "chance": self.chance,
            "train": len(self.train[0]),
            "test": len(self.test[0]),
            **({} if self.classes is None else {"classes": list(self.classes)}),
            **({} if self.own_loss is None else {"loss": getattr(self.own_loss, "__qualname__", "a function")}),
        }

    def _check(self, outputs: Any, targets: Tensor) -> None:
        if not isinstance(outputs, Tensor):
            raise ConfigurationError(f"a model must give one tensor of outputs, got {type(outputs).__name__}")
        expected = (*targets.shape, self.output_size) if self.kind == "classes" else tuple(targets.shape)
        if tuple(outputs.shape) != expected:
            arguments = f'output_size={self.output_size}, reduction="{self.reduction}"'
            hint = f"task {self.name!r} needs SequenceModel(..., {arguments})"
            raise DimensionError("outputs", expected, tuple(outputs.shape), hint)


def register_task(name: str) -> Callable[[Callable[..., Task]], Callable[..., Task]]:
    """Decorate a function that makes a task, to register it as ``name`` for ``make_task`` and the command line.

    The task records its name and the options with which it was made; options that the function records itself have
    precedence.
    """

    def register(maker: Callable[..., Task]) -> Callable[..., Task]:
        signature = inspect.signature(maker)

        @functools.wraps(maker)
        def make(*args: Any, **kwargs: Any) -> Task:
            task = maker(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            options = {k: v for k, v in bound.arguments.items() if k not in ("data_dir", "seed")}
            return replace(task, name=name, options={**options, **task.options})

        TASKS[name] = make
        return make

    return register


def task_of(train: Pair, test: Pair, **more: Any) -> Task:
    """Make a task, with sizes, kind and reduction inferred from its sequences.

    Args:
        train: ``(x, y)`` as in ``Task``.
        test: the same.
        **more: further fields of ``Task``, such as the number of classes, and fields to replace inferred ones. The
            default of ``chance`` is the metric of the most frequent class, or of the mean of the values.

    Returns:
        The task; ``register_task`` adds its name and options.
    """
    x, y = train
    values = y.is_floating_point()
    derived = {
        "name": "",
        "input_size": x.shape[2],
        "output_size": y.shape[-1],
        "steps": x.shape[1],
        "reduction": "all" if y.dim() == (3 if values else 2) else "last",
        "kind": "values" if values else "classes",
        "chance": more["chance"] if "chance" in more else _variance(test[1]) if values else majority(test[1]),
    }
    return Task(train=train, test=test, **{**derived, **more})


def make_task(name: str, *, data_dir: str | Path | None = None, seed: int = 0, **options: Any) -> Task:
    """Make a task by name.

    Args:
        name: one of ``TASKS``.
        data_dir: folder with the data in its standard format; not for generated tasks. ``digits`` has embedded
            data and needs no folder.
        seed: seed of the choice of a subset, or of the generated sequences.
        **options: options of the function that makes the task, for example ``stability.analysis.tasks.digits``.

    Returns:
        The task.

    Raises:
        ConfigurationError: an unknown name or option, or an invalid value.
        FileFormatError: data that is missing, damaged or in another format.

    Example:
        >>> task = make_task("adding", steps=20, train=8, test=4)
        >>> tuple(task.train[0].shape), task.metric_name
        ((8, 20, 2), 'mse')
    """
    hint = "; --data names a file with your own data" * str(name).endswith(".npz")
    as_choice("task", name, TASKS, hint)
    check_int("seed", seed, 0)
    maker = TASKS[name]
    known = [p for p in inspect.signature(maker).parameters if p not in ("data_dir", "seed")]
    for option in options:
        if option not in known:
            raise ConfigurationError(f"task {name!r} has no option {option!r}; it has {', '.join(known)}")
    if "data_dir" in inspect.signature(maker).parameters:
        options["data_dir"] = data_dir
    elif data_dir is not None:
        raise ConfigurationError(f"task {name!r} is generated and reads no data; leave data_dir out")
    return maker(seed=seed, **options)


def reads_data(name: str) -> bool:
    """Return True if a task reads a data folder: False for generated tasks and the user's own files.

    Example:
        >>> reads_data("digits"), reads_data("adding")
        (True, False)
    """
    return name in TASKS and "data_dir" in inspect.signature(TASKS[name]).parameters


def text_options(name: str | None) -> set[str]:
    """Return the options of a task whose values are always text, so that ``7`` is a file name and not a number.

    Example:
        >>> text_options("characters"), text_options("digits"), text_options(None)
        ({'file'}, set(), set())
    """
    known = inspect.signature(TASKS[name]).parameters.values() if name in TASKS else ()
    return {p.name for p in known if p.name != "data_dir" and p.annotation in ("str", "str | None", str)}


def identity(task: tuple[str, dict[str, Any]]) -> list[Any]:
    """Return the JSON values that identify a task; the digest of a user's file replaces its path.

    Example:
        >>> identity(("data", {"file": "d.npz", "digest": "ab"}))
        ['data', {'digest': 'ab'}]
    """
    name, options = task
    return [name, {k: v for k, v in options.items() if name != "data" or k != "file"}]


def generated_parts(
    make: Callable[[int, np.random.Generator], Pair], seed: int, train: int, test: int, *, numbers: int
) -> dict[str, Any]:
    """Generate the parts of a task, as arguments of ``Task``.

    Args:
        make: ``make(n, rng)`` returns ``n`` sequences with their targets.
        seed: seed of the task.
        train: number of training sequences.
        test: number of test sequences.
        numbers: entries of the input of one sequence, steps times features.

    Returns:
        ``train``, ``test``, ``sample`` and ``data``; the three parts have separate random streams of the seed.

    Raises:
        ConfigurationError: an invalid number of sequences, or more than 4 GiB of them.
    """

    def part(name: str, n: int, stream: int, seed: int) -> Pair:
        check_size(name, n)
        if n * numbers > MAX_NUMBERS:
            raise ConfigurationError(
                f"{name}: {n} sequences of {numbers} numbers are more than 4 GiB; take fewer or shorter ones"
            )
        return make(n, np.random.default_rng([stream, seed]))

    check_size("test", test)
    return {
        "train": part("train", train, 0, seed),
        "test": part("test", test, 1, seed),
        "sample": lambda n, seed: part("n", n, 2, seed),
        "data": {"source": "generated", "seed": seed},
    }


def check_size(name: str, value: Any, low: int = 1, high: int = 10**7) -> int:
    """Return ``value`` as an integer in ``[low, high]``.

    Raises:
        ConfigurationError: otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise ConfigurationError(f"{name} must be an integer from {low} to {high}, got {value!r}")
    return int(value)


def check_fraction(name: str, value: Any) -> float:
    """Return ``value`` as a float strictly between 0 and 1.

    Raises:
        ConfigurationError: otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
        raise ConfigurationError(f"{name} must be a number between 0 and 1, got {value!r}")
    return float(value)


def majority(labels: Tensor) -> float:
    """Return the accuracy of always naming the most frequent class."""
    counts = labels[counted(labels)].bincount()
    return int(counts.max()) / int(counts.sum())


def _variance(values: Tensor) -> float:
    return float((values - values.nanmean(0)).double().square().nanmean())
