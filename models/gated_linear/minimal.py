"""minGRU and minLSTM: gates that read the input alone, so that training runs by a scan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoints import gated
from ..options import positive_int, real
from ..recurrent import register_layer
from .diagonal import DiagonalBlock, DiagonalMixer, Gates


def positive_part(x: Tensor) -> Tensor:
    """Return ``x + 1/2`` for ``x >= 0`` and ``sigmoid(x)`` below: continuous and positive."""
    return torch.where(x >= 0, x + 0.5, torch.sigmoid(x))


class MinimalMixer(DiagonalMixer):
    """Base of the mixers of minGRU and minLSTM, with the keys of lucidrains/minGRU-pytorch.

    Args:
        width: features of input and output.
        inner: size of ``h``.

    Attributes:
        key: name of the map to the candidate and the gates.
        rows: number of its row blocks, of ``inner`` rows each.
        to_out: readout of ``h``.
    """

    key: str
    rows: int

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.state_shape = (inner,)
        self.add_module(self.key, nn.Linear(width, self.rows * inner, bias=False))
        self.to_out = nn.Linear(inner, width, bias=False)

    def project(self, u: Tensor) -> Tensor:
        """Return candidate and gates before their activations."""
        return getattr(self, self.key)(u)

    def gates(self, signal: Tensor) -> Gates:
        """Return candidate and gates before their activations, one by one."""
        return signal.chunk(self.rows, dim=-1)

    def readout(self, h: Tensor, gates: Gates) -> Tensor:
        """Return a linear map of ``h``."""
        return self.to_out(h)


class MinGRUMixer(MinimalMixer):
    """Mixer of a minGRU; rows ``[candidate | z]``."""

    key, rows = "to_hidden_and_gate", 2

    def recurrence(self, gates: Gates, state: Any) -> tuple[Tensor, Tensor]:
        """Return ``1 - sigmoid(z)`` and ``sigmoid(z) g(candidate)``."""
        candidate, z = gates
        return torch.sigmoid(-z), torch.sigmoid(z) * positive_part(candidate)


class MinLSTMMixer(MinimalMixer):
    """Mixer of a minLSTM; rows ``[candidate | f | i]``."""

    key, rows = "to_hidden_and_f_i_gate", 3

    def recurrence(self, gates: Gates, state: Any) -> tuple[Tensor, Tensor]:
        """Return ``f / (f + i)`` and ``i / (f + i) g(candidate)``; from logarithms, since both gates may round to 0."""
        candidate, f, i = gates
        odds = nn.functional.logsigmoid(f) - nn.functional.logsigmoid(i)
        return torch.sigmoid(odds), torch.sigmoid(-odds) * positive_part(candidate)


class _Minimal(DiagonalBlock):
    """Base of minGRU and minLSTM."""

    kind: type[MinimalMixer]

    def __init__(self, input_size: int, hidden_size: int, *, expand: float = 1.0) -> None:
        super().__init__(input_size, hidden_size)
        self.expand = real("expand", expand, 0.0, strict=True)
        self.mixer = self.kind(
            self.hidden_size, positive_int("expand * hidden_size", int(self.expand * self.hidden_size))
        )


@register_layer("mingru")
class MinGRU(_Minimal):
    r"""minGRU block: :math:`h^+ = (1 - \sigma(z)) \odot h + \sigma(z) \odot g(\tilde h)` of the normed input.

    ``z`` and the candidate are linear in the input of the same step; :math:`g(v) = v + 1/2` for :math:`v \ge 0` and
    :math:`\sigma(v)` below.

    Args:
        input_size: features per time step.
        hidden_size: width of the block.
        expand: size of ``h`` over the width.

    Shapes:
        state ``(batch, expand * hidden_size)``.

    Raises:
        ConfigurationError: an option out of its range.

    Source:
        L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi, "Were RNNs all we needed?" (2024).

    Example:
        >>> outputs, h = MinGRU(2, 8, expand=1.5)(torch.zeros(3, 5, 2))
        >>> outputs.shape, h.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 12]))
    """

    layout = staticmethod(gated.min_gru)
    type_name = "minGRU"
    kind = MinGRUMixer


@register_layer("minlstm")
class MinLSTM(_Minimal):
    r"""minLSTM block: :math:`h^+ = \frac{f}{f + i} \odot h + \frac{i}{f + i} \odot g(\tilde h)` of the normed input.

    The gates ``f`` and ``i`` are sigmoids of linear maps of the input of the same step; ``g`` as in ``MinGRU``.

    Args:
        input_size: features per time step.
        hidden_size: width of the block.
        expand: size of ``h`` over the width.

    Shapes:
        state ``(batch, expand * hidden_size)``.

    Raises:
        ConfigurationError: an option out of its range.

    Source:
        L. Feng, F. Tung, M. O. Ahmed, Y. Bengio, H. Hajimirsadeghi, "Were RNNs all we needed?" (2024).

    Example:
        >>> outputs, h = MinLSTM(2, 8)(torch.zeros(3, 5, 2))
        >>> outputs.shape, h.shape
        (torch.Size([3, 5, 8]), torch.Size([3, 8]))
    """

    layout = staticmethod(gated.min_lstm)
    type_name = "minLSTM"
    kind = MinLSTMMixer
