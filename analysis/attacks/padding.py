"""Padding of shorter sequences: detection of padded steps, which perturbations leave unchanged.

A network that finds the length of a sequence from steps of zeros reads a longer sequence once the padding is perturbed:
an attack on the padding is no small change of the input.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ...models.wrapped import WithLengths, steps_up_to_last
from ..guard import in_evaluation

_TRIED = 16
"""Number of sequences on which the network is run with perturbed padding."""
_SIZES = (1e-4, 1e-6)
"""Sizes of the perturbations of the padding, relative to the mean absolute entry."""


class PaddingWarning(UserWarning):
    """Warning about a network that infers sequence lengths from steps of zeros; perturbations leave these unchanged."""


def own_steps_of(model: nn.Module, x: Tensor) -> Tensor | None:
    """Return ``(n, time)``: True at a sequence's own steps, before its padding; ``None`` where no step is padding.

    Trailing steps of zeros are padding where the network takes the length from them: where a perturbation of these
    steps changes its answers by as much if it is a hundred times smaller.

    Args:
        model: called as ``model(x)``.
        x: ``(n, time, features)``.

    Example:
        >>> class Mean(nn.Module):
        ...     def forward(self, x):
        ...         return x.sum(1) / (x != 0).any(2).sum(1, keepdim=True)
        >>> own_steps_of(Mean(), torch.tensor([[[1.0], [2.0], [0.0]], [[1.0], [3.0], [1.0]]]))
        tensor([[ True,  True, False],
                [ True,  True,  True]])
    """
    marked = next((m for m in model.modules() if isinstance(m, WithLengths)), None)
    real_steps = steps_up_to_last((x != (0.0 if marked is None else marked.padding)).any(2))
    if bool(real_steps.all()):
        return None
    return real_steps if marked is not None or _reads_zeros(model, x, real_steps) else None


def _reads_zeros(model: nn.Module, x: Tensor, steps: Tensor) -> bool:
    rows = (~steps.all(1)).nonzero()[:_TRIED, 0]
    z, padding = x[rows], ~steps[rows][:, :, None]
    size = z.abs().mean()
    with in_evaluation(model), torch.no_grad():
        try:
            answers = [model(z + share * size * padding) for share in (0.0, *_SIZES)]
        except (Exception, SystemExit):  # noqa: BLE001 - whoever needs the answer says what a user's network raised
            return False
    if not all(isinstance(a, Tensor) and a.shape[:1] == rows.shape for a in answers):
        return False
    large, small = ((a - answers[0]).flatten(1).abs().amax(1) for a in answers[1:])
    return bool(((small > 0.1 * large) & (small > 1e-3 * answers[0].abs().max())).any())


def padding_words(model: nn.Module, x: Any) -> str:
    """Return the note about padding that a network detects by itself; empty if there is none."""
    has_lengths = any(isinstance(m, WithLengths) for m in model.modules())
    real_steps = None if has_lengths else own_steps_of(model, x)
    if real_steps is None:
        return ""
    return (
        f"{int((~real_steps.all(1)).sum())} of {len(real_steps)} sequences end in steps of zeros, "
        "which the network reads as padding: these steps stay unchanged, only the other steps are perturbed"
    )


def masked_padding(model: nn.Module, x: Tensor, mask: Any) -> Any:
    """Return the mask of entries that may change: the argument, or each sequence's own steps; ``None``: everywhere.

    Warns:
        PaddingWarning: the network takes the length of its sequences from zeros.
    """
    if mask is not None:
        return mask
    real_steps = own_steps_of(model, x)
    if real_steps is not None and (words := padding_words(model, x)):
        warnings.warn(words, PaddingWarning, stacklevel=4)
    return None if real_steps is None else real_steps[:, :, None]
