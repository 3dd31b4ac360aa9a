"""The hyperbolic tangent of fresh numbers where no graph is recorded, by ``numpy``: a ninth of the time of torch's."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

_BY_NUMPY = (torch.float32, torch.float64)


def is_bare(z: Tensor) -> bool:
    """Whether ``z`` is numbers on the processor and nothing else: nobody records, traces, transforms or watches it.

    Example:
        >>> is_bare(torch.zeros(2)), is_bare(torch.zeros(2, requires_grad=True))
        (True, False)
    """
    return (
        type(z) is Tensor
        and not z.requires_grad
        and z.device.type == "cpu"
        and z.dtype in _BY_NUMPY
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not _is_transformed(z)
        and not _is_watched()
    )


def tanh_of(z: Tensor) -> Tensor:
    """``tanh(z)``; where ``z`` is bare it is overwritten: it must be nobody else's.

    ``numpy``'s is good to one unit in the last place, as torch's is; the two may differ by that.

    Example:
        >>> tanh_of(torch.tensor([0.5], dtype=torch.float64))
        tensor([0.4621], dtype=torch.float64)
    """
    if not is_bare(z):
        return torch.tanh(z)
    array = z.numpy()
    np.tanh(array, array)
    return z


def _is_transformed(z: Tensor) -> bool:
    """Whether ``z`` is inside ``vmap``, ``grad`` and the like, or has a tangent of forward-mode differentiation."""
    functorch = torch._C._functorch  # pyright: ignore[reportAttributeAccessIssue] # compiled, without annotations
    wrapped = functorch.is_functorch_wrapped_tensor(z) or functorch.is_legacy_batchedtensor(z)
    return wrapped or forward_ad._current_level >= 0


def _is_watched() -> bool:
    """Whether a mode sees every call of torch."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._len_torch_function_stack() > 0
