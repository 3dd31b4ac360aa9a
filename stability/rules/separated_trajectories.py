"""Rule ``separated_trajectories``: two trajectories under one input that do not approach each other.

The input is constant or, for maps, periodic: activations that saturate by turns can keep apart what every constant
input brings together.

They are simulated again in float64 (the map itself; in continuous time Runge-Kutta steps, once more with
half the step). This is a replay, not a proof, and the answer says so. Slow convergence must not pass for
none: the gap may not have shrunk by even a part in a million from the first half of the time to the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.flow import pair_gaps
from stability.rules.registry import Outcome, rule
from stability.rules.witness_data import number, vector
from stability.statements import at_least, describe
from stability.systems import DrivenSystem

__all__ = ["KEEP", "LONGEST_PERIOD", "MAX_WORK", "MIN_STEPS", "check", "holds_apart", "periodic_input"]

MIN_STEPS, MAX_STEPS, MAX_WORK = 2000, 200_000, 4e10
KEEP = 1.0 - 1e-6
LONGEST_PERIOD = 4


def periodic_input(data: Any, key: str, size: int) -> np.ndarray | None:
    """``data[key]`` as ``(k, size)`` when it is a finite input, ``(size,)`` or one to four of them, else ``None``."""
    value = data.get(key)
    if not isinstance(value, np.ndarray) or value.ndim != 2:
        single = vector(data, key, size)
        return None if single is None else single[None, :]
    good = 1 <= len(value) <= LONGEST_PERIOD and all(vector({key: u}, key, size) is not None for u in value)
    return value if good else None


def _statement(subject: Any, claim: Claim) -> str:
    data = claim.proof.data if claim.proof is not None else {}
    inputs = data.get("input")
    period = len(inputs) if isinstance(inputs, np.ndarray) and inputs.ndim == 2 else 1
    what = "constant input" if period == 1 else f"input of period {period}"
    discrete = isinstance(subject, DrivenSystem) and subject.system.is_discrete
    span = f"for {data.get('steps')!r} steps" if discrete else f"over the time {at_least(data.get('time'))}"
    return (
        f"{describe(subject)} was not seen to contract (replayed numerically, not proved): under the "
        f"{what} of the proof two trajectories stay at least {at_least(data.get('gap'))} apart {span}."
    )


def holds_apart(gaps: np.ndarray, gap: float) -> bool:
    """Whether the distances stay at or above ``gap`` and are not shrinking, however slowly."""
    half = len(gaps) // 2
    first, last = float(gaps[:half].min()), float(gaps[half:].min())
    return bool(np.isfinite(gaps).all() and min(first, last) >= gap > 0.0 and last >= KEEP * first)


@rule(
    "separated_trajectories",
    subject=DrivenSystem,
    claim="contraction",
    verdict=Verdict.INCONCLUSIVE,
    fields={
        **dict.fromkeys(("first", "second", "input"), "array"),
        **dict.fromkeys(("time", "gap"), "number"),
        "steps": "count",
    },
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``first``, ``second`` (n,), ``input`` (p,) or for maps (k, p) with k <= 4, ``time``, ``steps``, ``gap``."""
    system = subject.system
    first, second = (vector(data, key, system.states) for key in ("first", "second"))
    inputs, time, gap = periodic_input(data, "input", subject.inputs), number(data, "time"), number(data, "gap")
    steps = data["steps"]
    if first is None or second is None or inputs is None or time is None or gap is None:
        return False, "first, second, input, time and gap must be finite and of the network's sizes"
    if not MIN_STEPS <= steps <= MAX_STEPS:
        return False, f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}]"
    if steps * (system.states * (system.states + 2 * system.channels) + 1.0) > MAX_WORK:
        return False, "the replay would take too long"
    if len(inputs) > 1 and not system.is_discrete:
        return False, "a periodic input is for maps"
    if not (time > 0 and gap > 0):
        return False, "time and gap must be positive"
    if system.is_discrete and time != steps:
        return False, "in discrete time the time is the number of steps"
    step = 1.0 if system.is_discrete else time / steps
    with np.errstate(all="ignore"):
        runs = [pair_gaps(subject, first, second, inputs, step, steps)]
        if not system.is_discrete:
            runs.append(pair_gaps(subject, first, second, inputs, 0.5 * step, 2 * steps))
    if not all(holds_apart(run, gap) for run in runs):
        return False, "the replayed trajectories approach each other, or come closer than the stated gap"
    return True, f"replayed, not proved: the gap stays above {gap:.3g} over time {time:.6g}"
