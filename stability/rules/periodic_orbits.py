r"""Rules for periodic orbits of maps, each proved to exist by Krawczyk's test on the cyclic system of its points.

``periodic_orbits``: two orbits under one periodic (or constant) input, or one that takes longer to come back than the
input does. With the input's period ``q`` and an orbit :math:`x_0, \dots, x_{k-1}`, ``k`` a multiple of ``q``, the
trajectories that start at :math:`x_0` and at :math:`x_q` see the same inputs, and so do those that start at the first
points of two orbits. Where the two starts are proved different, their distance comes back after the common period,
for ever; a network that contracts brings all trajectories under one input together.

``unstable_orbit``: an orbit along which the product of the Jacobians is proved to have an eigenvalue outside the unit
circle, for every Jacobian over the box of the orbit (``stability.rigor.eigenpairs.closed_loop_orbit``). Trajectories
beside it leave it; with an exponential rate none could.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rigor.eigenpairs import closed_loop_orbit
from stability.rigor.equilibria import distance, enclose_orbit
from stability.rigor.instability import prove_not_stable
from stability.rules.named_eigenvalue import OPTIONAL, eigenvalue_phrase, named
from stability.rules.registry import Outcome, rule
from stability.rules.unstable_equilibrium import smooth_slopes
from stability.rules.witness_data import LIMIT
from stability.statements import describe
from stability.systems import DrivenSystem

__all__ = ["LONGEST", "MAX_UNKNOWNS", "check_orbits", "check_unstable", "points", "unknowns"]

Array = np.ndarray
LONGEST = 64
MAX_UNKNOWNS = 1600


def unknowns(subject: DrivenSystem, period: int) -> int:
    """Size of the system of equations of an orbit."""
    return period * (subject.system.states + subject.system.channels)


def points(data: Mapping[str, Any], key: str, width: int) -> Array | None:
    """``data[key]`` when it is a finite ``(k, width)`` array with 1 to ``LONGEST`` rows, else ``None``."""
    value = data.get(key)
    if not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.ndim != 2 or value.shape[1] != width:
        return None
    return value if 1 <= len(value) <= LONGEST and bool((np.abs(value) <= LIMIT).all()) else None


def _problem(subject: DrivenSystem, inputs: Array | None, *orbits: Array | None) -> str | None:
    """What both rules ask of their data first."""
    if not subject.system.is_discrete:
        return "orbits step by step are for maps"
    if inputs is None or any(orbit is None for orbit in orbits):
        return f"orbits and input must hold 1 to {LONGEST} finite rows of the network's sizes"
    for orbit in orbits:
        if orbit is not None and len(orbit) % len(inputs):
            return "the period of an orbit must be a multiple of the input's"
        if orbit is not None and unknowns(subject, len(orbit)) > MAX_UNKNOWNS:
            return f"an orbit has more than {MAX_UNKNOWNS} unknowns"
    return None


def _under(data: Mapping[str, Any]) -> str:
    period = len(data["input"]) if data["input"].ndim == 2 else 1
    return "the constant input" if period == 1 else f"the input of period {period}"


def _orbits_statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    first, inputs = len(data["first"]), len(data["input"])
    if "second" in data:
        what = f"two different orbits of periods {first} and {len(data['second'])}, which never approach each other"
    else:
        apart = "one step" if inputs == 1 else f"{inputs} steps"
        what = f"an orbit of period {first}, and two trajectories that run it {apart} apart never approach each other"
    return f"{describe(subject)} is not contracting: under {_under(data)} of the proof it has {what}."


@rule(
    "periodic_orbits",
    subject=DrivenSystem,
    claim="contraction",
    verdict=Verdict.REFUTED,
    fields={"first": "array", "input": "array"},
    optional={"second": "array"},
    statement=_orbits_statement,
)
def check_orbits(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``first`` (k, n), ``input`` (q, p); ``second`` (l, n) unless ``k > q``; ``q`` divides ``k`` and ``l``."""
    inputs = points(data, "input", subject.inputs)
    orbits = [points(data, key, subject.system.states) for key in ("first", "second") if key in data]
    problem = _problem(subject, inputs, *orbits)
    if problem is not None or inputs is None:
        return False, problem or "there is no input"
    boxes = []
    for orbit in orbits:
        box = None if orbit is None else enclose_orbit(subject, orbit, inputs)
        if box is None:
            return False, "an orbit is not proved to exist"
        boxes.append(box.states)
    if len(boxes) == 2:
        other = boxes[1][0]
    elif len(boxes[0].mid) > len(inputs):
        other = boxes[0][len(inputs)]
    else:
        return False, "one orbit alone must have a longer period than the input"
    gap = distance(boxes[0][0], other)
    if not gap > 0.0:
        return False, "the two starting points may be the same"
    return True, f"orbits proved to exist; two trajectories on them come back to a distance of at least {gap:.3g}"


def _unstable_statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return (
        f"{describe(subject)} is not contracting: under {_under(data)} of the proof it has an orbit of period "
        f"{len(data['orbit'])} whose linearisation, step by step, has {eigenvalue_phrase(data, True)}, so trajectories "
        "that start next to it leave it."
    )


@rule(
    "unstable_orbit",
    subject=DrivenSystem,
    claim="contraction",
    verdict=Verdict.REFUTED,
    fields={"orbit": "array", "input": "array"},
    optional=OPTIONAL,
    statement=_unstable_statement,
)
def check_unstable(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``orbit`` (k, n), ``input`` (q, p), ``q`` divides ``k``; ``eigenvalue``: a k-th root of a multiplier."""
    inputs, orbit = points(data, "input", subject.inputs), points(data, "orbit", subject.system.states)
    problem = _problem(subject, inputs, orbit)
    if problem is not None or inputs is None or orbit is None:
        return False, problem or "there is no orbit"
    box = enclose_orbit(subject, orbit, inputs)
    if box is None:
        return False, "the orbit is not proved to exist"
    slopes = smooth_slopes(subject.activation, box.channels)
    if isinstance(slopes, str):
        return False, slopes
    proved = prove_not_stable(closed_loop_orbit(subject.system, slopes), True, named(data), strict=True)
    if proved is None:
        return False, "no multiplier of the orbit outside the unit circle is proved"
    return True, f"an orbit within {float(box.states.rad.max()):.1e} of the stored one; step by step: {proved}"
