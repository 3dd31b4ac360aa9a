"""How to train: every choice that decides the result, checked once, and kept with it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice

from ..guard import check_int, check_number
from .groups import parameter_groups

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
    "adamw": torch.optim.AdamW,
}
SCHEDULES = ("steps", "cosine")
OBJECTIVES = ("task", "margin", "hinge_kr", "certified", "gloro")
OPTIONAL = ("clip", "patience", "fresh", "lyapunov_target", "gain_target")  # may be None
ADDED: dict[str, Any] = {
    "alpha": 0.99,
    "betas": (0.9, 0.999),
    "group_lr": {},
    "schedule": "steps",
    "warm_up": 0.0,
    "fresh": None,
    "lyapunov_target": None,
    "lyapunov_weight": 1.0,
    "temperature": 1.0,
    "objective": "task",
    "target_radius": 0.5,
    "input_noise": 0.0,
    "adversarial": 0.0,
    "gain_target": None,
    "until_certified": False,
}
"""Defaults of what later releases added: left out of the record, so that runs of earlier ones can go on."""
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("epochs", "batch_size", "patience", "fresh"), check_int),
    "seed": functools.partial(check_int, minimum=0),
    **dict.fromkeys(
        ("lr", "decay", "validation", "clip", "temperature", "target_radius", "gain_target"),
        functools.partial(check_number, strict=True),
    ),
    **dict.fromkeys(
        ("momentum", "alpha", "weight_decay", "margin_penalty", "warm_up", "input_noise", "adversarial"), check_number
    ),
    **dict.fromkeys(("margin_target", "lyapunov_target"), functools.partial(check_number, minimum=-1e6)),
    "lyapunov_weight": functools.partial(check_number, strict=True),
}
PULLS = ("margin_penalty", "margin_target", "lyapunov_target", "lyapunov_weight")
AIMS = ("temperature", "target_radius", "input_noise", "adversarial", "gain_target")
BOUNDED = ("lr", "decay", "weight_decay", "clip", *PULLS, *AIMS)
LARGEST = 1e30
"""Of a real number: beyond it an optimizer in float32 overflows in its own arithmetic."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the weights that come out, besides the model, the task and the arithmetic.

    Attributes:
        epochs: passes over the training sequences.
        lr: learning rate.
        batch_size: sequences in a batch; the last batch of an epoch may be smaller.
        optimizer: ``adam``, ``sgd`` (with momentum), ``rmsprop`` or ``adamw``.
        seed: of the order of the sequences, of the validation part, and of dropout.
        clip: largest norm of the gradient, or ``None``.
        momentum: of ``sgd``.
        alpha: of ``rmsprop``: how much of the mean of squared gradients is kept at a step.
        betas: of ``adam`` and ``adamw``: the same for the means of gradients and of their squares.
        weight_decay: of the optimizer.
        milestones: after these many epochs the learning rate is multiplied by ``decay``.
        decay: see above.
        patience: stop when the validation loss has not improved for so many epochs, and keep the best
            weights; ``None``: train to the end and keep the last.
        validation: share of the training sequences held out for that.
        margin_penalty: weight of ``sum_layers max(0, margin_target - contraction_gap)`` in the loss; 0 is
            none.
        margin_target: see above.
        schedule: of the learning rate: ``steps`` (by ``milestones``) or ``cosine``, from batch to batch down to zero.
        warm_up: share of all batches in which a ``cosine`` schedule rises linearly at first.
        group_lr: learning rates of groups of parameters, by name: ``recurrent`` for all parameters of the recurrent
            layers, else the beginning of parameters' names, such as ``head`` or ``blocks.0``. All others have ``lr``;
            the schedule multiplies each alike.
        fresh: train on so many batches of fresh sequences an epoch, drawn by ``task.sample``, in place of the training
            sequences; ``None``: on those.
        lyapunov_target: largest Lyapunov exponent, per step, of short trajectories of each batch, to which
            ``lyapunov_weight * (exponent - lyapunov_target)^2`` in the loss pulls; ``None``: no such term.
        lyapunov_weight: see above.
        temperature: what logits are multiplied by in the cross entropy; large ones let the margins that a network of
            bounded gain can have be worth something.
        objective: ``task``, or one that aims at certified radii, see ``stability.analysis.training.objectives``:
            ``margin``, ``hinge_kr``, ``certified``, ``gloro``.
        target_radius: the l2 radius that these aim at.
        input_noise: standard deviation of white noise added to the training sequences.
        adversarial: l2 radius of an attack (projected gradients) on every batch before it is trained on.
        gain_target: the incremental gain from inputs to states that a network is held to: its weights are projected
            after every step or epoch, see ``stability.analysis.training.gains``; ``None``: they are not.
        until_certified: stop after the first epoch that leaves a recurrent part which is certified to contract.
    """

    epochs: int = 10
    lr: float = 3e-3
    batch_size: int = 128
    optimizer: str = "adam"
    seed: int = 0
    clip: float | None = 1.0
    momentum: float = 0.9
    weight_decay: float = 0.0
    milestones: tuple[int, ...] = ()
    decay: float = 0.1
    patience: int | None = None
    validation: float = 0.1
    margin_penalty: float = 0.0
    margin_target: float = 0.0
    schedule: str = "steps"
    warm_up: float = 0.0
    fresh: int | None = None
    lyapunov_target: float | None = None
    lyapunov_weight: float = 1.0
    alpha: float = 0.99
    betas: tuple[float, float] = (0.9, 0.999)
    group_lr: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 1.0
    objective: str = "task"
    target_radius: float = 0.5
    input_noise: float = 0.0
    adversarial: float = 0.0
    gain_target: float | None = None
    until_certified: bool = False

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if name in CHECKS and (value is not None or name not in OPTIONAL):
                number = CHECKS[name](name, value)
                if name in BOUNDED and number > LARGEST:
                    raise ConfigurationError(f"{name} must be at most {LARGEST:g}, got {value!r}")
        for name in ("validation", "momentum", "alpha"):
            if getattr(self, name) >= 1:
                raise ConfigurationError(f"{name} must be below 1, got {getattr(self, name)!r}")
        if self.warm_up > 1:
            raise ConfigurationError(f"warm_up must be at most 1, got {self.warm_up!r}")
        as_choice("optimizer", self.optimizer, OPTIMIZERS)
        as_choice("schedule", self.schedule, SCHEDULES)
        as_choice("objective", self.objective, OBJECTIVES)
        self._refuse_what_does_not_go_together()
        object.__setattr__(self, "betas", _check_betas(self.betas))
        object.__setattr__(self, "group_lr", _check_rates(self.group_lr))
        if isinstance(self.milestones, (str, Mapping)) or not isinstance(self.milestones, Iterable):
            raise ConfigurationError(f"milestones must be a list of epochs, got {self.milestones!r}")
        object.__setattr__(self, "milestones", tuple(check_int("a milestone", m) for m in self.milestones))

    def _refuse_what_does_not_go_together(self) -> None:
        if self.lyapunov_target is None and self.lyapunov_weight != ADDED["lyapunov_weight"]:
            raise ConfigurationError("lyapunov_weight weighs the distance to a lyapunov_target: name that, too")
        if self.objective == "task" and self.target_radius != ADDED["target_radius"]:
            raise ConfigurationError("target_radius is what the other objectives aim at: name one of them, too")
        if type(self.until_certified) is not bool:
            raise ConfigurationError(f"until_certified must be true or false, got {self.until_certified!r}")
        if self.until_certified and self.patience is not None:
            raise ConfigurationError("patience keeps the epoch of the best loss, until_certified the last: take one")

    def rate(self, epoch: int, batch: int = 1, batches: int = 1) -> float:
        """Learning rate of a batch (the first epoch and the first batch are 1).

        Example:
            >>> Settings(lr=1.0, milestones=(2,), decay=0.5).rate(3)
            0.5
        """
        return self.lr * self.factor(epoch, batch, batches)

    def factor(self, epoch: int, batch: int = 1, batches: int = 1) -> float:
        r"""What the schedule multiplies learning rates by at a batch.

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
        """The optimizer for the parameters that require a gradient, in groups, see ``parameter_groups``.

        Raises:
            ConfigurationError: when none does, or groups that are not the model's.
        """
        own = {"sgd": {"momentum": self.momentum}, "rmsprop": {"alpha": self.alpha}}
        more = own.get(self.optimizer, {"betas": self.betas})
        groups = parameter_groups(model, self.lr, self.group_lr)
        return OPTIMIZERS[self.optimizer](groups, self.lr, weight_decay=self.weight_decay, **more)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; ``Settings(**values)`` makes it again."""
        kept = {name: value for name, value in asdict(self).items() if ADDED.get(name, ...) != value}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}


def _check_betas(value: Any) -> tuple[float, float]:
    """Two numbers in [0, 1)."""
    if isinstance(value, (str, Mapping)) or not isinstance(value, Iterable) or len(pair := tuple(value)) != 2:
        raise ConfigurationError(f"betas must be two numbers, got {value!r}")
    first, second = (check_number("a beta", beta) for beta in pair)
    if max(first, second) >= 1:
        raise ConfigurationError(f"betas must be below 1, got {value!r}")
    return first, second


def _check_rates(value: Any) -> dict[str, float]:
    """Positive learning rates by name."""
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"group_lr must be a mapping of names to learning rates, got {value!r}")
    rates = {str(name): check_number(f"the learning rate of {name}", rate, strict=True) for name, rate in value.items()}
    if any(rate > LARGEST for rate in rates.values()):
        raise ConfigurationError(f"learning rates must be at most {LARGEST:g}, got {value!r}")
    return rates
