"""Affine expressions in the values of a loop's body, followed through its operators one by one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.errors import FileFormatError, StabilityError, UnsupportedError

from ..affine import Affine
from ..readers.limits import LOOP_ENTRIES, LOOP_WIDTH
from ..readers.postorder import postorder
from .graph import DOMAINS, Graph, attributes, refuse_rounding
from .sizes import RESHAPES

Array = np.ndarray
_CHANNELS = {"Tanh": "tanh", "Relu": "relu", "Sigmoid": "sigmoid"}
_KNOWN = (*_CHANNELS, "LeakyRelu", "Clip", "Shrink", "Add", "Sub", "Sum", "Neg", "Mul", "Div", "MatMul", "Gemm")
_ATTRIBUTES = {
    "LeakyRelu": {"alpha"},
    "Clip": {"min", "max"},
    "Shrink": {"bias", "lambd"},
    "Gemm": {"alpha", "beta", "transA", "transB"},
    "Cast": {"to", "saturate"},
    "Flatten": {"axis"},
    "Squeeze": {"axes"},
    "Unsqueeze": {"axes"},
    "Reshape": {"allowzero", "shape"},
    "Dropout": {"ratio", "seed", "is_test"},
}


@dataclass
class Body:
    """The body of a loop while it is being read."""

    graph: Graph
    where: str
    values: dict[str, Affine | Array] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    channels: list[tuple[str, str, Affine]] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    casts: bool = False
    spent: int = 0

    def refuse(self, what: str) -> UnsupportedError:
        """The error that says what was met, and what is known."""
        return UnsupportedError(
            f"{self.where}: {what}; only affine maps, tanh, ReLU, sigmoid, saturation and dead zone are recognised in "
            "a loop"
        )

    def symbol(self, name: str, size: int) -> Affine:
        """A new variable."""
        together = size + sum(self.sizes.values())
        if together > LOOP_WIDTH:
            raise self.refuse(f"with {name} its values have {together} entries, at most {LOOP_WIDTH} are read")
        self._take(size * size, name)
        self.sizes[name] = size
        return Affine(size, {name: np.eye(size)})

    def _take(self, entries: int, name: str) -> None:
        self.spent += entries
        if self.spent > LOOP_ENTRIES:
            raise self.refuse(
                f"{name} unfolds to matrices of {self.spent} entries, at most {LOOP_ENTRIES} are followed"
            )

    def read(self, name: str) -> Affine | Array:
        """The value of a name: an expression, or a constant. What it depends on is read first, one after the other."""
        for each in postorder(name, self._needs, self._known, self._refuse_circle):
            node = self.graph.producers[each]
            value = self._applied(node)
            terms = value.terms.values() if isinstance(value, Affine) else [value]
            self._take(sum(m.size for m in terms) if node.op_type not in RESHAPES else 0, each)
            self.values[each] = value
        return self.values[name]

    def _needs(self, name: str) -> list[str]:
        node = self.graph.producers.get(name)
        if node is None:
            raise self.refuse(f"the value {name} comes from outside the loop and has an unknown size")
        if node.output[0] != name:
            raise self.refuse(f"it reads {name}, a further output of {node.op_type}")
        return list(node.input[:1] if node.op_type in RESHAPES else node.input)

    def _refuse_circle(self, name: str) -> None:
        raise FileFormatError(f"{self.where}: the value {name} is computed in a circle")

    def _applied(self, node: Any) -> Affine | Array:
        try:
            return self.apply(node)
        except StabilityError:
            raise
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            raise self.refuse(f"{node.op_type} is not as its operator is ({str(error)[:80]})") from error

    def _known(self, name: str) -> bool:
        """Whether the value of a name is known, as that of a constant is."""
        if name in self.values:
            return True
        constant = self.graph.constant(name)
        if constant is not None:
            if constant.dtype.kind not in "biuf":
                raise self.refuse(f"the constant {name} holds {constant.dtype}, no real numbers")
            self._take(constant.size, name)
            self.values[name] = np.asarray(constant, dtype=np.float64)
        return constant is not None

    def apply(self, node: Any) -> Affine | Array:
        """The first output of a node.

        Raises:
            UnsupportedError: an operator that is neither affine nor a known activation.
        """
        op, options = node.op_type, attributes(node)
        if node.domain not in DOMAINS:
            raise self.refuse(f"it contains the operator {node.domain}.{op}")
        if op not in RESHAPES and op not in _KNOWN:
            raise self.refuse(f"it contains the operator {op}")
        unknown = sorted(set(options) - _ATTRIBUTES.get(op, set()))
        if unknown:
            raise self.refuse(f"{op} has the attribute {unknown[0]}, which is not known here")
        if op in RESHAPES:
            refuse_rounding(self.graph, node, self.where)
            self.casts |= op == "Cast"
            return self.read(node.input[0])
        if op in _CHANNELS or op in ("LeakyRelu", "Clip", "Shrink"):
            return self._channel(node, op, options)
        parts = [self.read(k) for k in node.input]
        if op in ("Add", "Sub", "Sum"):
            total = parts[0]
            for part in parts[1:]:
                total = self._add(total, self._negative(part) if op == "Sub" else part)
            return total
        if op == "Neg":
            return self._negative(parts[0])
        if op in ("Mul", "Div"):
            return self._product(parts[0], parts[1], op)
        return self._gemm(parts, options)  # a MatMul is a Gemm that says nothing

    def _channel(self, node: Any, op: str, options: dict[str, Any]) -> Affine:
        z = self.read(node.input[0])
        if not isinstance(z, Affine):
            raise self.refuse(f"{op} of a constant")
        if op in ("Clip", "Shrink"):
            return self._cut(z, node, op, options)
        if op == "LeakyRelu" and np.float32(options.get("alpha", 0.01)) != np.float32(0.1):
            raise self.refuse(f"LeakyRelu with slope {options.get('alpha', 0.01):g} instead of 0.1")
        return self._new(_CHANNELS.get(op, "leaky_relu"), z)

    def _new(self, kind: str, z: Affine) -> Affine:
        name = f"w{len(self.channels)}"
        self.channels.append((name, kind, z))
        return self.symbol(name, z.size)

    def _cut(self, z: Affine, node: Any, op: str, options: dict[str, Any]) -> Affine:
        """``clip(z, -1, 1)`` is the saturation, ``Shrink`` by one the dead zone; other bounds are not followed."""
        if op == "Shrink":
            ends = [-float(options.get("lambd", 0.5)), float(options.get("bias", 0.0))]
        else:
            stated = [self.read(k) if k else None for k in node.input[1:]]
            ends = [*stated, *(options.get(key) for key in ("min", "max")[len(stated) :])]
        if any(isinstance(end, Affine) or np.size(end) != 1 for end in ends) or [*map(np.squeeze, ends)] != [-1.0, 1.0]:
            raise self.refuse(f"{op} with other bounds than -1 and 1")
        return self._new("saturation" if op == "Clip" else "deadzone", z)

    def _negative(self, value: Affine | Array) -> Affine | Array:
        return value.scaled(-1.0) if isinstance(value, Affine) else -value

    def _vector(self, value: Array, size: int) -> Array:
        flat = np.squeeze(value)
        if flat.shape not in ((), (size,)):
            raise self.refuse(f"a constant of shape {value.shape} meets a vector of {size} entries")
        return np.broadcast_to(flat, (size,))

    def _add(self, a: Affine | Array, b: Affine | Array) -> Affine | Array:
        if isinstance(a, Affine) and isinstance(b, Affine):
            if a.size != b.size:
                raise self.refuse(f"vectors of {a.size} and {b.size} entries are added")
            return a.plus(b)
        if isinstance(a, Affine):
            return a.plus(Affine(a.size, {}, self._vector(b, a.size)))  # type: ignore[arg-type]
        if isinstance(b, Affine):
            return self._add(b, a)
        raise self.refuse("constants are added that do not fit together")

    def _product(self, a: Affine | Array, b: Affine | Array, op: str) -> Affine | Array:
        if isinstance(b, Affine) and (isinstance(a, Affine) or op == "Div"):
            raise self.refuse("two values that change are multiplied or divided (a gate?)")
        if isinstance(b, Affine):
            a, b = b, a
        if not isinstance(a, Affine):
            raise self.refuse("constants are multiplied or divided that do not fit together")
        factor = self._vector(b, a.size)  # type: ignore[arg-type]
        return a.scaled(factor if op == "Mul" else 1.0 / factor)

    def _matmul(self, a: Affine | Array, b: Affine | Array) -> Affine | Array:
        if isinstance(a, Affine) and isinstance(b, np.ndarray) and b.ndim == 2 and b.shape[0] == a.size:
            return a.mapped(b.T)  # row vectors: h @ W
        if isinstance(b, Affine) and isinstance(a, np.ndarray) and a.ndim == 2 and a.shape[1] == b.size:
            return b.mapped(a)
        raise self.refuse("a matrix product whose shapes do not fit, or of two values that change")

    def _gemm(self, parts: list[Any], options: dict[str, Any]) -> Affine | Array:
        a, b = parts[0], parts[1]
        if options.get("transA"):
            raise self.refuse("a transposed state")
        out = self._matmul(a, b.T if options.get("transB") and isinstance(b, np.ndarray) else b)
        out = self._product(out, np.float64(options.get("alpha", 1.0)), "Mul")  # type: ignore[arg-type]
        if len(parts) < 3:
            return out
        beta = np.float64(options.get("beta", 1.0))
        return self._add(out, parts[2] * beta if isinstance(parts[2], np.ndarray) else parts[2].scaled(beta))
