"""Block of a deep recurrent network: norm, recurrent layer, mixing, dropout and a residual connection."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from .recurrent import RecurrentLayer


class DeepBlock(nn.Module):
    """Residual block ``x + mix(layer(norm(x)))`` with dropout.

    Args:
        layer: reads ``width`` features.
        width: features between blocks.
        norm: ``batch``, ``layer`` or ``none``.
        mixing: after the layer: ``glu``: GELU, then a gated linear unit; ``gelu``: GELU, then a linear map;
            ``linear``: a linear map.
        dropout: probability, after the GELU and after the mixing.
    """

    def __init__(self, layer: RecurrentLayer, width: int, norm: str, mixing: str, dropout: float) -> None:
        super().__init__()
        self.norm = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm, "none": lambda n: nn.Identity()}[norm](width)
        self.layer = layer
        self.mix = nn.Linear(layer.output_size, 2 * width if mixing == "glu" else width)
        self.mixing = mixing
        self.drop = nn.Dropout(dropout)

    def normalised(self, x: Tensor, batch_statistics: bool = False) -> Tensor:
        """Return the recurrent layer's input, ``(batch, time, width)``.

        Args:
            x: ``(batch, time, width)``.
            batch_statistics: batch norm with the statistics of ``x``, leaving the running ones alone.
        """
        if not isinstance(self.norm, nn.BatchNorm1d):
            return self.norm(x)
        rows = x.transpose(1, 2)
        if batch_statistics:
            norm = self.norm
            rows = nn.functional.batch_norm(rows, None, None, norm.weight, norm.bias, True, 0.0, norm.eps)
        else:
            rows = self.norm(rows)
        return rows.transpose(1, 2)

    def normalized_step(self, x: Tensor) -> Tensor:
        """Return the recurrent layer's input for ``x (batch, width)`` at one time step, with the running statistics."""
        norm = self.norm
        if not isinstance(norm, nn.BatchNorm1d):
            return norm(x)
        return nn.functional.batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)

    def mixed(self, y: Tensor, drop: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return the residual branch from the recurrent layer's outputs ``(..., output_size)``.

        Args:
            y: outputs.
            drop: applied after the GELU, in training.
        """
        if self.mixing != "linear":
            y = nn.functional.gelu(y) if drop is None else drop(nn.functional.gelu(y))
        y = self.mix(y)
        return nn.functional.glu(y, dim=-1) if self.mixing == "glu" else y

    def forward(self, x: Tensor, read: Tensor | None = None) -> Tensor:
        """Return the block's output, ``(batch, time, width)``; ``read``: the layer's input, if already computed."""
        y, _ = self.layer(self.normalised(x) if read is None else read)
        return x + self.drop(self.mixed(y, self.drop))

    def affine_norm(self) -> tuple[Tensor, Tensor]:
        """Return scales and shifts ``(width,)`` of the batch norm in evaluation; one and zero for other norms."""
        norm = self.norm
        if not isinstance(norm, nn.BatchNorm1d):
            like = self.mix.weight
            return like.new_ones(len(self.mix.weight)), like.new_zeros(len(self.mix.weight))
        assert norm.running_var is not None
        assert norm.running_mean is not None
        scale = norm.weight / (norm.running_var + norm.eps).sqrt()
        return scale, norm.bias - scale * norm.running_mean
