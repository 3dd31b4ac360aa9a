"""Whole networks in ONNX graphs: recurrent nodes, their last or mean output, and a linear head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.errors import StabilityError, UnsupportedError
from stability.kernel.systems.classifier import REDUCTIONS, Classifier

from ..affine import Affine
from ..classifier import LENGTHS, agree_on, agrees_far
from ..classifier_network import ClassifierNetwork
from ..readers.closure import closure
from ..wrapped import two_rows
from .algebra import Body
from .graph import DOMAINS, Graph, attributes, evaluator, in_double, name_of, read_names, refuse_rounding
from .loops import size_of
from .sizes import RESHAPES
from .wire import tensors_of

Array = np.ndarray
_AT_THE_END = ("Softmax", "LogSoftmax")
_PASSED = ("Identity", "Cast", "Dropout")
_FORMS = (*RESHAPES, "Transpose", "Slice")
_REDUCTIONS = ("Gather", "ReduceMean")
_MAX_ENTRIES = 2**22
"""Most entries of a trial input."""
_END_OF_AXIS = 2**31 - 1
"""Smallest end that exporters write for a slice up to the end of an axis."""
_COMPARED = 8
"""Number of sequences on which network and graph are compared at each new length."""


class OnnxGraph:
    """Graph of a file from sequences ``(batch, time, features)`` to logits, run by onnx's reference evaluator.

    The evaluator gets the nodes and the stored numbers of the file, in float64, but no system read from them.

    Args:
        graph: the graph; its guarded run of each new shape limits the memory of the evaluator.
        logits: name of the logits.
        batch_first: True if the first axis of the input is the batch, False if it is the time.
        dtype: dtype of the input in the file.

    Attributes:
        steps: the declared number of time steps; zero if none is declared.
    """

    def __init__(self, graph: Graph, logits: str, batch_first: bool, dtype: Any) -> None:
        self._input = _inputs(graph)[0].name
        outer = graph.sizes(self._input, (0, 0, 0))[:2]
        self._batch, self.steps = outer if batch_first else outer[::-1]
        self._graph, self._logits, self._batch_first, self._dtype = graph, logits, batch_first, dtype
        self._evaluator = evaluator(_in_float64(graph, logits, self._input))
        self._shapes: set[tuple[int, ...]] = set()
        self._lengths: set[int] = set()

    def __deepcopy__(self, memo: Any) -> OnnxGraph:
        return self

    def __call__(self, x: Tensor) -> Tensor:
        """Return the logits; copies of the last sequence fill a declared batch size.

        Raises:
            UnsupportedError: sequences that are too large, or that the graph refuses.
        """
        rows, rows_of_logits = self._batch or len(x), []
        for at in range(0, len(x), rows):
            part = x.numpy()[np.minimum(np.arange(at, at + rows), len(x) - 1)]
            part = np.ascontiguousarray(part if self._batch_first else part.swapaxes(0, 1))
            if part.shape not in self._shapes:
                if part.size > _MAX_ENTRIES:
                    raise UnsupportedError(f"sequences {part.shape} have more than {_MAX_ENTRIES} entries")
                self._graph.run([self._logits], {self._input: part.astype(self._dtype)})
                self._shapes.add(part.shape)
            with np.errstate(all="ignore"):
                rows_of_logits += self._evaluator.run(None, {self._input: part})  # type: ignore[arg-type]
        return torch.from_numpy(np.concatenate(rows_of_logits)[: len(x)])

    def check(self, subject: Classifier, x: Tensor) -> None:
        """Compare a classifier with the graph on sequences of a length that was not compared before.

        Raises:
            DisagreementError: the logits differ.
            UnsupportedError: the graph refuses sequences of this length.
        """
        rows = x[:_COMPARED].detach().cpu().double()
        if x.shape[1] not in self._lengths and rows.isfinite().all():
            agree_on(self, subject, rows.numpy())
            self._lengths.add(x.shape[1])


def _in_float64(graph: Graph, logits: str, source: str) -> Any:
    """Return the nodes that the logits depend on, with the stored numbers of the file, as a model in float64."""
    from onnx import TensorProto, helper, numpy_helper

    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)
    needed = closure([logits], lambda name: graph.producers[name].input if name in graph.producers else ())
    nodes = [in_double(node) for node in graph.nodes if not needed.isdisjoint(node.output)]
    held = [tensor for name, tensor in graph.initializers.items() if name in needed]
    read, written = ([helper.make_empty_tensor_value_info(name)] for name in (source, logits))
    graph_copy = helper.make_graph(nodes, "logits", read, written, held)  # copies of all of them
    for tensor in tensors_of(graph_copy):
        if tensor.data_type in floats:
            values = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    return helper.make_model(graph_copy, opset_imports=graph.opsets)


def onnx_network(graph: Graph, nodes: list[Any], subject: Any) -> ClassifierNetwork:
    """Return the network of a graph: recurrent nodes in a chain, the reduction of their outputs, a linear head.

    A softmax at the end is omitted: the outputs are the logits before it. Every node between the input and the head
    must change axes, or take the last step or the mean of all steps. The graph itself is then compared with the network
    (``OnnxGraph``), on several lengths or the declared one, and on inputs of sizes up to 1e4.

    Args:
        graph: the graph.
        nodes: its recurrent nodes, in a chain.
        subject: the system that was read from them.

    Returns:
        The network, for sequences ``(batch, time, features)`` in any order of the graph's axes, in its precision.

    Raises:
        UnsupportedError: the graph has another form; the message names the obstacle.
        DisagreementError: the graph and the network read from it differ.
    """
    logits, read, weight, bias = _linear_head(graph)
    inputs = _inputs(graph)
    if len(inputs) != 1:
        raise UnsupportedError(f"the graph has {len(inputs)} inputs, expected one, the sequence")
    for node, source in zip(nodes, [inputs[0].name, *(node.output[0] for node in nodes[:-1])]):
        _refuse_start(graph, node)
        _refuse_unread(graph, node.input[0], [source], _FORMS, f"before the node {name_of(node)}")
    outputs = [name for name in nodes[-1].output[:2] if name]
    _refuse_unread(graph, read, outputs, (*_FORMS, *_REDUCTIONS), "between the recurrent part and the head")
    dtype, layout = np.asarray(graph.constant(nodes[0].input[1])).dtype, bool(attributes(nodes[0]).get("layout"))
    errors: list[StabilityError] = []
    for batch_first in (layout, not layout):
        run = OnnxGraph(graph, logits, batch_first, dtype)
        for reduction in REDUCTIONS:
            network = Classifier(subject, *two_rows(weight, bias), reduction)
            try:
                agrees_far(run, network, (run.steps,) if run.steps else LENGTHS)
            except StabilityError as error:
                errors.append(error)
            else:
                single = torch.float32 if dtype == np.float32 else torch.float64
                return ClassifierNetwork(network, single, run).eval()
    errors.sort(key=lambda error: " answers " in str(error))  # such an error only means the other order of axes
    raise errors[0]


def _refuse_unread(graph: Graph, name: str, sources: Sequence[str], operators: Sequence[str], where: str) -> None:
    """Raise an error for every node between a value and its sources whose operator is not among those given.

    Raises:
        UnsupportedError: another operator, a slice other than the last step or all of them, a cast that rounds, or
            shapes and indices that depend on the values of the input.
    """
    inputs = {value.name for value in _inputs(graph)}
    end, walked = graph.source(name, operators)
    if end not in sources:
        node = graph.producers.get(end)
        description = "another input" if node is None else f"{name_of(node)} ({node.op_type})"
        raise UnsupportedError(f"{where} stands {description}: only axis changes, last step or mean are read")
    for node in walked:
        refuse_rounding(graph, node, where)
        if node.op_type == "Slice" and not _is_whole_or_last(graph, node):
            raise UnsupportedError(f"{where} {name_of(node)} slices out a window, not the last step")
        if inputs & closure(node.input[1:], lambda value: values_read(graph, value)):
            raise UnsupportedError(f"{where} {name_of(node)} takes a shape or an index from the input's values")


def values_read(graph: Graph, name: str) -> set[str]:
    """Return the names of the values that a value depends on; a shape depends on none."""
    node = graph.producers.get(name)
    return set() if node is None or node.op_type == "Shape" else read_names(node)


def _is_whole_or_last(graph: Graph, node: Any) -> bool:
    """Return True if a ``Slice`` takes all entries or the last one along each of its axes."""
    options, operands = attributes(node), [graph.constant(name) if name else None for name in node.input[1:]]
    starts, ends = operands[:2] if len(operands) > 1 else (options.get("starts"), options.get("ends"))
    if starts is None or ends is None or (len(node.input) > 4 and node.input[4] and operands[3] is None):
        return False
    steps = operands[3] if len(operands) > 3 and operands[3] is not None else 1
    return bool(np.isin(starts, (0, -1)).all() and np.all(np.asarray(ends) >= _END_OF_AXIS) and np.all(steps == 1))


def _linear_head(graph: Graph) -> tuple[str, str, Array, Array]:
    """Return the names of the logits and of the head's input, and the head: ``weight (k, n)``, ``bias (k,)``."""
    name = logits = graph.proto.output[0].name
    while (node := graph.producers.get(name)) is not None and node.domain in DOMAINS:
        if node.op_type in _AT_THE_END and name == logits:
            if attributes(node).get("axis", -1) not in (-1, 1):
                raise UnsupportedError(f"{name_of(node)} is a softmax over another axis than the classes")
            logits = node.input[0]
        elif node.op_type in ("MatMul", "Gemm"):
            body, read = Body(graph), node.input[0]
            body.values[read] = body.symbol(read, size_of(graph, read) or 0)
            value = body.read(logits)
            if isinstance(value, Affine) and value.terms.keys() == {read}:
                return logits, read, value.terms[read], np.broadcast_to(value.offset, (value.size,)).copy()
        elif node.op_type not in (*_PASSED, "Add"):
            break
        name = next((other for other in node.input if graph.constant(other) is None), "")
    raise UnsupportedError("its outputs are no linear function of what its recurrent part puts out (a MatMul or Gemm)")


def _refuse_start(graph: Graph, node: Any) -> None:
    """Raise an error for a node that does not run forward from zero states, or reads sequence lengths.

    Zeros computed from the shape of the input are accepted here; the comparison with the graph checks them.

    Raises:
        UnsupportedError: such a node.
    """
    if attributes(node).get("direction", "forward") != "forward":
        raise UnsupportedError(f"the node {name_of(node)} must run forward for a known head")
    if len(node.input) > 4 and node.input[4]:
        raise UnsupportedError(f"the node {name_of(node)} reads sequence lengths: export the network without them")
    inputs = {value.name for value in _inputs(graph)}
    for start in filter(None, list(node.input[5:7])):
        value = graph.constant(start)
        if inputs & closure([start], lambda name: values_read(graph, name)) or (value is not None and value.any()):
            raise UnsupportedError(f"the node {name_of(node)} does not start from zero, as claims here do")


def _inputs(graph: Graph) -> list[Any]:
    return [value for value in graph.proto.input if value.name not in graph.initializers]
