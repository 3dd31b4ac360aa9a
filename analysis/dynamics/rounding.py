"""Distance between runs of a network in its own precision and in float64.

A certificate is about the stored weights in exact arithmetic. A run in float32 rounds at every step. This
module measures its distance to a run in float64; nothing is proved. If the map contracts, the distance stays bounded.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from stability.errors import NonFiniteError

from ...models.tensors import check_sequence
from ..drawn import Curve
from ..guard import check_batch, check_model, untouched
from ..results import Record
from ..unroll import flat_state, layer_inputs, only_layer


@dataclass(frozen=True, eq=False)
class RoundingDistance(Record):
    """Distances between the states of two runs under the same inputs: in the model's precision and in float64.

    Attributes:
        distance: ``(time,)``, the largest Euclidean distance over the sequences, after each step.
        largest: maximum over all steps.
        relative: ``largest`` divided by ``size``.
        size: largest norm of a state in float64.
        steps: number of steps.
        sequences: number of sequences.
        dtype: the model's precision, for example ``float32``.
    """

    curve = Curve("step", ("distance",), words="distance to the run in float64")

    distance: np.ndarray = field(repr=False)
    largest: float
    relative: float
    size: float
    steps: int
    sequences: int
    dtype: str

    def curves(self) -> pd.DataFrame:
        """Return the largest distance over the sequences, one row per step."""
        return pd.DataFrame({"step": np.arange(1, len(self.distance) + 1), "distance": self.distance})


def rounding_distance(model: nn.Module, x: Tensor) -> RoundingDistance:
    """Measure the distance between the states of a layer in its own precision and in float64.

    Args:
        model: a recurrent layer, or a model with exactly one recurrent layer.
        x: ``(batch, time, features)``, inputs of the model.

    Returns:
        The distances; zero for a model in float64.

    Raises:
        ConfigurationError: ``x`` is not a dense floating-point tensor of the model's dtype and device.
        DimensionError: a wrong shape.
        NonFiniteError: weights, input or states that are not finite.
        UnsupportedError: a model without exactly one recurrent layer.

    Example:
        >>> from stability.models import ElmanRNN
        >>> _ = torch.manual_seed(0)
        >>> found = rounding_distance(ElmanRNN(2, 4), torch.ones(3, 8, 2))
        >>> found.dtype, 0 < found.relative < 1e-5
        ('float32', True)
    """
    layer = only_layer(check_model(model))
    x = check_sequence(check_batch(layer, layer_inputs(model, x)), layer.input_size)
    float64_layer = copy.deepcopy(layer).double().eval()
    distances, size = [], 0.0
    with untouched(layer), torch.no_grad(), torch.backends.cudnn.flags(enabled=False):
        for state, exact in zip(layer.walk(x), float64_layer.walk(x.double())):
            rounded, reference = flat_state(state.after).double(), flat_state(exact.after)
            distances.append(float((rounded - reference).norm(dim=1).max()))
            size = max(size, float(reference.norm(dim=1).max()))
    if not np.isfinite([*distances, size]).all():
        raise NonFiniteError("a hidden state", "the network diverges on this input")
    largest = max(distances)
    dtype = str(x.dtype).removeprefix("torch.")
    relative = largest / size if size else 0.0
    return RoundingDistance(np.array(distances), largest, relative, size, len(distances), len(x), dtype)
