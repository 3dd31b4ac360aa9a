"""LSTM cells with explicit gates: three products of two changing values each."""

from __future__ import annotations

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.systems.gated_cell import GatedCell

from ..affine import Affine, ChannelMap
from .algebra import Body

_ADVICE = (
    "two values that depend on state or input are multiplied (a gate): of gates that are written out those of an LSTM "
    "are read; export with the LSTM or GRU as one node, or give its weights as a state dict"
)


def lstm_cell(body: Body, states: list[str]) -> tuple[GatedCell, list[str]]:
    """Return the LSTM cell that a body computes, identified by the factors of its products.

    The forget gate multiplies a state, the output gate the tanh of products, the input gate the other tanh. Whoever
    calls compares the cell with the body.

    Args:
        body: a body that was read.
        states: its two states.

    Returns:
        The cell, and the names of its hidden state and its cell state.

    Raises:
        UnsupportedError: other products.
    """
    gates: dict[str, Affine] = {}
    cells = []
    for pair in body.products.values():
        found = dict(_factor(body, value) for value in pair)
        gate, (other, argument) = found.pop("sigmoid", None), next(iter(found.items()), ("", Affine(0)))
        if gate is None:
            raise UnsupportedError(_ADVICE)
        if other in states:
            gates["f"] = gate
            cells.append(other)
        elif other == "tanh" and body.products.keys() & argument.terms.keys():
            gates["o"] = gate
        elif other == "tanh":
            gates |= {"i": gate, "g": argument}
    hidden = [state for state in states if state not in cells]
    known = {*body.inputs, *hidden}
    if len(body.products) != 3 or len(gates) != 4 or len(states) != 2 or len(hidden) != 1:
        raise UnsupportedError(_ADVICE)
    if any(not gate.terms.keys() <= known or gate.size != body.sizes[hidden[0]] for gate in gates.values()):
        raise UnsupportedError("a gate reads more than the input and the hidden state (peepholes)")
    state, inputs = ([(name, body.sizes[name]) for name in names] for names in (hidden, body.inputs))
    following = body.values[hidden[0]]
    if not isinstance(following, Affine):
        raise UnsupportedError(_ADVICE)
    read = ChannelMap.of([(key, "tanh", gates[key]) for key in "ifgo"], state, inputs, [following])
    return GatedCell("lstm", read.E, read.system.C, read.b, None, name="ONNX LSTM"), [*hidden, *cells]


def _factor(body: Body, value: Affine) -> tuple[str, Affine]:
    """Return the activation of a factor and its argument, or the variable; an empty name for anything else."""
    if len(value.terms) != 1 or np.any(value.offset):
        return "", value
    ((name, rows),) = value.terms.items()
    if not (np.isin(rows, (0.0, 1.0)).all() and (rows.sum(axis=1) == 1).all()):
        return "", value
    for channel, kind, argument in body.channels:
        if channel == name:
            return kind, argument.mapped(rows)
    return name, value
