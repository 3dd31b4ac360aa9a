"""LSTM and GRU layers by ``torch.nn``'s own kernels."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .adapters.weights import module_weights
from .options import positive_int, real
from .recurrent import RecurrentLayer, register_layer
from .tensors import check_sequence, state_leaves, to_numpy


class GatedLayer(RecurrentLayer):
    """Base of LSTM and GRU, run by ``torch.nn``; states are ``(batch, num_layers * hidden_size)``."""

    kind: ClassVar[str]
    rnn: nn.LSTM | nn.GRU

    def __init__(self, input_size: int, hidden_size: int, *, num_layers: int = 1) -> None:
        super().__init__(input_size, hidden_size)
        self.num_layers = positive_int("num_layers", num_layers)
        make = nn.LSTM if self.kind == "lstm" else nn.GRU
        self.rnn = make(self.input_size, self.hidden_size, num_layers=self.num_layers, batch_first=True)

    def prepare(self) -> None:
        """Return None: the weights need no preparation."""

    def drive(self, x: Tensor, prepared: None) -> Tensor:
        """Return the input itself; ``torch.nn`` multiplies it by the input weights."""
        return x

    def transition(self, drive: Tensor, state: Any, prepared: None) -> Any:
        """Run one step."""
        return self._run(drive.unsqueeze(1), state)[1]

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Run over a sequence in one call of ``torch.nn``; see ``RecurrentLayer.forward``."""
        check_sequence(x, self.input_size)
        return self._run(x, self.begin(x, state)[1])

    def initial_state(self, x: Tensor, prepared: None) -> Any:
        """Return zeros for ``h``, and for the ``c`` of an LSTM."""
        zeros = x.new_zeros(x.shape[0], self.num_layers * self.hidden_size)
        return (zeros, torch.zeros_like(zeros)) if self.kind == "lstm" else zeros

    def hidden(self, state: Any) -> Tensor:
        """Return ``h`` of the top layer, ``(batch, hidden_size)``."""
        return self.hidden_states(state)[-1]

    def hidden_states(self, state: Any) -> list[Tensor]:
        """Return ``h`` of every layer, the lowest first."""
        return list(state_leaves(state)[0].split(self.hidden_size, dim=-1))

    def system_state(self, state: Any) -> Tensor:
        """Return ``h`` (and ``c``) layer by layer; the state has all ``h`` first."""
        blocks = [leaf.split(self.hidden_size, dim=1) for leaf in state_leaves(state)]
        return torch.cat([block for layer in zip(*blocks) for block in layer], 1)

    def _run(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Run ``torch.nn``'s kernel, converting between batch-first and layer-first states."""

        def split(tensor: Tensor) -> Tensor:
            """Reshape ``(batch, layers * hidden)`` to torch's ``(layers, batch, hidden)``."""
            return tensor.reshape(-1, self.num_layers, self.hidden_size).transpose(0, 1).contiguous()

        def join(tensor: Tensor) -> Tensor:
            return tensor.transpose(0, 1).reshape(-1, self.num_layers * self.hidden_size)

        if self.kind == "gru":
            outputs, next_state = self.rnn(x, split(state))
            return outputs, join(next_state)
        outputs, next_state = self.rnn(x, tuple(map(split, state)))
        return outputs, tuple(map(join, next_state))

    def matrices(self) -> dict[str, Tensor]:
        """Return the recurrent weights of each layer, one matrix per gate, as ``W_i`` (one layer) or ``W_i_l0``."""
        gates = {"lstm": "ifgo", "gru": "rzn"}[self.kind]
        out = {}
        for layer in range(self.num_layers):
            blocks = getattr(self.rnn, f"weight_hh_l{layer}").chunk(len(gates))
            suffix = "" if self.num_layers == 1 else f"_l{layer}"
            out.update({f"W_{gate}{suffix}": block for gate, block in zip(gates, blocks)})
        return out

    def driven(self, continuous: bool = False) -> Any:
        """Return the cell with exact float64 copies of the weights; several layers give a stack of cells.

        Raises:
            UnsupportedError: for the differential equation, which a gated cell does not have.
            NonFiniteError: NaN or infinite weights.
        """
        self.refuse_equation(continuous)
        self.check_finite()
        name, rnn = type(self).__name__, self.rnn
        return module_weights(rnn, self.kind, name, lambda key: to_numpy(getattr(rnn, key)), lambda _: name).subject()


@register_layer("lstm")
class LSTM(GatedLayer):
    r"""LSTM of ``torch.nn`` as a recurrent layer; its state is a pair ``(h, c)``.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        num_layers: stacked layers.
        forget_bias: initial bias of the forget gates; ``None`` keeps torch's random one. 1 lets gradients
            pass at the start (Jozefowicz, Zaremba, Sutskever 2015).

    Shapes:
        state ``(h, c)``, each ``(batch, num_layers * hidden_size)``, the top layer last.

    Raises:
        ConfigurationError: an option out of its range.

    Example:
        >>> outputs, (h, c) = LSTM(2, 8)(torch.zeros(3, 5, 2))
        >>> outputs.shape, h.shape, c.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 8]), torch.Size([3, 8]))
    """

    kind = "lstm"

    def __init__(
        self, input_size: int, hidden_size: int, *, num_layers: int = 1, forget_bias: float | None = 1.0
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers=num_layers)
        self.forget_bias = None if forget_bias is None else real("forget_bias", forget_bias)
        if self.forget_bias is not None:
            n = self.hidden_size
            with torch.no_grad():
                for layer in range(self.num_layers):
                    getattr(self.rnn, f"bias_ih_l{layer}")[n : 2 * n] = self.forget_bias
                    getattr(self.rnn, f"bias_hh_l{layer}")[n : 2 * n] = 0.0


@register_layer("gru")
class GRU(GatedLayer):
    """GRU of ``torch.nn`` as a recurrent layer.

    Args:
        input_size: features per time step.
        hidden_size: size of ``h``.
        num_layers: stacked layers.

    Shapes:
        state ``(batch, num_layers * hidden_size)``, the top layer last.

    Raises:
        ConfigurationError: an option out of its range.

    Example:
        >>> outputs, h = GRU(2, 8, num_layers=2)(torch.zeros(3, 5, 2))
        >>> outputs.shape, h.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 16]))
    """

    kind = "gru"
