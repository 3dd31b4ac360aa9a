"""Affine expressions in the states and inputs of a loop's body, computed operator by operator."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from stability.errors import UnsupportedError

from ..affine import Affine, added, divided, multiplied
from ..readers.closure import closure
from ..readers.limits import LOOP_ENTRIES, LOOP_WIDTH
from .graph import DOMAINS, Graph, attributes, refuse_rounding
from .sizes import RESHAPES

Array = np.ndarray
_CHANNELS = {op: op.lower() for op in ("Tanh", "Relu", "Sigmoid")}
_CHANNELS |= {"LeakyRelu": "leaky_relu", "Clip": "saturation", "Shrink": "deadzone"}
_SUPPORTED = (*_CHANNELS, "Add", "Sub", "Sum", "Neg", "Mul", "Div", "MatMul", "Gemm")
_SELECTIONS = ("Concat", "Gather", "Slice", "Split")
"""Operators whose outputs are entries of their inputs in another order."""
_ATTRIBUTES = {
    "LeakyRelu": {"alpha"},
    "Clip": {"min", "max"},
    "Shrink": {"bias", "lambd"},
    "Gemm": {"alpha", "beta", "transA", "transB"},
}


@dataclass
class Body:
    """State of reading the body of a loop.

    Attributes:
        graph: graph of the body.
        values: expression or constant by name.
        sizes: number of entries of each variable.
        channels: variable, activation and argument of each activation, in order.
        products: the two factors of each variable that is a product of expressions.
        inputs: variables that are inputs.
        spent: number of matrix entries so far, at most ``LOOP_ENTRIES``.
    """

    graph: Graph
    values: dict[str, Affine | Array] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    channels: list[tuple[str, str, Affine]] = field(default_factory=list)
    products: dict[str, tuple[Affine, Affine]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    spent: int = 0

    def symbol(self, name: str, size: int) -> Affine:
        """Add a variable and return its expression."""
        total = size + sum(self.sizes.values())
        if total > LOOP_WIDTH:
            raise UnsupportedError(f"with {name} its values have {total} entries; at most {LOOP_WIDTH} are read")
        self._spend(size * size, name)
        self.sizes[name] = size
        return Affine(size, {name: np.eye(size)})

    def _spend(self, entries: int, name: str) -> None:
        self.spent += entries
        if self.spent > LOOP_ENTRIES:
            raise UnsupportedError(f"{name} needs {self.spent} entries of matrices; at most {LOOP_ENTRIES} are read")

    def read(self, name: str) -> Affine | Array:
        """Return the value of a name; the nodes that it depends on are read first, in their order.

        Raises:
            UnsupportedError: an operator that is neither affine nor a known activation.
        """
        needed = closure([name], self._inputs)
        for node in self.graph.nodes:
            if not needed.isdisjoint(node.output) and node.output[0] not in self.values:
                self._evaluate(node)
        return self.values[name]

    def _inputs(self, name: str) -> list[str]:
        """Return the names that a value is computed from; empty for variables and constants."""
        if self._is_known(name):
            return []
        node = self.graph.producers.get(name)
        if node is None:
            raise UnsupportedError(f"it reads {name}, a counter or outer value; expected a state or input of the step")
        if node.output[0] != name and node.op_type != "Split":
            raise UnsupportedError(f"it reads {name}, which is not the first output of {node.op_type}")
        return list(filter(None, node.input[:1] if node.op_type in (*RESHAPES, *_SELECTIONS[1:]) else node.input))

    def _is_known(self, name: str) -> bool:
        if name in self.values:
            return True
        constant = self.graph.constant(name)
        if constant is not None:
            if constant.dtype.kind not in "biuf":
                raise UnsupportedError(f"the constant {name} holds {constant.dtype}; expected real numbers")
            self._spend(constant.size, name)
            self.values[name] = np.asarray(constant, dtype=np.float64)
        return constant is not None

    def _evaluate(self, node: Any) -> None:
        if node.op_type in _SELECTIONS and node.domain in DOMAINS:
            self._select(node)
            return
        value = self._computed(node)
        terms = value.terms.values() if isinstance(value, Affine) else [value]
        self._spend(sum(m.size for m in terms) if node.op_type not in RESHAPES else 0, node.output[0])
        self.values[node.output[0]] = value

    def shaped(self, name: str, row: Array) -> Array:
        """Return a state or input in the shape that the body declares, with batch size one."""
        return row.reshape([1] * ((len(self.graph.shape(name)) or 2) - 1) + [-1])

    def _select(self, node: Any) -> None:
        """Evaluate a node that selects entries, by running it on the indices of the entries."""
        names = list(dict.fromkeys(node.input if node.op_type == "Concat" else node.input[:1]))
        known = {name: self.shaped(name, np.ones(size)) for name, size in self.sizes.items() if name in self.values}
        shapes = [value.shape for value in self.graph.run(names, known)]
        parts = [v if isinstance(v := self.values[name], Affine) else Affine(v.size, {}, v.ravel()) for name in names]
        offsets = np.cumsum([part.size for part in parts])
        numbers = np.split(np.arange(offsets[-1]), offsets[:-1])
        feeds = {name: indices.reshape(shape) for name, indices, shape in zip(names, numbers, shapes)}
        for name, entries in zip(node.output, self.graph.run(list(node.output), feeds)):
            self._spend(entries.size * (int(offsets[-1]) + sum(self.sizes.values())), name)
            rows = np.eye(offsets[-1])[entries.ravel()]
            rows_of_parts = (part.mapped(rows[:, indices]) for part, indices in zip(parts, numbers))
            self.values[name] = reduce(Affine.plus, rows_of_parts)

    def _product(self, a: Any, b: Any) -> Affine:
        if not (isinstance(a, Affine) and isinstance(b, Affine)):
            return multiplied(a, b)
        if a.size != b.size:
            raise UnsupportedError(f"it multiplies vectors of {a.size} and {b.size} entries")
        name = f"product {len(self.products)}"
        self.products[name] = a, b
        return self.symbol(name, a.size)

    def _computed(self, node: Any) -> Affine | Array:
        """Return the first output of a node."""
        op, options = node.op_type, attributes(node)
        if node.domain not in DOMAINS:
            raise UnsupportedError(f"it contains the operator {node.domain}.{op}")
        if op not in RESHAPES and op not in _SUPPORTED:
            raise UnsupportedError(f"it contains the operator {op}")
        if op in RESHAPES:
            refuse_rounding(self.graph, node, "in its body")
            return self.values[node.input[0]]
        unknown = sorted(set(options) - _ATTRIBUTES.get(op, set()))
        if unknown:
            raise UnsupportedError(f"{op} has the unsupported attribute {unknown[0]}")
        operands = [self.values[name] if name else None for name in node.input]
        if op in _CHANNELS:
            return self._channel(op, options, *operands)
        if op in ("Add", "Sum"):
            return reduce(added, operands)  # type: ignore[arg-type]
        if op in ("Sub", "Neg"):
            return added(operands[0], operands[1], -1.0) if op == "Sub" else operands[0].scaled(-1.0)  # type: ignore
        if op in ("Mul", "Div"):
            return self._product(*operands) if op == "Mul" else divided(*operands)  # type: ignore[arg-type]
        return self._gemm(options, *operands)  # a MatMul is a Gemm without attributes

    def _channel(self, op: str, options: dict[str, Any], z: Any, *ends: Any) -> Affine:
        """Return a new variable for an activation: ``Clip`` to [-1, 1], ``Shrink`` by 1, ``LeakyRelu`` of slope 0.1."""
        if not isinstance(z, Affine):
            raise UnsupportedError(f"it applies {op} to a constant")
        bounds: list[Any] = [-1.0, 1.0]
        if op == "Shrink":
            bounds = [-float(options.get("lambd", 0.5)), float(options.get("bias", 0.0))]
        elif op == "Clip":
            bounds = [*ends, *(options.get(key) for key in ("min", "max")[len(ends) :])]
        if any(isinstance(v, Affine) or np.size(v) != 1 for v in bounds) or [*map(np.squeeze, bounds)] != [-1.0, 1.0]:
            raise UnsupportedError(f"it contains {op} with other bounds than -1 and 1")
        if op == "LeakyRelu" and np.float32(options.get("alpha", 0.01)) != np.float32(0.1):
            raise UnsupportedError(f"it contains LeakyRelu with slope {options.get('alpha', 0.01):g} instead of 0.1")
        name = f"w{len(self.channels)}"
        self.channels.append((name, _CHANNELS[op], z))
        return self.symbol(name, z.size)

    def _gemm(self, options: dict[str, Any], a: Any, b: Any, c: Any = None) -> Affine:
        if options.get("transA"):
            raise UnsupportedError("it transposes a state")
        b = b.T if options.get("transB") and isinstance(b, np.ndarray) else b
        if isinstance(a, Affine) and isinstance(b, np.ndarray) and b.ndim == 2 and b.shape[0] == a.size:
            out = a.mapped(b.T)  # row vectors: h @ W
        elif isinstance(b, Affine) and isinstance(a, np.ndarray) and a.ndim == 2 and a.shape[1] == b.size:
            if options.get("transB"):
                raise UnsupportedError("it transposes a state")
            out = b.mapped(a)
        else:
            raise UnsupportedError("it contains a matrix product of unequal sizes or of two expressions")
        out = out.scaled(float(options.get("alpha", 1.0)))
        return out if c is None else added(out, c, float(options.get("beta", 1.0)))
