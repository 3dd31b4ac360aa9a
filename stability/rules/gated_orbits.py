"""Rules for what refutes the contraction of a gated cell: orbits, an unstable equilibrium, separated trajectories.

``gated_orbits``: two different points on periodic orbits under one constant input. Their distance comes back after the
common period, for ever. Equilibria are orbits of period one; one orbit of a period above one is enough by itself,
run by two trajectories a step apart. Existence is proved by Krawczyk's test.

``gated_unstable``: an equilibrium, proved to exist, whose Jacobian is proved to have an eigenvalue outside the unit
circle, so that trajectories beside it leave it.

``gated_trajectories``: two simulated trajectories that stay apart. A replay, not a proof, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.enclosures import Matrix
from stability.gated import GatedCell
from stability.gated_balls import enclose_orbit, step_and_jacobian
from stability.instability import prove_not_stable
from stability.rules.registry import Outcome, rule
from stability.rules.separated_trajectories import MAX_STEPS, MAX_WORK, MIN_STEPS, holds_apart
from stability.rules.witness_data import complex_number, eigenvalue_text, number, vector
from stability.statements import at_least, describe

__all__ = ["MAX_UNKNOWNS", "check_orbits", "check_trajectories", "check_unstable", "gaps"]

Array = np.ndarray
MAX_UNKNOWNS = 2500


def _orbit(data: Any, key: str, n: int) -> Array | None:
    value = data.get(key)
    if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.ndim != 2 or value.shape[1] != n:
        return None
    good = value.shape[0] >= 1 and value.size <= MAX_UNKNOWNS and bool((np.abs(value) <= 1e100).all())
    return value if good else None


def _input(subject: GatedCell, data: Mapping[str, Any]) -> tuple[str, Array | None]:
    """The input of the proof when it is one that the cell may read; else why not."""
    u = vector(data, "input", subject.inputs)
    if u is None:
        return f"input must be a finite vector of {subject.inputs} entries", None
    if subject.input_low is not None and not ((subject.input_low <= u) & (u <= subject.input_high)).all():
        return "the input of the proof lies outside the cell's input box", None
    return "", u


_ABOUT: dict[str, Any] = {"subject": GatedCell, "claim": "contraction"}


def _orbits_statement(subject: Any, claim: Claim) -> str:
    data = claim.proof.data if claim.proof is not None else {}
    periods = [len(data[key]) for key in ("first", "second") if isinstance(data.get(key), np.ndarray)]
    if len(periods) == 1:
        what = f"an orbit of period {periods[0]}, and two trajectories that run it a step apart never approach"
    elif max(periods, default=1) == 1:
        what = "two different equilibria, whose distance never changes"
    else:
        what = f"two orbits of periods {periods[0]} and {periods[1]}, which never approach each other"
    return f"{describe(subject)} does not contract: under the constant input of the proof it has {what}."


@rule(
    "gated_orbits",
    **_ABOUT,
    verdict=Verdict.REFUTED,
    fields={"first": "array", "input": "array"},
    optional={"second": "array"},
    statement=_orbits_statement,
)
def check_orbits(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``first`` (k, n), ``second`` (l, n) unless ``k >= 2``, ``input`` (p,)."""
    problem, u = _input(subject, data)
    if u is None:
        return False, problem
    first = _orbit(data, "first", subject.states)
    second = _orbit(data, "second", subject.states) if "second" in data else None
    if first is None or ("second" in data and second is None) or (second is None and len(first) < 2):
        return False, "first and second must be finite orbits of the cell's size; one alone needs two points"
    with np.errstate(all="ignore"):
        box = enclose_orbit(subject, first, u)
        other = None if second is None else enclose_orbit(subject, second, u)
    if box is None or (second is not None and other is None):
        return False, "an orbit is not proved to exist"
    one, two = box[0], (box[1] if other is None else other[0])
    gap = float((np.abs(one.mid - two.mid) * (1 - 1e-15) - (one.rad + two.rad) * (1 + 1e-15)).max())
    if not gap > 0.0:
        return False, "the two points may be the same"
    return True, f"orbits proved to exist, their points at least {gap:.3g} apart"


def _unstable_statement(subject: Any, claim: Claim) -> str:
    data = claim.proof.data if claim.proof is not None else {}
    return (
        f"{describe(subject)} does not contract: under the constant input of the proof it has an equilibrium whose "
        f"Jacobian has the eigenvalue {eigenvalue_text(complex_number(data, 'eigenvalue'))}, so trajectories that "
        "start next to it leave it."
    )


@rule(
    "gated_unstable",
    **_ABOUT,
    verdict=Verdict.REFUTED,
    fields={"state": "array", "input": "array", "eigenvalue": "pair"},
    statement=_unstable_statement,
)
def check_unstable(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``state`` (n,), ``input`` (p,), ``eigenvalue`` (re, im) approximately."""
    problem, u = _input(subject, data)
    if u is None:
        return False, problem
    state, value = (
        vector(data, "state", subject.states),
        complex_number(data, "eigenvalue"),
    )
    if state is None or value is None or state.size > MAX_UNKNOWNS:
        return False, "state and eigenvalue must be finite and of the cell's size"
    with np.errstate(all="ignore"):
        box = enclose_orbit(subject, state[None, :], u)
        if box is None:
            return False, "no equilibrium is proved to exist at the stored state and input"
        _, jacobian = step_and_jacobian(subject, box[0], u)
        proved = prove_not_stable(Matrix(jacobian, np.ones(subject.states)), True, value, strict=True)
    if proved is None:
        return False, "no eigenvalue of the Jacobian outside the unit circle is proved near the stored one"
    return (
        True,
        f"an equilibrium within {float(box.rad.max()):.1e} of the stored state; for its Jacobian: {proved}",
    )


def gaps(cell: GatedCell, first: Array, second: Array, u: Array, steps: int) -> Array:
    """Euclidean distances of two trajectories under one constant input, ``(steps + 1,)``."""
    pair = np.stack([first, second])
    inputs = np.broadcast_to(u, (2, len(u)))
    out = np.empty(steps + 1)
    for k in range(steps + 1):
        out[k] = np.linalg.norm(pair[0] - pair[1])
        pair = cell.advance(pair, inputs) if k < steps else pair
    return out


def _trajectories_statement(subject: Any, claim: Claim) -> str:
    data = claim.proof.data if claim.proof is not None else {}
    return (
        f"{describe(subject)} was not seen to contract (replayed numerically, not proved): under the constant input of "
        f"the proof two trajectories stay at least {at_least(data.get('gap'))} apart for {data.get('steps')!r} steps."
    )


@rule(
    "gated_trajectories",
    **_ABOUT,
    verdict=Verdict.INCONCLUSIVE,
    fields={**dict.fromkeys(("first", "second", "input"), "array"), "steps": "count", "gap": "number"},
    statement=_trajectories_statement,
)
def check_trajectories(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``first`` (n,), ``second`` (n,), ``input`` (p,), ``steps``, ``gap``."""
    problem, u = _input(subject, data)
    if u is None:
        return False, problem
    first, second = (vector(data, key, subject.states) for key in ("first", "second"))
    gap, steps = number(data, "gap"), data["steps"]
    if first is None or second is None or gap is None or not gap > 0.0:
        return False, "first, second and gap must be finite and of the cell's sizes, the gap positive"
    if not MIN_STEPS <= steps <= MAX_STEPS:
        return False, f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}]"
    if steps * 4.0 * subject.w_hh.size > MAX_WORK:
        return False, "the replay would take too long"
    if not holds_apart(gaps(subject, first, second, u, steps), gap):
        return False, "the replayed trajectories approach each other, or come closer than the stated gap"
    return True, f"replayed, not proved: the gap stays above {gap:.3g} for {steps} steps"
