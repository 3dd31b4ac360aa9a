r"""The recurrent modules of ``torch.nn`` as subjects of claims.

``torch.nn.RNN`` and ``RNNCell`` compute :math:`h^+ = \phi(W_{ih} x + b_{ih} + W_{hh} h + b_{hh})`: a ``DrivenSystem``
with ``A = 0``, ``B = I``, ``C = W_hh``. LSTM and GRU become a ``GatedCell``; several layers or two directions a
``Cascade``. Weights become float64 exactly, whatever their dtype, and the subject's name says what they were.

What changes the map (an overridden method, a hook, dropout) is refused by name, weights that are recomputed before each
pass are recomputed, and at last the module is run beside its subject: see ``inspection`` and ``cross_check``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.claims.cascade import Cascade
from stability.errors import ConfigurationError, NonFiniteError, UnsupportedError
from stability.gated.cell import GatedCell

from ..lure import rnn_subject
from .cross_check import cross_check, cross_check_quantised
from .inspection import refuse_altered, settled
from .quantized import is_quantized, quantized_weights

__all__ = [
    "as_array",
    "assemble",
    "from_rows",
    "is_torch_recurrent",
    "read",
    "stacked",
    "torch_kind",
    "torch_subject",
]

Subject = Any
_CELLS = {nn.RNNCell: "rnn", nn.LSTMCell: "lstm", nn.GRUCell: "gru"}
_LAYERS = {nn.RNN: "rnn", nn.LSTM: "lstm", nn.GRU: "gru"}
_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def is_torch_recurrent(module: Any) -> bool:
    """Whether it is a recurrent module of ``torch.nn``, a subclass, or a dynamically quantised one."""
    return isinstance(module, (*_CELLS, *_LAYERS)) or is_quantized(module)


def torch_subject(module: Any) -> Subject:
    """The subject behind a recurrent module of ``torch.nn``.

    Args:
        module: one for which ``is_torch_recurrent`` holds.

    Returns:
        A ``DrivenSystem``, ``GatedCell`` or ``Cascade``.

    Raises:
        UnsupportedError: projections, a lazy module without weights, a foreign quantisation, an overridden method, a
            hook, dropout that is switched on.
        DisagreementError: run beside its subject, the module gives other numbers.
        NonFiniteError: NaN or infinite weights.

    Example:
        >>> torch_subject(nn.GRU(3, 5, num_layers=2, bidirectional=True)).levels
        2
    """
    if is_quantized(module):
        refuse_altered(module, type(module))
        subject = _quantized(module)
        cross_check_quantised(module, subject)
        return subject
    refuse_altered(module, torch_kind(module))
    subject = read(settled(module))
    cross_check(module, subject)
    return subject


def torch_kind(module: nn.Module) -> type:
    """The class of ``torch.nn`` whose map a recurrent module runs, unless it was altered."""
    return next(kind for kind in (*_CELLS, *_LAYERS) if isinstance(module, kind))


def read(module: nn.Module) -> Subject:
    """The subject that a module's weights describe, whatever else the module does.

    Args:
        module: an instance of a recurrent class of ``torch.nn``.

    Returns:
        A ``DrivenSystem``, ``GatedCell`` or ``Cascade``.
    """
    for kind, name in _CELLS.items():
        if isinstance(module, kind):
            return _cell(module, name)
    return next(_layers(module, name) for kind, name in _LAYERS.items() if isinstance(module, kind))


def as_array(tensor: Any, name: str = "weight") -> np.ndarray:
    """A tensor as a float64 array with the same numbers: half, bfloat16 and float32 convert exactly.

    Args:
        tensor: a tensor, parameter or array.
        name: what an error calls it.

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
            raise ConfigurationError(f"{name} must hold real numbers, got {tensor.dtype}")
        tensor = tensor.detach().to("cpu", torch.float64).numpy()
    array = np.array(tensor, dtype=np.float64)
    if not np.isfinite(array).all():
        raise NonFiniteError(name)
    return array


def from_rows(tensor: Any, name: str = "weight") -> np.ndarray:
    """A matrix that its module multiplies from the right, ``h @ W``, in the column convention ``W^T h``.

    Args:
        tensor: ``(p, n)``, as the module stores it.
        name: what an error calls it.

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


def _weights(module: nn.Module, names: tuple[str, ...], suffix: str = "") -> list[np.ndarray | None]:
    """Weights by name, parametrised ones as they are realised now; an absent bias is ``None``."""
    with torch.no_grad():
        values = [getattr(module, name + suffix, None) for name in names]
    return [None if v is None else as_array(v, name + suffix) for name, v in zip(names, values)]


def _label(module: nn.Module) -> str:
    """The class, and what its weights were before they became float64."""
    kinds = sorted({str(p.dtype).removeprefix("torch.") for p in module.parameters()} - {"float32", "float64"})
    name = type(module).__name__.removeprefix("Parametrized")
    return f"{name} ({', '.join(kinds)} weights, converted exactly)" if kinds else name


def assemble(kind: str, weights: list[Any], activation: str | None, name: str) -> Subject:
    """One cell from its weights in torch's layout.

    Args:
        kind: ``rnn``, ``lstm`` or ``gru``.
        weights: ``w_ih``, ``w_hh``, ``b_ih``, ``b_hh``; a bias may be ``None``.
        activation: of an ``rnn``.
        name: what reports call it.

    Raises:
        UnsupportedError: no weights.
    """
    w_ih, w_hh, b_ih, b_hh = weights
    if w_ih is None or w_hh is None:
        raise UnsupportedError(f"{name} has no weights yet (a lazy module before its first input?)")
    if kind != "rnn":
        return GatedCell(kind, w_ih, w_hh, b_ih, b_hh, name=name)
    # the two biases are added here, in one rounding of their last place: b is what the network is said to have
    given = [b for b in (b_ih, b_hh) if b is not None]
    bias = sum(given[1:], given[0]) if given else None
    return rnn_subject(w_hh, w_ih, bias, str(activation), name)


def _cell(module: Any, kind: str) -> Subject:
    return assemble(kind, _weights(module, _NAMES), getattr(module, "nonlinearity", None), _label(module))


def _layers(module: Any, kind: str) -> Subject:
    if module.proj_size:
        raise UnsupportedError(
            f"an LSTM with projections (proj_size={module.proj_size}) is another cell, h+ = P (o tanh c+): there is no "
            "criterion for it here"
        )
    label = _label(module)
    activation = getattr(module, "nonlinearity", None)
    suffixes = ("", "_reverse") if module.bidirectional else ("",)
    parts = [
        assemble(kind, _weights(module, _NAMES, f"_l{layer}{suffix}"), activation, f"{label} l{layer}{suffix}")
        for layer in range(module.num_layers)
        for suffix in suffixes
    ]
    return stacked(parts, len(suffixes), label)


def stacked(parts: list[Subject], directions: int, label: str) -> Subject:
    """A single cell as it is, several as a ``Cascade``."""
    return parts[0] if len(parts) == 1 else Cascade(parts, directions=directions, name=label)


def _quantized(module: Any) -> Subject:
    found = quantized_weights(module)
    label = f"{type(module).__name__} ({found.dtype} weights dequantised exactly; rounding of activations not modelled)"
    parts = [assemble(found.kind, list(weights), found.activation, label) for weights in found.layers]
    return stacked(parts, found.directions, label)
