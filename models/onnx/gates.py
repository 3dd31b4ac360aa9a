"""Recognition of LSTM and GRU cells that an ONNX graph computes by elementary operations."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.systems.gated_cell import GatedCell

from ..affine import Affine, ChannelMap
from .algebra import Body

_ORDER = {"lstm": "ifgo", "gru": "rzn"}
_NO_CELL = (
    "two values that depend on state or input are multiplied, and their products are not the gates of an LSTM with the "
    "states h and c or of a GRU: export with the LSTM or GRU as one node, or give its weights as a state dict"
)


def gated_cell(body: Body, states: list[str]) -> tuple[GatedCell, list[str]]:
    """Recognize the LSTM or GRU cell that a loop body computes, by the factors of its products.

    The result is a guess: the caller compares the cell with the body.

    Args:
        body: operations of one step, already read.
        states: names of its states, two of an LSTM or one of a GRU.

    Returns:
        The cell, and the names of its hidden state and, for an LSTM, its cell state.

    Raises:
        UnsupportedError: other products.
    """
    lstm, n = len(states) == 2, body.sizes[states[0]]
    rows = {kind: sum(z.size for _, group, z in body.channels if group == kind) for _, kind, _ in body.channels}
    if rows.keys() != {"sigmoid", "tanh"} or len(states) > 2 or rows["tanh"] != n * (1 + lstm):
        raise UnsupportedError(_NO_CELL)
    gates, names, bias, next_values = _lstm(body, states) if lstm else _gru(body, states[0], n)
    if any(not gate.terms.keys() <= {*body.inputs, names[0]} or gate.size != n for gate in gates.values()):
        raise UnsupportedError("a gate reads more than the input and the hidden state (peepholes)")
    kind = "lstm" if lstm else "gru"
    hidden, inputs = ([(name, body.sizes[name]) for name in group] for group in (names[:1], body.inputs))
    unchanged = Affine(n, {names[0]: np.eye(n)})
    gate_map = ChannelMap.of([(key, "tanh", gates[key]) for key in _ORDER[kind]], hidden, inputs, [unchanged])
    weights = gate_map.E, gate_map.system.C, gate_map.b, bias
    return GatedCell(kind, *weights, reset_after=next_values, name=f"ONNX {kind.upper()}"), names


def _lstm(body: Body, states: list[str]) -> tuple[dict[str, Affine], list[str], None, bool]:
    """Return the gates and the names of hidden and cell state.

    The forget gate multiplies a state, the output gate multiplies a tanh of products, the input gate another tanh.

    Raises:
        UnsupportedError: the products are not those of an LSTM.
    """
    gates: dict[str, Affine] = {}
    cells = []
    for _, gate, _, other, argument in _products(body):
        if other in states:
            gates["f"] = gate
            cells.append(other)
        elif other == "tanh" and body.products.keys() & argument.terms.keys():
            gates["o"] = gate
        elif other == "tanh":
            gates |= {"i": gate, "g": argument}
    hidden = [state for state in states if state not in cells]
    if len(body.products) != 3 or len(gates) != 4 or len(hidden) != 1:
        raise UnsupportedError(_NO_CELL)
    return gates, [*hidden, *cells], None, True


def _gru(body: Body, state: str, n: int) -> tuple[dict[str, Affine], list[str], np.ndarray, bool]:
    """Return gates, the state's name, its bias, and whether the reset gate multiplies after the weights.

    The product inside the tanh contains the reset gate, the other products contain the update gate.

    Raises:
        UnsupportedError: the products are not those of a GRU.
    """
    (new, argument), *further = [(name, z) for name, kind, z in body.channels if kind == "tanh"]
    products = {name: (gate, other) for name, gate, other, _, _ in _products(body)}
    inner, outer = ([name for name in products if (name in argument.terms) is inside] for inside in (True, False))
    if further or len(inner) != 1 or not 0 < len(outer) <= 2 or state in argument.terms:
        raise UnsupportedError(_NO_CELL)
    (update, updated), (reset, recurrent) = products[outer[0]], products[inner[0]]
    rows, state_weights = argument.terms.pop(inner[0]), recurrent.terms.get(state, np.zeros((n, n)))
    offset, reset_after = np.broadcast_to(recurrent.offset, (n,)), np.array_equal(rows, np.eye(n))
    is_state = not offset.any() and np.array_equal(state_weights, np.eye(n))
    if recurrent.terms.keys() != {state} or not updated.terms.keys() <= {state, new} or not (reset_after or is_state):
        raise UnsupportedError(_NO_CELL)
    gates = {"r": reset, "n": argument.plus(Affine(n, {state: state_weights if reset_after else rows}))}
    # the gate that multiplies the candidate is 1 - z, and 1 - sigmoid(a) = sigmoid(-a)
    gates["z"] = update if np.trace(updated.terms.get(state, np.zeros((n, n)))) > 0 else update.scaled(-1.0)
    return gates, [state], np.concatenate([np.zeros(2 * n), offset]), bool(reset_after)


def _products(body: Body) -> Iterator[tuple[str, Affine, Affine, str, Affine]]:
    """Yield each product's name, the argument of its sigmoid, the other factor, and that factor's kind and argument."""
    for name, pair in body.products.items():
        factors = [_factor(body, value) for value in pair]
        kinds = [kind for kind, _ in factors]
        if "sigmoid" not in kinds:
            raise UnsupportedError(_NO_CELL)
        k = kinds.index("sigmoid")
        yield name, factors[k][1], pair[1 - k], *factors[1 - k]


def _factor(body: Body, value: Affine) -> tuple[str, Affine]:
    """Return a factor's kind and argument: the name of its activation or variable, or an empty name for other factors.

    The factor ``1 - sigmoid(a)`` counts as ``sigmoid(-a)``.
    """
    if len(value.terms) != 1:
        return "", value
    ((name, rows),) = value.terms.items()
    offset = np.broadcast_to(value.offset, (value.size,))
    kind, argument = next(((kind, z) for gate_name, kind, z in body.channels if gate_name == name), (name, value))
    sign = -1.0 if kind == "sigmoid" and np.all(offset == 1.0) else 1.0
    is_choice = np.isin(sign * rows, (0.0, 1.0)).all() and (np.abs(rows).sum(axis=1) == 1).all()
    if not is_choice or (sign > 0 and offset.any()):
        return "", value
    return kind, argument.mapped(rows) if argument is not value else value
