"""Exact gains of networks whose logits are an affine function of the input sequence."""

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


def is_affine(model: nn.Module, every_step: bool = False) -> bool:
    """Return True if the logits are affine in the input: a linear recurrence, one-way or bidirectional, under a head.

    Args:
        model: any module.
        every_step: whether it answers at every step; then only what runs forward, by the same map at every step.

    Example:
        >>> from stability.models import LRU, ElmanRNN
        >>> is_affine(SequenceModel(LRU(2, 4), 3)), is_affine(SequenceModel(ElmanRNN(2, 4), 3))
        (True, False)
    """
    if not (isinstance(model, SequenceModel) and isinstance(model.layer, LinearLayer)):
        return False
    shifts = not model.layer.bidirectional and not getattr(model.layer, "stationary_start", False)
    return (model.reduction == "all") is every_step and (shifts or not every_step)


def affine_gains(model: nn.Module, horizon: int, features: int) -> tuple[float, Array, str]:
    """Return the norm of the map from input sequences to logits, and of the differences of its rows.

    The map is read off its derivative in float64, which is the same everywhere. A radius from it is the distance to the
    nearest decision boundary itself.

    Args:
        model: a model for which ``is_affine`` is true.
        horizon: time steps.
        features: input features per step.

    Returns:
        The gain, bounds ``(classes, classes)`` of ``|change of logit i - logit j| / |change of the input|``, and the
        method in words.
    """
    rows = _kernel(model, horizon, features).reshape(-1, horizon * features)
    pairs = np.linalg.norm(rows[:, None, :] - rows[None, :, :], axis=2)
    return float(np.linalg.norm(rows, 2)) * (1 + SLACK), pairs * (1 + SLACK), "the affine map itself"


def affine_gains_at_steps(model: nn.Module, horizon: int, features: int) -> tuple[float, Array, str]:
    """Return the gains for logits at every step: those after ``t`` steps depend on the last ``t`` inputs.

    Args:
        model: a model for which ``is_affine`` is true at every step.
        horizon: time steps.
        features: input features per step.

    Returns:
        The largest gain, bounds ``(time, classes, classes)``, and the method in words.
    """
    lags = _kernel(model, horizon, features)[:, ::-1]  # (classes, time, features), the latest input first
    squares = np.zeros((horizon, len(lags), len(lags)))
    for i, row in enumerate(lags):
        squares[:, i] = np.square(row - lags).sum(axis=2).T
    pairs = np.sqrt(np.cumsum(squares, axis=0))
    gain = float(np.linalg.norm(lags.reshape(len(lags), -1), 2))
    return gain * (1 + SLACK), pairs * (1 + SLACK), "the affine map itself"


def _kernel(model: nn.Module, horizon: int, features: int) -> Array:
    """Return the derivative ``(classes, time, features)`` of the (last) logits by the input, in float64."""
    with untouched(model):
        exact = copy.deepcopy(model).double().cpu()

        def logits(sequence: Tensor) -> Tensor:
            answer = exact(sequence.unsqueeze(0))[0]
            return answer[-1] if answer.dim() == 2 else answer

        kernel = torch.autograd.functional.jacobian(logits, torch.zeros(horizon, features, dtype=torch.float64))
    return kernel.detach().numpy()
