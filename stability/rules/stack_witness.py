"""Rules for what refutes the contraction of a stack beyond its lowest level.

``merged_stack``: a proof against the stack as one network (``stability.merged``), checked by that proof's own rule.

``stack_trajectories``: two simulated runs of the whole stack under one input sequence, constant or periodic, that stay
apart. A replay, not a proof, and the answer says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.certificate import Claim, Proof, Verdict
from stability.gated import GatedCell
from stability.merged import merged
from stability.rules.registry import RULES, STATEMENTS, Outcome, rule
from stability.rules.separated_trajectories import (
    LONGEST_PERIOD,
    MAX_STEPS,
    MAX_WORK,
    MIN_STEPS,
    holds_apart,
    periodic_input,
)
from stability.rules.witness_data import number, refutes, vector
from stability.stacks import Cascade
from stability.statements import at_least

__all__ = ["check_merged", "check_trajectories", "run_gaps", "work"]

Array = np.ndarray
MERGED_KINDS = ("unstable_linear", "unstable_equilibrium", "two_equilibria", "separated_trajectories")


def _inner(subject: Any, claim: Claim) -> tuple[Any, Claim] | None:
    """The merged network and the claim about it, or ``None`` where there is none."""
    data = claim.proof.data if claim.proof is not None else {}
    whole = merged(subject) if isinstance(subject, Cascade) else None
    if whole is None or data.get("kind") not in MERGED_KINDS:
        return None
    proof = Proof(str(data["kind"]), data["data"])
    draft = Claim("contraction", "", Verdict.REFUTED, proof)
    return whole, Claim("contraction", STATEMENTS[proof.kind](whole, draft), Verdict.REFUTED, proof)


def _merged_statement(subject: Any, claim: Claim) -> str:
    inner = _inner(subject, claim)
    if inner is None:
        return "A statement about stacks of layers."
    return f"This stack of {len(subject.layers)} layers does not contract, as one network: {inner[1].statement}"


@rule("merged_stack", statement=_merged_statement)
def check_merged(subject: Any, claim: Claim) -> Outcome:
    """Data: ``kind`` and ``data`` of a proof against the merged network."""
    if not isinstance(subject, Cascade):
        return False, f"this proof is about stacks of layers, not {type(subject).__name__}"
    problem = refutes(claim, ("contraction",))
    if problem is not None:
        return False, problem
    inner = _inner(subject, claim)
    if inner is None:
        return False, f"the stack is no single network free of rounding, or the proof is none of {MERGED_KINDS}"
    whole, about = inner
    return RULES[about.proof.kind](whole, about) if about.proof is not None else (False, "there is no proof")


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
    layers = len(subject.layers) if isinstance(subject, Cascade) else 0
    inputs = data.get("inputs")
    period = len(inputs) if isinstance(inputs, np.ndarray) and inputs.ndim == 2 else 0
    kind = "constant input" if period == 1 else f"input of period {period}"
    return (
        f"This stack of {layers} layers was not seen to contract (replayed numerically, not proved): under the {kind} "
        f"of the proof two runs of it stay at least {at_least(data.get('gap'))} apart for {data.get('steps')!r} steps."
    )


@rule("stack_trajectories", statement=_trajectories_statement)
def check_trajectories(subject: Any, claim: Claim) -> Outcome:
    """Data: ``first`` (n,), ``second`` (n,), ``inputs`` (k, p) with k up to 4, ``steps``, ``gap``."""
    if not isinstance(subject, Cascade) or subject.directions != 1 or not subject.is_discrete:
        return False, "runs refute a claim about a discrete stack with one direction, not about this subject"
    problem = refutes(claim, ("contraction",))
    if problem is not None or claim.proof is None:
        return False, problem or "there is no proof"
    data = claim.proof.data
    first, second = (vector(data, key, subject.states) for key in ("first", "second"))
    inputs, gap, steps = periodic_input(data, "inputs", subject.inputs), number(data, "gap"), data.get("steps")
    if first is None or second is None or gap is None or not gap > 0.0:
        return False, "first, second and gap must be finite and of the stack's sizes, the gap positive"
    if inputs is None:
        return False, f"inputs must hold 1 to {LONGEST_PERIOD} finite vectors of {subject.inputs} entries"
    lowest = subject.layers[0]
    boxed = isinstance(lowest, GatedCell) and lowest.input_low is not None
    if boxed and not ((lowest.input_low <= inputs) & (inputs <= lowest.input_high)).all():
        return False, "an input of the proof lies outside the box of the lowest level"
    if type(steps) is not int or not MIN_STEPS <= steps <= MAX_STEPS or steps * work(subject) > MAX_WORK:
        return False, f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}], and the replay not too long"
    with np.errstate(all="ignore"):
        distances = run_gaps(subject, first, second, inputs, steps)
    if not holds_apart(distances, gap):
        return False, "the replayed runs approach each other, or come closer than the stated gap"
    return True, f"replayed numerically, not proved: the gap stays above {gap:.3g} for {steps} steps"
