"""Options of layers: checked once, in the constructor, with errors that name the option."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stability.errors import ConfigurationError
from stability.systems.activations import ACTIVATIONS

__all__ = ["TORCH_ACTIVATIONS", "choice", "pair", "real", "torch_activation"]

TORCH_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "leaky_relu": lambda z: torch.nn.functional.leaky_relu(z, ACTIVATIONS["leaky_relu"].slope[0]),
    "sigmoid": torch.sigmoid,
}


def real(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, strict: bool = False) -> float:
    """``value`` as a finite float in ``[low, high]``; with ``strict`` the lower end is excluded.

    Raises:
        ConfigurationError: when it is none.
    """
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not good or not low <= value <= high or (strict and value == low):
        if math.isinf(low) and math.isinf(high):
            expected = "a finite number"
        elif math.isinf(high):
            expected = f"a number {'>' if strict else '>='} {low:g}"
        else:
            expected = f"a number in {'(' if strict else '['}{low:g}, {high:g}]"
        raise ConfigurationError(f"{name} must be {expected}, got {value!r}")
    return float(value)


def pair(name: str, value: Any, low: float = -math.inf, high: float = math.inf) -> tuple[float, float]:
    """A number for both matrices, or an ``(A, W)`` pair of numbers.

    Raises:
        ConfigurationError: when it is neither.
    """
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ConfigurationError(f"{name} must be a number or an (A, W) pair, got {value!r}")
        return real(f"{name}[0]", value[0], low, high), real(f"{name}[1]", value[1], low, high)
    both = real(name, value, low, high)
    return both, both


def choice(name: str, value: Any, known: tuple[str, ...]) -> str:
    """``value`` when it is one of the known names.

    Raises:
        ConfigurationError: when it is none.
    """
    if not isinstance(value, str) or value not in known:
        raise ConfigurationError(f"unknown {name} {value!r}; the known ones are {', '.join(known)}")
    return value


def torch_activation(name: Any) -> Callable[[Tensor], Tensor]:
    """The torch function of an activation that ``stability.systems.activations`` knows under the same name.

    Raises:
        ConfigurationError: when there is none of that name.
    """
    return TORCH_ACTIVATIONS[choice("activation", name, tuple(TORCH_ACTIVATIONS))]
