r"""Activations of orthogonal networks: entry by entry, and on pairs of units.

.. math:: \mathrm{modReLU}(z) = \begin{cases} (|z| + b)\, z / |z| & |z| + b > 0 \\ 0 & \text{otherwise}
          \end{cases}, \qquad
          \mathrm{OPLU}(a, b) = (\max(a, b), \min(a, b)) .

modReLU (Arjovsky et al. 2016) acts on complex numbers kept as pairs ``(i, i + n)``, with a learned bias. OPLU
(Chernodub and Nowicki 2016) sorts the pairs ``(2 i, 2 i + 1)``, which keeps the norm; the Householder activation
reflects each pair at a learned angle. These activations act on pairs and not on single channels, so that proofs about
them are those of a ``PairwiseSystem`` and not of a Lur'e system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.activations import ACTIVATIONS
from stability.kernel.checks import as_choice

from .options import GAIN, TORCH_ACTIVATIONS

CHANNELWISE: dict[str, Callable[[Tensor], Tensor]] = {**TORCH_ACTIVATIONS, "identity": lambda z: z}
LAYER_ACTIVATIONS = (*CHANNELWISE, "modrelu", "oplu")


@dataclass(frozen=True)
class Expansion:
    """Contraction property of a layer ``h+ = phi(W h + ...)``: how it changes the distance of two states.

    Attributes:
        kind: ``contracting`` (shrinks by a factor below one each step), ``non-expansive`` (never grows),
            ``neither``.
        factor: bound on the growth of distances in one step; infinite without a bound.
        reason: the reason as a sentence.
    """

    kind: str
    factor: float
    reason: str


def layer_activation(name: Any, size: int) -> str:
    """Check that a layer of ``size`` real units can use the activation ``name``; return the name.

    Raises:
        ConfigurationError: an unknown name, or an odd size for an activation that acts on pairs.
    """
    name = as_choice("activation", name, LAYER_ACTIVATIONS, GAIN)
    if name not in CHANNELWISE and size % 2:
        raise ConfigurationError(f"{name} acts on pairs of units: hidden_size must be even, got {size}")
    return name


def modrelu(z: Tensor, bias: Tensor) -> Tensor:
    """Apply modReLU to complex numbers in real form; zero stays zero.

    Args:
        z: ``(..., 2n)``, real parts then imaginary parts.
        bias: ``(n,)``.

    Returns:
        ``(..., 2n)``.

    Example:
        >>> modrelu(torch.tensor([3.0, 4.0]), torch.tensor([-2.5]))
        tensor([1.5000, 2.0000])
    """
    real, imag = z.chunk(2, dim=-1)
    zero = (real == 0) & (imag == 0)
    size = torch.hypot(torch.where(zero, torch.ones_like(real), real), imag)  # no 0/0 in its derivative
    scale = torch.where(zero, torch.zeros_like(size), torch.relu(size + bias) / size)
    return z * torch.cat([scale, scale], dim=-1)


def oplu(z: Tensor) -> Tensor:
    """Sort each pair: ``(max, min)`` of entries ``2 i`` and ``2 i + 1``.

    Args:
        z: ``(..., 2n)``.

    Returns:
        ``(..., 2n)``, of the same norm.

    Example:
        >>> oplu(torch.tensor([1.0, 2.0, 4.0, 3.0]))
        tensor([2., 1., 4., 3.])
    """
    first, second = z[..., 0::2], z[..., 1::2]
    swap = first < second
    pairs = torch.stack([torch.where(swap, second, first), torch.where(swap, first, second)], dim=-1)
    return pairs.flatten(-2)


def householder(z: Tensor, angles: Tensor) -> Tensor:
    """Reflect each pair ``2 i``, ``2 i + 1`` behind the line at half its angle, see ``pair_activations``.

    Args:
        z: ``(..., 2n)``.
        angles: ``(n,)``, in radians.

    Returns:
        ``(..., 2n)``, of the same norm.

    Example:
        >>> householder(torch.tensor([1.0, 2.0]), torch.tensor([torch.pi / 2]))
        tensor([2., 1.])
    """
    sine, cosine = torch.sin(0.5 * angles), torch.cos(0.5 * angles)
    first, second = z[..., 0::2], z[..., 1::2]
    twice = 2.0 * (first * sine - second * cosine).clamp(max=0.0)
    return torch.stack([first - twice * sine, second + twice * cosine], dim=-1).flatten(-2)


NORM_PRESERVING: dict[str, Callable[[Tensor], Tensor]] = {"maxmin": oplu, "oplu": oplu, "abs": torch.abs}
"""Activations that keep norms and do not increase distances, as in ``BoundedGainRNN``; the Householder activation has
parameters.
"""


def expansion_of(activation: str, norm: float, bias: Tensor | None = None) -> Expansion:
    """Classify ``h+ = phi(W h + ...)`` with ``|W| = norm`` as contracting, non-expansive, or neither, with the reason.

    ``|phi(s) - phi(t)| <= L |s - t|`` with L the largest slope; 1 for OPLU (sorting is non-expansive) and
    for modReLU with ``b <= 0`` (the proximal map of ``-b |z|``); none for modReLU with some ``b > 0``, which
    jumps by ``2 b`` at zero. A norm within 1e-6 of one counts as one: that of a rounded orthogonal W.

    Args:
        activation: name.
        norm: spectral norm of W.
        bias: modReLU's bias.

    Returns:
        The verdict.

    Example:
        >>> expansion_of("sigmoid", 1.0).kind, expansion_of("leaky_relu", 1.0).kind
        ('contracting', 'non-expansive')
    """
    if activation == "modrelu":
        if bias is not None and bool((bias > 0).any()):
            return Expansion("neither", float("inf"), "modReLU with a positive bias jumps at zero")
        slope, why = 1.0, "modReLU with a bias of at most zero is a proximal map"
    elif activation == "oplu":
        slope, why = 1.0, "OPLU sorts pairs"
    else:
        low, high = ACTIVATIONS[activation].slope
        slope, why = max(abs(low), abs(high)), f"{activation} has slopes in [{low:g}, {high:g}]"
    factor = slope * norm
    why += f" and |W| = {norm:.6g}"
    if factor < 1.0 - 1e-6:
        return Expansion("contracting", factor, f"{why}: distances shrink by {factor:.3g} each step")
    if factor <= 1.0 + 1e-6:
        return Expansion(
            "non-expansive",
            factor,
            f"{why}: distances never grow, but a slope of one on an isometry keeps them, so no rate below "
            "one can be proved for all states",
        )
    return Expansion("neither", factor, f"{why}: distances can grow by {factor:.3g} in a step")
