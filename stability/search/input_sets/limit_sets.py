"""Further claims under inputs in a box: absorbing boxes, one equilibrium for each constant input."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.fields import Refused
from stability.kernel.systems.delayed_stack import delayed_network
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.absorbing_sets import Absorbed
from stability.kernel.theorems.near_run import NearRun
from stability.proposals import accepted_claim, propose
from stability.recovery import SETS
from stability.search.input_sets.bounded import diagonal_of
from stability.search.input_sets.flows import flow_bounds_claim
from stability.search.solvers.deadline import Deadline

FLOW_SETS = ("low", "high", "centres", "shapes", "slopes", "tau", "mu", "least", "room", "time")
_ENTRY = ("entry_P", "entry_L", "entry_rate", "entry_least", "entry_top")
RUN = ("run_low", "run_high", "turns", "settling", *_ENTRY, "near", "waits")
_KINDS: dict[type, str] = {DrivenSystem: "driven", LayerStack: "stack_driven"}
_ROOM = 1e-9
"""Relative enlargement of the box of states beyond the sets: other processors sum in another order."""


def claims_in_box(
    subject: Any, claim: Claim, finding: Finding, deadline: Deadline, beside: Sequence[Claim] = ()
) -> tuple[Claim, ...]:
    """Return claims beside one about contraction under inputs in a box, from the sets made for it.

    Args:
        subject: the network, or a stack of maps that is one in its skewed state; of others nothing more is said.
        claim: claim of ``driven_contraction``, certified or open.
        finding: its outcome; an open one's witness holds the data of the sets.
        deadline: checked before the sets are made again.
        beside: claims about every input.

    Returns:
        ``equilibrium_in_box`` where contraction is certified, ``bounded_in_box`` where there are sets and they say more
        than ``bounded`` does.

    Example:
        >>> from stability.search.input_sets.driven import driven_contraction
        >>> from stability.systems import LureSystem
        >>> cell = LureSystem([[0.0]], [[1.0]], [[1.5]], dt=1.0)
        >>> network = DrivenSystem(cell, "tanh", [[1.0]], [1.5])
        >>> [c.name for c in claims_in_box(network, *driven_contraction(network, (-0.1, 0.1)), Deadline())]
        ['equilibrium_in_box', 'bounded_in_box']
    """
    network = delayed_network(subject) if isinstance(subject, LayerStack) else subject
    if isinstance(network, str) or not isinstance(network, DrivenSystem):
        return ()
    proof = claim.proof if claim.verdict is Verdict.CERTIFIED else None
    kind = _KINDS[type(subject)] if network.is_discrete else "flow"
    if proof is not None and "run_low" in proof.data:
        kind = "run"
    out = () if proof is None else (propose(subject, f"{kind}_equilibrium", proof.data),)
    data = finding.witness if proof is None else proof.data
    if not ("r" in data or "shapes" in data) or deadline.stops("bounds in the box"):
        return out
    if network.is_discrete:
        more = {"levels": len(subject.layers)} if isinstance(subject, LayerStack) else {}
        bounds = map_bounds_claim(
            subject, network, f"{kind}_bounds", {key: data[key] for key in (*SETS, *RUN) if key in data}, more
        )
    else:
        with np.errstate(all="ignore"):
            bounds = flow_bounds_claim(network, {key: data[key] for key in FLOW_SETS})
    ball = min((c.value for c in beside if c.name == "bounded" and c.value is not None), default=math.inf)
    return out if bounds is None or bounds.value is None or bounds.value >= 2.0 * ball else (*out, bounds)


def map_bounds_claim(
    subject: Any, network: DrivenSystem, kind: str, data: Mapping[str, Any], more: Mapping[str, Any]
) -> Claim | None:
    """Return the claim ``bounded_in_box`` of a map from the data of its sets, or ``None`` if its rule refuses it."""
    with np.errstate(all="ignore"):
        try:
            least, most = (NearRun if "run_low" in data else Absorbed).of(data).enclosed(network).states
        except Refused:
            return None
        room = _ROOM * (most - least) + 1e-12 * np.maximum(np.abs(least), np.abs(most)) + 1e-100
        least, most = least - room, most + room
        diagonal = diagonal_of(least, most)
        return accepted_claim(subject, kind, {**data, "least": least, "most": most, "diagonal": diagonal, **more})


def allows_box_claims(subject: Any) -> bool:
    """Return True if a subject may have stronger claims under inputs in a box than under every input.

    Example:
        >>> from stability import LureSystem
        >>> allows_box_claims(DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[2.0]]))
        True
    """
    return isinstance(delayed_network(subject) if isinstance(subject, LayerStack) else subject, DrivenSystem)
