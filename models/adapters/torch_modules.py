r"""Recurrent modules of ``torch.nn`` as subjects of claims.

``torch.nn.RNN`` and ``RNNCell`` compute :math:`h^+ = \phi(W_{ih} x + b_{ih} + W_{hh} h + b_{hh})`: a ``DrivenSystem``
with ``A = 0``, ``B = I``, ``C = W_hh``. LSTM and GRU become a ``GatedCell``; several layers or two directions a
``LayerStack``. Weights of every dtype are converted to float64 exactly, and the subject's name gives their dtype.

A module whose map is changed (by an overridden method, a hook or dropout) is refused, with the reason. Weights that are
recomputed before each pass are recomputed. Finally the outputs of the module and of its subject are compared: see
``inspection`` and ``cross_check``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, NonFiniteError, UnsupportedError

from .cross_check import cross_check, cross_check_quantized
from .inspection import refuse_altered, with_current_weights
from .quantized import is_quantized, quantized_weights
from .weights import KINDS, module_weights

Subject = Any
_CLASSES: tuple[type, ...] = tuple(getattr(nn, name) for name in KINDS)


def is_torch_recurrent(module: Any) -> bool:
    """Return True for recurrent modules of ``torch.nn``, subclasses, and dynamically quantized ones."""
    return isinstance(module, _CLASSES) or is_quantized(module)


def torch_subject(module: Any) -> Subject:
    """Return the subject of claims about a recurrent module of ``torch.nn``.

    Args:
        module: one for which ``is_torch_recurrent`` holds.

    Returns:
        A ``DrivenSystem``, ``GatedCell`` or ``LayerStack``.

    Raises:
        UnsupportedError: projections, a lazy module without weights, a foreign quantization, an overridden method, a
            hook, or active dropout.
        DisagreementError: the module and its subject give different numbers.
        NonFiniteError: NaN or infinite weights.

    Example:
        >>> torch_subject(nn.GRU(3, 5, num_layers=2, bidirectional=True)).levels
        2
    """
    if is_quantized(module):
        refuse_altered(module, type(module))
        subject = quantized_weights(module).subject()
        cross_check_quantized(module, subject)
        return subject
    refuse_altered(module, torch_kind(module))
    subject = read(with_current_weights(module))
    cross_check(module, subject)
    return subject


def torch_kind(module: nn.Module) -> type:
    """Return the class of ``torch.nn`` whose map an unaltered recurrent module runs."""
    return next(kind for kind in _CLASSES if isinstance(module, kind))


def read(module: Any) -> Subject:
    """Return the subject described by a module's weights, without a check of its run.

    Args:
        module: an instance of a recurrent class of ``torch.nn``.

    Returns:
        A ``DrivenSystem``, ``GatedCell`` or ``LayerStack``.

    Raises:
        UnsupportedError: an LSTM with projections.
    """
    if getattr(module, "proj_size", 0):
        raise UnsupportedError(
            f"an LSTM with projections (proj_size={module.proj_size}) is another cell, h+ = P (o tanh c+): there is no "
            "criterion for it here"
        )
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in module.parameters()} - {"float32", "float64"})
    label = type(module).__name__.removeprefix("Parametrized")
    label += f" ({', '.join(kinds)} weights, converted exactly)" if kinds else ""

    def array(name: str) -> np.ndarray | None:  # present values of parametrized weights; a bias may be absent
        with torch.no_grad():
            value = getattr(module, name, None)
        return None if value is None else as_array(value, name)

    kind = KINDS[torch_kind(module).__name__]
    return module_weights(module, kind, label, array, lambda suffix: f"{label} {suffix[1:]}".rstrip()).subject()


def as_array(tensor: Any, name: str = "weight") -> np.ndarray:
    """Convert a tensor to float64 with the same numbers: half, bfloat16 and float32 convert exactly.

    Args:
        tensor: a tensor, parameter or array.
        name: name in error messages.

    Returns:
        The array.

    Raises:
        ConfigurationError: complex or integer entries, or weights that exist only as shapes (``meta``).
        NonFiniteError: NaN or infinite entries.

    Example:
        >>> as_array(torch.tensor([0.5, 0.1], dtype=torch.bfloat16))  # 0.1 is what bfloat16 has nearest to it
        array([0.5       , 0.10009766])
    """
    if isinstance(tensor, Tensor):
        if tensor.is_meta:
            raise ConfigurationError(f"{name} is on the meta device: it has a shape but no numbers")
        if tensor.layout is not torch.strided or tensor.is_nested:
            raise ConfigurationError(f"{name} is stored as {tensor.layout}: give it as an ordinary dense tensor")
        if not tensor.is_floating_point():
            raise ConfigurationError(f"{name} must hold real numbers in floating point, got {tensor.dtype}")
        tensor = tensor.detach().to("cpu", torch.float64).numpy()
    array = np.array(tensor, dtype=np.float64)
    if not np.isfinite(array).all():
        raise NonFiniteError(name)
    return array


def from_rows(tensor: Any, name: str = "weight") -> np.ndarray:
    """Convert a matrix of ``h @ W`` to the column convention ``W^T h``.

    Args:
        tensor: ``(p, n)``, as the module stores it.
        name: name in error messages.

    Returns:
        The transpose ``(n, p)`` in float64.

    Raises:
        ConfigurationError: complex or integer entries, or weights that exist only as shapes (``meta``).
        NonFiniteError: NaN or infinite entries.

    Example:
        >>> from_rows(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))[0]
        array([1., 3.])
    """
    return np.ascontiguousarray(as_array(tensor, name).T)
