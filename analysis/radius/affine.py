"""Networks whose logits are an affine function of the input sequence: what one can move is known exactly."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...models.linear import LinearLayer
from ...models.network import SequenceModel
from ..dynamics.stepbound import SLACK
from ..guard import untouched

Array = NDArray[np.float64]


def is_affine(model: nn.Module) -> bool:
    """Whether the logits are an affine function of the input: a linear recurrence, one way or both, under a head.

    Example:
        >>> from stability.models import LRU, ElmanRNN
        >>> is_affine(SequenceModel(LRU(2, 4), 3)), is_affine(SequenceModel(ElmanRNN(2, 4), 3))
        (True, False)
    """
    linear = isinstance(model, SequenceModel) and isinstance(model.layer, LinearLayer)
    return linear and model.reduction != "all"


def affine_gains(model: nn.Module, horizon: int, features: int) -> tuple[float, Array, str]:
    """The norm of the map from input sequences to logits, and of the difference of every two of its rows.

    The map is read off its derivative in float64, which is the same everywhere. A radius from it is the distance to the
    nearest decision boundary itself.

    Args:
        model: one that ``is_affine``.
        horizon: time steps.
        features: input features per step.

    Returns:
        The gain, bounds ``(classes, classes)`` of ``|change of logit i - logit j| / |change of the input|``, and the
        method in words.
    """
    with untouched(model):
        exact = copy.deepcopy(model).double().cpu()

        def logits(sequence: Tensor) -> Tensor:
            return exact(sequence.unsqueeze(0))[0]

        kernel = torch.autograd.functional.jacobian(logits, torch.zeros(horizon, features, dtype=torch.float64))
    rows = kernel.reshape(len(kernel), -1).detach().numpy()
    pairs = np.linalg.norm(rows[:, None, :] - rows[None, :, :], axis=2)
    return float(np.linalg.norm(rows, 2)) * (1 + SLACK), pairs * (1 + SLACK), "the affine map itself"
