"""What hand-written derivatives share: several directions at once, and the end after two."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROWS, FIRST = 1, 0
"""Axes of the directions: behind the rows, ``(rows, k, n)``, or before a matrix, ``(k, m, n)``."""


def rows(t: Tensor) -> Tensor:
    """All times and sequences as rows: ``(time, batch, n)`` to ``(time batch, n)``, a view also of some columns."""
    return t.flatten(0, 1)


def no_third(first_order: bool) -> None:
    """Refuse to differentiate a second derivative.

    Raises:
        NotImplementedError: where a graph of it is asked for, or it is one.
    """
    if torch.is_grad_enabled() or not first_order:
        raise NotImplementedError("these kernels are differentiable twice: a third derivative is not written out")


@dataclass(frozen=True, eq=False)
class _Told:
    """What is run, and where the directions are; one leaf for the engine, which takes apart tuples."""

    run: Callable[..., Any]
    axes: Sequence[int]
    out_axes: Sequence[int]


class _Along(torch.autograd.Function):
    """A linear function of cotangents for several directions at once, where the engine is given several."""

    @staticmethod
    def forward(told: _Told, *tensors: Tensor | None) -> Any:
        found = told.run(*(None if t is None else t.unsqueeze(axis) for t, axis in zip(tensors, told.axes)))
        return tuple(None if t is None else t.squeeze(axis) for t, axis in zip(found, told.out_axes))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: there is no derivative of it."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, told: _Told, *tensors: Tensor | None) -> Any:
        given = []
        for t, axis, dim in zip(tensors, told.axes, in_dims[1:]):
            if t is None or dim is not None:
                given.append(None if t is None else t.movedim(dim, axis))
            else:
                shape = [*t.shape[:axis], info.batch_size, *t.shape[axis:]]
                given.append(t.unsqueeze(axis).expand(shape))
        found = told.run(*given)
        return found, tuple(None if t is None else axis for t, axis in zip(found, told.out_axes))


_Along.forward.__signature__ = inspect.signature(_Along.forward)  # type: ignore[attr-defined]  # asked for in each call


def along(
    run: Callable[..., Sequence[Tensor | None]],
    axes: Sequence[int],
    out_axes: Sequence[int],
    *tensors: Tensor | None,
) -> tuple[Any, ...]:
    """``run(*tensors)`` with an axis for directions, one of them or, inside a batch of cotangents, all at once.

    Args:
        run: linear; takes and gives tensors with an axis for the directions, or none.
        axes: where each argument has that axis: ``ROWS`` or ``FIRST``.
        out_axes: where each result has it.
        *tensors: without that axis.

    Returns:
        The results without it.

    Example:
        >>> along(lambda v: (2.0 * v,), [ROWS], [ROWS], torch.ones(2, 3))[0].shape
        torch.Size([2, 3])
    """
    return _Along.apply(_Told(run, axes, out_axes), *tensors)  # type: ignore[no-any-return]
