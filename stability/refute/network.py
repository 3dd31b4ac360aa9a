"""Search for a witness against a network: its weights, bias and activation, under inputs of the data's range first."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.refute.answer import NOTHING, Refutation, accepted
from stability.refute.equilibria import search_equilibria
from stability.refute.everywhere import unstable_everywhere_data
from stability.refute.inputs import ANYWHERE, InputRange
from stability.refute.linear import unstable_linear_data
from stability.refute.occurrence import in_range, states_reachable
from stability.refute.orbits import named_value
from stability.refute.slopes import SlopeSearch, search_slopes
from stability.refute.trajectories import search_pairs
from stability.solve.deadline import Deadline
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import activation

__all__ = ["refute_network", "slope_data", "slope_finding"]

Array = np.ndarray


def slope_data(found: SlopeSearch) -> dict[str, Any]:
    """Data of a ``destabilising_slopes`` proof."""
    return {"K": found.K, "eigenvalue": [found.value.real, abs(found.value.imag)]}


def slope_finding(found: SlopeSearch, discrete: bool, holds: bool) -> Finding:
    """What the search for constant slopes has learnt."""
    what = "modulus of an eigenvalue less one" if discrete else "real part of an eigenvalue"
    detail = f"constant slopes reach {found.excess:+.4g} ({what}): " + (
        "no certificate that ignores bias and slopes can exist" if holds else "none found that destabilise"
    )
    margin = float(found.excess) if np.isfinite(found.excess) else None
    return Finding("destabilising_slopes", holds, margin, detail, None, {"K": found.K})


def refute_network(
    driven: DrivenSystem,
    *,
    seed: int,
    deadline: Deadline,
    hint: Array | None = None,
    region: InputRange = ANYWHERE,
    start: Array | None = None,
    horizon: int | None = None,
    effort: float = 1.0,
) -> Refutation:
    """Search for a witness against a network; the arguments are those of ``refute``, checked.

    Args:
        driven: the network.
        seed: of the random starts.
        deadline: a safety net; attempts are counted.
        hint: ``(m,)`` slopes to start from.
        region: the range of the data's inputs, searched first.
        start: ``(n,)`` initial state in use.
        horizon: number of steps in use.
        effort: multiplies the number of attempts.

    Returns:
        A proof where one was found, else a replay, else nothing.
    """
    system = driven.system
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        answer = accepted(driven, "unstable_linear", unstable_linear_data(driven))
        answer = answer or accepted(driven, "unstable_everywhere", unstable_everywhere_data(driven))
        findings: tuple[Finding, ...] = ()
        if answer is None:
            edge = accepted(driven, "unstable_linear", unstable_linear_data(driven, boundary=True))
            found = search_slopes(system, rng=rng, deadline=deadline.share(0.3), hint=hint, enough=1e-4)
            proved = np.isfinite(found.excess) and accepted(system, "destabilising_slopes", slope_data(found))
            findings = (slope_finding(found, system.is_discrete, bool(proved)),)
            if system.channels:
                answer = _in_order(driven, rng, deadline, found, region, 0.3 * effort if edge else effort)
            answer = answer if answer is not None and answer.found else edge or answer
    if answer is None or answer.proof is None:
        return Refutation(None, "", findings, f"{NOTHING} ({'; '.join(f.detail for f in findings)})")
    data = answer.proof.data
    return replace(
        answer,
        findings=findings,
        input_in_data_range=in_range(data, region),
        states_reachable=states_reachable(driven, data, region, start, horizon),
    )


def _in_order(
    driven: DrivenSystem,
    rng: np.random.Generator,
    deadline: Deadline,
    slopes: SlopeSearch,
    region: InputRange,
    effort: float,
) -> Refutation | None:
    """First in the data's range, then anywhere; a proof from anywhere counts for more than a replay in the range."""
    replayed = None
    for place in (region, ANYWHERE) if region.bounded else (ANYWHERE,):
        share = deadline.share(0.5) if place.bounded else deadline
        answer = _witness(driven, rng, share, slopes, place, effort)
        if answer is not None and answer.found:
            return answer
        replayed = replayed or answer
    return replayed


def _witness(
    driven: DrivenSystem,
    rng: np.random.Generator,
    deadline: Deadline,
    slopes: SlopeSearch,
    region: InputRange,
    effort: float,
) -> Refutation | None:
    thorough = slopes.excess > 0  # without destabilising slopes no equilibrium can be unstable: look only briefly
    aim = _own_slopes(driven, slopes, rng, deadline.share(0.3)) if thorough else None
    result = search_equilibria(
        driven,
        rng=rng,
        deadline=deadline.share(0.6),
        slopes=aim,
        thorough=thorough,
        region=region,
        effort=effort,
    )
    best = result.unstable
    if best is not None and best.excess > 0:
        name = named_value(driven, best.x[None], best.u[None], best.value)
        answer = accepted(driven, "unstable_equilibrium", {"state": best.x, "input": best.u, "eigenvalue": name})
        if answer is not None:
            return answer
    if result.pair is not None:
        first, second = result.pair
        answer = accepted(driven, "two_equilibria", {"state1": first.x, "state2": second.x, "input": first.u})
        if answer is not None:
            return answer
    inputs, replayed = None if best is None else best.u[None, :], None
    for kind, data in search_pairs(
        driven, rng=rng, deadline=deadline, region=region, inputs=inputs, effort=effort, brief=not thorough
    ):
        if kind == "separated_trajectories" and replayed is not None:
            continue
        answer = accepted(driven, kind, data)
        if answer is not None and answer.found:
            return answer
        replayed = replayed or answer
    return replayed


def _own_slopes(driven: DrivenSystem, found: SlopeSearch, rng: np.random.Generator, deadline: Deadline) -> Array:
    """Destabilising slopes that the activation itself has, where the system admits more."""
    system, (low, high) = driven.system, activation(driven.activation).slope
    if ((low <= found.K) & (high >= found.K)).all():
        return found.K
    own = LureSystem(system.A, system.B, system.C, system.D, (low, high), system.dt)
    return search_slopes(own, rng=rng, deadline=deadline, hint=found.K).K
