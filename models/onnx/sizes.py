"""Number of entries that an ONNX node computes, bounded from the shapes of its inputs before it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..readers.limits import UNFOLDED

_BROADCAST = ("Add", "Sub", "Mul", "Div", "Sum")
RESHAPES = ("Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape", "Dropout", "Flatten")
"""Operators that keep the entries of a vector."""
_SAME = (*RESHAPES, "Transpose", "Slice", "Split", "Neg")
FOLDED = (*_SAME, *_BROADCAST[:4], "Concat", "Gather", "Shape", "ConstantOfShape", "Expand")
"""Operators that exporters put between the constants of a graph."""
_CELLS = ("RNN", "LSTM", "GRU")
RECURRENT = (*_CELLS, "Scan", "Loop")
_COMPUTED = ("Sum", "Tanh", "Relu", "Sigmoid", "LeakyRelu", "Clip", "Shrink", "MatMul", "Gemm", "ReduceMean")
RUN = (*FOLDED, "Constant", *_CELLS, *_COMPUTED)
"""Operators that run in the cross-check; the size of each result is known in advance."""


def entries_of(node: Any, values: Sequence[np.ndarray | None], options: Mapping[str, Any]) -> int:
    """Bound the number of entries of the outputs of a node.

    Args:
        node: node of an operator in ``RUN``.
        values: its inputs, ``None`` for an omitted one.
        options: its attributes.

    Returns:
        An upper bound; where the inputs do not fit together, and the evaluation will say so, zero.
    """
    present = [v for v in values if v is not None]
    op = node.op_type
    try:
        if op in ("ConstantOfShape", "Expand"):
            wanted = [int(d) for d in np.asarray(present[-1]).reshape(-1)[:65]]
            return abs(math.prod(wanted)) * (present[0].size if op == "Expand" else 1)
        if op in _BROADCAST:
            return math.prod(np.broadcast_shapes(*(v.shape for v in present)))
        if op == "Concat":
            return sum(v.size for v in present)
        if op == "Gather":
            axis = int(options.get("axis", 0))
            return present[0].size // max(1, present[0].shape[axis]) * present[1].size
        if op == "MatMul":
            batch = math.prod(np.broadcast_shapes(present[0].shape[:-2], present[1].shape[:-2]))
            return batch * math.prod(present[0].shape[-2:-1]) * (present[1].shape[-1] if present[1].ndim > 1 else 1)
        if op == "Gemm":
            return math.prod(np.broadcast_shapes(present[0].shape)) * max(present[1].shape)
        if op in _CELLS:
            return 4 * present[0].shape[0] * present[0].shape[1] * present[2].shape[-1]
        if op == "Split" and int(options.get("num_outputs", 0)) > len(node.output):
            return UNFOLDED + 1
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0
    return present[0].size if present else 0
