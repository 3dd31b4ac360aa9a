"""What jobs take, measured here before anything starts: time and memory against states, steps and batch.

A batch of ``B`` sequences of ``T`` steps through ``N`` states and ``I`` inputs takes about
``T (a + b B N (N + I))`` seconds and keeps ``k B T N`` bytes for the way back; a certificate about ``N`` states takes
``c + d N^3`` seconds and ``MATRICES`` matrices of ``N x N``. ``a`` and ``b``, ``c`` and ``d`` come from two sizes that
are run, ``k`` from what autograd keeps.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import StabilityError

from ....models.counting import free_parameters
from ....models.files import save
from ...running.needs import PROCESS
from ...tasks import Task
from ...training.planned import make_network, settings_for
from ...training.settings import Settings
from ..certificates import certificate_memory
from ..job import Given, kind_of
from ..training import certified, task_of

SIZES = (8, 32)
"""States of the two networks that are run; the larger one has as many as were asked for, where these are fewer."""
STEPS = 24
REPEATS = 3
PROBED = {"attacks": 4, "radius": 1, "noise": 16, "norms": 4, "lyapunov": 2, "hessian": 8}
"""Test sequences on which each analysis is tried; the time of all is in proportion."""


@dataclass(frozen=True)
class Cost:
    """What the jobs of one training, and of its analyses, take.

    Attributes:
        seconds: of the training.
        certificate: seconds of its certificate.
        analyses: of every analysis, seconds of all its parts.
        memory: bytes that the training takes at most, with its process.
        parameters: of the network.
        overhead: ``a`` above.
        arithmetic: ``b``.
        kept: ``k``.
    """

    seconds: float
    certificate: float
    analyses: Mapping[str, float]
    memory: float
    parameters: int
    overhead: float
    arithmetic: float
    kept: float

    @property
    def whole(self) -> float:
        """Seconds of all jobs of the training."""
        return self.seconds + self.certificate + sum(self.analyses.values())


def measured(options: Mapping[str, Any], analyses: Mapping[str, Mapping[str, Any]], places: Mapping[str, str]) -> Cost:
    """What a training with its certificate and analyses takes, from short runs of smaller ones.

    Args:
        options: of the training.
        analyses: options of each analysis.
        places: where data lie.

    Returns:
        The cost.

    Raises:
        StabilityError: options that do not fit together: no training with them would begin.

    Example:
        >>> from stability.analysis.sweep.description import Sweep
        >>> row = next(Sweep(["elman"], ["adding"], [0], task={"steps": 6, "train": 64}).rows())
        >>> cost = measured(row.job.options, {}, {})
        >>> cost.seconds > 0, cost.memory > 2**28
        (True, True)
    """
    given = Given(places=places)
    task = task_of(options, given)
    settings = Settings(**{**settings_for(options["model"], options["train"], task), "seed": 0})
    asked = int(options["hidden"])
    small, large = (min(asked, size) for size in SIZES)
    probes = [_probe(options, size, task, settings) for size in (small, large)]
    overhead, arithmetic = _fitted([(p.work, p.seconds / p.steps) for p in probes])
    kept = probes[-1].kept / (probes[-1].batch * probes[-1].steps * large)
    steps, batch = int(task.steps), min(settings.batch_size, len(task.train[0]))
    one = steps * (overhead + arithmetic * batch * asked * (asked + task.input_size))
    batches = settings.fresh or -(-len(task.train[0]) // batch)
    judged = len(task.test[0]) / batch / 3  # after every epoch, forward only: about a third of a training step
    epochs = settings.epochs * (batches + judged) * one
    model = make_network(options["model"], asked, options["layers"], options["set"], task, 0)
    parameters = free_parameters(model)
    data = sum(part.numel() * part.element_size() for pair in (task.train, task.test) for part in pair)
    working = max(16 * parameters + kept * batch * steps * asked, certificate_memory(asked * int(options["layers"])))
    return Cost(
        seconds=epochs,
        certificate=0.0 if options["certificate"] is None else _certificate(options, task, asked),
        analyses={name: _analysis(name, model, options, own, given) for name, own in analyses.items()},
        memory=PROCESS + data + working,
        parameters=parameters,
        overhead=overhead,
        arithmetic=arithmetic,
        kept=kept,
    )


@dataclass(frozen=True)
class _Probe:
    """One batch through a small network: its size, its time, and the bytes that it kept."""

    work: float
    steps: int
    batch: int
    seconds: float
    kept: float


def _probe(options: Mapping[str, Any], size: int, task: Task, settings: Settings) -> _Probe:
    model = make_network(options["model"], size, options["layers"], options["set"], task, 0)
    optimizer = replace(settings, group_lr={}).make_optimizer(model)
    x, y = (part[: settings.batch_size] for part in task.train)
    steps = min(int(task.steps), STEPS)
    if y.dim() > 1 and y.shape[1] == task.steps:
        y = y[:, :steps]
    x = x[:, :steps]

    def once() -> float:
        begun = time.perf_counter()
        optimizer.zero_grad()
        task.loss(model(x), y).backward()
        optimizer.step()
        return time.perf_counter() - begun

    kept = _saved(once)
    seconds = min(once() for _ in range(REPEATS))
    return _Probe(len(x) * size * (size + task.input_size), steps, len(x), seconds, kept)


def _saved(once: Callable[[], Any]) -> float:
    """Bytes that autograd keeps for the way back."""
    seen: dict[int, int] = {}

    def note(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(note, lambda value: value):
        once()
    return float(sum(seen.values()))


def _fitted(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Offset and slope, neither below zero, through two points."""
    (x0, y0), (x1, y1) = points
    slope = max(0.0, (y1 - y0) / (x1 - x0)) if x1 > x0 else 0.0
    return max(0.0, y1 - slope * x1), slope


def _certificate(options: Mapping[str, Any], task: Task, asked: int) -> float:
    points = []
    for size in (min(asked, 8), min(asked, 24)):
        model = make_network(options["model"], size, options["layers"], options["set"], task, 0)
        begun = time.perf_counter()
        try:
            certified(model, task, 0, options["certificate"])
        except StabilityError:
            return 0.0
        points.append((float(size**3), time.perf_counter() - begun))
    offset, slope = _fitted(points)
    return offset + slope * float(asked) ** 3


def _analysis(name: str, model: nn.Module, options: Mapping[str, Any], own: Mapping[str, Any], given: Given) -> float:
    """Seconds of an analysis, in proportion to the sequences that it was tried on."""
    samples = int(own["samples"])
    few = min(samples, PROBED[name])
    with tempfile.TemporaryDirectory() as folder:
        raw = save(model, Path(folder) / "model.safetensors").read_bytes()
    asked = {**own, "training": dict(options) | {"seed": 0}, "start": 0, "stop": few}
    begun = time.perf_counter()
    try:
        kind_of(name).work(asked, replace(given, members={"model.safetensors": raw}))
    except StabilityError:
        return 0.0
    return (time.perf_counter() - begun) * samples / max(few, 1)
