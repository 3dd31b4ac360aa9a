"""Rules for what refutes the contraction of a stack beyond its lowest level.

``merged_stack``: a proof against the stack as one network (``stability.stacks.merged``), checked by that proof's own
rule.

``stack_trajectories``: two simulated runs of the whole stack under one input sequence, constant or periodic, that stay
apart. A replay, not a proof: it supports the verdict inconclusive (see ``gated_trajectories``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.gated.cell import GatedCell
from stability.rules.cascade import inner_claim
from stability.rules.gated_orbits import input_phrase, inputs_of
from stability.rules.gated_trajectories import MAX_STEPS, MAX_WORK, MIN_STEPS, cell_work, twice_apart
from stability.rules.registry import RULES, Outcome, rule
from stability.rules.witness_data import vector
from stability.stacks.cascade import Cascade
from stability.stacks.merged import merged
from stability.statements import at_least, describe

__all__ = ["MERGED_KINDS", "check_merged", "check_trajectories", "work"]

Array = np.ndarray
MERGED_KINDS = (
    "unstable_linear",
    "unstable_everywhere",
    "unstable_equilibrium",
    "two_equilibria",
    "periodic_orbits",
    "unstable_orbit",
    "disjoint_boxes",
    "separated_trajectories",
)


def _inner(subject: Cascade, claim: Claim, data: Mapping[str, Any]) -> tuple[Any, Claim] | None:
    """The merged network and the claim about it, or ``None`` where there is none."""
    whole = merged(subject)
    if whole is None or data["kind"] not in MERGED_KINDS:
        return None
    return whole, inner_claim(whole, claim.verdict, data)


def _merged_statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    inner = _inner(subject, claim, data)
    if inner is None:
        return "A statement about stacks of layers."
    answer = "does not contract" if claim.verdict is Verdict.REFUTED else "was not seen to contract"
    return f"{describe(subject)} {answer}, as one network: {inner[1].statement}"


@rule(
    "merged_stack",
    subject=Cascade,
    claim="contraction",
    verdict=(Verdict.REFUTED, Verdict.INCONCLUSIVE),
    fields={"kind": "text", "data": "mapping"},
    statement=_merged_statement,
)
def check_merged(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``kind`` and ``data`` of a proof against the merged network; the verdict is that proof's."""
    inner = _inner(subject, claim, data)
    if inner is None:
        return False, f"the stack is no single network free of rounding, or the proof is none of {MERGED_KINDS}"
    whole, about = inner
    return RULES[data["kind"]](whole, about)


def work(cascade: Cascade) -> float:
    """Operations of one step, roughly."""
    total = 1.0
    for layer in cascade.layers:
        if isinstance(layer, GatedCell):
            total += cell_work(layer)
        else:
            n, m = layer.system.states, layer.system.channels
            total += n * n + 2.0 * n * m + m * layer.inputs
    return total


def _trajectories_statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return (
        f"{describe(subject)} was not seen to contract (replayed numerically, not proved): under the "
        f"{input_phrase(data, 'inputs')} two runs of it stay at least {at_least(data['gap'])} apart for "
        f"{data['steps']} steps."
    )


@rule(
    "stack_trajectories",
    subject=Cascade,
    claim="contraction",
    verdict=Verdict.INCONCLUSIVE,
    fields={**dict.fromkeys(("first", "second", "inputs"), "array"), "steps": "count", "gap": "number"},
    statement=_trajectories_statement,
)
def check_trajectories(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``first`` (n,), ``second`` (n,), ``inputs`` (q, p), ``steps``, ``gap``."""
    if subject.directions != 1 or not subject.is_discrete:
        return False, "runs are replayed for discrete stacks with one direction"
    inputs, problem = inputs_of(subject.layers[0], {"input": data["inputs"]})
    if inputs is None:
        return False, problem
    first, second = (vector(data, key, subject.states) for key in ("first", "second"))
    gap, steps = float(data["gap"]), data["steps"]
    if first is None or second is None:
        return False, f"first and second must be vectors of {subject.states} entries"
    if not MIN_STEPS <= steps <= MAX_STEPS or 2.0 * steps * work(subject) > MAX_WORK:
        return False, f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}], and the replay not too long"
    reason = twice_apart(subject.advance, first, second, inputs, steps, gap)
    if reason is not None:
        return False, reason
    return True, f"replayed, not proved: the gap stays above {gap:.3g} for {steps} steps"
