"""LSTM and GRU cells whose gates are written out as products of two values that change each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.systems.gated_cell import GatedCell

from ..affine import Affine, ChannelMap
from .algebra import Body

_ORDER = {"lstm": "ifgo", "gru": "rzn"}
_ADVICE = (
    "two values that depend on state or input are multiplied, and their products are not the gates of an LSTM with the "
    "states h and c or of a GRU: export with the LSTM or GRU as one node, or give its weights as a state dict"
)


def gated_cell(body: Body, states: list[str]) -> tuple[GatedCell, list[str]]:
    """Return the LSTM or GRU cell that a body computes, by what its products multiply.

    Whoever calls compares the cell with the body.

    Args:
        body: a body that was read.
        states: its two states, or the one of a GRU.

    Returns:
        The cell, and the names of its hidden state and, for an LSTM, its cell state.

    Raises:
        UnsupportedError: other products.
    """
    lstm, n = len(states) == 2, body.sizes[states[0]]
    rows = {kind: sum(z.size for _, group, z in body.channels if group == kind) for _, kind, _ in body.channels}
    if rows.keys() != {"sigmoid", "tanh"} or len(states) > 2 or rows["tanh"] != n * (1 + lstm):
        raise UnsupportedError(_ADVICE)
    gates, names, bias, next_values = _lstm(body, states) if lstm else _gru(body, states[0], n)
    if any(not gate.terms.keys() <= {*body.inputs, names[0]} or gate.size != n for gate in gates.values()):
        raise UnsupportedError("a gate reads more than the input and the hidden state (peepholes)")
    kind = "lstm" if lstm else "gru"
    hidden, inputs = ([(name, body.sizes[name]) for name in group] for group in (names[:1], body.inputs))
    held = Affine(n, {names[0]: np.eye(n)})
    read = ChannelMap.of([(key, "tanh", gates[key]) for key in _ORDER[kind]], hidden, inputs, [held])
    weights = read.E, read.system.C, read.b, bias
    return GatedCell(kind, *weights, reset_after=next_values, name=f"ONNX {kind.upper()}"), names


def _lstm(body: Body, states: list[str]) -> tuple[dict[str, Affine], list[str], None, bool]:
    """Return gates and state names: the forget gate multiplies a state, the output gate the tanh of products."""
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
        raise UnsupportedError(_ADVICE)
    return gates, [*hidden, *cells], None, True


def _gru(body: Body, state: str, n: int) -> tuple[dict[str, Affine], list[str], np.ndarray, bool]:
    """Return gates, the state and its bias: the product inside the tanh has the reset gate, another the update gate."""
    (new, argument), *more = [(name, z) for name, kind, z in body.channels if kind == "tanh"]
    products = {name: (gate, other) for name, gate, other, _, _ in _products(body)}
    inner, outer = ([name for name in products if (name in argument.terms) is inside] for inside in (True, False))
    if more or len(inner) != 1 or not 0 < len(outer) <= 2 or state in argument.terms:
        raise UnsupportedError(_ADVICE)
    (update, mixed), (reset, held) = products[outer[0]], products[inner[0]]
    rows, of_state = argument.terms.pop(inner[0]), held.terms.get(state, np.zeros((n, n)))
    offset, reset_after = np.broadcast_to(held.offset, (n,)), np.array_equal(rows, np.eye(n))
    is_state = not offset.any() and np.array_equal(of_state, np.eye(n))
    if held.terms.keys() != {state} or not mixed.terms.keys() <= {state, new} or not (reset_after or is_state):
        raise UnsupportedError(_ADVICE)
    gates = {"r": reset, "n": argument.plus(Affine(n, {state: of_state if reset_after else rows}))}
    # sigmoid(-a) = 1 - sigmoid(a): the gate of the new value is the update gate of the old one, with another sign
    gates["z"] = update if np.trace(mixed.terms.get(state, np.zeros((n, n)))) > 0 else update.scaled(-1.0)
    return gates, [state], np.concatenate([np.zeros(2 * n), offset]), bool(reset_after)


def _products(body: Body) -> Iterator[tuple[str, Affine, Affine, str, Affine]]:
    """Yield each product's name, the argument of its sigmoid, the other factor, and what that is with its argument."""
    for name, pair in body.products.items():
        factors = [_factor(body, value) for value in pair]
        kinds = [kind for kind, _ in factors]
        if "sigmoid" not in kinds:
            raise UnsupportedError(_ADVICE)
        k = kinds.index("sigmoid")
        yield name, factors[k][1], pair[1 - k], *factors[1 - k]


def _factor(body: Body, value: Affine) -> tuple[str, Affine]:
    """Return the activation that a factor is, with its argument, or the variable; an empty name for anything else.

    One less a sigmoid is the sigmoid of the argument with the other sign.
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
