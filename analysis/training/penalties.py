"""Penalty terms of the loss: stability margins and Lyapunov exponents."""

from __future__ import annotations

from torch import Tensor, nn

from .exponents import lyapunov_penalty
from .margins import margin_penalty
from .settings import Settings


def penalties(model: nn.Module, x: Tensor, settings: Settings) -> Tensor | float:
    """Return the weighted sum of the penalty terms; zero if the settings have none.

    Args:
        model: the trained model.
        x: ``(batch, time, features)``, the batch.
        settings: with ``aim.margin_penalty`` or ``aim.lyapunov_target`` for a term of the loss.

    Returns:
        A differentiable scalar.

    Raises:
        UnsupportedError: a model that has no such margin or exponent.
        NonFiniteError: states that are not finite.
        RankError: an exponent that has no derivative.

    Example:
        >>> import torch
        >>> from stability.analysis.training.settings import Aim
        >>> layer = nn.RNN(1, 1, bias=False)
        >>> _ = nn.init.constant_(layer.weight_hh_l0, 1.5)
        >>> asked = Settings(aim=Aim(margin_penalty=2.0, margin_target=0.25))
        >>> x = torch.zeros(1, 2, 1)
        >>> penalties(layer, x, Settings()), float(penalties(layer, x, asked).detach())
        (0.0, 1.5)
    """
    total: Tensor | float = 0.0
    aim = settings.aim
    if aim.margin_penalty:
        total = total + aim.margin_penalty * margin_penalty(model, aim.margin_target)
    if aim.lyapunov_target is not None:
        exponent = lyapunov_penalty(model, x, aim.lyapunov_target, seed=settings.seed)
        total = total + aim.lyapunov_weight * exponent
    return total
