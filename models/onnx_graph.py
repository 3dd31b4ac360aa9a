"""An ONNX graph with its constants folded, and a way to run pieces of it in onnx's own reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stability.errors import ConfigurationError, FileFormatError, UnsupportedError

__all__ = ["DOMAINS", "Graph", "attributes", "name_of", "refuse_rounding"]

DOMAINS = ("", "ai.onnx")
_FOLDED = (
    "Identity",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Reshape",
    "Cast",
    "Dropout",
    "Flatten",
    "Concat",
    "Slice",
    "Gather",
    "Split",
    "Add",
    "Sub",
    "Mul",
    "Div",
    "Neg",
    "Shape",
    "ConstantOfShape",
    "Expand",
)
_BIG = 2**31
_ENTRIES = 2**26
"""Of a folded constant, at most."""


class Graph:
    """A graph with its constants, folded through the operators that exporters put between them.

    Args:
        proto: ``onnx.GraphProto``.
        outer: the graph around it, whose names it can see.
        opsets: the versions of the operators; those of the outer graph where it has one.
    """

    def __init__(self, proto: Any, outer: Graph | None = None, opsets: Sequence[Any] = ()) -> None:
        self.proto, self.outer, self.nodes = proto, outer, list(proto.node)
        self.opsets: tuple[Any, ...] = tuple(opsets) if outer is None else outer.opsets
        self.producers = {name: node for node in self.nodes for name in node.output if name}
        self.initializers = {tensor.name: tensor for tensor in proto.initializer}
        self._cache: dict[str, np.ndarray | None] = {}

    @classmethod
    def read(cls, path: Path) -> Graph:
        """Parse a file.

        Raises:
            ConfigurationError: ``onnx`` is not installed.
            FileFormatError: no ONNX model.
        """
        try:
            import onnx
            from google.protobuf.message import DecodeError
        except ImportError as error:
            raise ConfigurationError(
                "reading .onnx files needs the package onnx: pip install 'rnn-stability[onnx]'"
            ) from error
        try:
            if path.stat().st_size >= _BIG:
                raise FileFormatError(f"{path} has 2 GiB or more, beyond what an ONNX message can hold")
            model = onnx.load(str(path))
        except OSError as error:
            raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
        except FileFormatError:
            raise
        except (DecodeError, ValueError, RuntimeError, TypeError, onnx.checker.ValidationError) as error:
            raise FileFormatError(
                f"{path} is damaged, truncated or no ONNX model ({str(error).splitlines()[0][:120]})"
            ) from error
        if not model.graph.node:
            raise FileFormatError(f"{path} is no ONNX model, or its graph is empty")
        return cls(model.graph, None, model.opset_import)

    def producer(self, name: str) -> Any:
        """The node that makes a value here, or ``None``."""
        return self.producers.get(name)

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a name when it does not depend on any input, else ``None``."""
        if name not in self._cache:
            self._cache[name] = None  # a cycle, which no valid graph has, is no constant
            self._cache[name] = self._fold(name)
        return self._cache[name]

    def _fold(self, name: str) -> np.ndarray | None:
        from onnx import numpy_helper

        if name in self.initializers:
            tensor = self.initializers[name]
            count = int(np.prod([int(d) for d in tensor.dims], dtype=object)) if tensor.dims else 1
            if count < 0 or count > tensor.ByteSize() * 2 + 8:
                raise FileFormatError(
                    f"the ONNX constant {name} claims the shape {tuple(tensor.dims)}, more than it holds"
                )
            try:
                return np.asarray(numpy_helper.to_array(tensor))
            except (ValueError, TypeError, KeyError, RuntimeError) as error:
                raise FileFormatError(f"the ONNX constant {name} is damaged ({error})") from error
        node = self.producers.get(name)
        if node is None:
            return None if self.outer is None else self.outer.constant(name)
        if node.op_type == "Constant":
            return self._evaluate(node, {}, name)
        if node.op_type not in _FOLDED or node.domain not in DOMAINS:
            return None
        values = {}
        for item in node.input:
            if item:
                values[item] = self.constant(item)
                if values[item] is None:
                    return None
        _refuse_large(node, values)
        return self._evaluate(node, values, name)

    def _evaluate(self, node: Any, values: dict[str, Any], name: str) -> np.ndarray | None:
        from onnx import helper
        from onnx.reference import ReferenceEvaluator
        from onnx.reference.op_run import RuntimeTypeError

        inputs = [
            helper.make_value_info(
                key, helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
            )
            for key, v in values.items()
        ]
        graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info(name)])
        model = helper.make_model(graph, opset_imports=self.opsets or None)
        try:
            (result,) = ReferenceEvaluator(model).run([name], values)
            return np.asarray(result)
        except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeTypeError):
            return None

    def sizes(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """The declared shape of a value; the default's entries where a size is not declared."""
        for value in (*self.proto.input, *self.proto.value_info):
            if value.name == name:
                dims = [int(d.dim_value) for d in value.type.tensor_type.shape.dim]
                return tuple(d or own for d, own in zip(dims, default)) if len(dims) >= len(default) else default
        return default

    def run(self, outputs: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Some values of the graph, computed by onnx's reference evaluator from others.

        Args:
            outputs: names to compute.
            feeds: values by name; what stands before them in the graph is not run.

        Returns:
            The arrays.

        Raises:
            UnsupportedError: a value that is neither fed nor constant, or an operator that cannot be evaluated.
        """
        from onnx import helper, numpy_helper
        from onnx.reference import ReferenceEvaluator

        wanted, seen, constants = list(outputs), set(feeds), []
        needed: set[int] = set()
        while wanted:
            name = wanted.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            constant, node = self.constant(name), self.producer(name)
            if constant is not None:
                constants.append(numpy_helper.from_array(np.ascontiguousarray(constant), name))
            elif node is None:
                raise UnsupportedError(f"the value {name} comes from outside and cannot be run beside its system")
            else:
                needed.add(id(node))
                wanted.extend(node.input)
        nodes = [node for node in self.nodes if id(node) in needed]
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in feeds.items()
        ]
        ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(nodes, "piece", inputs, ends, constants)
        try:
            with np.errstate(all="ignore"):
                evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=self.opsets or None))
                return [np.asarray(value) for value in evaluator.run(list(outputs), dict(feeds))]
        except Exception as error:
            reason = next(iter(str(error).strip().splitlines()), "")[:120]
            raise UnsupportedError(
                f"onnx's reference evaluator cannot run it: {type(error).__name__}: {reason}"
            ) from error


def _refuse_large(node: Any, values: Mapping[str, np.ndarray]) -> None:
    """Refuse a constant that would unfold to far more than the file holds, before it does."""
    entries = sum(values[name].size for name in node.input if name)
    shapes = [values[name].shape for name in node.input if name]
    try:
        if node.op_type in ("ConstantOfShape", "Expand"):
            entries = int(np.prod([int(d) for d in values[node.input[-1]].reshape(-1)], dtype=object))
            entries *= int(np.prod(shapes[0], dtype=object)) if node.op_type == "Expand" else 1
        elif node.op_type in ("Add", "Sub", "Mul", "Div"):
            entries = int(np.prod(np.broadcast_shapes(*shapes), dtype=object))
    except (ValueError, TypeError, OverflowError):
        return  # no valid operands: the evaluation says so
    if entries > _ENTRIES:
        raise FileFormatError(
            f"the ONNX constant {node.output[0]} unfolds to {entries} entries; at most {_ENTRIES} are read"
        )


def name_of(node: Any) -> str:
    """What a node is called: by its name, else by its first output."""
    return node.name or (node.output[0] if node.output else node.op_type)


def refuse_rounding(graph: Graph, node: Any, where: str) -> None:
    """Refuse a node that hands on other numbers than it gets though it looks like a change of form.

    Raises:
        UnsupportedError: a cast to anything but float and double, or dropout in training mode.
    """
    from onnx import TensorProto

    options = attributes(node)
    if node.op_type == "Cast" and options.get("to") not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        to = {value: key for key, value in TensorProto.DataType.items()}.get(options.get("to", -1), "nothing")
        raise UnsupportedError(
            f"{where}: a Cast to {to} rounds what passes through it; only casts to FLOAT and DOUBLE are read as the "
            "identity"
        )
    if node.op_type == "Dropout":
        mode = graph.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.array(False)
        if mode is None or mode.any() or options.get("is_test", 1) != 1:
            raise UnsupportedError(f"{where}: a Dropout in training mode makes another map of every step")


def attributes(node: Any) -> dict[str, Any]:
    """A node's attributes as Python values."""
    from onnx import helper

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value

    return {a.name: plain(helper.get_attribute_value(a)) for a in node.attribute}
