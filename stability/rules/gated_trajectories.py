"""Rule ``gated_trajectories``: two simulated trajectories of a gated cell that stay apart.

They are simulated in float64. That is a replay, not a proof: it supports the verdict inconclusive and shows what was
seen. ``stability.rules.replay`` says when a replay counts. It has to count twice, over the stated steps and over as
many again: by then what decays at all has decayed, and a part of the gap that only decays slowly stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.gated.cell import GatedCell
from stability.rules.gated_orbits import input_phrase, inputs_of
from stability.rules.registry import Outcome, rule
from stability.rules.replay import replay, why_not_apart
from stability.rules.witness_data import vector
from stability.statements import at_least, describe

__all__ = ["MAX_STEPS", "MAX_WORK", "MIN_STEPS", "cell_work", "check", "twice_apart"]

Array = np.ndarray
MIN_STEPS, MAX_STEPS, MAX_WORK = 2000, 200_000, 4e10


def cell_work(cell: GatedCell) -> float:
    """Operations of one step, roughly."""
    return 2.0 * cell.w_hh.size + 2.0 * cell.w_ih.size


def twice_apart(
    advance: Callable[[Array, Array], Array], first: Array, second: Array, inputs: Array, steps: int, gap: float
) -> str | None:
    """Why two runs are no evidence over ``steps`` steps and over as many again; ``None`` where they are.

    Args:
        advance: one step for a batch.
        first: ``(n,)`` state.
        second: ``(n,)`` state.
        inputs: ``(q, p)``, used in turn.
        steps: a multiple of ``q`` is run.
        gap: the stated least distance.

    Returns:
        The reason, or ``None``.
    """
    length = steps - steps % len(inputs)
    for _ in range(2):
        run = replay(advance, first, second, inputs, length)
        reason = why_not_apart(run, gap)
        if reason is not None:
            return reason
        first, second = run.last
    return None


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return (
        f"{describe(subject)} was not seen to contract (replayed numerically, not proved): under the "
        f"{input_phrase(data)} two trajectories stay at least {at_least(data['gap'])} apart for {data['steps']} steps."
    )


@rule(
    "gated_trajectories",
    subject=GatedCell,
    claim="contraction",
    verdict=Verdict.INCONCLUSIVE,
    fields={"first": "array", "second": "array", "input": "array", "steps": "count", "gap": "number"},
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``first`` (n,), ``second`` (n,), ``input`` (p,) or (q, p), ``steps``, ``gap``."""
    inputs, problem = inputs_of(subject, data)
    if inputs is None:
        return False, problem
    first, second = (vector(data, key, subject.states) for key in ("first", "second"))
    gap, steps = float(data["gap"]), data["steps"]
    if first is None or second is None:
        return False, f"first and second must be vectors of {subject.states} entries"
    if not MIN_STEPS <= steps <= MAX_STEPS or 2.0 * steps * cell_work(subject) > MAX_WORK:
        return False, f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}], and the replay not too long"
    reason = twice_apart(subject.advance, first, second, inputs, steps, gap)
    if reason is not None:
        return False, reason
    return True, f"replayed numerically, not proved: the gap stays above {gap:.3g} for {steps} steps"
