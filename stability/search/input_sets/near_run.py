"""Search for a proof of contraction under inputs in a box, near one trajectory.

A run of a contracting network is a function of its last inputs and lies close to a few simulated runs. The box of a run
is made from these, and widened to the reach of zonotopes from it until they return inside.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.errors import StabilityError
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Refused
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.absorbing_sets import Absorbed, Sets
from stability.kernel.theorems.driven_lmi import slopes_on
from stability.kernel.theorems.near_run import (
    contains_box,
    difference_system,
    distance_after,
    distance_bound,
    neighborhood_bounds,
    why_no_run,
    zonotopes_from_box,
)
from stability.proposals import accepted_claim
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.rates import Rate
from stability.search.solvers.spectral_bounds import rate_proof

Array = np.ndarray
_RUNS, _SEEN, _SEED = 32, 60, 0
"""Simulated runs, their steps, and the seed of their inputs."""
_TURNS, _TRIES = 16, 10
"""Most ``turns``, and most trial boxes of a run."""
_BEYOND = 0.1
"""Enlargement of a box, relative to the half widths that it must contain."""
_ENTRY = 0.99
"""Rate of the approach to the run: a slower one waits longer, a faster one is found less often."""
_NEAR = 0.01
"""Mean relative widening of a run's bounds for the remaining distance from it."""
_HALVES = 1.0
"""Relative width of a run's sets, against those of all trajectories, above which the search gives up."""


def contraction_near_run(
    subject: DrivenSystem, data: Mapping[str, Any], rate: Rate, tol: float, deadline: Deadline
) -> tuple[Claim, Finding] | None:
    """Return the claim on bounds near a run, if one is found, with the finding.

    Args:
        subject: a map without feedthrough, its activation smooth and bounded; of others nothing is found.
        data: data of the sets of all trajectories, see ``Absorbed``.
        rate: see ``driven_contraction``.
        tol: relative tolerance of the best rate.
        deadline: checked before each part.

    Returns:
        The claim and its finding, or ``None``.
    """
    if why_no_run(subject) is not None or deadline.over:
        return None
    try:
        sets = Absorbed.of(data).enclosed(subject)
        settled = _settled_run(subject, data, sets, deadline)
        if settled is None or deadline.over:
            return None
        run, proof_data = settled
        entry = _entry(subject, sets, run, deadline)
    except Refused:
        return None
    if entry is None:
        return None
    tube, waits = _wait(subject, sets, run, entry)
    whole = {**data, **proof_data, **entry, "near": tube, "waits": waits}
    return _claim(subject, neighborhood_bounds(subject, sets, run, tube), whole, rate, tol, deadline)


def _settled_run(
    subject: DrivenSystem, data: Mapping[str, Any], sets: Sets, deadline: Deadline
) -> tuple[Sets, dict[str, Any]] | None:
    """Return the sets of a run that stays in a box, and the box with its steps; ``None`` if none is found."""
    box = data["low"], data["high"]
    low, high = _simulated_range(subject, *box)
    wide = float((sets.states[1] - sets.states[0]).sum())
    for _ in range(_TRIES):
        middle, half = 0.5 * (low + high), 0.5 * (1.0 + _BEYOND) * (high - low) + 1e-9
        low, high = middle - half, middle + half
        if not float((high - low).sum()) < _HALVES * wide:
            return None
        tube, boxes, turns = zonotopes_from_box(subject, box, (low, high), 2 * _TURNS), [], None
        while len(boxes) < 2 * _TURNS - 1 and turns is None:
            if deadline.over:
                return None
            tube.step()
            boxes.append(tube.states())
            if not np.isfinite(tube.high - tube.low).all():
                return None
            turns = _turns(boxes, (low, high))
        if turns is not None:
            proof_data = {"run_low": low, "run_high": high, "turns": turns, "settling": tube.steps}
            return Sets(tube.low, tube.high, tube.states()), proof_data
        last = boxes[_TURNS - 1 :]
        low = np.minimum(low, np.min([end for end, _ in last], axis=0))
        high = np.maximum(high, np.max([end for _, end in last], axis=0))
    return None


def _turns(boxes: list[tuple[Array, Array]], box: tuple[Array, Array]) -> int | None:
    """Return ``k`` with all of steps ``k`` to ``2 k - 1`` inside the box, checked on the last one first."""
    if len(boxes) % 2 == 0:
        return None
    k = (len(boxes) + 1) // 2
    return k if all(contains_box(end, box) for end in boxes[k - 1 :]) else None


def _simulated_range(subject: DrivenSystem, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the range of the states of simulated runs under random inputs and inputs at the ends of the box."""
    rng = np.random.default_rng(_SEED)
    x, p = np.zeros((_RUNS, subject.states)), subject.inputs
    least, most = np.full(subject.states, np.inf), np.full(subject.states, -np.inf)
    for k in range(2 * _SEEN):
        share = rng.random((_RUNS, p))
        share[: _RUNS // 2] = rng.integers(0, 2, (_RUNS // 2, p))
        share[0], share[1] = 0.0, 1.0
        x = subject.advance(x, low + share * (high - low))
        if k >= _SEEN:
            least, most = np.minimum(least, x.min(axis=0)), np.maximum(most, x.max(axis=0))
    return least, most


def _entry(subject: DrivenSystem, sets: Sets, run: Sets, deadline: Deadline) -> dict[str, Any] | None:
    """Find a metric, multipliers and a rate at which every trajectory approaches the run."""
    finding = multiplier_criterion(
        difference_system(subject, sets, run), rate=_ENTRY, solver="riccati", time_limit=deadline
    )
    data = rate_proof(finding.witness, finding.rate) if finding.holds else None
    if data is None:
        return None
    keys = {"entry_P": "P", "entry_L": "L", "entry_rate": "rate", "entry_least": "p_min", "entry_top": "p_max"}
    return {name: data[key] for name, key in keys.items()}


def _wait(subject: DrivenSystem, sets: Sets, run: Sets, entry: Mapping[str, Any]) -> tuple[float, int]:
    """Bound the distance of every trajectory to the run, and the number of steps until then."""
    rows = np.linalg.norm(subject.system.C, axis=1)
    tolerance = _NEAR * float(np.mean(run.high - run.low)) / max(2.0 * float(np.mean(rows)), 1e-100)
    least, top, rate = (float(entry[key]) for key in ("entry_least", "entry_top", "entry_rate"))
    distance = distance_bound(sets, run)
    waits = max(1, math.ceil(math.log(max(math.sqrt(top / least) * distance / tolerance, 1.0)) / -math.log(rate)))
    while distance_after(distance, least, top, rate, waits) > tolerance:
        waits += 1
    return tolerance, waits


def _claim(
    subject: DrivenSystem, sets: Sets, data: Mapping[str, Any], rate: Rate, tol: float, deadline: Deadline
) -> tuple[Claim, Finding] | None:
    """Return the claim if its rule accepts it."""
    try:
        inner = slopes_on(subject, sets.low, sets.high)
        finding = multiplier_criterion(inner, rate=rate, solver="riccati", tol=tol, time_limit=deadline)
    except StabilityError:
        return None
    proof = rate_proof(finding.witness, finding.rate) if finding.holds else None
    claim = None if proof is None else accepted_claim(subject, "run_lmi", {**data, **proof})
    if claim is None:
        return None
    width = float(np.mean(sets.high - sets.low))
    words = f"for state sets of mean width {width:.3g} around one run that attracts all others"
    return claim, Finding("driven", True, finding.margin, words, finding.rate)
