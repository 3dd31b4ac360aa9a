"""Checks of layer options in the constructor, with errors that name the option."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.arithmetic.activations import ACTIVATIONS

Made = TypeVar("Made")

GAIN = ". One of other slopes, such as phi(z) = 3 tanh(z), is one of these with its gain in the weights that read it"
"""Advice in the error about an activation with other slopes."""

TORCH_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": torch.relu,
    "leaky_relu": lambda z: torch.nn.functional.leaky_relu(z, ACTIVATIONS["leaky_relu"].slope[0]),
    "sigmoid": torch.sigmoid,
    "saturation": torch.nn.functional.hardtanh,
    "deadzone": lambda z: torch.nn.functional.softshrink(z, 1.0),
}


def positive_int(name: str, value: Any) -> int:
    """Return ``value`` as an int >= 1.

    Raises:
        ConfigurationError: another value.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} must be a positive integer, got {value!r}")
    return value


def real(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, strict: bool = False) -> float:
    """Return ``value`` as a finite float in ``[low, high]``; with ``strict`` the lower end is excluded.

    Raises:
        ConfigurationError: another value.
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
    """Return an ``(A, W)`` pair of numbers; one number applies to both.

    Raises:
        ConfigurationError: another value.
    """
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ConfigurationError(f"{name} must be a number or an (A, W) pair, got {value!r}")
        return real(f"{name}[0]", value[0], low, high), real(f"{name}[1]", value[1], low, high)
    both = real(name, value, low, high)
    return both, both


def constructor_arguments(cls: type) -> list[str]:
    """Return the names of a class's constructor arguments, including those passed on to its base."""
    names: list[str] = []
    for base in cls.__mro__:
        if "__init__" in vars(base):
            args = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]
            names += [
                p.name for p in args if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in names
            ]
            if not any(p.kind is p.VAR_KEYWORD for p in args):
                break
    return names


def made_with(cls: Callable[..., Made], what: str, options: Mapping[str, Any], *first: Any) -> Made:
    """Return an instance of a class, from options given by a file or a user.

    Args:
        cls: the class.
        what: name in error messages.
        options: keyword arguments.
        first: positional arguments before the options.

    Raises:
        ConfigurationError: unknown or missing options.
    """
    try:
        arguments = inspect.signature(cls).bind(*first, **options)
    except TypeError as error:
        raise ConfigurationError(f"{what}: {error}") from error
    return cls(*arguments.args, **arguments.kwargs)


def no_contraction_gap(module: Any) -> UnsupportedError:
    """Return the error for a module without a known contraction gap."""
    return UnsupportedError(
        f"--margin-penalty works for LipschitzRNN, ElmanRNN and torch.nn.RNN, not for {type(module).__name__}: train "
        "--model contracting or bounded_gain on the same data; both are proven stable for all weights"
    )
