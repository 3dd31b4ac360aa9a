"""Recurrent layer with a linear head."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice
from stability.systems import LureSystem

from .options import positive_int
from .recurrent import RecurrentLayer
from .stack import Stack
from .tensors import check_sequence

REDUCTIONS = ("last", "mean", "all")


def over_time(outputs: Tensor, reduction: str) -> Tensor:
    """Return the head's input from outputs ``(batch, time, n)``: the last one, their mean, or all."""
    if reduction == "all":
        return outputs
    return outputs[:, -1] if reduction == "last" else outputs.mean(dim=1)


def is_loop(layer: RecurrentLayer) -> bool:
    """Return True if a layer's forward pass is the plain loop over steps, without hooks."""
    watched = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return type(layer).forward is RecurrentLayer.forward and "forward" not in vars(layer) and not watched


def last_output(layer: RecurrentLayer, x: Tensor) -> Tensor:
    """Return the last output ``(batch, output_size)`` of a plain loop, without computing the other outputs.

    Args:
        layer: see ``is_loop``.
        x: ``(batch, time, input_size)``.

    Example:
        >>> import torch
        >>> from stability.models import LipschitzRNN
        >>> layer, x = LipschitzRNN(2, 4), torch.ones(3, 5, 2)
        >>> torch.equal(last_output(layer, x), layer(x)[0][:, -1])
        True
    """
    check_sequence(x, layer.input_size)
    last = deque(layer.walk(x), maxlen=1).pop()
    return layer.output(last.after, last.drive, last.prepared)


def refuse_last_step(layer: RecurrentLayer, reduction: str) -> None:
    """Raise an error for a head on the last step of a bidirectional layer.

    Raises:
        ConfigurationError: always; the text names the alternative.
    """
    if layer.bidirectional and reduction == "last":
        raise ConfigurationError(
            "the backward direction has read one step at the last output: use reduction='mean' or 'all'"
        )


class SequenceModel(nn.Module):
    """Recurrent layer with a linear head on its last output, on the mean of its outputs, or on all of them.

    Args:
        layer: any ``RecurrentLayer``, or a list of them, which is stacked.
        output_size: outputs (classes, or regression targets).
        reduction: ``last``: logits at the last step; ``mean``: logits of the mean output;
            ``all``: logits at every step.

    Attributes:
        layer: the recurrent layer.
        head: ``nn.Linear``.
        input_size: features per time step.
        hidden_size: size of the layer's hidden state.

    Raises:
        ConfigurationError: not a layer, an option out of its range, or a head on the last step of a layer that runs
            both ways.

    Example:
        >>> import torch
        >>> from stability.models import LipschitzRNN
        >>> model = SequenceModel(LipschitzRNN(2, 8), 3)
        >>> model(torch.zeros(4, 5, 2)).shape
        torch.Size([4, 3])
    """

    def __init__(
        self, layer: RecurrentLayer | Sequence[RecurrentLayer], output_size: int, reduction: str = "last"
    ) -> None:
        super().__init__()
        if isinstance(layer, (list, tuple)):
            layer = Stack(layer)
        if not isinstance(layer, RecurrentLayer):
            raise ConfigurationError(
                f"layer must be a recurrent layer such as LipschitzRNN(2, 64), got {type(layer).__name__}: "
                "wrap a step (x, h) -> next h in StepLayer(step, input_size, state_size)"
            )
        self.output_size = positive_int("output_size", output_size)
        self.reduction = as_choice("reduction", reduction, REDUCTIONS)
        refuse_last_step(layer, reduction)
        self.layer = layer
        self.input_size, self.hidden_size = layer.input_size, layer.hidden_size
        self.head = nn.Linear(layer.output_size, self.output_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(batch, output_size)``, or ``(batch, time, output_size)`` for ``reduction="all"``.

        Args:
            x: ``(batch, time, input_size)``.

        Raises:
            DimensionError: a wrong shape, or an empty batch or sequence.
            ConfigurationError: a wrong dtype or device.
        """
        if self.reduction == "last" and is_loop(self.layer):
            return self.head(last_output(self.layer, x))
        outputs, _ = self.layer(x)
        return self.head(over_time(outputs, self.reduction))

    def weight_error(self, format: str) -> float:
        """Bound the error of the layer's computed matrices: see ``RecurrentLayer.weight_error``."""
        return self.layer.weight_error(format)

    def driven(self, continuous: bool = False) -> Any:
        """Return the layer's subject of claims; the head is not part of the dynamics."""
        return self.layer.driven(continuous)

    def lure(self, continuous: bool = False) -> LureSystem:
        """Return the layer's Lur'e system."""
        return self.layer.lure(continuous)

    def witness(self) -> dict[str, Any] | None:
        """Return the layer's proof by construction, if it has one."""
        return self.layer.witness()

    def matrices(self) -> dict[str, Tensor]:
        """Return the layer's realized recurrent matrices."""
        return self.layer.matrices()
