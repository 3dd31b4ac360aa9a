"""Rule ``two_equilibria``: two different equilibria under one constant input, each proved to exist.

Both are trajectories under the same input, and their distance never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stability.certificate import Claim, Verdict
from stability.rigor.equilibria import distance, enclose_equilibrium
from stability.rules.registry import Outcome, rule
from stability.rules.witness_data import vector
from stability.statements import describe
from stability.systems import DrivenSystem

__all__ = ["check"]


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    what = (
        "contracting"
        if claim.name == "contraction"
        else "globally attracted by one equilibrium for every constant input"
    )
    return (
        f"{describe(subject)} is not {what}: under the constant input of the proof it has two different "
        "equilibria, whose distance never changes."
    )


@rule(
    "two_equilibria",
    subject=DrivenSystem,
    claim=("contraction", "equilibrium"),
    verdict=Verdict.REFUTED,
    fields={"state1": "array", "state2": "array", "input": "array"},
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``state1`` (n,), ``state2`` (n,), ``input`` (p,)."""
    inputs = vector(data, "input", subject.inputs)
    states = [vector(data, key, subject.system.states) for key in ("state1", "state2")]
    boxes = []
    for place, state in zip(("first", "second"), states):
        if inputs is None or state is None:
            return False, "state1, state2 and input must be finite vectors of the network's sizes"
        box = enclose_equilibrium(subject, state, inputs)
        if box is None:
            return False, f"no equilibrium is proved to exist at the {place} state"
        boxes.append(box.states)
    gap = distance(*boxes)
    if not gap > 0.0:
        return False, "the two boxes overlap: the equilibria may be the same"
    return True, f"two equilibria proved to exist, at least {gap:.3g} apart"
