r"""Contraction of flows under inputs in a box: search for absorbing ellipsoids.

The rules ``flow_lmi``, ``flow_equilibrium`` and ``flow_bounds`` check the sets that are found here. The weights ``tau``
of an ellipsoid follow from the adjoint of its Lyapunov equation, as in ``bounded``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.linalg import solve_continuous_lyapunov

from stability.certificate import Finding
from stability.errors import StabilityError
from stability.kernel.arithmetic.activation_lines import relaxation
from stability.kernel.arithmetic.activations import activation
from stability.kernel.format.claims import Claim
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.driven_lmi import slopes_on
from stability.kernel.theorems.flow_lmi import enclosing_box
from stability.kernel.theorems.flow_sets import Ranges, Stage, no_flow_sets, rise_of
from stability.proposals import accepted_claim
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.input_sets.bounded import diagonal_of
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.rates import Rate
from stability.search.solvers.spectral_bounds import rate_proof

Array = np.ndarray
# enlargement ``eta`` of an ellipsoid, most ellipsoids, and tried decay rates as shares of the linear part's rate
ROOM, STAGES, SHARES = 0.0625, 16, (0.1, 0.3, 0.5, 0.7, 0.9)
SLOPE_SHARES = (1.0, 0.6, 0.0)
"""Tried slopes of the lines, as shares of the chords' slopes: a steep line may make the linear part unstable."""
_LYAPUNOV = 100.0
"""Operations of two Lyapunov equations, divided by n^3, on a slow core; they cannot be interrupted."""
_LEAST_DECREASE = 0.02
"""Relative decrease of the ranges that another ellipsoid must achieve."""


def flow_contraction(
    subject: DrivenSystem, low: Array, high: Array, rate: Rate, tol: float, deadline: Deadline
) -> tuple[Claim | None, Finding]:
    """Prove that trajectories of a flow approach each other under inputs in a box, from a known time on.

    Args:
        subject: the flow, without feedthrough and with a bounded activation.
        low: ``(p,)`` lower bounds of the inputs.
        high: ``(p,)`` upper bounds.
        rate: see ``multiplier_criterion``.
        tol: tolerance of the best rate.
        deadline: checked before each search.

    Returns:
        The certified claim or ``None``, and the outcome; without a claim, its witness holds the data of the sets.
    """
    why = no_flow_sets(subject)
    if why is not None:
        return None, Finding("driven", False, None, why)
    bounds = flow_sets(subject, low, high, deadline)
    if bounds is None:
        words = "no absorbing set of states was found: the linear part is not stable"
        words = "the time limit was reached" if deadline.cut else words
        return None, Finding("driven", False, None, words)
    data, sets = bounds
    try:
        inner = slopes_on(subject, sets.low, sets.high)
        finding = multiplier_criterion(inner, rate=rate, solver="riccati", tol=tol, time_limit=deadline)
    except StabilityError as error:
        return None, Finding("driven", False, None, f"the slope bounds define no valid system: {error}", witness=data)
    width = float(np.mean(sets.high - sets.low))
    proof = rate_proof(finding.witness, finding.rate) if finding.holds else None
    if proof is not None:
        claim = accepted_claim(subject, "flow_lmi", {**data, **proof})
        if claim is not None:
            words = f"for state sets of mean width {width:.3g}, {data['time']:.3g} units of time after entry"
            return claim, Finding("driven", True, finding.margin, words, finding.rate)
    words = "the time limit was reached" if deadline.cut else f"no proof for state sets of mean width {width:.3g}"
    return None, Finding("driven", False, finding.margin, words, witness=data)


def flow_bounds_claim(subject: DrivenSystem, data: Mapping[str, Any]) -> Claim | None:
    """Return the claim ``bounded_in_box`` from the data of sets, or ``None``."""
    low, high = enclosing_box(data["centres"][-1], data["shapes"][-1], float(data["room"]))
    room = 1e-9 * (high - low) + 1e-12 * np.maximum(np.abs(low), np.abs(high))
    low, high = low - room, high + room
    diagonal = diagonal_of(low, high)
    bounds = {"least_state": low, "most_state": high, "diagonal": diagonal}
    return accepted_claim(subject, "flow_bounds", {**data, **bounds})


def flow_sets(
    subject: DrivenSystem, low: Array, high: Array, deadline: Deadline
) -> tuple[dict[str, Any], Ranges] | None:
    """Return the data of nested absorbing ellipsoids, which end when they shrink no more, and the last ranges.

    ``None`` if there is no first ellipsoid.
    """
    sets, rows, spent = Ranges.under(subject, low, high), [], 0.0
    for _ in range(STAGES):
        if deadline.over or not deadline.affords(_LYAPUNOV * subject.states**3):
            break
        row = _narrowest_ellipsoid(sets, bool(rows), deadline)
        if row is None:
            break
        trial = Ranges(subject, sets.middle, sets.reach, sets.low, sets.high)
        trial.enter(row["centre"], row["Y"], ROOM)
        if rows:
            shrunk = 1.0 - float(np.sum(trial.high - trial.low)) / float(np.sum(sets.high - sets.low))
            if shrunk < _LEAST_DECREASE:
                break
            rise = rise_of(rows[-1]["centre"], rows[-1]["Y"], row["centre"], row["least"], ROOM)
            spent += max(math.log(rise / ROOM), 0.0) / row["mu"]
        rows.append(row)
        sets = trial
    if not rows:
        return None
    keys = {"centres": "centre", "shapes": "Y", "slopes": "slope", "tau": "tau", "mu": "mu", "least": "least"}
    data = {name: np.ascontiguousarray([row[key] for row in rows]) for name, key in keys.items()}
    return {"low": low, "high": high, **data, "room": ROOM, "time": spent * (1 + 1e-9) + 1e-12}, sets


def _narrowest_ellipsoid(sets: Ranges, bounded: bool, deadline: Deadline) -> dict[str, Any] | None:
    """Return the ellipsoid with the narrowest ranges of pre-activations, over all tried slopes and decay rates."""
    phi, m = activation(sets.driven.activation), sets.driven.system.channels
    chord = relaxation(phi, sets.low, sets.high)[0] if bounded else np.zeros(m)
    best, size = None, math.inf
    for share in SLOPE_SHARES if bounded else (0.0,):
        slope = np.clip(share * chord, 0.0, phi.slope[1])
        centre = _centre(sets, slope)
        if centre is None:
            continue
        stage = sets.stage(slope, centre)
        for shape in _shapes(sets, stage, deadline):
            C = sets.driven.system.C
            spread = float(np.sum(np.sqrt(np.maximum(np.diagonal(C @ shape["Y"] @ C.T), 0.0))))
            if spread < size:
                best, size = {**shape, "slope": slope, "centre": centre}, spread
    return best


def _centre(sets: Ranges, slope: Array) -> Array | None:
    """Return the equilibrium of the linear part under the middle input; ``None`` if the linear part is unstable."""
    stage = sets.stage(slope, np.zeros(sets.driven.states))
    driven, system, (offset, _) = sets.driven, sets.driven.system, sets.lines(slope)
    through = system.B * slope
    rest = through @ driven.b + system.B @ offset + (driven.F + through @ driven.E) @ sets.middle
    if not float(np.linalg.eigvals(stage.A.mid).real.max()) < -1e-9:
        return None
    return -np.linalg.solve(stage.A.mid, rest)


def _shapes(sets: Ranges, stage: Stage, deadline: Deadline) -> list[dict[str, Any]]:
    """Return ellipsoids for several decay rates, with weights from the adjoint equation; fewer if time is short."""
    A, G, n = stage.A.mid, stage.push.mid, sets.driven.states
    edge, C, out = -2.0 * float(np.linalg.eigvals(A).real.max()), sets.driven.system.C, []
    bounds = np.maximum(stage.bounds, 1e-12 * max(float(stage.bounds.max()), 1e-100))
    for share in SHARES:
        if not deadline.affords(_LYAPUNOV * n**3):
            break
        mu = share * edge
        try:
            adjoint = solve_continuous_lyapunov((A + 0.5 * mu * np.eye(n)).T, -(C.T @ C + 1e-6 * np.eye(n)))
            cost = np.maximum(np.einsum("ij,ik,kj->j", G, adjoint, G), 0.0)
            part = np.sqrt(np.maximum(cost, 1e-12 * float(cost.max(initial=1e-300))))
            tau = part / float((part * bounds).sum()) / bounds * (1 - 1e-9)
            reach = (G / tau) @ G.T / mu
            reach += 1e-9 * float(np.trace(reach)) / n * np.eye(n)
            Y = solve_continuous_lyapunov(A + 0.5 * mu * np.eye(n), -reach)
        except (np.linalg.LinAlgError, ValueError):
            continue
        Y = np.ascontiguousarray(0.5 * (Y + Y.T)) * (1 + 1e-9)
        values = np.linalg.eigvalsh(Y)
        if np.isfinite(Y).all() and values[0] > 0.0:
            out.append({"Y": Y, "mu": mu, "tau": tau, "least": 0.9 * float(values[0])})
    return out
