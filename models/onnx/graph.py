"""An ONNX graph with its constants folded, and a way to run pieces of it in onnx's own reference evaluator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np

from stability.errors import FileFormatError, StabilityError, UnsupportedError

from ..readers.limits import UNFOLDED
from ..readers.postorder import postorder
from .sizes import FOLDED, RUN, Budget, entries_of
from .wire import read_model

DOMAINS = ("", "ai.onnx")


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
        self.budget: Budget = Budget() if outer is None else outer.budget
        self.producers: dict[str, Any] = {}
        self.initializers: dict[str, Any] = {}
        for tensor in proto.initializer:
            self._refuse_second(tensor.name)
            self.initializers[tensor.name] = tensor
        for node in self.nodes:
            for name in filter(None, node.output):
                self._refuse_second(name)
                self.producers[name] = node
        for value in proto.input:
            if value.name in self.producers:
                raise FileFormatError(f"the ONNX value {value.name[:60]!a} is an input and computed as well")
        self._refuse_circles()
        self._cache: dict[str, np.ndarray | None] = {}
        self._evaluators: dict[Any, Any] = {}

    def _refuse_second(self, name: str) -> None:
        if name in self.producers or name in self.initializers:
            raise FileFormatError(f"the ONNX value {name[:60]!a} is given twice")

    def _refuse_circles(self) -> None:
        """Refuse a graph of which no node can be the first to run."""
        makers = {name: k for k, node in enumerate(self.nodes) for name in filter(None, node.output)}
        before = {k: {makers[i] for i in _needs(node) if i in makers} for k, node in enumerate(self.nodes)}
        try:
            TopologicalSorter(before).prepare()
        except CycleError as error:
            node = self.nodes[error.args[1][0]]
            raise FileFormatError(
                f"the ONNX node {name_of(node)[:60]!a} is in a circle: it reads what is computed from it"
            ) from error

    @classmethod
    def read(cls, path: Path) -> Graph:
        """Parse a file.

        Raises:
            ConfigurationError: ``onnx`` is not installed.
            FileFormatError: no ONNX model, or none that is whole, too large, with nodes in a circle, or with
                operators of its own in the place of standard ones.
        """
        model = read_model(path)
        if not model.graph.node:
            raise FileFormatError(f"{path} is no ONNX model, or its graph is empty")
        own = [f.name for f in model.functions if f.domain in DOMAINS]
        if own:
            raise FileFormatError(f"{path} defines the standard operator {own[0][:60]!a} itself")
        lacks = [("inputs", model.graph.input), ("outputs", model.graph.output), ("opset", model.opset_import)]
        missing = [word for word, held in lacks if not held]
        if missing:
            raise FileFormatError(f"{path} is no whole ONNX model: it has no {' and no '.join(missing)}")
        try:
            return cls(model.graph, None, model.opset_import)
        except FileFormatError as error:
            raise FileFormatError(f"{path}: {error}") from error

    def constant(self, name: str) -> np.ndarray | None:
        """The value of a name when it does not depend on any input, else ``None``."""
        for each in postorder(name, self._folds, self._cache.__contains__, lambda _: None):
            self._cache[each] = self._fold(each)  # a circle, which no valid graph has, is no constant
        return self._cache[name]

    def _folds(self, name: str) -> list[str]:
        """What must be constant for a name to be."""
        node = None if name in self.initializers else self.producers.get(name)
        if node is None or node.op_type not in FOLDED or node.domain not in DOMAINS:
            return []
        return [i for i in node.input if i]

    def _fold(self, name: str) -> np.ndarray | None:
        if name in self.initializers:
            return _stored(self.initializers[name], name)
        node = self.producers.get(name)
        if node is None:
            return None if self.outer is None else self.outer.constant(name)
        if node.domain not in DOMAINS or node.op_type not in (*FOLDED, "Constant"):
            return None
        values = {i: self._cache.get(i) for i in node.input if i}
        if node.op_type == "Identity" and len(node.input) == 1:
            return self._cache.get(node.input[0])
        return None if any(v is None for v in values.values()) else self._evaluate(node, values, name)

    def _evaluate(self, node: Any, values: dict[str, Any], name: str) -> np.ndarray | None:
        from onnx import TensorProto
        from onnx.reference.op_run import RuntimeTypeError

        try:
            options = attributes(node)
            if node.op_type == "Constant":
                if list(options) == ["value"]:
                    return _stored(options["value"], name)
                if "sparse_value" in options:
                    return None
            if node.op_type == "Cast" and options.get("to") == TensorProto.STRING:
                return None
            entries = entries_of(node, [values.get(i) for i in node.input], options)
            self.budget.take(entries, name)
            (operator,) = self._operators([node], values, [name])
            with np.errstate(all="ignore"):
                results = operator.run(*(values.get(i) for i in node.input))
            result = dict(zip(node.output, results))[name]
        except FileFormatError:
            raise
        except (RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeTypeError):
            return None
        if result is None:
            return None
        result = np.asarray(result)
        if any(np.may_share_memory(result, v) for v in values.values()):
            self.budget.left += entries  # another view of the same numbers
        return result

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
            FileFormatError: a value with too many entries.
            StabilityError: what a node's own reading raised.
            UnsupportedError: a value that is neither fed nor constant, or an operator that cannot be evaluated.
        """
        key = (tuple(outputs), *((name, value.shape, value.dtype) for name, value in feeds.items()))
        try:
            if key not in self._evaluators:
                self._evaluators[key] = self._piece(outputs, feeds)
            operators, constants = self._evaluators[key]
            results: dict[str, Any] = {"": None, **constants, **feeds}
            with np.errstate(all="ignore"):
                for operator in operators:
                    node = operator.onnx_node
                    given = [results[i] for i in node.input]
                    entries = entries_of(node, given, attributes(node))
                    if entries > UNFOLDED:
                        raise FileFormatError(f"the ONNX value {node.output[0][:60]!a} has {entries} entries")
                    results.update(zip(node.output, operator.run(*given)))
            return [np.asarray(results[name]) for name in outputs]
        except StabilityError:
            raise
        except Exception as error:
            reason = str(error).strip().partition("\n")[0][:120]
            raise UnsupportedError(
                f"onnx's reference evaluator cannot run it: {type(error).__name__}: {reason}"
            ) from error

    def _piece(
        self, outputs: Sequence[str], feeds: Mapping[str, np.ndarray]
    ) -> tuple[list[Any], dict[str, np.ndarray]]:
        """The operators between what is fed and what is wanted, made once, and the constants that they read."""
        wanted, seen, constants = list(outputs), set(feeds), {}
        needed: set[int] = set()
        while wanted:
            name = wanted.pop()
            if not name or name in seen:
                continue
            seen.add(name)
            constant, node = self.constant(name), self.producers.get(name)
            if constant is not None:
                constants[name] = np.asarray(constant, order="C")  # which leaves a number without axes one
            elif node is None:
                raise UnsupportedError(f"the value {name} comes from outside and cannot be run beside its system")
            elif node.op_type not in RUN or node.domain not in DOMAINS:
                raise UnsupportedError(f"the operator {node.op_type} is not run beside a system")
            else:
                needed.add(id(node))
                wanted.extend(node.input)
        nodes = [node for node in self.nodes if id(node) in needed]
        return self._operators(nodes, {**feeds, **constants}, outputs), constants

    def _operators(self, nodes: list[Any], given: Mapping[str, np.ndarray], outputs: Sequence[str]) -> list[Any]:
        """Nodes as operators of onnx's reference evaluator, for values of the given kinds and shapes."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()
        ]
        ends = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(nodes, self.proto.name, inputs, ends)
        return list(ReferenceEvaluator(helper.make_model(graph, opset_imports=self.opsets or None)).rt_nodes_)


def _stored(tensor: Any, name: str) -> np.ndarray:
    """The numbers of a stored tensor, whose shape must be that of its bytes."""
    from onnx import numpy_helper

    count = math.prod(tensor.dims)
    if any(d < 0 for d in tensor.dims) or count > tensor.ByteSize() * 2:  # nothing is narrower than half a byte
        raise FileFormatError(
            f"the ONNX constant {name[:60]!a} claims the shape {tuple(tensor.dims)[:8]}, more than it holds"
        )
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, LookupError, RuntimeError, AttributeError, ArithmeticError) as error:
        raise FileFormatError(f"the ONNX constant {name[:60]!a} is damaged ({str(error)[:120]})") from error


def inputs_of(node: Any) -> list[str]:
    """Every name that a node reads, inner graphs included."""
    names = list(node.input)
    for attribute in node.attribute:
        for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            names.extend(name for part in inner.node for name in inputs_of(part))
            names.extend(value.name for value in inner.output)
    return names


def _needs(node: Any) -> set[str]:
    """What must be computed before a node: its inputs, and what its inner graphs read from outside."""
    names = set(node.input)
    for attribute in node.attribute:
        for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            read = {value.name for value in inner.output}.union(*map(_needs, inner.node))
            own = {value.name for value in (*inner.input, *inner.initializer)}
            names |= read - own - {name for part in inner.node for name in part.output}
    return names


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

    def python_value(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return [python_value(v) for v in value] if isinstance(value, (list, tuple)) else value

    names = [a.name for a in node.attribute]
    if len(set(names)) < len(names):
        raise FileFormatError(f"the ONNX node {name_of(node)[:60]!a} has the same attribute twice")
    return {a.name: python_value(helper.get_attribute_value(a)) for a in node.attribute}
