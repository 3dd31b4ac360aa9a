"""Absorbing boxes of stacks and gated cells under inputs in a box."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.sentences import undecided
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_bounds import invariant_box
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import Layer, LayerStack
from stability.kernel.theorems.absorbing_sets import why_no_zonotopes
from stability.kernel.theorems.flow_sets import no_flow_sets
from stability.kernel.theorems.stack_bounds import SIDES, restrict_inputs, steps_named
from stability.proposals import accepted_claim, pack
from stability.recovery import SETS
from stability.search.input_sets.bounded import diagonal_of
from stability.search.input_sets.flows import flow_bounds_claim, flow_sets
from stability.search.input_sets.limit_sets import FLOW_SETS, map_bounds_claim
from stability.search.input_sets.narrowing import initial_box, narrowed_bounds
from stability.search.solvers.deadline import Deadline, TimeLimit

Array = np.ndarray
_KINDS_OF_SETS = 2
"""Number of kinds of sets: zonotopes and the first linear bounds; others cost more and serve the rate."""
_NO_GAIN = 0.999
"""Share of the diagonal of the activations' own bounds above which a box says no more than they do."""
_CONTRACTION_KINDS = ("interval_jacobian", "interval_lmi")  # kinds of proof that contain a box of states


def stack_bounds(stack: LayerStack, low: Any, high: Any, *, time_limit: TimeLimit = None) -> Claim | None:
    """Return a box of states that every trajectory of a stack enters under inputs in a box.

    Args:
        stack: stack with one direction.
        low: ``(p,)`` lower ends of the inputs.
        high: ``(p,)`` upper ends.
        time_limit: seconds.

    Returns:
        The claim ``bounded_in_box`` with the diagonal as its value. ``None`` if a layer has no such box, time is over,
        or the boxes say no more than the bounds of the activations.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> gru = GatedCell("gru", np.ones((3, 1)), 0.1 * np.ones((3, 1)))
        >>> claim = stack_bounds(LayerStack([cell, gru]), np.array([-0.1]), np.array([0.1]))
        >>> claim.name, claim.value < 1.0, claim.proof.data["most"] < 0.4
        ('bounded_in_box', True, array([ True,  True]))
    """
    if stack.directions != 1:
        return None
    deadline = Deadline.from_limit(time_limit).named("bounds in the box")
    endpoints = [np.array(np.broadcast_to(np.asarray(x, dtype=np.float64), (stack.inputs,))) for x in (low, high)]
    box, parts = (endpoints[0], endpoints[1]), []
    for k, layer in enumerate(stack.layers):
        claim = _layer_bounds(restrict_inputs(layer, *box), *box, deadline.share(1.0 / (len(stack.layers) - k)))
        if claim is None or claim.proof is None:
            return None
        parts.append(claim)
        least, most = (claim.proof.data[side] for side in SIDES[claim.proof.kind])
        box = layer.output(least), layer.output(most)
    sides = [[part.proof.data[side] for side in SIDES[part.proof.kind]] for part in parts]
    least, most = (np.concatenate(endpoints) for endpoints in zip(*sides))
    diagonal = diagonal_of(least, most)
    if diagonal > _NO_GAIN * _known_diagonal(stack):
        return None
    data = {"low": endpoints[0], "high": endpoints[1], "layers": [pack(part) for part in parts]}
    data |= {"least": least, "most": most, "diagonal": diagonal}
    steps = [steps_named(part.proof.data) if part.proof.kind == "driven_bounds" else None for part in parts]
    known = [step for step in steps if step is not None]
    return accepted_claim(stack, "cascade_bounds", data | ({"since": sum(known)} if len(known) == len(steps) else {}))


def _known_diagonal(stack: LayerStack) -> float:
    """Return the diagonal of the box given by the activations' bounds; infinite for unbounded activations."""
    sizes = [
        np.full(layer.states, layer.output_bound if layer.states == layer.outputs else np.inf) for layer in stack.layers
    ]
    return 2.0 * float(np.linalg.norm(np.concatenate(sizes)))


def _layer_bounds(layer: Layer, low: Array, high: Array, deadline: Deadline) -> Claim | None:
    """Return the claim of the box that one layer enters under inputs in a box, or ``None``."""
    if deadline.over:
        return None
    if isinstance(layer, GatedCell):
        open_claim = Claim("contraction", undecided(layer), Verdict.INCONCLUSIVE)
        return gated_bounds(layer, open_claim, time_limit=deadline, always=True)
    if not isinstance(layer, DrivenSystem):
        return None
    with np.errstate(all="ignore"):
        if not layer.is_discrete:
            flow = None if no_flow_sets(layer) else flow_sets(layer, low, high, deadline)
            return None if flow is None else flow_bounds_claim(layer, {key: flow[0][key] for key in FLOW_SETS})
        first = why_no_zonotopes(layer) or initial_box(layer, low, high, deadline)
        if isinstance(first, str):
            return None
        found = [sets.data for sets in islice(narrowed_bounds(layer, low, high, first, deadline), _KINDS_OF_SETS)]
        data = {key: found[-1][key] for key in SETS if key in found[-1]} if found else None
        return None if data is None else map_bounds_claim(layer, layer, "driven_bounds", data, {})


def gated_bounds(
    subject: GatedCell, main: Claim, *, time_limit: TimeLimit = None, always: bool = False
) -> Claim | None:
    """Return a box of states that every trajectory enters, for a cell with an input box.

    Args:
        subject: the cell.
        main: its claim of contraction; if certified with a box of states, that box is used.
        time_limit: seconds for the search of another box.
        always: return a GRU's box even if it says no more than ``|h| <= 1``.

    Returns:
        The claim ``bounded_in_box`` with the diagonal as its value, or ``None``.

    Example:
        >>> from stability.kernel.format.sentences import undecided
        >>> cell = GatedCell("gru", 0.1 * np.ones((3, 1)), 0.9 * np.ones((3, 1)), input_low=-1.0, input_high=1.0)
        >>> claim = gated_bounds(cell, Claim("contraction", undecided(cell), Verdict.INCONCLUSIVE))
        >>> round(claim.value, 3)
        0.399
    """
    if subject.input_low is None:
        return None
    proof = main.proof if main.verdict is Verdict.CERTIFIED else None
    if proof is not None and proof.kind in _CONTRACTION_KINDS:
        low, high = proof.data["low"], proof.data["high"]
    else:
        box = invariant_box(subject, affords=Deadline.from_limit(time_limit).named("bounds in the box").affords)
        if box is None:
            return None
        low, high = box.low, box.high
    diagonal = diagonal_of(low, high)
    if subject.kind == "gru" and not always and diagonal > _NO_GAIN * 2.0 * subject.hidden**0.5:
        return None
    return accepted_claim(subject, "gated_bounds", {"low": low, "high": high, "diagonal": diagonal})
