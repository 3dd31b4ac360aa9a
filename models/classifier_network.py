"""Classifier as a torch module, for gradients in attacks and for running ONNX files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import UnsupportedError
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.gated_cell import GatedCell
from stability.systems import DrivenSystem

from .network import over_time
from .options import TORCH_ACTIVATIONS
from .tensors import check_sequence


def _parameter(values: Any, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(torch.tensor(np.asarray(values), dtype=dtype))


class _Lure(nn.Module):
    """Lur'e layer ``x+ = A x + B phi(z) + F u``, ``z = C x + D phi(z) + E u + b``, solved by ``levels`` passes."""

    A: Tensor
    B: Tensor
    C: Tensor
    D: Tensor
    E: Tensor
    F: Tensor
    b: Tensor

    def __init__(self, layer: DrivenSystem, dtype: torch.dtype) -> None:
        super().__init__()
        system = layer.system
        named = {"A": system.A, "B": system.B, "C": system.C, "D": system.D, "E": layer.E, "F": layer.F, "b": layer.b}
        for name, values in named.items():
            setattr(self, name, _parameter(values, dtype))
        self.levels = _levels(system.D)
        self.states = system.states
        self.phi: Callable[[Tensor], Tensor] = {**TORCH_ACTIVATIONS, "identity": lambda z: z}[layer.activation]

    def forward(self, u: Tensor, start: Tensor) -> Tensor:
        into, beside = nn.functional.linear(u, self.E, self.b), nn.functional.linear(u, self.F)
        x, seen = start.expand(len(u), -1), []
        for drive, skip in zip(into.unbind(1), beside.unbind(1)):
            free = drive + x @ self.C.mT
            w = self.phi(free)
            for _ in range(self.levels):
                w = self.phi(free + w @ self.D.mT)
            x = x @ self.A.mT + w @ self.B.mT + skip
            seen.append(x)
        return torch.stack(seen, 1)


def _levels(D: np.ndarray) -> int:
    """Return the number of passes after which the channel equation is solved: the longest path in ``D``."""
    reached, power = D != 0, D != 0
    for count in range(len(D) + 1):
        if not power.any():
            return count
        power = (power.astype(int) @ reached.astype(int)) > 0
    raise UnsupportedError("its channels depend on each other in a loop: torch cannot run it step by step")


class _Gated(nn.Module):
    """LSTM or GRU with torch's gates; a GRU's reset gate may also act before the recurrent weights."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor
    b_hh: Tensor

    def __init__(self, cell: GatedCell, dtype: torch.dtype) -> None:
        super().__init__()
        for name in ("w_ih", "w_hh", "b_ih", "b_hh"):
            setattr(self, name, _parameter(getattr(cell, name), dtype))
        self.kind, self.hidden, self.reset_after = cell.kind, cell.hidden, cell.reset_after

    def forward(self, u: Tensor, start: Tensor) -> Tensor:
        into = nn.functional.linear(u, self.w_ih, self.b_ih)
        parts = start.expand(len(u), -1).split(self.hidden, dim=-1)
        h, c = parts[0], parts[-1]
        step, seen = self._lstm if self.kind == "lstm" else self._gru, []
        for drive in into.unbind(1):
            h, c = step(drive, h, c)
            seen.append(h)
        return torch.stack(seen, 1)

    def _lstm(self, drive: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, g, o = (drive + nn.functional.linear(h, self.w_hh, self.b_hh)).chunk(4, dim=-1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c

    def _gru(self, drive: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        m = 2 * self.hidden
        gates = drive[:, :m] + nn.functional.linear(h, self.w_hh[:m], self.b_hh[:m])
        r, z = torch.sigmoid(gates).chunk(2, dim=-1)
        v = nn.functional.linear(h if self.reset_after else r * h, self.w_hh[m:], self.b_hh[m:])
        n = torch.tanh(drive[:, m:] + (r * v if self.reset_after else v))
        return (1 - z) * n + z * h, c


class ClassifierNetwork(nn.Module):
    """Map of a ``Classifier`` from sequences to logits, with its weights as parameters.

    Args:
        subject: the classifier.
        dtype: dtype of the parameters; with ``torch.float64`` the network equals the classifier up to rounding.
        source: the ``OnnxGraph`` from which the classifier was read; the logits are compared with it at each new length
            of sequences.

    Attributes:
        subject: the classifier.
        source: the graph, or ``None``.
        input_size: features per time step.
        hidden_size: states of the recurrent part.
        output_size: classes.

    Raises:
        UnsupportedError: channels that depend on each other in a loop.

    Example:
        >>> from stability.models import GRU, SequenceModel
        >>> from stability.models.classifier import classifier
        >>> network = ClassifierNetwork(classifier(SequenceModel(GRU(2, 4), 3)))
        >>> network(torch.zeros(5, 7, 2, dtype=torch.float64)).shape
        torch.Size([5, 3])
    """

    def __init__(self, subject: Classifier, dtype: torch.dtype = torch.float64, source: Any = None) -> None:
        super().__init__()
        self.subject, self.source = subject, source
        steps = [_Gated(p, dtype) if isinstance(p, GatedCell) else _Lure(p, dtype) for p in subject.layers]
        self.layers = nn.ModuleList(steps)
        self.weight, self.bias = _parameter(subject.weight, dtype), _parameter(subject.bias, dtype)
        self.starts = nn.ParameterList([_parameter(start, dtype) for start in subject.starts])
        self.input_size, self.hidden_size, self.output_size = subject.inputs, subject.states, subject.classes
        self.reduction = subject.reduction

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(batch, classes)`` of sequences ``(batch, time, features)``.

        Raises:
            DimensionError: a wrong shape, or an empty batch or sequence.
            ConfigurationError: not a floating-point tensor.
            DisagreementError: the graph that was read gives other logits at this length.
        """
        check_sequence(x, self.input_size)
        if self.source is not None:
            self.source.check(self.subject, x)
        for layer, start in zip(self.layers, self.starts):
            x = layer(x, start)
        return nn.functional.linear(over_time(x, self.reduction), self.weight, self.bias)

    def driven(self, continuous: bool = False) -> Any:
        """Return the recurrent part of the classifier.

        Raises:
            UnsupportedError: a differential equation.
        """
        if continuous:
            raise UnsupportedError("a network read as a map has no differential equation: leave continuous out")
        return self.subject.recurrent
