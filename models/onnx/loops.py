r"""Cells inside ``Scan`` and ``Loop``, read as algebra from the body.

Every value in the body is read as an affine expression :math:`\sum_s M_s s + c` in the states, the inputs and the
outputs of the activations read so far. An activation of such an expression is a new channel. The expression of the next
state is then a Lur'e system: :math:`h^+ = A h + B w + F x`, :math:`z = C h + D w + E x + b`, :math:`w = \phi(z)`.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np

from stability.errors import (
    ConfigurationError,
    DisagreementError,
    FileFormatError,
    NonFiniteError,
    StabilityError,
    UnsupportedError,
)
from stability.kernel.systems.gated_cell import GatedCell
from stability.systems import DrivenSystem, LureSystem

from ..adapters.cross_check import GRAPH_ADVICE, Run, compare
from ..affine import Affine, ChannelMap
from ..readers.closure import closure
from ..readers.limits import LOOP_NODES, LOOP_VALUES, STEP_INPUTS
from .algebra import Body
from .gates import gated_cell
from .graph import DOMAINS, Graph, attributes, name_of, read_names
from .sizes import RESHAPES

Array = np.ndarray
System = DrivenSystem | LureSystem | GatedCell
_ATTRIBUTES = {
    *("body", "num_scan_inputs", "scan_input_axes", "scan_input_directions", "scan_output_axes"),
    *("scan_output_directions", "directions"),
}
_READ = "only affine maps, tanh, ReLU, sigmoid, saturation, dead zone and the gates of an LSTM or GRU are read"
_STEP = "the graph is one step, whose sizes do not tell which output is the next value of which input"


def loop_subject(graph: Graph, node: Any) -> System:
    """Return the system inside a ``Scan`` or ``Loop`` node.

    Args:
        graph: the graph around it.
        node: the node.

    Returns:
        A discrete ``DrivenSystem``; a ``LureSystem`` for several kinds of activations; a ``GatedCell`` for the gates of
        an LSTM or GRU.

    Raises:
        FileFormatError: a node without a body, or one whose names and values do not match.
        NonFiniteError: a stored number that the states depend on is NaN or infinite.
        DisagreementError: the system that was read gives other numbers than the body.
        UnsupportedError: an operation other than affine maps and known activations; the message names it.
    """
    where = f"{node.op_type} node {name_of(node)}"
    body, carried, entries, results = _opened(graph, node, where)
    return _checked(body, where, _states(body.graph, carried, results), entries)


def step_subject(graph: Graph, named: str | None) -> System | None:
    """Return the system of a graph that is one step: states are inputs, and their next values are outputs.

    Each output of the size of an input is the next value of a state. If sizes leave a choice, only the states of an
    LSTM can be distinguished, by its gates.

    Args:
        graph: the graph.
        named: ``state=next`` pairs, separated by commas, in place of the choice by sizes.

    Returns:
        The system; ``None`` if no output has the size of an input, or if every input is a state.

    Raises:
        ConfigurationError: the states have to be named, or the given names do not exist.
        StabilityError: an error while reading the step.
    """
    inputs = [value.name for value in graph.proto.input if value.name not in graph.initializers]
    outputs = [value.name for value in graph.proto.output]
    shapes = {name: graph.shape(name) or [0] for name in (*inputs, *outputs)}
    sizes = {name: shape[-1] if max(shape[:-1], default=1) <= 1 else None for name, shape in shapes.items()}
    candidates = [name for name in outputs if sizes[name] and sizes[name] in [sizes[other] for other in inputs]]
    if not candidates or not 1 < len(inputs) <= STEP_INPUTS or len(graph.nodes) > LOOP_NODES:
        return None
    choices = [list(zip(states, candidates)) for states in permutations(inputs, len(candidates))]
    choices = [pairs for pairs in choices if all(sizes[state] == sizes[end] for state, end in pairs)]
    if named is not None:
        choices = [[(state, end) for state, _, end in (pair.partition("=") for pair in named.split(","))]]
    readings, errors = [], []
    for pairs in choices:
        entries = [name for name in inputs if name not in dict(pairs)]
        try:
            readings.append(_checked(Body(graph), "the graph of one step", pairs, entries))
        except StabilityError as error:
            errors.append(error)
    if errors and not readings:
        raise errors[0]
    selected = readings if len(choices) == 1 else [read for read in readings if isinstance(read, GatedCell)]
    if len(selected) != 1:
        raise ConfigurationError(f"{_STEP}: name them, as in FILE#{inputs[-1]}={candidates[-1]}")
    return selected[0]


def _checked(body: Body, where: str, pairs: list[tuple[str, str]], entries: list[str]) -> System:
    for name in sorted(set().union(*(_reads(body.graph, result) for _, result in pairs))):
        array = body.graph.constant(name)
        if array is not None and array.dtype.kind == "f" and not np.isfinite(array).all():
            raise NonFiniteError(f"{where}: the constant {name[:60]!a} of the file")
    try:
        return _read(body, where, pairs, entries)
    except (DisagreementError, FileFormatError):
        raise
    except (StabilityError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise UnsupportedError(f"{where}: {error}; {_READ}") from error


def _read(body: Body, where: str, pairs: list[tuple[str, str]], entries: list[str]) -> System:
    if not pairs:
        raise UnsupportedError("no carried value depends on its own past")
    for name in (*(state for state, _ in pairs), *entries):
        size = size_of(body.graph, name)  # ``None`` for an input that no state depends on
        if size is None and name not in entries:
            raise UnsupportedError(f"the size of {name} is not given")
        if size is not None:
            body.values[name] = body.symbol(name, size)
            body.inputs += [name] if name in entries else []
    following = []
    for state, result in pairs:
        value = body.read(result)
        if not isinstance(value, Affine) or value.size != body.sizes[state]:
            raise UnsupportedError(f"the state {state} and its next value differ in size")
        following.append(value)
    states, inputs = ([(name, body.sizes[name]) for name in names] for names in ([s for s, _ in pairs], body.inputs))
    # the slope 0.1 in float32 is read as the decimal 0.1; gates are recognized only by the values that they multiply
    relative = 1e-5 if any(kind == "leaky_relu" for _, kind, _ in body.channels) else 1e-12 if body.products else 1e-9
    if body.products:
        read, names = gated_cell(body, [state for state, _ in pairs])
        pairs = sorted(pairs, key=lambda pair: names.index(pair[0]))
    else:
        read = ChannelMap.of(body.channels, states, inputs, following)
    compare(_reference(body, pairs), read, where, relative=relative, advice=GRAPH_ADVICE)
    name = f"ONNX {'step' if body.graph.outer is None else where.split()[0]}"
    return read if isinstance(read, GatedCell) else read.subject(name)


def _opened(graph: Graph, node: Any, where: str) -> tuple[Body, list[str], list[str], list[str]]:
    """Return the body of a node, and the names of its carried values, its inputs per step, and its results.

    Raises:
        FileFormatError: no body, a body that is too large, or one with fewer results than carried values.
        UnsupportedError: unknown attributes.
    """
    options = attributes(node)
    proto: Any = options.get("body")
    scanned = int(options.get("num_scan_inputs", 0))
    if not hasattr(proto, "node") or (node.op_type == "Scan" and not 0 < scanned < len(proto.input)):
        raise FileFormatError(f"{where} has no body, or does not declare its inputs")
    if len(proto.node) > LOOP_NODES or len(proto.input) > LOOP_VALUES:
        raise FileFormatError(f"{where}: a body of more than {LOOP_NODES} nodes or {LOOP_VALUES} inputs is not read")
    unknown = sorted(set(options) - _ATTRIBUTES)
    if unknown:
        raise UnsupportedError(f"{where} has the attribute {unknown[0][:60]!a}, which is not known here")
    names, results = [v.name for v in proto.input], [v.name for v in proto.output]
    body = Body(Graph(proto, graph))
    if node.op_type == "Scan":
        carried, entries = names[:-scanned], names[-scanned:]
    else:
        carried, entries, results = names[2:], _gathered(body.graph, names), results[1:]
    if len(results) < len(carried):
        raise FileFormatError(f"{where}: its body gives fewer values than it carries")
    return body, carried, entries, results


def _states(graph: Graph, carried: list[str], results: list[str]) -> list[tuple[str, str]]:
    """Return the carried values with a memory, each with the name of its next value.

    A value has a memory if its next value depends on its past, directly or through other values. Carried values that
    such values depend on are included; values that only pass through are not.
    """
    updates = dict(zip(carried, results))
    reads = {s: _reads(graph, r) & set(carried) for s, r in updates.items() if graph.source(r, ["Identity"])[0] != s}
    reach = {s: closure(reads[s], lambda name: reads.get(name, ())) for s in reads}
    state_names: set[str] = set()
    for state, seen in reach.items():
        if state in seen:
            state_names |= {state, *seen}
    return [(s, r) for s, r in updates.items() if s in state_names and s in reads]


def _reads(graph: Graph, result: str) -> set[str]:
    """Return every name that a value is computed from, inner graphs included."""
    producers = graph.producers
    return closure([result], lambda name: read_names(producers[name]) if name in producers else ())


def _gathered(graph: Graph, names: list[str]) -> list[str]:
    """Return the values that a ``Loop`` gathers from outside by its counter: the inputs of this step.

    A value whose index also depends on a carried value is feedback, not an input. ``names`` are the counter, the
    condition and the carried values.
    """
    gathered, counter, carried = [], set(names[:1]), set(names[2:])
    for node in graph.nodes:
        if node.op_type == "Gather" and node.domain in DOMAINS and len(node.input) == 2 and node.output:
            read = _reads(graph, node.output[0])
            if graph.producers.get(node.input[0]) is None and read & counter and not read & carried:
                gathered.append(node.output[0])
    return gathered


def size_of(graph: Graph, name: str) -> int | None:
    """Return the size of a vector by its declared shape, that of its sequence, or the matrix that multiplies it."""
    node = graph.producers.get(name)
    sequence = graph.outer.shape(node.input[0]) if node is not None and graph.outer is not None else []
    declared = (graph.shape(name) or sequence or [0])[-1]
    if declared:
        return declared
    alias = {name}
    for node in graph.nodes:
        if node.op_type in RESHAPES and node.input[0] in alias:
            alias.add(node.output[0])
        if node.op_type in ("MatMul", "Gemm") and node.input[0] in alias:
            matrix = graph.constant(node.input[1])
            if matrix is not None and matrix.ndim == 2:
                return matrix.shape[1 if node.op_type == "Gemm" and attributes(node).get("transB") else 0]
    return None


def _reference(body: Body, pairs: list[tuple[str, str]]) -> Run:
    """Return a run of the body by onnx's reference evaluator, one sample and one step at a time."""
    names, results = [*(state for state, _ in pairs), *body.inputs], [result for _, result in pairs]
    offsets = np.cumsum([body.sizes[name] for name in names])[:-1]

    def run(x: Array, start: list[Array]) -> tuple[None, list[Array]]:
        rows = []
        for sample, state in enumerate(start[0]):
            for step in x:
                parts = np.split(np.concatenate([state, step[sample]]), offsets)
                feeds = {name: body.shaped(name, part) for name, part in zip(names, parts)}
                state = np.concatenate([value.ravel() for value in body.graph.run(results, feeds)])
            rows.append(state)
        return None, [np.array(rows)]

    return run
