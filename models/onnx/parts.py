"""Recurrent parts of ONNX graphs: ``RNN``, ``LSTM``, ``GRU`` nodes, and cells in ``Scan`` and ``Loop`` bodies.

ONNX orders the gates i, o, f, c (LSTM) and z, r, h (GRU); they are put into torch's order here. A chain of nodes,
each reading the whole output of the one before, becomes a stack.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from stability.conversion.parts import subject_as_part
from stability.errors import ConfigurationError, DisagreementError, FileFormatError, StabilityError, UnsupportedError
from stability.kernel.format.serialization import encode
from stability.kernel.systems.layer_stack import LayerStack

from ..adapters.cross_check import GRAPH_ADVICE, Run, compare
from ..adapters.state_dicts import quote
from ..adapters.weights import RecurrentWeights
from ..readers.closure import closure
from ..readers.limits import LAYERS, UNFOLDED
from .graph import DOMAINS, Graph, attributes, name_of, refuse_rounding
from .heads import onnx_network, values_read
from .loops import loop_subject, step_subject
from .sizes import RECURRENT, RESHAPES

Subject = Any
Array = np.ndarray
_FORMS = (*RESHAPES, "Transpose")
_USUAL = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
_ORDER = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}
"""Order of the gates as in torch: r, z, n from z, r, h; i, f, g, o from i, o, f, c."""
_ATTRIBUTES = {"activations", "direction", "hidden_size", "layout", "output_sequence"}
_MAX_BATCH = 1024  # of a state that is numbered; a larger one fits no state
_OWN = {"RNN": set(), "GRU": {"linear_before_reset"}, "LSTM": {"input_forget"}}


def onnx_subject(path: str | Path, part: str | None = None) -> tuple[Subject, dict[str, Any]]:
    """Return the recurrent part of an ONNX file, and the whole network if the rest is a linear head.

    Args:
        path: the file.
        part: the name of the node to take where there are several that do not form one chain.

    Returns:
        The subject and its description: ``network`` is the network as a module, or the reason why there is none.

    Raises:
        StabilityError: an error while reading a part.
        FileFormatError: unreadable, truncated, or without a recurrent part.
        ConfigurationError: several parts and none named, or ``onnx`` is not installed.
        UnsupportedError: a variant without criterion (peepholes, clipping, coupled gates, other activations).
    """
    graph = Graph.read(Path(path))
    try:
        return _part(graph, str(path), part)
    except StabilityError:
        raise
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, MemoryError) as error:
        reason = f"{type(error).__name__}: {str(error)[:120]}"  # attributes of other types, inputs that are not there
        raise FileFormatError(f"{path} holds an invalid ONNX graph ({reason})") from error


def _part(graph: Graph, path: str, part: str | None) -> tuple[Subject, dict[str, Any]]:
    cells = [node for node in graph.nodes if _recurs(node)]
    if len(cells) > LAYERS:
        raise FileFormatError(f"{path} has {len(cells)} recurrent nodes; at most {LAYERS} are read")
    if not cells:
        return _step(graph, path, part)
    if len(cells) == 1 and cells[0].op_type == "If":
        return _inside_if(graph, cells[0], path, part)
    names = {name_of(node): node for node in cells}
    if len(names) < len(cells):
        names = {str(node.output[0]): node for node in cells}
    if part is not None and part not in names:
        raise ConfigurationError(f"{path} has no recurrent node {part!r}; it has {quote(names)}")
    cells = cells if part is None else [names[part]]
    nodes = [node for node in cells if node.op_type in _ORDER]
    if len(cells) > 1 and (len(nodes) < len(cells) or not _is_chain(graph, nodes)):
        raise ConfigurationError(
            f"{path} has {len(names)} recurrent nodes that form no chain: name one of {quote(names)}, as in FILE#NAME"
        )
    if cells[0].op_type == "If":
        subject = _inside_if(graph, cells[0], path, None)[0]
    else:
        subject = _chain(graph, nodes, path) if nodes else loop_subject(graph, cells[0])
    info = {"part": ", ".join(map(name_of, cells)), "nodes": cells[0].op_type if len(cells) == 1 else "chain"}
    if part is not None:
        return subject_as_part(subject, part, "onnx_graph"), info
    _refuse_changed_states(graph, nodes)
    return subject, {**info, "network": _network(graph, nodes, subject)}


def _step(graph: Graph, path: str, part: str | None) -> tuple[Subject, dict[str, Any]]:
    step = step_subject(graph, part)
    if step is not None:
        return step, {"part": part or "", "nodes": "one step", "network": "it is one step of a network"}
    kinds = sorted({node.op_type for node in graph.nodes})[:8]
    raise FileFormatError(
        f"{path} has no RNN, LSTM, GRU, Scan or Loop node, and is no step of one sample with its states as inputs and "
        f"outputs (it has {quote(kinds)}): where its loop was unrolled, export the layer as one node "
        "(torch.onnx.export(..., dynamo=False)), or give its state dict"
    )


def _recurs(node: Any) -> bool:
    """Return True for a recurrent node, a loop, and an ``If`` with one in a branch."""
    inside = (inner for branch in node.attribute if node.op_type == "If" for inner in branch.g.node)
    return node.domain in DOMAINS and (node.op_type in RECURRENT or any(map(_recurs, inside)))


def _inside_if(graph: Graph, node: Any, path: str, part: str | None) -> tuple[Subject, dict[str, Any]]:
    """Return the recurrent part inside the branches of an ``If``: of the one that runs, or where both hold the same.

    Raises:
        UnsupportedError: branches with other recurrent parts, of which the inputs choose one.
    """
    branches, condition = attributes(node), graph.constant(node.input[0])
    keys = ["then_branch", "else_branch"] if condition is None else [f"{'then' if condition else 'else'}_branch"]
    subgraphs = [Graph(branches[key], graph) for key in keys]
    readings = [_part(inner, path, part) for inner in subgraphs if any(map(_recurs, inner.nodes))]
    inside = [(inner, cell) for inner in subgraphs for cell in inner.nodes if cell.op_type in _ORDER and part is None]
    states = {name for inner, cell in inside for start in cell.input[5:7] for name in _from_outside(inner, start)}
    for output in (value.name for value in graph.proto.output):
        direct = graph.source(output, ["Identity"])[0] in node.output or not _read(graph, output) & {*node.output}
        for state in states:
            if state in graph.producers or (not direct and _fits(graph.shape(output), graph.shape(state))):
                _refuse_state(state, [cell for _, cell in inside])
    bare = [encode(subject) | {"part": None} for subject, _ in readings]
    if len(readings) < len(subgraphs) or any(other != bare[0] for other in bare):
        raise UnsupportedError(f"{path} holds an If whose branches recur differently: export one of them by itself")
    return readings[0][0], {**readings[0][1], "network": "what stands around an If is not read"}


def _refuse_changed_states(graph: Graph, nodes: list[Any]) -> None:
    """Refuse a graph that takes and gives states, for the next run to go on from, and changes them on their way.

    The last states of the nodes are numbered. Some output must give these numbers back where it is the next input.

    Raises:
        UnsupportedError: no output does, though one has the shape of the state.
    """
    last: dict[str, Array] = {}
    starts: list[tuple[str, Array, set[str]]] = []
    for node in nodes:
        directions, _, hidden = np.asarray(graph.constant(node.input[2])).shape
        first = bool(attributes(node).get("layout"))
        for k, start in enumerate(node.input[5:7]):
            outside = _from_outside(graph, start)
            declared = [graph.shape(name)[:1] if first else graph.shape(name)[-2:-1] for name in outside]
            batch = max([1, *(min(size, _MAX_BATCH) for sizes in declared for size in sizes)])
            numbers = 1.0 + len(last) * 2**20 + np.arange(batch * directions * hidden)
            numbers = numbers.reshape((batch, directions, hidden) if first else (directions, batch, hidden))
            last |= {[*node.output, "", ""][1 + k]: numbers}
            last |= {node.output[0]: numbers[:, None] if first else numbers[None]} if k == 0 else {}
            starts.append((start, numbers, outside))
    last.pop("", None)
    produced = {name for node in nodes for name in node.output if name}
    outputs = [value.name for value in graph.proto.output if produced & _read(graph, value.name)]
    values = {name: value for name in outputs for value in _computed(graph, [name], last)}
    for state in set().union(*(outside for *_, outside in starts)):
        names, wanted = zip(*((start, numbers) for start, numbers, outside in starts if state in outside))
        shape = graph.shape(state)
        shapes = (values[name].shape if name in values else graph.shape(name) or shape for name in outputs)
        back = (_computed(graph, names, {state: value}) for value in values.values() if _fits(value.shape, shape))
        same = any(results and all(map(np.array_equal, results, wanted)) for results in back)
        if not same and any(_fits(each, shape) for each in shapes):
            _refuse_state(state, nodes)


def _refuse_state(state: str, nodes: list[Any]) -> NoReturn:
    raise UnsupportedError(
        f"the graph changes the state {state} between one run and the next, which makes another map than that of its "
        f"node. For a claim about the node by itself: FILE#{name_of(nodes[0])}"
    )


def _read(graph: Graph, name: str) -> set[str]:
    return closure([name], lambda value: values_read(graph, value)) - {""}


def _from_outside(graph: Graph, name: str) -> set[str]:
    """Return the inputs, or values of an outer graph, that a value is computed from."""
    return {other for other in _read(graph, name) - graph.producers.keys() if graph.constant(other) is None}


def _computed(graph: Graph, names: Sequence[str], feeds: dict[str, Array]) -> list[Array]:
    try:
        return graph.run(names, feeds)
    except StabilityError:
        return []


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(not d or not size or d == size for size, d in zip(shape, declared))


def _network(graph: Graph, nodes: list[Any], subject: Subject) -> Any:
    """Return the whole network, or the reason why it cannot be run: the recurrent part is a subject either way."""
    if not nodes:
        return "what follows a Scan or Loop is not read"
    try:
        return onnx_network(graph, nodes, subject)
    except (StabilityError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        return str(error).partition("\n")[0][:200]


def _is_chain(graph: Graph, nodes: list[Any]) -> bool:
    """Return True if each node reads the first output of the one before, through nothing but changes of shape."""
    for before, node in pairwise(nodes):
        source, walked = graph.source(node.input[0], _FORMS)
        if source != before.output[0]:
            return False
        for step in walked:
            refuse_rounding(graph, step, f"between the nodes {name_of(before)} and {name_of(node)}")
    return True


def _chain(graph: Graph, nodes: list[Any], where: str) -> Subject:
    found = [_cells(graph, node) for node in nodes]
    ways = {attributes(node).get("direction", "forward") for node in nodes}
    if len(ways) > 1:
        raise UnsupportedError(f"{where} mixes nodes of the directions {', '.join(sorted(ways))} in one chain")
    if len({bool(attributes(node).get("layout")) for node in nodes}) > 1:  # the time of one is the batch of another
        raise UnsupportedError(f"{where} mixes nodes that read the time first and nodes that read the batch first")
    for before, node in pairwise(nodes):
        _check_link(graph, before, node)
    parts = [cell for cells in found for cell in cells]
    if len(parts) == 1:
        return parts[0]
    try:
        return LayerStack(parts, directions=len(found[0]), name=f"ONNX {nodes[0].op_type}")
    except StabilityError as error:
        raise FileFormatError(f"{where}: the nodes do not fit together: {error}") from error


def _check_link(graph: Graph, before: Any, node: Any) -> None:
    """Check the nodes between two recurrent nodes: the upper one must read all directions' outputs side by side."""
    where = f"between the nodes {name_of(before)} and {name_of(node)}"
    W, R = (np.asarray(graph.constant(name)) for name in before.input[1:3])
    directions, _, hidden = R.shape
    for default in ((3, 2), (4, 5)):  # a shape with fixed numbers in it may fit one of them by chance
        outer = graph.sizes(before.input[0], default)[:2]
        entries = math.prod(outer) * directions * hidden
        if entries > UNFOLDED:
            raise FileFormatError(f"{where} values of {entries} entries are declared; at most {UNFOLDED} are read")
        # exact in float32, and no whole numbers
        expected = (np.arange(entries) / 8.0).reshape(*outer, directions * hidden)
        values = expected.reshape(*outer, directions, hidden)
        if not attributes(before).get("layout"):
            values = values.transpose(0, 2, 1, 3)
        feeds = {before.output[0]: values, before.input[0]: np.ones((*outer, W.shape[2]))}
        (result,) = graph.run([node.input[0]], feeds)
        if not np.array_equal(result, expected):
            raise DisagreementError(f"{where} the outputs are changed between the nodes, so they form no stack")


def _cells(graph: Graph, node: Any) -> list[Subject]:
    """Return one subject per direction, each compared with the node in onnx's reference evaluator."""
    where, options = f"{node.op_type} node {name_of(node)}", attributes(node)
    W, R, B = _weights(graph, node, options, where)
    hidden, out = R.shape[2], []
    rows = np.concatenate([np.arange(g * hidden, (g + 1) * hidden) for g in _ORDER[node.op_type]])
    reset_after = node.op_type == "LSTM" or bool(options.get("linear_before_reset"))
    for k, way in enumerate(("",) if len(R) == 1 else (" forward", " backward")):
        bias = np.zeros(2 * R.shape[1]) if B is None else np.asarray(B[k], dtype=np.float64)
        weights, label = [w[rows] for w in (W[k], R[k], *np.split(bias, 2))], f"ONNX {node.op_type}{way}"
        phi = _activations(node, options, (k, len(R)), where)[0]
        kind = node.op_type.lower()
        cell = RecurrentWeights(kind, [weights], [label], label, activation=phi, reset_after=reset_after).subject()
        compare(_reference(graph, node, options, [W[k], R[k], bias], phi), cell, where, advice=GRAPH_ADVICE)
        out.append(cell)
    return out


def _weights(graph: Graph, node: Any, options: Mapping[str, Any], where: str) -> tuple[Array, Array, Array | None]:
    """Return ``W (directions, gates n, p)``, ``R (directions, gates n, n)`` and ``B`` of a node without further parts.

    Raises:
        FileFormatError: too many inputs, or shapes that do not fit together.
        UnsupportedError: weights that are computed, or a variant for which there is no criterion.
    """
    if len(node.input) > (8 if node.op_type == "LSTM" else 6):
        raise FileFormatError(f"{where} has {len(node.input)} inputs, more than the operator takes")
    keys = [*node.input, *[""] * 8][:8]
    W, R, B, peepholes = arrays = [graph.constant(keys[k]) if keys[k] else None for k in (1, 2, 3, 7)]
    if any(keys[k] and array is None for k, array in zip((1, 2, 3, 7), arrays)):
        raise UnsupportedError(f"{where}: its weights are computed in the graph, not stored")
    if W is None or R is None or W.ndim != 3 or R.ndim != 3:
        raise FileFormatError(f"{where}: W and R must be stored arrays with three axes")
    hidden, way = R.shape[2], options.get("direction", "forward")
    outer = (2 if way == "bidirectional" else 1, len(_ORDER[node.op_type]) * hidden)
    good = W.shape[:2] == outer == R.shape[:2] and (B is None or B.shape == (outer[0], 2 * outer[1]))
    good = good and way in ("forward", "reverse", "bidirectional")
    if not good or hidden == 0 or options.get("hidden_size", hidden) != hidden:
        raise FileFormatError(f"{where}: shapes W {W.shape}, R {R.shape} and direction {way!a} do not fit together")
    unknown = sorted(set(options) - _ATTRIBUTES - _OWN[node.op_type])
    unknown += ["input_forget"] if options.get("input_forget") else []
    unknown += ["peepholes"] if peepholes is not None and peepholes.any() else []
    if unknown:
        raise UnsupportedError(f"{where} has {quote(unknown)}, for which there is no criterion")
    return W, R, B


def _reference(graph: Graph, node: Any, options: Mapping[str, Any], weights: list[np.ndarray], phi: str) -> Run:
    """Return a run of one direction of a node, forward from given states, by onnx's reference evaluator."""
    from onnx import helper

    lstm = node.op_type == "LSTM"
    names = ["X", "W", "R", "B", "", "h"] + ["c"] * lstm
    settings = {k: v for k, v in options.items() if k in _OWN[node.op_type]}
    settings |= {"activations": [phi]} if node.op_type == "RNN" else {}
    copy = helper.make_node(node.op_type, names, [f"Y{k}" for k in range(2 + lstm)], **settings)
    alone = Graph(helper.make_graph([copy], node.op_type, [], []), None, graph.opsets)
    tensors = dict(zip("WRB", (np.asarray(w, dtype=np.float64)[None] for w in weights)))

    def run(x: np.ndarray, states: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
        start = np.split(states[0], 2, axis=-1) if lstm else [states[0]]
        feeds = {"X": x, **tensors, **{name: s[None] for name, s in zip("hc", start)}}
        outputs, *last = alone.run(list(copy.output), feeds)
        return outputs[:, 0], [np.concatenate([s[0] for s in last], axis=-1)]

    return run


def _activations(node: Any, options: Mapping[str, Any], place: tuple[int, int], where: str) -> list[str]:
    """Return the activations of one direction; ``place``: its index, and the number of directions."""
    k, directions = place
    listed, usual = [str(a).lower() for a in options.get("activations", [])], _USUAL[node.op_type]
    if listed and len(listed) != len(usual) * directions:
        raise FileFormatError(f"{where} has {len(listed)} activations, {len(usual)} a direction are needed")
    names = listed[k * len(usual) : (k + 1) * len(usual)] or usual
    if names != usual and not (node.op_type == "RNN" and names[0] in ("relu", "sigmoid")):
        raise UnsupportedError(f"{where} has the activations {quote(names)}, for which there is no criterion")
    return names
