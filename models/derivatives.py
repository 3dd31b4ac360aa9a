"""Common parts of the hand-written derivatives of matrix functions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SavedFunction(torch.autograd.Function):
    """Autograd function that saves its inputs and outputs for the backward pass."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        """Save the inputs, then the outputs."""
        ctx.save_for_backward(*inputs, *(output if isinstance(output, tuple) else (output,)))


def copyltu(M: Tensor) -> Tensor:
    """Copy the strict lower triangle to the upper one, conjugated; the diagonal keeps its real part.

    Args:
        M: ``(..., n, n)``.

    Returns:
        The Hermitian matrix ``(..., n, n)``.
    """
    lower = M.tril()
    lower.diagonal(dim1=-2, dim2=-1).mul_(0.5)  # plus its conjugate: the real part
    return lower + lower.mH
