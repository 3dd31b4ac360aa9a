"""Wrappers that give networks the interface of the analyses: one input tensor, at least two logits per sequence."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.conversion.parts import with_ending
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.parts import SCALED


def two_logits(outputs: Any, count: int) -> Any:
    """Return the logits ``(0, z)`` of a binary classifier with one logit ``z`` per sequence.

    Args:
        outputs: ``(count,)`` or ``(count, 1)``; anything else is returned unchanged.
        count: number of sequences.

    Example:
        >>> two_logits(torch.tensor([[2.0]]), 1)
        tensor([[0., 2.]])
    """
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) not in ((count,), (count, 1)):
        return outputs
    return nn.functional.pad(outputs.reshape(count, 1), (1, 0))


def two_rows(weight: np.ndarray, bias: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Return weight and bias of a linear head, with a zero row in front of a single row: the logits ``(0, z)``."""
    if len(weight) != 1:
        return weight, bias
    return np.vstack([np.zeros_like(weight), weight]), None if bias is None else np.append(0.0, bias)


class TwoLogits(nn.Module):
    """Binary classifier with one logit ``z`` (sigmoid, binary cross entropy), converted to the logits ``(0, z)``.

    Args:
        model: network with outputs ``(batch,)`` or ``(batch, 1)``.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        """Return logits ``(batch, 2)``."""
        return two_logits(self.model(x), len(x))


class WithLengths(nn.Module):
    """Network ``model(x, lengths)`` as a function of ``x``, in which padded steps hold a special value.

    The network itself gets zeros at these steps. The lengths are exact as long as padded steps do not change.

    Args:
        model: the network.
        padding: ``(features,)`` value of a padded step, different from every other step.
    """

    padding: Tensor

    def __init__(self, model: nn.Module, padding: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("padding", padding)

    def forward(self, x: Tensor) -> Any:
        """Return the network's output for the sequences and their lengths."""
        valid = steps_up_to_last((x != self.padding).any(2))
        return self.model(torch.where(valid[:, :, None], x, 0.0), valid.sum(1).cpu())


def steps_up_to_last(mask: Tensor) -> Tensor:
    """Return ``(n, time)``: True up to each row's last True of ``mask``, and at its first step.

    Example:
        >>> steps_up_to_last(torch.tensor([[False, True, False]]))
        tensor([[ True,  True, False]])
    """
    valid = mask.flip(1).cummax(1).values.flip(1)
    valid[:, 0] = True
    return valid


def takes_lengths(model: nn.Module) -> bool:
    """Return True if ``forward`` has a second argument without a default, or one named ``lengths``."""
    try:
        known = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return False
    plain = [p for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:2]
    return any(p.default is p.empty or p.name == "lengths" for p in plain)


def unwrapped(model: Any) -> Any:
    """Return the network inside ``TwoLogits`` and ``WithLengths``."""
    return unwrapped(model.model) if isinstance(model, (TwoLogits, WithLengths)) else model


class Scaled(nn.Module):
    """Network with inputs in units of ``scale (features,)``: ``model(x * scale)``."""

    scale: Tensor

    def __init__(self, model: nn.Module, scale: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor, *lengths: Tensor) -> Any:
        """Return the network's output for inputs in units of ``scale``."""
        return self.model(x * self.scale, *lengths)


@dataclass(frozen=True, eq=False)
class MeasuredClassifier:
    """Classifier that no local certificate covers, with the methods of ``Classifier`` that attacks use.

    Attributes:
        module: the network in float64, in evaluation mode.
        inputs: features per time step.
    """

    module: nn.Module
    inputs: int

    def logits(self, x: np.ndarray) -> np.ndarray:
        """Return ``(batch, classes)`` of ``x (batch, time, features)``."""
        with torch.no_grad():
            return self.module(torch.tensor(x)).numpy()

    def require_range(self) -> None:
        """Accept all weights: bounds on their size are for certificates."""


def scaled(model: Any, scale: Tensor) -> Any:
    """Return a network, or a subject of claims, with inputs in units of ``scale (features,)``, all positive.

    The input weights of a subject are multiplied by the scale in float64; claims state that they hold for the products.
    """
    if isinstance(model, TwoLogits):
        return TwoLogits(scaled(model.model, scale))
    if isinstance(model, WithLengths):
        return WithLengths(Scaled(model.model, scale), model.padding / scale)
    if isinstance(model, nn.Module):
        return Scaled(model, scale)
    if isinstance(model, MeasuredClassifier):
        return replace(model, module=scaled(model.module, scale))
    if isinstance(model, Classifier):
        return replace(model, recurrent=with_ending(scaled(model.recurrent, scale), SCALED))
    if isinstance(model, LayerStack):
        return replace(model, layers=[scaled(model.layers[0], scale), *model.layers[1:]])
    names = ("w_ih",) if isinstance(model, GatedCell) else ("E", "F")
    return replace(model, **{name: getattr(model, name) * scale.numpy() for name in names})
