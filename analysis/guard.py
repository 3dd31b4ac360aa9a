"""Input checks shared by all measurements, and context managers that restore the model afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, DimensionError, NonFiniteError
from stability.kernel.checks import unmasked

from ..models.wrapped import two_logits
from .threads import threads_fitting

_LARGEST = sys.float_info.max


@contextmanager
def in_evaluation(model: nn.Module) -> Iterator[nn.Module]:
    """Switch a model to evaluation mode for a block; every module's mode is restored afterwards.

    Args:
        model: any module.

    Yields:
        The same module.

    >>> layer = nn.Dropout()
    >>> with in_evaluation(layer) as inside:
    ...     inside.training
    False
    >>> layer.training
    True
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        yield model
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def untouched(model: nn.Module) -> Iterator[nn.Module]:
    """Switch a model to evaluation mode for a block; mode, gradients, buffers and random state are restored.

    A small model runs on one thread (``threads_fitting``). cuDNN is off inside: its recurrent kernels can neither run
    backward in evaluation mode nor be differentiated twice.

    Args:
        model: any module.

    Yields:
        The same module, in evaluation mode, with gradients enabled.

    >>> layer = nn.Dropout()
    >>> with untouched(layer) as inside:
    ...     inside.training
    False
    >>> layer.training
    True
    """
    parameters = [(p, p.grad, p.requires_grad) for p in model.parameters()]
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    cuda = sorted({t.device.index for t, *_ in (*parameters, *buffers) if t.is_cuda})
    with (
        threads_fitting(model),
        torch.random.fork_rng(devices=cuda),
        torch.backends.cudnn.flags(enabled=False),
        torch.enable_grad(),
    ):
        try:
            with in_evaluation(model):
                yield model
        finally:
            for parameter, gradient, needed in parameters:
                parameter.grad = gradient
                parameter.requires_grad_(needed)
            with torch.no_grad():
                for buffer, value in buffers:
                    if not torch.equal(buffer, value):
                        buffer.copy_(value)


def answer(model: nn.Module, x: Tensor, name: str) -> Any:
    """Return a model's output for sequences ``(batch, time, features)``, in evaluation mode, without a graph.

    Raises:
        ConfigurationError: an error inside the model, in one line.
    """
    try:
        with in_evaluation(model), torch.no_grad():
            return model(x)
    except (Exception, SystemExit) as error:  # a network of the user's own may raise anything
        line = next((part.strip() for part in str(error).splitlines() if part.strip()), "")[:200]
        raise ConfigurationError(
            f"{name} does not take sequences {tuple(x.shape)} (batch, time, features): {type(error).__name__}: {line}"
        ) from error


def check_model(model: Any) -> nn.Module:
    """Raise an error unless ``model`` is a module with finite parameters; return it.

    Raises:
        ConfigurationError: no ``torch.nn.Module``, or a parameter that is sparse or without numbers.
        NonFiniteError: a parameter holds NaN or an infinity.
    """
    if not isinstance(model, nn.Module):
        raise ConfigurationError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    for name, value in model.named_parameters():
        check_dense(f"parameter {name} of {type(model).__name__}", value)
        if not torch.isfinite(value).all():
            raise NonFiniteError(f"parameter {name} of {type(model).__name__}")
    return model


def as_tensor(model: nn.Module, x: Any) -> Any:
    """Convert a floating NumPy array to the model's dtype and device; return anything else unchanged.

    >>> as_tensor(nn.Linear(2, 2), np.zeros(2)).dtype
    torch.float32
    """
    if not isinstance(unmasked("x", x), np.ndarray) or x.dtype.kind != "f":
        return x
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    kind = {} if parameter is None else {"dtype": parameter.dtype, "device": parameter.device}
    return torch.tensor(x, **kind)


def check_dense(name: str, value: Tensor) -> None:
    """Raise an error for a tensor without an entry at every place: sparse, nested, or on the meta device.

    Raises:
        ConfigurationError: a tensor of this kind.

    >>> check_dense("x", torch.eye(2))
    """
    if value.is_meta:
        raise ConfigurationError(f"{name} is on the meta device, which keeps no numbers: load them first")
    if value.is_nested or value.layout is not torch.strided:
        kind = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise ConfigurationError(f"{name} must be a dense tensor, got a {kind} one: convert it first")


def check_real_sequences(x: Any) -> Tensor:
    """Check for finite real sequences of any precision on any device; return ``x`` without a graph.

    Args:
        x: ``(batch, time, features)``.

    Raises:
        ConfigurationError: no dense, real floating-point tensor.
        DimensionError: not three axes, or an empty one.
        NonFiniteError: NaN or an infinity inside.

    >>> check_real_sequences(torch.zeros(2, 3, 1)).shape
    torch.Size([2, 3, 1])
    """
    if not isinstance(x, Tensor) or not x.is_floating_point():
        received = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise ConfigurationError(f"x must be a real floating-point tensor (batch, time, features), got {received}")
    check_dense("x", x)
    if x.dim() != 3 or 0 in x.shape:
        raise DimensionError("x", "(batch, time, features)", tuple(x.shape), "no axis may be empty")
    if not torch.isfinite(x).all():
        raise NonFiniteError("x", "clean the data first")
    return x.detach()


def check_batch(model: nn.Module, x: Any) -> Tensor:
    """Check an input against the model; return ``x`` without a graph.

    Args:
        model: gives dtype and device.
        x: ``(batch, time, features)``; an array of numpy is taken in the model's dtype.

    Raises:
        ConfigurationError: no dense floating-point tensor, or one of another dtype or device than the model's.
        DimensionError: not three axes, or an empty one.
        NonFiniteError: NaN or an infinity inside.
    """
    x = check_real_sequences(as_tensor(model, x))
    check_kind(model, x)
    return x


def check_kind(model: nn.Module, x: Tensor) -> None:
    """Raise an error for a floating-point tensor of another dtype or device than the model's parameters.

    Raises:
        ConfigurationError: another dtype or device.
    """
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    if x.is_floating_point() and parameter is not None and (parameter.dtype != x.dtype or parameter.device != x.device):
        raise ConfigurationError(
            f"x is {x.dtype} on {x.device}, the model {parameter.dtype} on {parameter.device}: convert x with x.to(...)"
        )


def check_labels(y: Any, batch: int, device: torch.device | None = None) -> Tensor:
    """Check the class labels of a batch; return ``y`` as int64.

    Args:
        y: ``(batch,)`` integers.
        batch: expected number of labels.
        device: required device; ``None``: any.

    Raises:
        ConfigurationError: no dense integer tensor, or on another device.
        DimensionError: another shape than ``(batch,)``.
    """
    if isinstance(unmasked("y", y), np.ndarray) and y.dtype.kind in "iu":
        y = torch.tensor(y.astype(np.int64), device=device)
    if not isinstance(y, Tensor) or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        received = y.dtype if isinstance(y, Tensor) else type(y).__name__
        raise ConfigurationError(f"y must be an integer tensor of class labels (batch,), got {received}")
    check_dense("y", y)
    if tuple(y.shape) != (batch,):
        raise DimensionError("y", (batch,), tuple(y.shape), "one label per sequence of x")
    if device is not None and y.device != device:
        raise ConfigurationError(f"y is on {y.device}, x on {device}: move one of them")
    return y.detach().long()


def check_labelled(model: Any, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Run ``check_model``, ``check_batch`` and ``check_labels`` for sequences with a class each."""
    x = check_batch(check_model(model), x)
    return x, check_labels(y, len(x), x.device)


def _plain(value: Any) -> Any:
    """Convert a NumPy or torch number to a Python number."""
    return value.item() if isinstance(value, np.generic | np.ndarray | Tensor) and value.ndim == 0 else value


def check_number(name: str, value: Any, *, minimum: float = 0.0, strict: bool = False) -> float:
    """Return ``value`` as a finite float of at least (strictly more than) ``minimum``.

    Raises:
        ConfigurationError: otherwise.
    """
    number = _plain(value)
    fits = isinstance(number, int | float) and not isinstance(number, bool) and minimum <= number <= _LARGEST
    if not fits or (strict and number == minimum):
        sign = ">" if strict else ">="
        raise ConfigurationError(f"{name} must be a finite number {sign} {minimum:g}, got {value!r}")
    return float(number)


def check_int(name: str, value: Any, minimum: int = 1) -> int:
    """Return ``value`` as an int of at least ``minimum`` that fits into 63 bits.

    Raises:
        ConfigurationError: otherwise.
    """
    number = _plain(value)
    if isinstance(number, bool) or not isinstance(number, int) or not minimum <= number < 2**63:
        raise ConfigurationError(f"{name} must be an integer >= {minimum}, got {value!r}")
    return number


def logits_of(model: nn.Module, x: Tensor, y: Tensor | None = None) -> Tensor:
    """Return the model's checked logits ``(batch, classes)``.

    Args:
        model: called as ``model(x)``; one logit ``z`` a sequence stands for the two logits ``(0, z)``.
        x: ``(batch, time, features)``.
        y: labels that must be among the classes.

    Raises:
        DimensionError: the output is no ``(batch, classes)`` tensor with two classes or more.
        NonFiniteError: a logit is NaN or infinite.
        ConfigurationError: a label is no class of the output.
    """
    logits = two_logits(model(x), len(x))
    if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != len(x) or logits.shape[1] < 2:
        received = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise DimensionError(
            "the model's output", f"({len(x)}, classes >= 2)", received, "one row of logits per sequence"
        )
    if not torch.isfinite(logits).all():
        raise NonFiniteError("the model's output (logits)", "the model diverges on this input")
    if y is not None and len(y) and not 0 <= int(y.min()) <= int(y.max()) < logits.shape[1]:
        raise ConfigurationError(f"labels must lie in [0, {logits.shape[1] - 1}], got {int(y.min())} to {int(y.max())}")
    return logits
