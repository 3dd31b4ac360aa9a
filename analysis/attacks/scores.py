"""Noise and attack sweeps of a task's metric, for regression and for targets at every step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, NonFiniteError
from stability.kernel.checks import as_choice
from stability.statistics import student_half_width, wilson

from ..drawn import Curve
from ..guard import check_batch, check_dense, check_int, check_model, check_number, untouched
from ..intervals import check_confidence
from ..tasks import Task
from ..tasks.scores import counted
from .masked import by_the_input, finite, vanishes, warn_of
from .noise import KINDS, shaken
from .padding import masked_padding
from .projections import Box, Geometry, geometry
from .sweep import Sizes, check_levels
from .threat import Bounds, free_box

WEIGHTS, STEPS = "parameters", 7
DRIVEN = ("pgd", "fgsm")
"""Attacks that maximize any loss; the others need one class per sequence."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreSweep(Sizes):
    """Metric of a task against the size of a perturbation.

    Attributes:
        perturbation: name of the attack or of the noise.
        norm: norm of the sizes (attacks); ``None`` for noise.
        axis: name of the sizes: ``epsilon`` or ``level``.
        sizes: ascending.
        metric: name of the metric, a key of ``tasks.scores.METRICS``.
        score: mean over the sequences, each with the mean over its own targets; for attacks in the worst case found at
            this size or a smaller one, for noise in the mean over the draws.
        ci_low: lower end of Student's interval over the sequences, one entry per size; of Wilson's where each has one
            class; NaN for a single sequence with several targets.
        ci_high: upper end.
        n: sequences.
        confidence: confidence level of the intervals.
        seed: seed of the perturbations.
        draws: independent perturbations per size (noise); 1 for attacks.
        spread: standard deviation over the draws of the mean that ``score`` reports, one entry per size; 0 for attacks.
        options: further options of the perturbation.
        blind: sequences without a gradient at any point that an attack visited.
    """

    curve = Curve("size", ("score",), ("ci_low", "ci_high"))

    metric: str
    score: tuple[float, ...]

    @classmethod
    def of_scores(
        cls, task: Task, targets: Tensor, scores: Sequence[Tensor], confidence: float, **more: Any
    ) -> ScoreSweep:
        """Return the sweep with the scores ``(n,)`` of the sequences at each size, and their intervals."""
        shares = task.metric_name == "accuracy" and bool((counted(targets).flatten(1).sum(1) == 1).all())
        rows = []
        for values in scores:
            mean = float(values.double().mean())
            low, high = wilson(mean, len(values), confidence) if shares else _student(values.double().cpu(), confidence)
            if task.metric_name == "accuracy" and high > 1:
                high = 1.0
            rows.append([task.reported(v) for v in (mean, 0.0 if low < 0 else low, high)])
        score, ci_low, ci_high = (tuple(column) for column in zip(*rows))
        header = {"metric": task.metric_name, "n": len(targets), "confidence": confidence}
        return cls(score=score, ci_low=ci_low, ci_high=ci_high, **header, **more)

    def frame(self, **measured: Any) -> pd.DataFrame:
        """Return a row per size: ``attack, norm, metric, epsilon`` or ``noise, metric, level``, score and interval."""
        return super().frame(metric=self.metric, score=self.score)


def _student(scores: Tensor, confidence: float) -> tuple[float, float]:
    """Return Student's interval of the mean; NaN for one sequence."""
    mean, n = float(scores.mean()), len(scores)
    if n < 2:
        return math.nan, math.nan
    half = student_half_width(float(scores.std(correction=1)) / math.sqrt(n), n, confidence)
    return mean - half, mean + half


def _opened(
    model: Any, x: Any, y: Tensor, task: Task, bounds: Bounds, mask: Tensor | None
) -> tuple[Tensor, Box, Tensor]:
    """Return the checked inputs, their bounds, and the mask of entries that may change (no padding)."""
    x = check_batch(check_model(model), x)
    if isinstance(y, Tensor):
        check_dense("y", y)
    real_steps = task.own_steps(y)
    real_steps = None if real_steps is None else real_steps[:, :, None]
    mask = masked_padding(model, x, real_steps if mask is None else mask if real_steps is None else real_steps & mask)
    box, free = free_box(x, bounds, mask)
    return x, box, free


def _scores(model: nn.Module, task: Task, x: Tensor, y: Tensor, *, loss: bool = False) -> Tensor:
    values = task.scores(model(x), y, loss=loss)
    if not torch.isfinite(values).all():
        raise NonFiniteError("the score of a disturbed sequence", "the model diverges on it")
    return values


def noise_scores(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    task: Task,
    kind: str = "white",
    levels: Sequence[float] = (0.0, 0.1, 0.2, 0.3, 0.4),
    draws: int = 5,
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    seed: int = 0,
    confidence: float = 0.95,
) -> ScoreSweep:
    """Measure the task's metric under noise on the input or on the weights, over a grid of levels.

    Args:
        model: called as ``model(x)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)``; the padding of shorter sequences is left alone.
        y: targets, as the task has them.
        task: gives the metric.
        kind: ``"white"`` (``x + N(0, level^2)``), ``"salt_pepper"`` (entries, with probability ``level``, at one of
            their bounds), or ``"parameters"`` (all weights, in units of each tensor's root mean square; see
            ``parameter_noise_sweep``).
        levels: standard deviations, or shares of changed entries; 0 gives the clean score.
        draws: independent noises per level.
        bounds: pair of numbers or tensors that broadcast to ``x``, for salt and pepper.
        mask: boolean, broadcasts to ``x``: true where there may be noise.
        seed: seed of the noise.
        confidence: confidence level of the intervals.

    Returns:
        The sweep.

    Raises:
        ConfigurationError: an unknown kind, or invalid input.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or scores.

    Example:
        >>> from stability.analysis import make_task
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> task = make_task("adding", steps=6, train=2, test=8)
        >>> sweep = noise_scores(SequenceModel(ElmanRNN(2, 3), 1), *task.test, task=task, levels=[0, 0.5])
        >>> sweep.metric, sweep.frame()["level"].tolist()
        ('mse', [0.0, 0.5])
    """
    as_choice("kind", kind, (*KINDS, WEIGHTS))
    grid = check_levels("levels", levels, KINDS[kind][1] if kind in KINDS else math.inf)
    confidence = check_confidence(confidence)
    draws, generator = check_int("draws", draws), torch.Generator().manual_seed(check_int("seed", seed, 0))
    x, box, free = _opened(model, x, y, task, bounds if kind == "salt_pepper" else None, mask)
    means, spread = [], []
    with untouched(model), torch.no_grad():
        twin, shake = shaken(model) if kind == WEIGHTS else (model, None)

        def disturbed(level: float) -> Tensor:
            if shake is None:
                return torch.where(free, KINDS[kind][0](x, level, box, generator), x)
            shake(level, generator)
            return x

        for level in grid:
            samples = torch.stack([_scores(twin, task, disturbed(level), y) for _ in range(draws if level > 0 else 1)])
            means.append(samples.mean(0))
            spread.append(float(samples.mean(1).std(correction=1)) if len(samples) > 1 else 0.0)
    more: dict[str, Any] = {"axis": "level", "sizes": grid, "seed": seed, "draws": draws, "spread": tuple(spread)}
    return ScoreSweep.of_scores(task, y, means, confidence, perturbation=kind, norm=None, **more)


@dataclass
class _Worst:
    """Worst points found so far: the worst by the metric, then by the loss."""

    points: Tensor
    scores: Tensor
    losses: Tensor
    less_is_worse: bool

    def see(self, points: Tensor, scores: Tensor, losses: Tensor) -> None:
        """Keep the worse point of each sequence."""
        increase = (self.scores - scores) if self.less_is_worse else (scores - self.scores)
        worse = (increase > 0) | ((increase == 0) & (losses > self.losses))
        self.points = torch.where(worse[:, None, None], points, self.points)
        self.scores = torch.where(worse, scores, self.scores)
        self.losses = torch.where(worse, losses, self.losses)


def attack_scores(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    task: Task,
    epsilons: Sequence[float],
    attack: str = "pgd",
    norm: str = "linf",
    steps: int | None = None,
    step_size: float | None = None,
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    seed: int = 0,
    confidence: float = 0.95,
) -> ScoreSweep:
    """Measure the task's worst-case metric under gradient ascent over a grid of radii.

    Projected gradient ascent (``pgd``): at each radius the loss of every sequence is driven up from a random point of
    the ball, ``z <- P(z + step_size * direction(dL/dz))``, ``P`` onto ball and bounds. ``fgsm`` takes one step of
    length ``epsilon`` from the sequence itself. What was found at a smaller radius lies in every larger ball and counts
    there, too: no score gets better with the radius.

    Args:
        model: called as ``model(x)``; run in evaluation mode, restored afterwards.
        x: ``(batch, time, features)`` within the bounds; the padding of shorter sequences is left alone.
        y: targets, as the task has them.
        task: gives loss and metric.
        epsilons: radii; 0 gives the clean score.
        attack: ``"pgd"`` or ``"fgsm"``.
        norm: ``"linf"`` or ``"l2"`` over the whole sequence.
        steps: gradient steps of ``pgd`` at each radius; ``None``: 7.
        step_size: length of a step of ``pgd`` in ``norm``; ``None``: ``2.5 epsilon / steps``.
        bounds: pair of numbers or tensors that broadcast to ``x``; ``None``: free.
        mask: boolean, broadcasts to ``x``: True where the attack may change an entry.
        seed: seed of the random starts.
        confidence: confidence level of the intervals.

    Returns:
        The sweep.

    Raises:
        ConfigurationError: an invalid option or tensor, or ``x`` outside its bounds.
        DimensionError: a wrong shape.
        NonFiniteError: NaN in data, weights or scores.

    Example:
        >>> from stability.analysis import make_task
        >>> from stability.models import ElmanRNN, SequenceModel
        >>> task = make_task("adding", steps=6, train=2, test=8)
        >>> sweep = attack_scores(SequenceModel(ElmanRNN(2, 3), 1), *task.test, task=task, epsilons=[0, 0.5])
        >>> sweep.score[1] > sweep.score[0]
        True
    """
    as_choice("attack", attack, DRIVEN)
    once = attack == "fgsm"
    if once and (steps is not None or step_size is not None):
        raise ConfigurationError("fgsm takes one step as long as the radius: leave steps and step_size out")
    shape, taken = geometry(norm), 1 if once else check_int("steps", STEPS if steps is None else steps)
    sizes, confidence = check_levels("epsilons", epsilons), check_confidence(confidence)
    length = None if step_size is None else check_number("step_size", step_size, strict=True)
    generator = torch.Generator().manual_seed(check_int("seed", seed, 0))
    x, box, free = _opened(model, x, y, task, bounds, mask)
    box = Box(torch.where(free, box.lower, x), torch.where(free, box.upper, x))
    with untouched(model):
        with torch.no_grad():
            clean = _scores(model, task, x, y), _scores(model, task, x, y, loss=True)
        worst = _Worst(x, *(s.double() for s in clean), less_is_worse=task.metric_name == "accuracy")
        rows, blind = [], (box.lower < box.upper).flatten(1).any(dim=1) & (sizes[-1] > 0)
        ascent = _Ascent(model, task, x, y, box, shape, worst, blind)
        for epsilon in sizes:
            if epsilon > 0:
                stride = epsilon if once else length or 2.5 * epsilon / taken
                ascent.climb(epsilon, taken, stride, None if once else generator)
            rows.append(worst.scores)
    more: dict[str, Any] = {"axis": "epsilon", "sizes": sizes, "seed": seed, "spread": (0.0,) * len(sizes)}
    options = {} if once else {"steps": taken} if step_size is None else {"steps": taken, "step_size": step_size}
    warn_of(blind, len(x))
    more["blind"] = int(blind.sum())
    return ScoreSweep.of_scores(task, y, rows, confidence, perturbation=attack, norm=norm, options=options, **more)


@dataclass(frozen=True, eq=False)
class _Ascent:
    """Gradient ascent inside balls around sequences; ``blind (batch,)``: True where no gradient was found so far."""

    model: nn.Module
    task: Task
    x: Tensor
    y: Tensor
    box: Box
    shape: Geometry
    worst: _Worst
    blind: Tensor

    def losses(self, z: Tensor) -> Tensor:
        """Return the losses at points ``(batch, time, features)`` and record these points."""
        outputs = self.model(z)
        losses = self.task.scores(outputs, self.y, loss=True)
        scores = self.task.scores(outputs.detach(), self.y)
        if not (torch.isfinite(losses).all() and torch.isfinite(scores).all()):
            raise NonFiniteError("the score of a disturbed sequence", "the model diverges on it")
        self.worst.see(z.detach(), scores.double(), losses.detach().double())
        return losses

    def climb(self, epsilon: float, steps: int, length: float, generator: torch.Generator | None) -> None:
        """Run the ascent from a random point of a ball, or from its center."""
        x, box, shape = self.x, self.box, self.shape
        inside: Callable[[Tensor], Tensor] = lambda z: box.clip(shape.clip(x, z, epsilon))  # noqa: E731
        z = x if generator is None else inside(x + shape.random(x, epsilon, generator))
        stride = torch.full((len(x),), length, dtype=x.dtype, device=x.device)
        for taken in range(steps + 1):
            z = z.detach().requires_grad_(taken < steps)
            losses = self.losses(z)
            if taken < steps:
                gradient = torch.where(box.lower < box.upper, by_the_input(losses, z), 0.0)
                self.blind.logical_and_(vanishes(gradient))
                z = inside(z.detach() + shape.step(finite(gradient).to(x.dtype), stride))
