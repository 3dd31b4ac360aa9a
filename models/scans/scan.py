"""Parallel prefix scans of associative operators over tensors in logarithmic depth.

``associative_scan`` is for any operator. Diagonal and rotation recurrences have faster kernels in ``linear_scan``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from stability.errors import ConfigurationError, DimensionError

Operator = Callable[[Any, Any], Any]
Leaves = list[Tensor]
LeafOperator = Callable[[Leaves, Leaves], Leaves]


def associative_scan(operator: Operator, elements: Any, *, dim: int = 1, reverse: bool = False) -> Any:
    r"""Compute all prefixes of an associative operator: :math:`y_t = e_1 \circ e_2 \circ \dots \circ e_t`.

    Odd-even recursion: about ``2 T`` applications of the operator, in ``2 log2 T`` rounds, each on whole slices at
    once. The prefixes are differentiable as often as the operator.

    Args:
        operator: ``operator(left, right) -> both``, associative, elementwise along ``dim``; it takes and returns
            the structure of ``elements`` (slices of it along ``dim``).
        elements: a tensor, or a nested tuple, list or dictionary of tensors of the same length along ``dim``.
        dim: the axis to scan along.
        reverse: scan from the end: :math:`y_t = e_T \circ e_{T-1} \circ \dots \circ e_t`.

    Returns:
        The prefixes, in the structure and shapes of ``elements``.

    Raises:
        ConfigurationError: no tensors, a bad ``dim``, or an operator that returns something else.
        DimensionError: lengths that differ, or are zero.

    Source:
        G. E. Blelloch, "Prefix sums and their applications", CMU-CS-90-190 (1990).

    Example:
        >>> import torch
        >>> associative_scan(torch.add, torch.tensor([1.0, 2.0, 3.0]), dim=0)
        tensor([1., 3., 6.])
        >>> step = lambda left, right: (left[0] * right[0], right[0] * left[1] + right[1])
        >>> decay, x = associative_scan(step, (torch.full((1, 3), 0.5), torch.ones(1, 3)))
        >>> x
        tensor([[1.0000, 1.5000, 1.7500]])
    """
    leaves, spec = _checked(operator, elements, dim)

    def combine(left: Leaves, right: Leaves) -> Leaves:
        return _combined(operator(pytree.tree_unflatten(left, spec), pytree.tree_unflatten(right, spec)), right, spec)

    moved = [leaf.movedim(dim, 0) for leaf in leaves]
    moved = [leaf.flip(0) for leaf in moved] if reverse else moved
    out = _scan(combine, moved)
    return pytree.tree_unflatten([(leaf.flip(0) if reverse else leaf).movedim(0, dim) for leaf in out], spec)


def _checked(operator: Any, elements: Any, dim: Any) -> tuple[Leaves, Any]:
    """Return the elements' tensors, of equal length along ``dim``, and their structure."""
    if not callable(operator):
        raise ConfigurationError(f"operator must be a function of two arguments, got {type(operator).__name__}")
    leaves, spec = pytree.tree_flatten(elements)
    if not leaves or not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise ConfigurationError("elements must be a tensor, or a tuple, list or dictionary of tensors")
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise ConfigurationError(f"dim must be an integer, got {dim!r}")
    for leaf in leaves:
        if not -leaf.dim() <= dim < leaf.dim():
            raise ConfigurationError(f"dim {dim} does not exist in a tensor of shape {tuple(leaf.shape)}")
    length = leaves[0].shape[dim]
    for leaf in leaves:
        if leaf.shape[dim] != length or length == 0:
            expected = f"the same length >= 1 along dim {dim}"
            raise DimensionError("elements", expected, tuple(leaf.shape), f"the first has {length}")
    return leaves, spec


def _combined(result: Any, like: Leaves, spec: Any) -> Leaves:
    """Return the leaves of an operator's result, after a check against its arguments' structure and shapes."""
    leaves, result_spec = pytree.tree_flatten(result)
    if result_spec != spec or not all(isinstance(leaf, Tensor) for leaf in leaves):
        raise ConfigurationError(f"the operator must return the structure of its arguments, {spec}, got {result_spec}")
    for leaf, right in zip(leaves, like):
        if leaf.shape != right.shape:
            raise DimensionError("what the operator returns", tuple(right.shape), tuple(leaf.shape))
    return leaves


def _scan(combine: LeafOperator, e: Leaves) -> Leaves:
    """Compute prefixes along the first axis: the scan of combined pairs gives every other prefix, then the rest."""
    length = e[0].shape[0]
    if length == 1:
        return e
    pairs = combine([x[0 : length - 1 : 2] for x in e], [x[1::2] for x in e])
    odd_prefixes = _scan(combine, pairs)  # prefixes that end at 1, 3, 5, ...
    if length == 2:
        return [torch.cat([x[:1], y]) for x, y in zip(e, odd_prefixes)]
    count = (length - 1) // 2
    even = combine([y[:count] for y in odd_prefixes], [x[2::2] for x in e])  # ... and at 2, 4, 6, ...
    even = [torch.cat([x[:1], y]) for x, y in zip(e, even)]
    return [_interleave(a, b) for a, b in zip(even, odd_prefixes)]


def _interleave(even: Tensor, odd: Tensor) -> Tensor:
    """Return ``even[0], odd[0], even[1], ...``; ``even`` is as long as ``odd`` or one longer."""
    both = torch.stack([even[: len(odd)], odd], dim=1).flatten(0, 1)
    return both if len(even) == len(odd) else torch.cat([both, even[-1:]])
