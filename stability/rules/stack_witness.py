"""Rules for what refutes the contraction of a stack beyond its lowest level.

``merged_stack``: a proof against the stack as one network (``stability.merged``), checked by that proof's own rule.

``stack_trajectories``: two simulated runs of the whole stack under one input sequence, constant or periodic, that stay
apart. A replay, not a proof, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.gated import GatedCell
from stability.merged import merged
from stability.rules.cascade import inner_claim
from stability.rules.registry import RULES, Outcome, rule
from stability.rules.separated_trajectories import (
    LONGEST_PERIOD,
    MAX_STEPS,
    MAX_WORK,
    MIN_STEPS,
    holds_apart,
    periodic_input,
)
from stability.rules.witness_data import number, vector
from stability.stacks import Cascade
from stability.statements import at_least, describe

__all__ = ["check_merged", "check_trajectories", "run_gaps", "work"]

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


def _merged_statement(subject: Any, claim: Claim) -> str:
    inner = _inner(subject, claim, claim.proof.data if claim.proof is not None else {})
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
            total += 2.0 * layer.w_hh.size + 2.0 * layer.w_ih.size
        else:
            n, m = layer.system.states, layer.system.channels
            total += n * n + 2.0 * n * m + m * layer.inputs
    return total


def run_gaps(cascade: Cascade, first: Array, second: Array, inputs: Array, steps: int) -> Array:
    """Distances of two runs under ``inputs (k, p)`` repeated, ``(steps + 1,)``, from the start on."""
    pair = np.stack([first, second])
    out = np.empty(steps + 1)
    for t in range(steps + 1):
        out[t] = np.linalg.norm(pair[0] - pair[1])
        if t < steps:
            pair = cascade.advance(pair, np.broadcast_to(inputs[t % len(inputs)], (2, inputs.shape[1])))
    return out


def _trajectories_statement(subject: Any, claim: Claim) -> str:
    data = claim.proof.data if claim.proof is not None else {}
    inputs = data.get("inputs")
    period = len(inputs) if isinstance(inputs, np.ndarray) and inputs.ndim == 2 else 0
    kind = "constant input" if period == 1 else f"input of period {period}"
    return (
        f"{describe(subject)} was not seen to contract (replayed numerically, not proved): under the {kind} "
        f"of the proof two runs of it stay at least {at_least(data.get('gap'))} apart for {data.get('steps')!r} steps."
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
    """Data: ``first`` (n,), ``second`` (n,), ``inputs`` (k, p) with k up to 4, ``steps``, ``gap``."""
    if subject.directions != 1 or not subject.is_discrete:
        return False, "runs are replayed for discrete stacks with one direction"
    first, second = (vector(data, key, subject.states) for key in ("first", "second"))
    inputs, gap, steps = periodic_input(data, "inputs", subject.inputs), number(data, "gap"), data["steps"]
    if first is None or second is None or gap is None or not gap > 0.0:
        return False, "first, second and gap must be finite and of the stack's sizes, the gap positive"
    if inputs is None:
        return False, f"inputs must hold 1 to {LONGEST_PERIOD} finite vectors of {subject.inputs} entries"
    lowest = subject.layers[0]
    boxed = isinstance(lowest, GatedCell) and lowest.input_low is not None
    if boxed and not ((lowest.input_low <= inputs) & (inputs <= lowest.input_high)).all():
        return False, "an input of the proof lies outside the box of the lowest level"
    if not MIN_STEPS <= steps <= MAX_STEPS or steps * work(subject) > MAX_WORK:
        return False, f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}], and the replay not too long"
    with np.errstate(all="ignore"):
        distances = run_gaps(subject, first, second, inputs, steps)
    if not holds_apart(distances, gap):
        return False, "the replayed runs approach each other, or come closer than the stated gap"
    return True, f"replayed, not proved: the gap stays above {gap:.3g} for {steps} steps"
