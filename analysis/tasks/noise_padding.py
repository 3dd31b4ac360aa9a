"""Noise behind the signal: what a network has to remember while it reads what means nothing."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from stability.errors import ConfigurationError

from .base import check_size

MOST_STEPS = 2**20


def noise_padded(x: Tensor, steps: int | None, rng: np.random.Generator) -> Tensor:
    """Sequences followed by independent standard Gaussian noise up to a length, drawn once.

    Args:
        x: ``(n, time, features)``.
        steps: the length, more than ``time``; ``None``: nothing is added.
        rng: of the noise.

    Returns:
        ``(n, steps, features)``.

    Raises:
        ConfigurationError: a length that adds nothing.

    Source: B. Chang, M. Chen, E. Haber, E. Chi, "AntisymmetricRNN" (ICLR 2019), for CIFAR-10 by rows and 1,000 steps.

    Example:
        >>> padded = noise_padded(torch.ones(2, 3, 1), 5, np.random.default_rng(0))
        >>> tuple(padded.shape), padded[:, :3].eq(1).all().item()
        ((2, 5, 1), True)
    """
    if steps is None:
        return x
    n, own, features = x.shape
    if check_size("padded_to", steps, 1, MOST_STEPS) <= own:
        raise ConfigurationError(f"padded_to must be more than the {own} steps of the sequences, got {steps}")
    noise = rng.standard_normal((n, steps - own, features), dtype=np.float32)
    return torch.cat([x, torch.from_numpy(noise)], dim=1)
