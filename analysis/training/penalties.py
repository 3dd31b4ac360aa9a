"""What settings add to the loss of a batch: margins of stability and Lyapunov exponents that training pushes on."""

from __future__ import annotations

from torch import Tensor, nn

from .exponents import lyapunov_penalty
from .margins import margin_penalty
from .settings import Settings


def penalties(model: nn.Module, x: Tensor, settings: Settings) -> Tensor | float:
    """The terms beside the task's loss, weighted and summed; zero where the settings ask for none.

    Args:
        model: what is trained.
        x: ``(batch, time, features)``, the batch.
        settings: ``margin_penalty`` and ``margin_target``, ``lyapunov_target`` and ``lyapunov_weight``.

    Returns:
        A differentiable scalar.

    Raises:
        UnsupportedError: a model that has no such margin or exponent.
        NonFiniteError: states that are not finite.
        RankError: an exponent that has no derivative.

    Example:
        >>> import torch
        >>> layer = nn.RNN(1, 1, bias=False)
        >>> _ = nn.init.constant_(layer.weight_hh_l0, 1.5)
        >>> asked = Settings(margin_penalty=2.0, margin_target=0.25)
        >>> x = torch.zeros(1, 2, 1)
        >>> penalties(layer, x, Settings()), float(penalties(layer, x, asked).detach())
        (0.0, 1.5)
    """
    total: Tensor | float = 0.0
    if settings.margin_penalty:
        total = total + settings.margin_penalty * margin_penalty(model, settings.margin_target)
    if settings.lyapunov_target is not None:
        exponent = lyapunov_penalty(model, x, settings.lyapunov_target, seed=settings.seed)
        total = total + settings.lyapunov_weight * exponent
    return total
