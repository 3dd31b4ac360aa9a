"""Masked gradients: inputs whose gradient is zero or not finite, and the warning about them.

A network that rounds or detaches its input has no gradient with respect to it; the derivative of a square root at 0 is
infinite. A failed gradient attack on such a network is no sign of robustness (A. Athalye, N. Carlini, D. Wagner,
"Obfuscated gradients give a false sense of security", 2018).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .padding import PaddingWarning


class MaskedGradientWarning(UserWarning):
    """Warning about inputs without gradient: a failed attack there is no sign of robustness."""


@contextmanager
def unwarned() -> Iterator[None]:
    """Suppress warnings about masked gradients and padding: the caller reports both itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MaskedGradientWarning)
        warnings.simplefilter("ignore", PaddingWarning)
        yield


def by_the_input(values: Tensor, z: Tensor) -> Tensor:
    """Return the gradient of the sum of ``values`` by the input ``z``; zero if they do not depend on it."""
    gradient = torch.autograd.grad(values.sum(), z, allow_unused=True)[0] if values.requires_grad else None
    return torch.zeros_like(z) if gradient is None else gradient


def finite(gradient: Tensor) -> Tensor:
    """Replace infinite and NaN entries of a gradient by 0.

    >>> finite(torch.tensor([2.0, float("nan"), -float("inf")])).tolist()
    [2.0, 0.0, 0.0]
    """
    return gradient.nan_to_num(0.0, 0.0, 0.0)


def vanishes(gradient: Tensor) -> Tensor:
    """Return ``(batch,)``: True where a gradient ``(batch, ...)`` is zero or has an entry that is not finite.

    >>> vanishes(torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, float("nan")]])).tolist()
    [True, False, True]
    """
    steepest = torch.linalg.vector_norm(gradient.flatten(1), ord=float("inf"), dim=1)
    return ~(torch.isfinite(steepest) & (steepest > 0))


def masked_words(blind: int, count: int) -> str:
    """Return the warning about inputs without gradient; empty if there are none.

    >>> masked_words(0, 5), masked_words(2, 5)[:64]
    ('', 'the gradient by the input is zero or not finite on 2 of 5 inputs')
    """
    if not blind:
        return ""
    return (
        f"the gradient by the input is zero or not finite on {blind} of {count} inputs: no attack that follows "
        "gradients moves there, so that standing against it is no sign of robustness"
    )


def warn_of(blind: Tensor, count: int) -> None:
    """Warn if ``blind (batch,)`` marks some of ``count`` inputs as having no gradient."""
    words = masked_words(int(blind.sum()), count)
    if words:
        warnings.warn(words, MaskedGradientWarning, stacklevel=3)
