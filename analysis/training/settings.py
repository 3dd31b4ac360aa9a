"""How to train: every choice that decides the result, checked once, and kept with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from stability.errors import ConfigurationError

from ..guard import check_int, check_number

__all__ = ["OPTIMIZERS", "Settings"]

OPTIMIZERS = ("adam", "sgd", "rmsprop")
LARGEST = 1e30
"""Of a real number: beyond it an optimizer in float32 overflows in its own arithmetic."""


@dataclass(frozen=True)
class Settings:
    """Everything that decides the weights that come out, besides the model, the task and the arithmetic.

    Attributes:
        epochs: passes over the training sequences.
        lr: learning rate.
        batch_size: sequences in a batch; the last batch of an epoch may be smaller.
        optimizer: ``adam``, ``sgd`` (with momentum) or ``rmsprop``.
        seed: of the order of the sequences, of the validation part, and of dropout.
        clip: largest norm of the gradient, or ``None``.
        momentum: of ``sgd``.
        weight_decay: of the optimizer.
        milestones: after these many epochs the learning rate is multiplied by ``decay``.
        decay: see above.
        patience: stop when the validation loss has not improved for so many epochs, and keep the best
            weights; ``None``: train to the end and keep the last.
        validation: share of the training sequences held out for that.
        margin_penalty: weight of ``sum_layers max(0, margin_target - contraction_gap)`` in the loss; 0 is
            none.
        margin_target: see above.
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

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            check_int(name, getattr(self, name))
        check_int("seed", self.seed, 0)
        check_number("lr", self.lr, strict=True)
        check_number("decay", self.decay, strict=True)
        for name in ("momentum", "weight_decay", "margin_penalty"):
            check_number(name, getattr(self, name))
        check_number("margin_target", self.margin_target, minimum=-1e6)
        check_number("validation", self.validation, strict=True)
        if self.validation >= 1 or self.momentum >= 1:
            raise ConfigurationError("validation and momentum must be below 1")
        if self.clip is not None:
            check_number("clip", self.clip, strict=True)
        for name in ("lr", "decay", "weight_decay", "margin_penalty", "margin_target", "clip"):
            if (getattr(self, name) or 0.0) > LARGEST:
                raise ConfigurationError(f"{name} must be at most {LARGEST:g}, got {getattr(self, name)!r}")
        if self.patience is not None:
            check_int("patience", self.patience)
        if self.optimizer not in OPTIMIZERS:
            raise ConfigurationError(
                f"unknown optimizer {self.optimizer!r}; the known ones are {', '.join(OPTIMIZERS)}"
            )
        if isinstance(self.milestones, (str, Mapping)) or not isinstance(self.milestones, Iterable):
            raise ConfigurationError(f"milestones must be a list of epochs, got {self.milestones!r}")
        object.__setattr__(self, "milestones", tuple(check_int("a milestone", m) for m in self.milestones))

    def rate(self, epoch: int) -> float:
        """Learning rate of an epoch (the first is 1).

        Example:
            >>> Settings(lr=1.0, milestones=(2,), decay=0.5).rate(3)
            0.5
        """
        return self.lr * self.decay ** sum(epoch > m for m in self.milestones)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """The optimizer for the parameters that require a gradient.

        Raises:
            ConfigurationError: when none does.
        """
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            raise ConfigurationError(f"{type(model).__name__} has no parameter that requires a gradient")
        if self.optimizer == "adam":
            return torch.optim.Adam(parameters, self.lr, weight_decay=self.weight_decay)
        if self.optimizer == "sgd":
            return torch.optim.SGD(parameters, self.lr, momentum=self.momentum, weight_decay=self.weight_decay)
        return torch.optim.RMSprop(parameters, self.lr, weight_decay=self.weight_decay)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; ``Settings(**values)`` makes it again."""
        return {**asdict(self), "milestones": list(self.milestones)}
