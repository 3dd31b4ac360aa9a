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
    """Return True if the logits are an affine function of the input: a linear recurrence with a linear readout.

    Args:
        model: any module.
        every_step: whether the logits of every step are meant; then only time-invariant forward recurrences count.

    Example:
        >>> from stability.models import LRU, ElmanRNN
        >>> is_affine(SequenceModel(LRU(2, 4), 3)), is_affine(SequenceModel(ElmanRNN(2, 4), 3))
        (True, False)
    """
    if not (isinstance(model, SequenceModel) and isinstance(model.layer, LinearLayer)):
        return False
    time_invariant = not model.layer.bidirectional and not getattr(model.layer, "stationary_start", False)
    return (model.reduction == "all") is every_step and (time_invariant or not every_step)


def affine_gains(model: nn.Module, horizon: int, features: int) -> tuple[float, Array, str]:
    """Return the norm of the map from input sequences to logits, and of the differences of its rows.

    The map is its derivative, computed in float64. A radius from these gains is the exact distance to the nearest
    decision boundary, up to rounding.

    Args:
        model: a model for which ``is_affine`` is true.
        horizon: time steps.
        features: input features per step.

    Returns:
        The gain, bounds ``(classes, classes)`` of ``|change of logit i - logit j| / |change of the input|``, and a
        description of the method.
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
        The largest gain, bounds ``(time, classes, classes)``, and a description of the method.
    """
    lags = _kernel(model, horizon, features)[:, ::-1]  # (classes, time, features), the latest input first
    squares = np.zeros((horizon, len(lags), len(lags)))
    for i, row in enumerate(lags):
        squares[:, i] = np.square(row - lags).sum(axis=2).T
    pairs = np.sqrt(np.cumsum(squares, axis=0))
    gain = float(np.linalg.norm(lags.reshape(len(lags), -1), 2))
    return gain * (1 + SLACK), pairs * (1 + SLACK), "the affine map itself"


def _kernel(model: nn.Module, horizon: int, features: int) -> Array:
    """Return the derivative ``(classes, time, features)`` of the logits, at the last step, by the input, in float64."""
    with untouched(model):
        exact = copy.deepcopy(model).double().cpu()

        def logits(sequence: Tensor) -> Tensor:
            answer = exact(sequence.unsqueeze(0))[0]
            return answer[-1] if answer.dim() == 2 else answer

        kernel = torch.autograd.functional.jacobian(logits, torch.zeros(horizon, features, dtype=torch.float64))
    return kernel.detach().numpy()
