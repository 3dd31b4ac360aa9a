"""Search for the claim about a run in finite precision, from a proof of contraction."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.fields import Refused
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.execution import ExecutionModel
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.theorems.as_it_runs import AsItRuns, displacement, norm_of_entries, run_bound
from stability.proposals import propose

Array = np.ndarray
SETTLING = 2000
"""Steps under the middle of the box, at whose end the ball of the states has its center."""
ROUNDS = 60
GROW = 1.0 + 1e-9


def run_claim(subject: Any, claims: Iterable[Claim], model: ExecutionModel, box: tuple[Array, Array]) -> Claim | None:
    """Return the claim of the smallest proved bound.

    Args:
        subject: a network or cell.
        claims: proved claims of contraction.
        model: the arithmetic.
        box: ends of the box of the inputs, ``(p,)``.

    Returns:
        The claim, or ``None`` where no proof covers a run.
    """
    best: tuple[float, dict[str, Any]] | None = None
    for claim in claims:
        if claim.verdict is not Verdict.CERTIFIED or claim.proof is None or claim.proof.kind != "multiplier_lmi":
            continue
        found = driven_run(subject, dict(claim.proof.data), model, box)
        if found is not None and (best is None or found["bound"] < best[0]):
            best = found["bound"], found
    return None if best is None else propose(subject, "as_it_runs", best[1])


def driven_run(
    subject: DrivenSystem, proof: dict[str, Any], model: ExecutionModel, box: tuple[Array, Array]
) -> dict[str, Any] | None:
    """Return the data of a proof in the metric of a contraction proof, or ``None``."""
    low, high = box
    center = np.zeros(subject.states)
    middle = 0.5 * (low + high)
    for _ in range(SETTLING):
        after = subject.advance(center, middle)
        if not np.isfinite(after).all() or np.allclose(after, center, rtol=1e-9, atol=1e-300):
            break
        center = after
    rate, p_min = float(proof["rate"]), float(proof["p_min"])
    data = {**proof, "center": center, "low": low, "high": high, "arithmetic": model.payload()}
    push = norm_of_entries(proof["P"], displacement(subject, center, low, high))
    radius = max(norm_of_entries(proof["P"], np.abs(center)), push / (1.0 - rate)) * GROW + 1e-300
    try:
        for _ in range(ROUNDS):
            delta, stored = AsItRuns.of({**data, "radius": radius, "bound": 0.0}).errors(subject)
            if rate * radius * GROW + push + delta <= radius:
                bound = run_bound(delta, rate, p_min, stored) * GROW
                return {**data, "radius": radius, "bound": bound} if math.isfinite(bound) else None
            radius = max(radius * 1.01, (push + delta) / (1.0 - rate) * 1.001)
            if not radius < 1e100:
                return None
    except Refused:
        return None
    return None
