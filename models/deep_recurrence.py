"""Deep network as one recurrence over the states of all its layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from stability.errors import UnsupportedError

from .deep_block import DeepBlock
from .recurrent import RecurrentLayer


class DeepRecurrence(RecurrentLayer):
    """Encoder and blocks of a deep network as one recurrent layer in evaluation: fixed norms, no dropout.

    The state holds the states of all layers, the lowest first. The input of a layer depends on the states of the lower
    layers at the same time step, so that step Jacobians are block triangular. The modules are shared with the network.
    No theorem covers this recurrence, since a gated linear unit between layers has no global slope.

    Args:
        encoder: linear map before the first block.
        blocks: blocks of norm, recurrent layer and mixing, as in ``DeepNetwork``.

    Attributes:
        hidden_size: hidden size of all layers together.

    Raises:
        UnsupportedError: bidirectional layers.

    Example:
        >>> from stability.models import DeepNetwork
        >>> network = DeepNetwork(3, 10, layer="lru", hidden_size=4, width=6, reduction="last").eval()
        >>> x = torch.randn(2, 5, 3)
        >>> outputs, states = network.recurrence()(x)
        >>> torch.allclose(network.decoder(outputs[:, -1]), network(x), atol=1e-5), len(states)
        (True, 2)
    """

    layer_name = "deep"

    def __init__(self, encoder: nn.Linear, blocks: Sequence[DeepBlock]) -> None:
        super().__init__(encoder.in_features, sum(block.layer.hidden_size for block in blocks), encoder.out_features)
        if any(block.layer.bidirectional for block in blocks):
            raise UnsupportedError("bidirectional layers need the whole sequence: there is no single step")
        self.encoder = encoder
        self.blocks = nn.ModuleList(blocks)

    @property
    def _blocks(self) -> list[DeepBlock]:
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def time_step(self) -> float | None:
        """Return the duration of a step, which all layers share; ``None`` for maps."""
        return self._blocks[0].layer.time_step

    def prepare(self) -> tuple[Any, ...]:
        """Return the prepared matrices of each layer."""
        return tuple(block.layer.prepare() for block in self._blocks)

    def drive(self, x: Tensor, prepared: tuple[Any, ...]) -> Tensor:
        """Return the encoded input; the inputs of upper layers are known only step by step."""
        return self.encoder(x)

    def initial_state(self, x: Tensor, prepared: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the state of every layer before the first step, which may depend on the layer's input there."""
        return self._advance_layers(self.encoder(x[:, 0]), prepared)[0]

    def transition(self, drive: Tensor, state: tuple[Any, ...], prepared: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run one step of every layer, from the lowest up."""
        return self._advance_layers(drive, prepared, state)[1]

    def _advance_layers(
        self, signal: Tensor, prepared: tuple[Any, ...], states: tuple[Any, ...] | None = None
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the states before a step (the layers' own if none are given) and after it."""
        before, next_states = [], []
        for k, (block, layer_prepared) in enumerate(zip(self._blocks, prepared)):
            read = block.normalized_step(signal).unsqueeze(1)
            drive = block.layer.drive(read, layer_prepared)[:, 0]
            before.append(block.layer.initial_state(read, layer_prepared) if states is None else states[k])
            next_states.append(block.layer.transition(drive, before[-1], layer_prepared))
            signal = signal + block.mixed(block.layer.output(next_states[-1], drive, layer_prepared))
        return tuple(before), tuple(next_states)

    def output(self, state: tuple[Any, ...], drive: Tensor, prepared: tuple[Any, ...]) -> Tensor:
        """Return the output of the last block, ``(batch, width)``."""
        signal = drive
        for block, next_state, layer_prepared in zip(self._blocks, state, prepared):
            read = block.layer.drive(block.normalized_step(signal).unsqueeze(1), layer_prepared)[:, 0]
            signal = signal + block.mixed(block.layer.output(next_state, read, layer_prepared))
        return signal

    def hidden(self, state: tuple[Any, ...]) -> Tensor:
        """Return the hidden states of all layers side by side."""
        return torch.cat(self.hidden_states(state), 1)

    def hidden_states(self, state: tuple[Any, ...]) -> list[Tensor]:
        """Return the hidden state of every layer, the lowest first."""
        return [block.layer.hidden(layer_state) for block, layer_state in zip(self._blocks, state)]
