"""Settings of a training: optimization of the weights, and aims beside the task's loss."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import torch
from torch import nn

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice

from ..guard import check_int, check_number

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
    "adamw": torch.optim.AdamW,
}
SCHEDULES = ("steps", "cosine")
OBJECTIVES = ("task", "margin", "certified")
LARGEST = 1e30
"""Largest real setting: beyond it an optimizer in float32 overflows in its own arithmetic."""


def _positive(name: str, value: Any) -> float:
    return _bounded(name, value, strict=True)


def _bounded(name: str, value: Any, **options: Any) -> float:
    number = check_number(name, value, **options)
    if number > LARGEST:
        raise ConfigurationError(f"{name} must be at most {LARGEST:g}, got {value!r}")
    return number


_SIGNED = functools.partial(_bounded, minimum=-1e6)


def _check(values: Any, checks: Mapping[str, Callable[[str, Any], Any]], optional: tuple[str, ...]) -> None:
    for name, check in checks.items():
        value = getattr(values, name)
        if value is not None or name not in optional:
            check(name, value)


@dataclass(frozen=True)
class Aim:
    """Aims of training beside the task's loss: margins, exponents, certified radii, gains.

    Attributes:
        margin_penalty: weight of ``sum_layers max(0, margin_target - contraction_gap)`` in the loss; 0: no such term.
        margin_target: contraction gap that the penalty aims at.
        lyapunov_target: largest Lyapunov exponent, per step, of short trajectories of each batch, to which
            ``lyapunov_weight * (exponent - lyapunov_target)^2`` in the loss pulls; ``None``: no such term.
        lyapunov_weight: weight of that term.
        objective: ``task``, or a loss that aims at certified radii, see ``stability.analysis.training.objectives``:
            ``margin``, ``certified``.
        target_radius: l2 radius that these aim at.
        temperature: factor of the logits in the cross entropy; large values reward the margins that a network of
            bounded gain can have.
        input_noise: standard deviation of white noise added to the training sequences.
        adversarial: l2 radius of an attack (projected gradients) on every batch before it is trained on.
        gain_target: incremental gain from inputs to states that a network is held to: its weights are projected after
            every step or epoch, see ``stability.analysis.training.gains``; ``None``: no projection.
        until_certified: stop after the first epoch that leaves a recurrent part which is certified to contract.
    """

    margin_penalty: float = 0.0
    margin_target: float = 0.0
    lyapunov_target: float | None = None
    lyapunov_weight: float = 1.0
    objective: str = "task"
    target_radius: float = 0.5
    temperature: float = 1.0
    input_noise: float = 0.0
    adversarial: float = 0.0
    gain_target: float | None = None
    until_certified: bool = False

    def __post_init__(self) -> None:
        _check(self, _AIM_CHECKS, ("lyapunov_target", "gain_target"))
        as_choice("objective", self.objective, OBJECTIVES)
        if self.lyapunov_target is None and self.lyapunov_weight != 1.0:
            raise ConfigurationError("lyapunov_weight needs a lyapunov_target")
        if self.objective == "task" and self.target_radius != 0.5:
            raise ConfigurationError("target_radius needs the objective margin or certified")
        if type(self.until_certified) is not bool:
            raise ConfigurationError(f"until_certified must be true or false, got {self.until_certified!r}")


_AIM_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("margin_penalty", "input_noise", "adversarial"), _bounded),
    **dict.fromkeys(("margin_target", "lyapunov_target"), _SIGNED),
    **dict.fromkeys(("lyapunov_weight", "temperature", "target_radius", "gain_target"), _positive),
}


@dataclass(frozen=True)
class Settings:
    """Settings that determine the trained weights, besides the model, the task and the arithmetic.

    Attributes:
        epochs: passes over the training sequences.
        lr: learning rate.
        batch_size: sequences in a batch; the last batch of an epoch may be smaller.
        optimizer: ``adam``, ``sgd`` (with momentum), ``rmsprop`` or ``adamw``.
        seed: seed of the order of the sequences, of the validation part, and of dropout.
        clip: largest norm of the gradient, or ``None``.
        momentum: momentum of ``sgd``.
        weight_decay: weight decay of the optimizer.
        schedule: schedule of the learning rate: ``steps`` (at ``milestones``) or ``cosine``, per batch, down to zero.
        milestones: epochs after which the learning rate is multiplied by ``decay``.
        decay: factor of the learning rate at a milestone.
        warm_up: share of all batches in which a ``cosine`` schedule rises linearly at first.
        fresh: batches of fresh sequences an epoch, drawn by ``task.sample``, in place of the training sequences;
            ``None``: the training sequences.
        patience: stop when the loss on a tenth of the training sequences, held out for that, has not improved for so
            many epochs, and keep the best weights; ``None``: train to the end and keep the last.
        aim: aims of training beside the task's loss.
    """

    epochs: int = 10
    lr: float = 3e-3
    batch_size: int = 128
    optimizer: str = "adam"
    seed: int = 0
    clip: float | None = 1.0
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "steps"
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    warm_up: float = 0.0
    fresh: int | None = None
    patience: int | None = None
    aim: Aim = field(default_factory=Aim)

    def __post_init__(self) -> None:
        _check(self, _CHECKS, ("clip", "patience", "fresh"))
        as_choice("optimizer", self.optimizer, OPTIMIZERS)
        as_choice("schedule", self.schedule, SCHEDULES)
        if self.momentum >= 1:
            raise ConfigurationError(f"momentum must be below 1, got {self.momentum!r}")
        if self.warm_up > 1:
            raise ConfigurationError(f"warm_up must be at most 1, got {self.warm_up!r}")
        if self.aim.until_certified and self.patience is not None:
            raise ConfigurationError("patience and until_certified exclude each other: leave one of them out")
        if isinstance(self.milestones, (str, Mapping)) or not isinstance(self.milestones, Iterable):
            raise ConfigurationError(f"milestones must be a list of epochs, got {self.milestones!r}")
        object.__setattr__(self, "milestones", tuple(check_int("a milestone", m) for m in self.milestones))

    def changed(self, **options: Any) -> Settings:
        """Return the settings with other values, by names of fields of ``Settings`` and of ``Aim``.

        Raises:
            ConfigurationError: a bad value, or a name that is none of ``NAMES``.

        Example:
            >>> Settings().changed(lr=0.1, margin_penalty=2.0).aim.margin_penalty
            2.0
        """
        for name in options:
            if name not in (*NAMES, "aim"):
                raise ConfigurationError(f"training has no option {name!r}; it has {', '.join(NAMES)}")
        aim = {name: options.pop(name) for name in _AIMS if name in options}
        if aim:
            options["aim"] = replace(options.get("aim", self.aim), **aim)
        return replace(self, **options)

    def rate(self, epoch: int, batch: int = 1, batches: int = 1) -> float:
        """Return the learning rate of a batch (the first epoch and the first batch are 1).

        Example:
            >>> Settings(lr=1.0, milestones=(2,), decay=0.5).rate(3)
            0.5
        """
        return self.lr * self.factor(epoch, batch, batches)

    def factor(self, epoch: int, batch: int = 1, batches: int = 1) -> float:
        r"""Return the schedule's factor of the learning rate at a batch.

        After batch ``i`` of ``N`` in all, a ``cosine`` schedule with warm-up share ``w`` has the factor
        :math:`\min(1, (i + 1) / (w N)) \cdot (1 + \cos(\pi i / N)) / 2`.

        Example:
            >>> cosine = Settings(lr=1.0, epochs=2, schedule="cosine", warm_up=0.1)
            >>> [round(cosine.factor(epoch, batch, 50), 3) for epoch, batch in [(1, 1), (1, 10), (2, 1)]]
            [0.1, 0.98, 0.5]
        """
        if self.schedule == "steps":
            return self.decay ** sum(epoch > m for m in self.milestones)
        i, whole = (epoch - 1) * batches + batch - 1, self.epochs * batches
        factor = 0.5 * (1.0 + math.cos(math.pi * i / whole))
        return factor if self.warm_up == 0 else factor * min(1.0, (i + 1) / (self.warm_up * whole))

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer for the parameters that require a gradient.

        Raises:
            ConfigurationError: no parameter requires a gradient.
        """
        trained = [p for p in model.parameters() if p.requires_grad]
        if not trained:
            raise ConfigurationError(f"{type(model).__name__} has no parameter that requires a gradient")
        more = {"momentum": self.momentum} if self.optimizer == "sgd" else {}
        return OPTIMIZERS[self.optimizer](trained, lr=self.lr, weight_decay=self.weight_decay, **more)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values in one mapping, without unused aims; ``changed`` reads them again."""
        values = {name: value for name, value in asdict(self).items() if name != "aim"}
        asked = {name: value for name, value in asdict(self.aim).items() if value != getattr(Aim, name)}
        return {**values, "milestones": list(self.milestones), **asked}


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("epochs", "batch_size", "patience", "fresh"), check_int),
    "seed": functools.partial(check_int, minimum=0),
    **dict.fromkeys(("lr", "decay", "clip"), _positive),
    **dict.fromkeys(("momentum", "weight_decay", "warm_up"), _bounded),
}
_AIMS = tuple(f.name for f in fields(Aim))
NAMES = (*(f.name for f in fields(Settings) if f.name != "aim"), *_AIMS)
"""Names of all options of a training."""
