r"""Cells inside ``Scan`` and ``Loop``: the body is read as algebra, not matched against a list of patterns.

Every value in the body is followed as an affine expression :math:`\sum_s M_s s + c` in the states, the inputs and the
outputs of the activations met so far. An activation of such an expression is a new channel. What comes out as the next
state then *is* a Lur'e system: :math:`h^+ = A h + B w + F x`, :math:`z = C h + D w + E x + b`, :math:`w = \phi(z)`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.errors import DisagreementError, FileFormatError, NonFiniteError, StabilityError, UnsupportedError
from stability.systems import DrivenSystem, LureSystem

from ..adapters.cross_check import GRAPH_ADVICE, Run, compare
from ..affine import Affine, ChannelMap
from ..readers.limits import LOOP_NODES, LOOP_VALUES
from ..readers.postorder import closure
from .algebra import Body
from .graph import DOMAINS, Graph, attributes, inputs_of, name_of
from .sizes import RESHAPES

Array = np.ndarray
_ATTRIBUTES = {
    *("body", "num_scan_inputs", "scan_input_axes", "scan_input_directions", "scan_output_axes"),
    *("scan_output_directions", "directions"),
}


@np.errstate(all="ignore")  # numbers that are not finite are told by their names
def loop_subject(graph: Graph, node: Any) -> DrivenSystem | LureSystem:
    """The system inside a ``Scan`` or ``Loop`` node.

    Args:
        graph: the graph around it.
        node: the node.

    Returns:
        A discrete ``DrivenSystem``; a ``LureSystem`` where several kinds of activations meet.

    Raises:
        FileFormatError: a node without a body, or one whose names and values do not match.
        NonFiniteError: a stored number that the states depend on is NaN or infinite.
        StabilityError: what reading the body raised.
        UnsupportedError: anything but affine maps and known activations; the text says what was met.
    """
    body, carried, entries, results = _opened(graph, node)
    pairs = _states(body.graph, carried, results)
    if not pairs:
        raise body.refuse("no carried value depends on its own past")
    _declare(body, [state for state, _ in pairs], entries)
    following = [body.read(r) for _, r in pairs]
    for (state, _), value in zip(pairs, following):
        if not isinstance(value, Affine) or value.size != body.sizes[state]:
            raise body.refuse(f"the next value of {state} has another size than itself")
    try:
        return _assemble(body, pairs, following)  # type: ignore[arg-type]
    except StabilityError as error:
        held = _not_finite(body.graph, [result for _, result in pairs])
        if held is not None:
            raise NonFiniteError(f"{body.where}: the constant {held[:60]!a} of the file") from error
        if isinstance(error, (UnsupportedError, DisagreementError)):
            raise
        raise UnsupportedError(f"{body.where}: the loop is no system: {error}") from error


def _not_finite(graph: Graph, results: list[str]) -> str | None:
    """A stored constant with NaN or infinities that some values are computed from."""
    for name in sorted(set().union(*(_reads(graph, result) for result in results))):
        value = None if graph.producers.get(name) is not None and inputs_of(graph.producers[name]) else name
        array = None if value is None else graph.constant(value)
        if array is not None and array.dtype.kind == "f" and not np.isfinite(array).all():
            return name
    return None


def _opened(graph: Graph, node: Any) -> tuple[Body, list[str], list[str], list[str]]:
    """The body of a node, with the names of what it carries, of what it reads each step, and of its results.

    Raises:
        FileFormatError: no body, too large, or one that gives fewer values than it carries.
        UnsupportedError: attributes that are not known here.
    """
    options = attributes(node)
    where = f"{node.op_type} node {name_of(node)}"
    proto = options.get("body")
    scanned = int(options.get("num_scan_inputs", 0))
    if proto is None or (node.op_type == "Scan" and not 0 < scanned < len(proto.input)):
        raise FileFormatError(f"{where} has no body, or does not say what it reads")
    if not hasattr(proto, "node") or len(proto.node) > LOOP_NODES or len(proto.input) > LOOP_VALUES:
        raise FileFormatError(
            f"{where}: of the body of a loop at most {LOOP_NODES} nodes and {LOOP_VALUES} inputs are read"
        )
    unknown = sorted(set(options) - _ATTRIBUTES)
    if unknown:
        raise UnsupportedError(f"{where} has the attribute {unknown[0][:60]!a}, which is not known here")
    body = Body(Graph(proto, graph), where)
    names = [value.name for value in proto.input]
    if len(set(names)) < len(names):
        raise FileFormatError(f"{where}: two inputs of its body have one name")
    results = [value.name for value in proto.output]
    if node.op_type == "Scan":
        carried, entries = names[:-scanned], names[-scanned:]
    else:
        carried, entries, results = names[2:], _gathered(body.graph, names), results[1:]
    if len(results) < len(carried):
        raise FileFormatError(f"{where}: its body gives fewer values than it carries")
    return body, carried, entries, results


def _declare(body: Body, states: list[str], entries: list[str]) -> None:
    """Make states and inputs the variables of a body; an input that the states never read has no size."""
    for name in (*states, *entries):
        size = _size(body.graph, name)
        if size is None and name in states:
            raise body.refuse(f"the size of {name} is not given")
        if size is not None:
            body.values[name] = body.symbol(name, size)
            body.inputs += [name] if name in entries else []


def _states(graph: Graph, carried: list[str], results: list[str]) -> list[tuple[str, str]]:
    """Carried values with a memory, each with the name of its next value.

    Those that go round in a circle, alone or with others, and whatever these read; not those that are handed through.
    """
    after = dict(zip(carried, results))
    reads = {s: _reads(graph, r) & set(carried) for s, r in after.items() if not _same(graph, r, s)}
    reach = {s: closure(reads[s], lambda name: reads.get(name, ())) for s in reads}
    kept: set[str] = set()
    for state, seen in reach.items():
        if state in seen:
            kept |= {state, *seen}
    return [(s, r) for s, r in after.items() if s in kept and s in reads]


def _reads(graph: Graph, result: str) -> set[str]:
    """Every name that a value is computed from, inner graphs included."""
    producer = graph.producers.get
    return closure([result], lambda name: inputs_of(producer(name)) if producer(name) is not None else ())


def _same(graph: Graph, result: str, state: str) -> bool:
    seen: set[str] = set()
    while result != state:
        node = graph.producers.get(result)
        if node is None or node.op_type != "Identity" or node.domain not in DOMAINS or result in seen or not node.input:
            return False
        seen.add(result)
        result = node.input[0]
    return True


def _gathered(graph: Graph, names: list[str]) -> list[str]:
    """Values that a ``Loop`` picks from outside by its counter: the inputs of this step.

    What is picked by a carried value as well is no input: it is fed back. ``names`` are the counter, the condition and
    the carried values.
    """
    found, counter, carried = [], set(names[:1]), set(names[2:])
    for node in graph.nodes:
        if node.op_type == "Gather" and node.domain in DOMAINS and len(node.input) == 2 and node.output:
            read = _reads(graph, node.output[0])
            if graph.producers.get(node.input[0]) is None and read & counter and not read & carried:
                found.append(node.output[0])
    return found


def _size(graph: Graph, name: str) -> int | None:
    """Entries of a vector in the body: from its declared shape, else from the matrix that it meets."""
    for value in (*graph.proto.input, *graph.proto.value_info):
        dims = value.type.tensor_type.shape.dim if value.name == name else []
        if len(dims) and dims[-1].HasField("dim_value") and dims[-1].dim_value > 0:
            return int(dims[-1].dim_value)
    alias = {name}
    for node in graph.nodes:
        if node.op_type in RESHAPES and node.input[0] in alias:
            alias.add(node.output[0])
        if node.op_type in ("MatMul", "Gemm") and node.input[0] in alias:
            matrix = graph.constant(node.input[1])
            if matrix is not None and matrix.ndim == 2:
                return matrix.shape[1 if node.op_type == "Gemm" and attributes(node).get("transB") else 0]
    return None


def _assemble(body: Body, pairs: list[tuple[str, str]], following: list[Affine]) -> DrivenSystem | LureSystem:
    states, inputs = ([(name, body.sizes[name]) for name in names] for names in ([s for s, _ in pairs], body.inputs))
    read = ChannelMap.of(body.channels, states, inputs, following)
    # a cast to float32, or the slope 0.1 in float32, is read as if it did not round
    relative = 1e-5 if body.casts or "leaky_relu" in read.kinds else 1e-9
    compare(_reference(body, pairs), read, body.where, relative=relative, advice=GRAPH_ADVICE)
    return read.subject(f"ONNX {body.where.split()[0]}")


def _reference(body: Body, pairs: list[tuple[str, str]]) -> Run:
    """The body run by onnx's reference evaluator, one sample and one step at a time."""
    proto, states = body.graph.proto, [state for state, _ in pairs]

    def shaped(name: str, row: Array) -> Array:
        declared = next((v.type.tensor_type.shape.dim for v in proto.input if v.name == name), ())
        return row.reshape([1] * (len(declared) - 1) + [row.size]) if len(declared) else row[None]

    def split(row: Array, names: list[str]) -> dict[str, Array]:
        ends = np.cumsum([body.sizes[name] for name in names])[:-1]
        return {name: shaped(name, part) for name, part in zip(names, np.split(row, ends))}

    def run(x: Array, start: list[Array]) -> tuple[None, list[Array]]:
        rows = []
        for sample, state in enumerate(start[0]):
            for step in x:
                feeds = {**split(state, states), **split(step[sample], body.inputs)}
                state = np.concatenate([v.ravel() for v in body.graph.run([r for _, r in pairs], feeds)])
            rows.append(state)
        return None, [np.array(rows)]

    return run
