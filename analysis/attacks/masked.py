"""Gradients that say nothing: who met none, and what is said about it.

A network that rounds its input, or detaches it, has no gradient by it, and no attack that follows gradients moves. Nor
does one where a derivative is infinite or NaN, as that of a square root at 0. That a network still stands then says
nothing about it (A. Athalye, N. Carlini, D. Wagner, "Obfuscated gradients give a false sense
of security", 2018).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from stability.errors import UnsupportedError

_TOLD_ABOVE: ContextVar[bool] = ContextVar("told_above", default=False)
NOT_DIFFERENTIABLE = (
    "the outputs do not depend differentiably on the input (it is detached, rounded to integers, or used under "
    "torch.no_grad): there is no gradient to follow; give the model a differentiable forward, or use attack_sweep, "
    "which asks the network for differences instead"
)


class MaskedGradientWarning(UserWarning):
    """Inputs had no gradient, so that an attack which finds nothing there is no sign of robustness."""


@contextmanager
def told_above() -> Iterator[None]:
    """Inside, attacks go on without any gradient and do not warn: who called them says what they met."""
    token = _TOLD_ABOVE.set(True)
    try:
        yield
    finally:
        _TOLD_ABOVE.reset(token)


@contextmanager
def unwarned() -> Iterator[None]:
    """Inside, attacks do not warn: who called them does. A network without any gradient by its input is refused."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MaskedGradientWarning)
        yield


def by_the_input(values: Tensor, z: Tensor) -> Tensor:
    """The gradient of the sum of ``values`` by the input ``z``, which requires one.

    Raises:
        UnsupportedError: the values do not depend on it differentiably; inside ``told_above`` the gradient is zero.
    """
    found = torch.autograd.grad(values.sum(), z, allow_unused=True)[0] if values.requires_grad else None
    if found is not None:
        return found
    if not _TOLD_ABOVE.get():
        raise UnsupportedError(NOT_DIFFERENTIABLE)
    return torch.zeros_like(z)


def finite(gradient: Tensor) -> Tensor:
    """The gradient, with 0 where entries are infinite or NaN: no step goes along those.

    >>> finite(torch.tensor([2.0, float("nan"), -float("inf")])).tolist()
    [2.0, 0.0, 0.0]
    """
    return gradient.nan_to_num(0.0, 0.0, 0.0)


def masked_words(blind: int, count: int) -> str:
    """What is said where inputs had no gradient; empty where all had one.

    >>> masked_words(0, 5), masked_words(2, 5)[:64]
    ('', 'the gradient by the input is zero or not finite on 2 of 5 inputs')
    """
    if not blind:
        return ""
    return (
        f"the gradient by the input is zero or not finite on {blind} of {count} inputs: no attack that follows "
        "gradients moves there; differences of the outputs were followed instead, which find less, so that "
        "standing against them is no sign of robustness"
    )


def warn_of(blind: Tensor | int | None, count: int, level: int = 3) -> None:
    """Warn that some of ``count`` inputs had no gradient, unless who called says so.

    Args:
        blind: which, or how many; ``None``: none.
        count: inputs.
        level: frames between the caller's line and here.
    """
    words = masked_words(0 if blind is None else int(torch.as_tensor(blind).sum()), count)
    if words and not _TOLD_ABOVE.get():
        warnings.warn(words, MaskedGradientWarning, stacklevel=level)


@dataclass(frozen=True, eq=False)
class Watch:
    """Which of all sequences were asked for gradients, and which had one; parts of a problem write into the same.

    Attributes:
        asked: ``(all,)`` a gradient was computed.
        sighted: ``(all,)`` at some point it was not zero, and no entry of it infinite or NaN.
        rows: ``(batch,)`` where the sequences of this part stand among all.
    """

    asked: Tensor
    sighted: Tensor
    rows: Tensor

    @classmethod
    def over(cls, free: Tensor) -> Watch:
        """Of sequences that no gradient was computed for.

        Args:
            free: ``(all, time, features)`` where they may change: of those that nowhere may, nothing is said.
        """
        none = torch.zeros(len(free), dtype=torch.bool, device=free.device)
        return cls(none, ~free.flatten(1).any(dim=1), torch.arange(len(free), device=free.device))

    def take(self, index: Tensor) -> Watch:
        """Of some of the sequences."""
        return replace(self, rows=self.rows[index])

    @property
    def blind(self) -> Tensor:
        """``(batch,)``: no gradient at any point that an attack visited."""
        return (self.asked & ~self.sighted)[self.rows]

    def see(self, gradient: Tensor) -> Tensor:
        """Gradients ``(batch, ...)`` of the part, with 0 where they are infinite or NaN."""
        steepest = torch.linalg.vector_norm(gradient.flatten(1), ord=float("inf"), dim=1)
        whole = torch.isfinite(steepest)
        self.asked[self.rows] = True
        self.sighted[self.rows] |= whole & (steepest > 0)
        return gradient if bool(whole.all()) else finite(gradient)

    def note(self, blind: Tensor | None) -> None:
        """Take over what another attack met on the part: who had a gradient there is not blind here, either.

        Args:
            blind: ``(batch,)`` of its result; ``None``: it does not tell.
        """
        if blind is not None:
            blind = blind.to(self.rows.device)
            self.asked[self.rows] |= blind
            self.sighted[self.rows] |= ~blind
