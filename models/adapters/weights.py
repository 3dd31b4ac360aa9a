"""Weights of a recurrent network in torch's layout, with the subject and the module that they define.

Readers of torch modules, quantized modules, state dicts and ONNX nodes all return these weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from stability.errors import UnsupportedError
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack

from ..lure import rnn_subject

Subject = Any
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Parameter names of a cell in torch; a bias may be absent."""
KINDS = {"RNN": "rnn", "LSTM": "lstm", "GRU": "gru", "RNNCell": "rnn", "LSTMCell": "lstm", "GRUCell": "gru"}
"""Torch's recurrent classes by name."""


@dataclass(frozen=True, eq=False)
class RecurrentWeights:
    """Weights of the layers of a recurrent network, level by level and direction by direction.

    Attributes:
        kind: ``rnn``, ``lstm`` or ``gru``.
        layers: ``[w_ih, w_hh, b_ih, b_hh]`` of each layer, float64; a bias may be ``None``.
        names: names of the layers in reports.
        label: name of the network in reports.
        directions: 1 or 2.
        activation: activation of an ``rnn``.
        reset_after: for a ``gru``, True if the reset gate multiplies ``w_hh h + b_hh``, as in torch; False if it
            multiplies ``h``.
    """

    kind: str
    layers: list[list[Any]]
    names: list[str]
    label: str
    directions: int = 1
    activation: str = "tanh"
    reset_after: bool = True

    def subject(self) -> Subject:
        """Return the cell of a single layer, or the ``LayerStack`` of several layers.

        Raises:
            UnsupportedError: a layer has no weights yet.
        """
        cells = [self._cell(*layer, name=name) for layer, name in zip(self.layers, self.names, strict=True)]
        return cells[0] if len(cells) == 1 else LayerStack(cells, directions=self.directions, name=self.label)

    def _cell(self, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any, *, name: str) -> Subject:
        if w_ih is None or w_hh is None:
            raise UnsupportedError(f"{name} has no weights yet (a lazy module before its first input?)")
        if self.kind != "rnn":
            return GatedCell(self.kind, w_ih, w_hh, b_ih, b_hh, reset_after=self.reset_after, name=name)
        # the sum of the two biases is rounded once; claims are about this rounded bias
        biases = [b for b in (b_ih, b_hh) if b is not None]
        return rnn_subject(w_hh, w_ih, sum(biases[1:], biases[0]) if biases else None, self.activation, name)

    def module(self) -> nn.Module:
        """Return the module of ``torch.nn`` with these weights, in float64; an absent bias is zero."""
        inputs_size, hidden = self.layers[0][0].shape[1], self.layers[0][1].shape[1]
        depth = len(self.layers) // self.directions
        options: dict[str, Any] = {"num_layers": depth, "bidirectional": self.directions == 2, "dtype": torch.float64}
        if self.kind == "rnn":
            options["nonlinearity"] = self.activation
        module = {"rnn": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}[self.kind](inputs_size, hidden, **options)
        arrays = (array for layer in self.layers for array in layer)
        with torch.no_grad():
            for target, value in zip(module.parameters(), arrays, strict=True):
                target.copy_(torch.from_numpy(np.zeros(()) if value is None else value))
        return module.eval()


def module_weights(
    module: Any, kind: str, label: str, array: Callable[[str], Any], name: Callable[[str], str]
) -> RecurrentWeights:
    """Return the weights of a recurrent torch module, layer by layer and direction by direction.

    Args:
        module: recurrent module with torch's parameter names.
        kind: ``rnn``, ``lstm`` or ``gru``.
        label: name of the network in reports.
        array: function from a parameter name, such as ``weight_ih_l0_reverse``, to its float64 array; ``None`` if the
            parameter does not exist.
        name: function from the suffix of a layer's parameter names, such as ``_l0_reverse``, to its name in reports.
    """
    suffixes, directions = [""], 1 + getattr(module, "bidirectional", False)
    if hasattr(module, "num_layers"):
        suffixes = [f"_l{k}{way}" for k in range(module.num_layers) for way in ("", "_reverse")[:directions]]
    layers = [[array(key + suffix) for key in WEIGHTS] for suffix in suffixes]
    activation = getattr(module, "nonlinearity", "tanh")
    return RecurrentWeights(kind, layers, list(map(name, suffixes)), label, directions, activation)
