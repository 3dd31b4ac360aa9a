"""Inputs, labels, bounds and masks of single-input radii: checked, in float64, in the unit of each feature."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stability.errors import ConfigurationError
from stability.kernel.checks import unmasked
from stability.kernel.systems.classifier import Classifier

from ...models.classifier_network import ClassifierNetwork
from ...models.packed import Reading, reading
from ...models.wrapped import MeasuredClassifier
from ..attacks.smallest import stored_bounds
from ..attacks.threat import Bounds
from ..attacks.units import in_units
from ..guard import check_dense, check_labelled, check_number

Array = NDArray[np.float64]
Prepared = tuple[Reading, nn.Module, Tensor, Tensor, Bounds, Tensor | None, Tensor]


def prepare(model: nn.Module | Classifier | Reading, x: Any, y: Any, bounds: Bounds, mask: Any, scale: Any) -> Prepared:
    """Return reading, network, inputs, labels, bounds and mask in units of ``scale``, and the inputs as given.

    Args:
        model: the network; all arguments as in ``local_radius``.
        x: inputs.
        y: labels.
        bounds: least and largest values of the inputs.
        mask: entries of the inputs that may change.
        scale: unit of each feature; ``None``: that of the data.
    """
    x, y = _as_tensor("x", x), _as_tensor("y", y)
    free = stored_bounds(bounds, x) if isinstance(x, Tensor) else bounds
    if isinstance(x, Tensor) and x.is_floating_point():
        x = x.detach().double().cpu()
    read = reading(model, x)
    read.subject.require_range()
    network = _network(read)
    x, y = check_labelled(network, x, y.cpu() if isinstance(y, Tensor) else y)
    mask = _checked_mask(mask, x)
    if scale is None:
        return read, network, x, y, free, mask, x
    read, z, free, mask = in_units(read, x, scale, free, mask)
    read.subject.require_range()
    return read, _network(read), z, y, free, mask, x


def _network(read: Reading) -> nn.Module:
    subject = read.subject
    return subject.module if isinstance(subject, MeasuredClassifier) else ClassifierNetwork(subject)


def first_steps(bounds: Bounds, steps: int) -> Bounds:
    """Return the bounds of the first steps if the bounds depend on the step, else the bounds unchanged."""
    if bounds is None:
        return None
    low, high = (
        end[..., :steps, :] if isinstance(end, Tensor) and end.dim() > 1 and end.shape[-2] > steps else end
        for end in bounds
    )
    return low, high


def _checked_mask(mask: Any, x: Tensor) -> Tensor | None:
    if mask is None:
        return None
    mask = torch.as_tensor(mask) if isinstance(unmasked("mask", mask), np.ndarray) and mask.dtype == np.bool_ else mask
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or tuple(mask.shape) != tuple(x.shape[1:]):
        raise ConfigurationError(f"mask must be boolean of shape {tuple(x.shape[1:])}, true where the input may change")
    return mask


def checked_limit(seconds: Any) -> float | None:
    """Return a time limit in seconds; infinity gives ``None``, no limit.

    Raises:
        ConfigurationError: not a positive number.
    """
    unlimited = seconds is None or (isinstance(seconds, float) and seconds == np.inf)
    return seconds if unlimited else check_number("time_limit", seconds, strict=True)


def _as_tensor(name: str, value: Any) -> Any:
    """Convert an array to a tensor; return anything else unchanged.

    Raises:
        ConfigurationError: an array without numbers or of a dtype that torch lacks, or a tensor that is not dense.
    """
    if isinstance(value, Tensor):
        check_dense(name, value)
    if not isinstance(unmasked(name, value), np.ndarray):
        return value
    try:
        return torch.tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigurationError(f"{name} must hold numbers, it has dtype {value.dtype}") from error


def as_arrays(bounds: Bounds) -> tuple[Array, Array] | None:
    """Return bounds as arrays."""
    if bounds is None:
        return None
    low, high = (torch.as_tensor(end, dtype=torch.float64).numpy() for end in bounds)
    return low, high
