"""Networks as analyses call them: one tensor of inputs, a row of at least two logits for each sequence."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def two_logits(outputs: Any, count: int) -> Any:
    """Return the logits ``(0, z)`` of a binary classifier that answers one logit ``z`` for each sequence.

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
    """Return weight and bias of a linear head with a zero row in front where it has one row: the logits ``(0, z)``."""
    if len(weight) != 1:
        return weight, bias
    return np.vstack([np.zeros_like(weight), weight]), None if bias is None else np.append(0.0, bias)


class TwoLogits(nn.Module):
    """A binary classifier with one logit ``z`` (sigmoid, binary cross entropy), as one with the logits ``(0, z)``.

    Args:
        model: answers ``(batch,)`` or ``(batch, 1)``.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        """Logits ``(batch, 2)``."""
        return two_logits(self.model(x), len(x))
