"""Measurements of gated linear layers on data: decays, memory horizons, states, steps and inputs of every layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.theorems.gated_linear_bounds import TOLERANCE

from ..models.gated_linear.block import GatedLinearBlock, Mixer
from .guard import check_number, in_evaluation

CHUNK = 32
"""Time steps whose states are in memory at once; a head of a large Mamba-2 has 8,192 numbers a step."""
MOST_STEPS = 8192
"""Steps of a channel from which a quantile is taken; of more, equally spaced ones. The 1 % quantile has 80 below it."""
LEAST_LOG = -1e4
"""Logarithm that stands for that of a decay of zero, so that sums stay finite."""


@dataclass(frozen=True, eq=False)
class GatedLayerMeasurement:
    """Extremes of one gated linear layer on data. A unit is a channel, a mode or a head, as in certificates.

    Attributes:
        layer: number among the gated linear layers of the network, from 0.
        type: name of the architecture, such as ``"Mamba-2"``.
        decay: ``(units,)`` largest decay factor ``a`` per step.
        horizon: ``(units,)`` largest number of inputs until the weight of an input was at most ``tol``, the taps of a
            convolution included. For an input that still weighs more at the end, its age counts, so the number
            is a lower bound of the layer's true horizon.
        state: ``(units,)`` largest modulus of a state entry, or Frobenius norm of a head's state.
        low: ``(d,)`` smallest entry of each feature of the mixer's input, behind the norm.
        high: ``(d,)`` largest entry.
        step: ``(units,)`` quantile of the step ``dt``; ``None`` for layers without steps.
    """

    layer: int
    type: str
    decay: np.ndarray
    horizon: np.ndarray
    state: np.ndarray
    low: np.ndarray
    high: np.ndarray
    step: np.ndarray | None


def measure_layers(
    network: nn.Module, batches: Sequence[Tensor], *, tol: float = TOLERANCE, quantile: float = 0.01
) -> tuple[GatedLayerMeasurement, ...]:
    """Run a network and measure every gated linear layer in it.

    Args:
        network: called as ``network(batch)``; a ``SequenceModel``, a layer, or a network of ``load_network``.
        batches: batches of its inputs, ``(n, time, features)`` or tokens ``(n, time)``.
        tol: weight of an input below which it counts as forgotten.
        quantile: level of the quantile of the steps that is returned, in [0, 1].

    Returns:
        One record per layer, in the order of the network's modules.

    Raises:
        UnsupportedError: no gated linear layer.
        ConfigurationError: no batch, or numbers out of range.

    Example:
        >>> from stability.models import Mamba2, SequenceModel
        >>> (layer,) = measure_layers(SequenceModel(Mamba2(3, 8), 2), [torch.randn(4, 20, 3)])
        >>> layer.type, layer.decay.shape, layer.low.shape
        ('Mamba-2', (4,), (8,))
    """
    if not (0.0 < check_number("tol", tol) < 1.0 and check_number("quantile", quantile) <= 1.0 and len(batches)):
        raise ConfigurationError(f"a batch, tol in (0, 1) and quantile in [0, 1] are needed, got {tol} and {quantile}")
    blocks = [part for part in network.modules() if isinstance(part, GatedLinearBlock)]
    if not blocks:
        raise UnsupportedError(f"{type(network).__name__} has no gated linear layer, such as Mamba2")
    steps = sum(batch.shape[0] * batch.shape[1] for batch in batches)
    meters = [_Meter(math.log(tol), math.ceil(steps / MOST_STEPS)) for _ in blocks]
    hooks = [block.mixer.register_forward_pre_hook(meter) for block, meter in zip(blocks, meters)]
    try:
        with in_evaluation(network), torch.no_grad():
            for batch in batches:
                network(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(meter.result(i, block, quantile) for i, (block, meter) in enumerate(zip(blocks, meters)))


class _Meter:
    """Pre-forward hook that keeps the extremes of a mixer.

    Args:
        log_tol: logarithm of the weight below which an input is forgotten.
        stride: distance of the steps that are kept for quantiles.
    """

    def __init__(self, log_tol: float, stride: int) -> None:
        self.log_tol, self.stride = log_tol, stride
        self.most: dict[str, Tensor] = {}
        self.steps: list[Tensor] = []

    def __call__(self, mixer: Mixer, args: tuple[Any, ...]) -> None:
        u: Tensor = args[0]
        state = mixer.initial_state(u) if len(args) < 2 or args[1] is None else args[1]
        projected = mixer.project(u)
        log_decay, dt = mixer.decays(projected, state)
        taps = getattr(getattr(mixer, "convolution", None) or getattr(mixer, "conv1d", None), "taps", 1)
        self._keep("decay", log_decay.amax((0, 1)).exp())
        self._keep("horizon", _horizons(log_decay, self.log_tol) + (taps - 1))
        self._keep("low", -u.amin((0, 1)))
        self._keep("high", u.amax((0, 1)))
        self._keep("state", _largest_states(mixer, projected, state, log_decay.shape[-1]))
        if dt is not None:
            self.steps.append(dt.flatten(0, 1)[:: self.stride].float().cpu())

    def _keep(self, name: str, values: Tensor) -> None:
        values = values.double().cpu()
        self.most[name] = torch.maximum(self.most[name], values) if name in self.most else values

    def result(self, index: int, block: GatedLinearBlock, quantile: float) -> GatedLayerMeasurement:
        """Return the record of the layer."""
        if not self.most:
            raise UnsupportedError(f"layer {index} is not called when the network runs, so nothing can be measured")
        found = {name: values.numpy() for name, values in self.most.items()}
        found["low"] = -found["low"]
        steps = torch.cat(self.steps).numpy() if self.steps else None
        step = None if steps is None else np.quantile(steps, quantile, axis=0, method="lower").astype(np.float64)
        return GatedLayerMeasurement(index, block.type_name, step=step, **found)


def _horizons(log_decay: Tensor, log_tol: float) -> Tensor:
    """Return the largest number of steps after which the product of decays is at most the tolerance, ``(units,)``.

    Args:
        log_decay: ``(batch, time, units)``; the decay at a step multiplies all inputs before it.
        log_tol: logarithm of the tolerance.
    """
    loss = -log_decay.double().clamp(min=LEAST_LOG, max=0.0).cumsum(1).permute(2, 0, 1).contiguous()
    ends = torch.searchsorted(loss, loss - log_tol)  # first step after which the loss since the input is large enough
    time = torch.arange(loss.shape[-1], device=loss.device)
    return (ends.clamp(max=len(time) - 1) - time).amax((1, 2)).double()


def _largest_states(mixer: Mixer, projected: Tensor, state: Any, units: int) -> Tensor:
    """Return the largest state norm of each unit, ``(units,)``."""
    most = projected.new_zeros(units)
    for part in projected.split(CHUNK, 1):
        h = mixer.states(part, state)
        per_head = h.dim() == 5  # (batch, time, heads, dk, dv)
        if getattr(mixer, "complex_state", False):
            h = torch.view_as_complex(h.contiguous()).abs()
        h = h.reshape(*h.shape[:2], units, -1)
        sizes = h.norm(dim=-1) if per_head else h.abs().amax(-1)
        most = torch.maximum(most, sizes.amax((0, 1)))
        _, state = mixer.scan(part, state)
    return most
