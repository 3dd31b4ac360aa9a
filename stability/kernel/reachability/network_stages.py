"""Decomposition of one step of a classifier into stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.checks import levels_of
from stability.kernel.reachability.stages import Activated, GruOut, GruReset, LstmCell, LstmOut, Stage
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell

Array = np.ndarray
Terms = Mapping[str, Any]
"""Matrices by the name of their argument; a ``Ball`` if the exact matrix is only enclosed."""


@dataclass(frozen=True, eq=False)
class Stages:
    """Stages of one step, and the input of the head.

    Attributes:
        stages: in order; the last one ends with the states of all layers (and their running sum, for a mean).
        inputs: ``p``.
        head: ``(k, n)`` the head's weights on the vector after the last stage; of a mean, on the sum.
        start: ``(n,)`` that vector before the first step.
    """

    stages: tuple[Stage, ...]
    inputs: int
    head: Array
    start: Array

    @property
    def states(self) -> int:
        """Size of the vector between two steps."""
        return self.head.shape[1]


class _Writer:
    """Builder of stages: every value of the step has a name and a place in the vector."""

    def __init__(self, states: Mapping[str, int], inputs: int) -> None:
        self.layout = {**states, "u": inputs}
        self.fresh = True
        self.stages: list[Stage] = []

    def row(self, terms: Terms, size: int) -> tuple[Array, Array]:
        """Return the matrix of a sum of terms on the whole vector, and its radius."""
        mid, rad = [], []
        for name, width in self.layout.items():
            ball = Ball.exact(terms.get(name, np.zeros((size, width))))
            mid.append(ball.mid)
            rad.append(ball.rad)
        return np.concatenate(mid, axis=1), np.concatenate(rad, axis=1)

    def add(
        self,
        kind: type[Stage],
        reads: list[tuple[Terms, Array]],
        puts: Mapping[str, tuple[Terms, Any]],
        drop: tuple[str, ...] = (),
        **fields: Any,
    ) -> None:
        """Add a stage: blocks of rows with their biases, and new values from linear terms and channels."""
        C, dC = (np.concatenate(x) for x in zip(*[self.row(terms, len(bias)) for terms, bias in reads]))
        bias = np.concatenate([b for _, b in reads])
        m = len(bias)
        layout = {name: width for name, width in self.layout.items() if name not in drop}
        sizes = {**layout, **{name: len(Ball.exact(B).mid) for name, (_, B) in puts.items()}}
        rows = []
        for name, width in sizes.items():
            terms, B = puts.get(name, ({name: np.eye(width)}, np.zeros((width, m))))
            rows.append((*self.row(terms, width), Ball.exact(B).mid, Ball.exact(B).rad))
        A, dA, B, dB = (np.concatenate(x) for x in zip(*rows))
        slack = (dA, dB, dC) if dA.any() or dB.any() or dC.any() else None
        self.stages.append(kind(A, B, C, bias, slack, self.fresh, **fields))
        self.layout, self.fresh = sizes, False


def _driven(write: _Writer, layer: DrivenSystem, state: str, signal: str, reads: Array, more: Any) -> None:
    """Add the stages of a layer, with ``D`` block by block; each block's outputs stay in the vector for its readers.

    Raises:
        UnsupportedError: the channels form a loop.
    """
    A, B, C, D = system_balls(layer.system)
    E, F = layer.E @ reads, layer.F @ reads
    blocks, written = levels_of(layer.system.D != 0), []
    if blocks is None:
        raise UnsupportedError("a local certificate needs a network without algebraic loops between its channels")
    for k, block in enumerate(blocks or [np.zeros(0, dtype=int)]):
        terms: dict[str, Any] = {state: C[block], signal: E[block]}
        terms |= {f"w{j}": D[block][:, earlier] for j, earlier in enumerate(written)}
        rows: list[tuple[Terms, Array]] = [(terms, layer.b[block])]
        if k < len(blocks) - 1:
            write.add(Activated, rows, {f"w{k}": ({}, np.eye(len(block)))}, name=layer.activation)
            written.append(block)
            continue
        linear = {state: A, signal: F} | {f"w{j}": B[:, earlier] for j, earlier in enumerate(written)}
        drop = tuple(f"w{j}" for j in range(len(written)))
        more(rows, {state: (linear, B[:, block])}, drop, Activated, name=layer.activation)


def _gated(write: _Writer, cell: GatedCell, state: str, signal: str, reads: Array, more: Any) -> None:
    m = cell.hidden
    eye, none, zero = np.eye(m), np.zeros((m, m)), np.zeros(m)

    def rows(gate: str, hidden: Array, recurrent: bool = True) -> tuple[Terms, Array]:
        w, r, b_ih, b_hh = cell.gate(gate)
        bias = b_ih + b_hh if recurrent else b_ih
        return {signal: w @ reads, **({state: r @ hidden} if recurrent else {})}, bias

    if cell.kind == "lstm":
        hidden, memory = np.hstack([eye, none]), np.hstack([none, eye])
        cell_rows = [rows(k, hidden) for k in ("f", "i", "g")] + [({state: memory}, zero)]
        into_c, into_h = np.vstack([none, eye]), np.vstack([eye, none])  # what a unit's value enters of (h, c)
        write.add(LstmCell, cell_rows, {state: ({state: into_h @ hidden}, np.hstack([into_c] * 4))})
        out = {state: ({state: into_c @ memory}, np.hstack([into_h] * 2))}
        more([rows("o", hidden), ({state: memory}, zero)], out, (), LstmOut)
        return
    w, r, b_ih, b_hh = cell.gate("n")
    if cell.reset_after:
        write.add(GruReset, [rows("r", eye), ({state: r}, b_hh)], {"rq": ({}, np.hstack([eye, eye]))})
        inner = ({signal: w @ reads, "rq": eye}, b_ih)
    else:
        write.add(GruReset, [rows("r", eye), ({state: eye}, zero)], {"rq": ({}, np.hstack([eye, eye]))})
        inner = ({signal: w @ reads, "rq": r}, b_ih + b_hh)
    more([rows("z", eye), inner, ({state: eye}, zero)], {state: ({}, np.hstack([eye] * 3))}, ("rq",), GruOut)


def stages_of(classifier: Classifier) -> Stages:
    """Return the stages of one step of a classifier's network.

    Args:
        classifier: the network with its head.

    Returns:
        The stages.

    Raises:
        UnsupportedError: channels that read each other in a loop.
    """
    layers = classifier.layers
    mean = classifier.reduction == "mean"
    width = layers[-1].outputs
    states = {f"s{k}": layer.states for k, layer in enumerate(layers)}
    write = _Writer({**states, **({"sum": width} if mean else {})}, classifier.inputs)
    for k, layer in enumerate(layers):
        state, signal, last = f"s{k}", "u" if k == 0 else f"s{k - 1}", k == len(layers) - 1
        reads = np.eye(classifier.inputs) if k == 0 else _output(layers[k - 1])

        def more(
            rows: Any, puts: Any, drop: tuple[str, ...], kind: type[Stage], *,
            state: str = state, layer: Any = layer, first: bool = k == 0, last: bool = last, **fields: Any,
        ) -> None:  # fmt: skip
            """Add the last stage of a layer, which reads the input for the last time and adds to the sum."""
            if last and mean:
                terms, B = puts[state]
                pick = _output(layer)
                added = {name: pick @ Ball.exact(x) for name, x in terms.items()}
                puts = {**puts, "sum": ({"sum": np.eye(width), **added}, pick @ Ball.exact(B))}
            write.add(kind, rows, puts, (*drop, *(("u",) if first else ())), **fields)

        (_driven if isinstance(layer, DrivenSystem) else _gated)(write, layer, state, signal, reads, more)
    order = list(write.layout)
    blocks = {name: np.zeros((classifier.classes, size)) for name, size in write.layout.items()}
    if mean:
        blocks["sum"] = classifier.weight
    else:
        blocks[order[order.index(f"s{len(layers) - 1}")]] = classifier.weight @ _output(layers[-1])
    head = np.concatenate([blocks[name] for name in order], axis=1)
    initial = {name: np.zeros(size) for name, size in write.layout.items()}
    initial |= {f"s{k}": start for k, start in enumerate(classifier.starts)}
    return Stages(tuple(write.stages), classifier.inputs, head, np.concatenate([initial[name] for name in order]))


def loop_of_channels(classifier: Classifier) -> str | None:
    """Return the reason why a network has no stages, a loop of channels; ``None`` if it has some."""
    try:
        stages_of(classifier)
    except UnsupportedError as error:
        return str(error)
    return None


def _output(layer: Any) -> Array:
    """Return the output matrix of a layer on its state: zeros and ones."""
    return layer.output(np.eye(layer.states)).T
