"""ONNX graph with folded constants, parts of which run in onnx's reference evaluator."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stability.errors import FileFormatError, StabilityError, UnsupportedError
from stability.kernel.arithmetic.activations import activation

from ..readers.limits import UNFOLDED
from .sizes import FOLDED, RECURRENT, RUN, entries_of
from .wire import read_model

DOMAINS = ("", "ai.onnx")


class Graph:
    """Graph with sorted nodes and with constants folded by onnx's reference evaluator.

    Args:
        proto: ``onnx.GraphProto``.
        outer: enclosing graph, whose values can be read.
        opsets: versions of the operators; ignored if there is an enclosing graph.

    Attributes:
        producers: node by the name of each of its outputs.
        initializers: stored tensors by name.

    Raises:
        FileFormatError: a value that is defined twice, a node that reads a value computed later, a damaged constant,
            or constants that expand to more than ``UNFOLDED`` entries.
    """

    def __init__(self, proto: Any, outer: Graph | None = None, opsets: Sequence[Any] = ()) -> None:
        self.proto, self.outer, self.nodes = proto, outer, list(proto.node)
        self.opsets: tuple[Any, ...] = tuple(opsets) if outer is None else outer.opsets
        self._root: Graph = self if outer is None else outer._root
        self._entries_left = UNFOLDED
        self._input_names = {value.name for value in proto.input}
        self.initializers = {tensor.name: tensor for tensor in proto.initializer}
        self.producers = {name: node for node in self.nodes for name in filter(None, node.output)}
        self._check_names()
        self._constants: dict[str, np.ndarray] = {}
        self._evaluators: dict[Any, Any] = {}
        for node in self.nodes:
            if node.domain in DOMAINS and node.op_type in (*FOLDED, "Constant"):
                operands = [self.constant(name) if name else None for name in node.input]
                if all(value is not None for name, value in zip(node.input, operands) if name):
                    self._constants.update(self._folded(node, operands))

    def _check_names(self) -> None:
        produced = [name for node in self.nodes for name in filter(None, node.output)]
        inner = self.outer is not None  # in the outermost graph, a stored value of an input is its default
        inputs = [value.name for value in self.proto.input if inner or value.name not in self.initializers]
        for name, count in Counter([*produced, *inputs, *(tensor.name for tensor in self.proto.initializer)]).items():
            if count > 1:
                raise FileFormatError(f"the ONNX value {name[:60]!a} is defined twice")
        waiting = set(produced)
        for node in self.nodes:
            if read_names(node) & waiting:
                raise FileFormatError(f"the ONNX node {name_of(node)[:60]!a} reads a value that is computed later")
            waiting.difference_update(node.output)

    @classmethod
    def read(cls, path: Path) -> Graph:
        """Parse a file.

        Raises:
            ConfigurationError: ``onnx`` is not installed.
            FileFormatError: an incomplete ONNX model, one that is too large, or one that redefines standard operators.
            UnsupportedError: a function of the file contains recurrent nodes.
        """
        model = read_model(path)
        if not model.graph.node:
            raise FileFormatError(f"{path} is not an ONNX model, or its graph is empty")
        redefined = [f.name for f in model.functions if f.domain in DOMAINS]
        if redefined:
            raise FileFormatError(f"{path} defines the standard operator {redefined[0][:60]!a} itself")
        hidden = [f.name for f in model.functions if any(node.op_type in RECURRENT for node in f.node)]
        if hidden:
            how = "inline it with onnx.inliner.inline_local_functions"
            raise UnsupportedError(f"{path} has recurrent nodes inside its function {hidden[0][:60]!a}: {how}")
        parts = {"inputs": model.graph.input, "outputs": model.graph.output, "opset": model.opset_import}
        missing = [word for word, entries in parts.items() if not entries]
        if missing:
            raise FileFormatError(f"{path} is not a complete ONNX model: it has no {' and no '.join(missing)}")
        try:
            return cls(model.graph, None, model.opset_import)
        except FileFormatError as error:
            raise FileFormatError(f"{path}: {error}") from error

    def constant(self, name: str) -> np.ndarray | None:
        """Return the value of a name that depends on no input, else None."""
        if name in self.initializers and name not in self._constants:
            self._constants[name] = _stored(self.initializers[name], name)
        if name in self._constants:
            return self._constants[name]
        own = self.outer is None or name in self.producers or name in self._input_names
        return None if own else self.outer.constant(name)  # type: ignore[union-attr]

    def _folded(self, node: Any, values: Sequence[np.ndarray | None]) -> dict[str, np.ndarray]:
        """Return the outputs by name of a node with constant inputs; empty if it cannot be evaluated."""
        from onnx import TensorProto
        from onnx.reference.op_run import RuntimeTypeError

        try:
            options = attributes(node)
            if node.op_type == "Constant" and "value" in options:
                return {node.output[0]: _stored(options["value"], node.output[0])}
            if "sparse_value" in options or options.get("to") == TensorProto.STRING:
                return {}
            if node.op_type == "Identity":
                return {node.output[0]: values[0]}  # type: ignore[dict-item]
            entries = entries_of(node, values, options)
            if entries > self._root._entries_left:
                raise FileFormatError(f"the ONNX value {node.output[0][:60]!a} expands to {entries} entries")
            self._root._entries_left -= entries
            known = {name: value for name, value in zip(node.input, values) if value is not None}
            (operator,) = self._operators([node], known, node.output)
            with np.errstate(all="ignore"):
                results = operator.run(*values)
        except FileFormatError:
            raise
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeTypeError):
            return {}
        if any(np.may_share_memory(result, value) for result in results for value in known.values()):
            self._root._entries_left += entries  # a view needs no further memory
        return {name: np.asarray(value) for name, value in zip(node.output, results) if name and value is not None}

    def shape(self, name: str) -> list[int]:
        """Return the declared shape of a value, zero for an undeclared size; empty without a declaration."""
        for value in (*self.proto.input, *self.proto.output, *self.proto.value_info):
            if value.name == name:
                return [max(0, int(d.dim_value)) for d in value.type.tensor_type.shape.dim]
        return [] if self.outer is None or name in self.producers else self.outer.shape(name)

    def sizes(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        """Return the declared shape of a value, with the default's entries where a size is not declared."""
        dims = self.shape(name)
        return tuple(d or size for d, size in zip(dims, default)) if len(dims) >= len(default) else default

    def source(self, name: str, operators: Sequence[str]) -> tuple[str, list[Any]]:
        """Walk backward along first inputs through given operators; return the last name and the visited nodes."""
        walked = []
        while (node := self.producers.get(name)) is not None and node.op_type in operators and node.domain in DOMAINS:
            walked.append(node)
            name = node.input[0]
        return name, walked

    def run(self, outputs: Sequence[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Compute some values of the graph from others by onnx's reference evaluator.

        Args:
            outputs: names to compute.
            feeds: values by name; nodes that only these depend on are not run.

        Returns:
            The arrays.

        Raises:
            FileFormatError: a value with too many entries.
            StabilityError: an error while reading a node.
            UnsupportedError: a value neither in ``feeds`` nor constant, or an operator that cannot be evaluated.
        """
        key = (tuple(outputs), *((name, value.shape, value.dtype) for name, value in feeds.items()))
        try:
            if key not in self._evaluators:
                self._evaluators[key] = self._operators_between(outputs, feeds)
            operators, constants = self._evaluators[key]
            results: dict[str, Any] = {"": None, **constants, **feeds}
            with np.errstate(all="ignore"):
                for operator in operators:
                    node = operator.onnx_node
                    arguments = [results[name] for name in node.input]
                    entries = entries_of(node, arguments, attributes(node))
                    if entries > UNFOLDED:
                        raise FileFormatError(f"the ONNX value {node.output[0][:60]!a} has {entries} entries")
                    results.update(zip(node.output, operator.run(*arguments)))
            return [np.asarray(results[name]) for name in outputs]
        except StabilityError:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:120]
            raise UnsupportedError(f"onnx's evaluator cannot run it: {type(error).__name__}: {reason}") from error

    def _operators_between(
        self, outputs: Sequence[str], feeds: Mapping[str, np.ndarray]
    ) -> tuple[list[Any], dict[str, np.ndarray]]:
        """Return the operators that compute ``outputs`` from ``feeds``, and the constants that they read."""
        needed, constants, nodes = {name for name in outputs if name not in feeds}, {}, []
        for node in reversed(self.nodes):
            if needed.isdisjoint(name for name in node.output if name not in self._constants):
                continue
            if node.op_type not in RUN or node.domain not in DOMAINS:
                raise UnsupportedError(f"the operator {node.op_type} cannot be run for the comparison with the system")
            nodes.insert(0, node)
            needed.update(name for name in node.input if name and name not in feeds)
        double = any(value.dtype == np.float64 for value in feeds.values())
        nodes = list(map(in_double, nodes)) if double else nodes
        for name in needed - {name for node in nodes for name in node.output}:
            constant = self.constant(name)
            if constant is None:
                raise UnsupportedError(f"the graph cannot be compared with its system: {name} is an outer value")
            constants[name] = np.asarray(constant, order="C")  # keeps a scalar without axes
            if double and constant.dtype == np.float32:
                constants[name] = constants[name].astype(np.float64)
        return self._operators(nodes, {**feeds, **constants}, outputs), constants

    def _operators(self, nodes: list[Any], values: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[Any]:
        """Return nodes as operators of onnx's reference evaluator, for values of the given kinds and shapes."""
        from onnx import helper

        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in values.items()
        ]
        output_infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(nodes, self.proto.name, inputs, output_infos)
        return list(evaluator(helper.make_model(graph, opset_imports=self.opsets or None)).rt_nodes_)


def in_double(node: Any) -> Any:
    """Return a cast to double in place of a cast to a shorter float; return any other node unchanged."""
    from onnx import TensorProto, helper

    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    shortens = node.op_type == "Cast" and attributes(node).get("to") in floats
    return helper.make_node("Cast", node.input, node.output, to=TensorProto.DOUBLE) if shortens else node


def evaluator(model: Any) -> Any:
    """Return onnx's reference evaluator of a model, with all activations of an ``RNN`` node."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.ops.op_rnn import RNN_14

    class RNN(RNN_14):
        op_domain = ""

        def choose_act(self, name: str, alpha: float, beta: float) -> Any:
            known = {"relu": "relu", "sigmoid": "sigmoid"}.get(name.lower())
            return super().choose_act(name, alpha, beta) if known is None else activation(known).function

    return ReferenceEvaluator(model, new_ops=[RNN])


def _stored(tensor: Any, name: str) -> np.ndarray:
    """Return a stored tensor as an array; its shape is checked against its bytes first."""
    from onnx import numpy_helper

    count = math.prod(tensor.dims)
    if any(d < 0 for d in tensor.dims) or count > tensor.ByteSize() * 2:  # nothing is narrower than half a byte
        raise FileFormatError(f"the ONNX constant {name[:60]!a} is shorter than its shape {tuple(tensor.dims)[:8]}")
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, LookupError, RuntimeError, AttributeError, ArithmeticError) as error:
        raise FileFormatError(f"the ONNX constant {name[:60]!a} is damaged ({str(error)[:120]})") from error


def read_names(node: Any) -> set[str]:
    """Return the names that a node and its inner graphs read."""
    names = set(filter(None, node.input))
    for attribute in node.attribute:
        for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            read = {value.name for value in inner.output}.union(*map(read_names, inner.node))
            inner_names = {value.name for value in (*inner.input, *inner.initializer)}
            names |= read - inner_names - {name for part in inner.node for name in part.output}
    return names


def name_of(node: Any) -> str:
    """Return the name of a node, else that of its first output."""
    return node.name or (node.output[0] if node.output else node.op_type)


def refuse_rounding(graph: Graph, node: Any, where: str) -> None:
    """Raise an error for a ``Cast`` or ``Dropout`` node that changes its values.

    Raises:
        UnsupportedError: a cast to anything but float and double, or dropout in training mode.
    """
    from onnx import TensorProto

    options = attributes(node)
    if node.op_type == "Cast" and options.get("to") not in (TensorProto.FLOAT, TensorProto.DOUBLE):
        raise UnsupportedError(f"{where}: a Cast rounds; only casts to FLOAT and DOUBLE are read")
    if node.op_type == "Dropout":
        mode = graph.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else np.array(False)
        if mode is None or mode.any() or options.get("is_test", 1) != 1:
            raise UnsupportedError(f"{where}: a Dropout in training mode makes every step random")


def attributes(node: Any) -> dict[str, Any]:
    """Return the attributes of a node as Python values."""
    from onnx import helper

    def python_value(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return [python_value(v) for v in value] if isinstance(value, (list, tuple)) else value

    names = [a.name for a in node.attribute]
    if len(set(names)) < len(names):
        raise FileFormatError(f"the ONNX node {name_of(node)[:60]!a} has the same attribute twice")
    return {a.name: python_value(helper.get_attribute_value(a)) for a in node.attribute}
