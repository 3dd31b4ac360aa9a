"""Deep network of the linear-recurrence papers, around any recurrent layer of the toolkit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.conversion.block_diagonal import block_diagonal_network
from stability.conversion.parts import subject_as_part
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.checks import as_choice
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.parts import ALL_LAYERS
from stability.kernel.systems.residual_stack import ResidualStack
from stability.systems import DrivenSystem, PairwiseSystem

from .deep_block import DeepBlock
from .deep_recurrence import DeepRecurrence
from .network import REDUCTIONS, over_time, refuse_last_step
from .options import constructor_arguments, made_with, positive_int, real
from .recurrent import LAYERS, RecurrentLayer
from .tensors import check_sequence, to_numpy

NORMS = ("batch", "layer", "none")
MIXINGS = ("glu", "gelu", "linear")


class DeepNetwork(nn.Module):
    """Deep network: encoder, residual blocks around recurrent layers, pooling over time, decoder.

    Certificates are about the recurrent parts. ``certify_all(network)`` gives one for each block's layer, under every
    input, thus also under the outputs of the blocks below. ``certify(network)`` gives one for all layers side by side,
    each with separate inputs. Norms, GELU and the gated linear unit between them are static maps, which add no memory;
    but a gated linear unit has no global Lipschitz constant, so no rate is claimed for the whole network. If the layers
    prescribe their gains (``bounded_gain``), the mixing is ``linear`` or ``gelu`` and the norm is ``none`` or
    ``batch``, then encoder and blocks are one subject: ``certify`` proves that they contract and bounds the effect of
    an input on the output of the last block, and ``certified_radius`` extends the bound to the logits.

    Args:
        input_size: features per time step.
        output_size: logits.
        layer: name of a recurrent layer.
        hidden_size: hidden size of the recurrent layers.
        width: features between blocks.
        depth: number of blocks.
        options: further keyword arguments of the recurrent layers.
        norm: ``batch``, ``layer`` or ``none``.
        mixing: ``glu``, ``gelu`` or ``linear``.
        dropout: probability.
        reduction: ``mean`` over time, the ``last`` step, or ``all`` steps.

    Attributes:
        encoder: ``nn.Linear``.
        blocks: the blocks.
        decoder: ``nn.Linear``.

    Raises:
        ConfigurationError: an unknown layer, or an option out of its range.

    Source:
        K. Biegun et al., "RotRNN: modelling long sequences with rotations" (2024), figure 1.

    Example:
        >>> network = DeepNetwork(3, 10, layer="rotrnn", hidden_size=16, width=8, depth=2)
        >>> network(torch.zeros(4, 7, 3)).shape, network.hidden_norms(torch.zeros(4, 7, 3)).shape
        (torch.Size([4, 10]), torch.Size([2]))
    """

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        layer: str = "rotrnn",
        hidden_size: int = 64,
        width: int = 64,
        depth: int = 2,
        options: Mapping[str, Any] | None = None,
        norm: str = "batch",
        mixing: str = "glu",
        dropout: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.input_size = positive_int("input_size", input_size)
        self.output_size = positive_int("output_size", output_size)
        self.layer_name = as_choice("layer", layer, LAYERS)
        self.hidden_size = positive_int("hidden_size", hidden_size)
        self.width = positive_int("width", width)
        self.depth = positive_int("depth", depth)
        self.options = dict(options or {})
        self.norm = as_choice("norm", norm, NORMS)
        self.mixing = as_choice("mixing", mixing, MIXINGS)
        self.dropout = real("dropout", dropout, 0.0, 1.0)
        self.reduction = as_choice("reduction", reduction, REDUCTIONS)
        self.encoder = nn.Linear(input_size, width)
        self.blocks = nn.ModuleList(DeepBlock(layer, width, norm, mixing, dropout) for layer in self._make_layers())
        self.decoder = nn.Linear(width, output_size)

    def _make_layers(self) -> Iterator[RecurrentLayer]:
        cls, label = LAYERS[self.layer_name], f"options of layer {self.layer_name}"
        factory: Callable[..., list[dict[str, Any]]] | None = getattr(cls, "stack_configs", None)
        configs = [self.options] * self.depth
        if factory is not None:  # the class itself defines its layers in a deep network
            configs = factory([self.width] * self.depth, self.hidden_size, **self.options)
            configs = [{k: v for k, v in c.items() if k not in ("input_size", "hidden_size")} for c in configs]
        for options in configs:
            layer = made_with(cls, label, options, self.width, self.hidden_size)
            refuse_last_step(layer, self.reduction)
            yield layer

    @property
    def layers(self) -> list[RecurrentLayer]:
        """Recurrent layers, the lowest first."""
        return [block.layer for block in self.blocks]  # type: ignore[misc]

    @property
    def residuals(self) -> list[DeepBlock]:
        """Residual blocks, the lowest first."""
        return list(self.blocks)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(batch, output_size)``, or ``(batch, time, output_size)`` for ``reduction="all"``.

        Args:
            x: ``(batch, time, input_size)``.

        Raises:
            DimensionError: a wrong shape, or an empty batch or sequence.
            ConfigurationError: a wrong dtype or device.
        """
        h = self._encoded(x)
        for block in self.blocks:
            h = block(h)
        return self.decoder(over_time(h, self.reduction))

    def layer_inputs(self, x: Tensor, batch_statistics: bool = False) -> list[Tensor]:
        """Return the inputs of each recurrent layer, ``(batch, time, width)``, the lowest first.

        Args:
            x: ``(batch, time, input_size)``.
            batch_statistics: see ``hidden_norms``.
        """
        h, inputs = self._encoded(x), []
        for block in self.blocks:
            assert isinstance(block, DeepBlock)
            inputs.append(block.normalised(h, batch_statistics))
            h = block(h, inputs[-1])
        return inputs

    def recurrence(self) -> DeepRecurrence:
        """Return encoder and blocks as one recurrent layer over the states of all layers, in evaluation.

        Raises:
            UnsupportedError: bidirectional layers.
        """
        return DeepRecurrence(self.encoder, [block for block in self.blocks if isinstance(block, DeepBlock)])

    def hidden_norms(self, x: Tensor, batch_statistics: bool = False) -> Tensor:
        r"""Return ``(depth,)``, the mean over batch and time of :math:`\|x_t\|^2` per layer, without dropout.

        Args:
            x: ``(batch, time, input_size)``.
            batch_statistics: batch norm with the statistics of ``x``, as in training, instead of the running ones.
        """
        modes = [(part, part.training) for part in self.modules()]  # a frozen norm stays frozen
        self.eval()
        try:
            with torch.no_grad():
                pairs = zip(self.layers, self.layer_inputs(x, batch_statistics))
                return torch.stack([layer.states(u).square().sum(-1).mean() for layer, u in pairs])
        finally:
            for part, training in modes:
                part.training = training

    def side_by_side(self) -> DrivenSystem:
        """Return the recurrent layers side by side, each with separate inputs, as a part of this network.

        A bidirectional layer is listed once: both directions are the same map.

        Raises:
            UnsupportedError: layers that are no Lur'e systems, such as LSTM and GRU; ``certify_all`` certifies each.
            NonFiniteError: NaN or infinite weights.
        """
        systems = []
        for layer in self.layers:
            subject = layer.driven()
            parts = subject.layers[:1] if isinstance(subject, LayerStack) and subject.levels == 1 else (subject,)
            if not all(isinstance(part, DrivenSystem) for part in parts):
                raise UnsupportedError(
                    f"layers of kind {self.layer_name} do not form one system: certify each with "
                    "stability.models.certify_all(model)"
                )
            systems += parts
        return subject_as_part(block_diagonal_network(systems), ALL_LAYERS, type(self).__name__)

    @property
    def prescribes_gain(self) -> bool:
        """Return True if the layers prescribe gains and the maps between them have one."""
        return why_without_gain(self) is None and all(layer.prescribed_gain is not None for layer in self.layers)

    def residual(self) -> ResidualStack:
        """Return encoder and blocks as one subject in float64, with norms as they are evaluated.

        Raises:
            UnsupportedError: gated linear units, layer norms, or layers without a bounded gain.

        Example:
            >>> options = {"layer": "bounded_gain", "hidden_size": 4, "width": 6, "norm": "none", "mixing": "linear"}
            >>> DeepNetwork(3, 10, **options).residual()
            ResidualStack(2 layers, inputs=3, name='DeepNetwork')
        """
        why = why_without_gain(self)
        if why is not None:
            raise UnsupportedError(why)
        subjects = [layer.driven() for layer in self.layers]
        for layer, system in zip(self.layers, subjects):
            if not layer.outputs_hidden or not isinstance(system, (DrivenSystem, PairwiseSystem)):
                raise UnsupportedError(f"residual branches with a {type(layer).__name__} have no combined bound")
        norms = [[to_numpy(v) for v in copy.deepcopy(block).double().affine_norm()] for block in self.residuals]
        return ResidualStack(
            subjects,
            to_numpy(self.encoder.weight),
            [to_numpy(block.mix.weight) for block in self.residuals],
            scales=np.stack([scale for scale, _ in norms]),
            shifts=np.stack([shift for _, shift in norms]),
            encoder_bias=to_numpy(self.encoder.bias),
            mixing_bias=np.stack([to_numpy(block.mix.bias) for block in self.residuals]),
            between="gelu" if self.mixing == "gelu" else "identity",
            name=type(self).__name__,
        )

    def witness(self) -> dict[str, Any] | None:
        """Return the layers' proofs if the network is one subject and a layer carries a proof; see ``Stack``."""
        proofs = [layer.witness() for layer in self.layers] if self.prescribes_gain else []
        return {"layers": proofs} if any(one is not None for one in proofs) else None

    def matrices(self) -> dict[str, Tensor]:
        """Return the recurrent matrices of all layers, as ``A_0``, ``A_1`` and so on."""
        return {f"{name}_{k}": m for k, layer in enumerate(self.layers) for name, m in layer.matrices().items()}

    def _encoded(self, x: Tensor) -> Tensor:
        weight = self.encoder.weight
        check_sequence(x, self.input_size)
        if x.dtype != weight.dtype or x.device != weight.device:
            raise ConfigurationError(
                f"x is {x.dtype} on {x.device} and the network is {weight.dtype} on {weight.device}: convert one"
            )
        return self.encoder(x)

    def config(self) -> dict[str, Any]:
        """Return the keyword arguments that build this network again."""
        names = constructor_arguments(type(self))
        values = {name: getattr(self, "layer_name" if name == "layer" else name) for name in names}
        return {**values, "options": dict(self.options)}


def why_without_gain(network: DeepNetwork) -> str | None:
    """Return the reason why no gain holds for all inputs of a network, for any layers; or None."""
    if network.mixing == "glu":
        return (
            "between the layers of this deep network stand gated linear units, whose slope grows with their input, "
            "so that no gain from inputs to logits holds for all inputs: take mixing=linear or mixing=gelu"
        )
    if network.norm == "layer":
        return (
            "layer norms divide by the size of their input: the gain through them has no useful bound: take norm=none "
            "or norm=batch"
        )
    return None
