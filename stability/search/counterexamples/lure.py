"""Searches for counterexamples of Lur'e systems and of networks with inputs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.kernel.arithmetic.activations import activation
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.search.counterexamples.constant_slopes import EIGENVALUES, UnstableSlopes, search_slopes
from stability.search.counterexamples.equilibria import search_equilibria
from stability.search.counterexamples.limit_sets import search_separated_pairs, unstable_candidate
from stability.search.counterexamples.linear import unstable_everywhere_data, unstable_linear_data
from stability.search.counterexamples.periodic_inputs import ascend_periodic_inputs
from stability.search.counterexamples.refutation import (
    Candidate,
    Refutation,
    RefutationTask,
    accepted_refutation,
    first_accepted,
)
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.criteria.nonexpansive import nonexpansive_claim
from stability.search.solvers.deadline import Deadline, TimeLimit
from stability.search.solvers.rates import margin_of, spectral_rate
from stability.search.trajectories.input_range import ANYWHERE

Array = np.ndarray
BY_EIGENVALUES = (("unstable_linear", unstable_linear_data), ("unstable_everywhere", unstable_everywhere_data))
"""Witnesses that a single eigenvalue problem finds."""
PERIODS, ASCENTS, ASCENT_STATES = (1, 2, 3, 4, 6), 3, 256
"""Search for periodic inputs with unstable orbits: tried periods, starts for each, and most states."""
EDGE = 1e-9
"""Distance from the stability boundary below which an eigenvalue may lie on it."""
NARROWER = (1e-3, 1e-2, 0.1, 0.5)
"""Lower slopes, as shares of the upper ones, of the sectors that are tried if slope zero rules out every rate."""
ROUNDING = 1e-12
"""Largest excess of eigenvalues that is attributed to storing an orthogonal matrix."""


def slope_data(slopes: UnstableSlopes) -> dict[str, Any]:
    """Return the data of a ``destabilising_slopes`` proof."""
    return {"K": slopes.K, "eigenvalue": [slopes.value.real, abs(slopes.value.imag)]}


def slope_finding(slopes: UnstableSlopes, discrete: bool, holds: bool) -> Finding:
    """Return the outcome of the search for constant slopes."""
    boundary, part = ("the unit circle", "modulus") if discrete else ("the imaginary axis", "real part")
    values, size = np.unique(slopes.K), f"{part} {slopes.excess + discrete:.5g}"
    constant = f"slope {values[0]:g}" if len(values) == 1 else "slopes"
    place = f"on {boundary}" if abs(slopes.excess) <= EDGE else f"beyond {boundary}, {size}"
    detail = f"with constant {constant} the loop has an eigenvalue {place}"
    detail += ": no certificate for all these slopes can exist" if holds else ""
    if not holds and not slopes.excess >= -EDGE:
        detail = f"no constant slopes were found that destabilize: the largest {size}"
    margin = float(slopes.excess) if np.isfinite(slopes.excess) else None
    return Finding("destabilising_slopes", holds, margin, detail, None, {"K": slopes.K})


def search_lure_system(search: RefutationTask) -> Refutation:
    """Search for constant slopes that destabilize a system without a known activation."""
    system = search.subject
    with np.errstate(all="ignore"):
        slopes = search_slopes(system, rng=np.random.default_rng(search.seed), deadline=search.deadline)
        corners = [slope_data(slopes)] if np.isfinite(slopes.excess) else []
        corners += [{"K": K} for K in _boundary_cases(system)]
    candidates = (("destabilising_slopes", data) for data in corners)
    answer = first_accepted(search, candidates, f"largest excess with constant slopes: {slopes.excess:.3g}")
    finding = slope_finding(slopes, system.is_discrete, answer.proof is not None)
    if abs(slopes.excess) <= EDGE:
        finding = replace(finding, detail=finding.detail + narrower_sector(system, time_limit=search.deadline))
    return replace(answer, findings=(finding,))


def _boundary_cases(system: LureSystem) -> list[Array]:
    """Return ends of the slope interval whose matrix may have an eigenvalue exactly on the stability boundary."""
    endpoints = (system.alpha, system.beta)
    rates = (spectral_rate(np.linalg.eigvals(system.jacobian(K)), system.is_discrete) for K in endpoints)
    return [K.copy() for K, rate in zip(endpoints, rates, strict=True) if margin_of(rate, system) <= EDGE]


def narrower_sector(system: LureSystem, *, time_limit: TimeLimit = None) -> str:
    """Describe the widest sector without slope zero in which the loop is certified; empty if there is none."""
    deadline = Deadline.from_limit(time_limit)
    for share in NARROWER if system.channels and not system.alpha.any() else ():
        narrow = LureSystem(system.A, system.B, system.C, system.D, (share * system.beta, system.beta), system.dt)
        if multiplier_criterion(narrow, rate="any", solver="riccati", time_limit=deadline).holds:
            least, most = share * float(system.beta.min()), float(system.beta.max())
            return f"; it is certified for slopes in [{least:g}, {most:g}]: pass slope=({least:g}, {most:g})"
    return ""


def search_network(search: RefutationTask) -> Refutation:
    """Search for a witness against a network: its weights, bias and activation, under every input.

    The search tries single eigenvalue problems first, then destabilizing slopes (as a finding only), then equilibria,
    orbits and pairs of runs: under inputs in the range of the data, where periodic inputs are also optimized, and under
    any inputs. An unstable linear part exactly on the stability boundary comes last. For a nonexpansive network only
    the eigenvalue problems are tried, since it has no unstable equilibrium or orbit.
    """
    driven, system, deadline = search.subject, search.subject.system, search.deadline
    with np.errstate(all="ignore"):
        answer = first_accepted(search, ((kind, make(driven)) for kind, make in BY_EIGENVALUES))
        if answer.proof is not None or not deadline.affords(EIGENVALUES * driven.states**3):  # other searches cost more
            return answer
        edge = accepted_refutation(driven, "unstable_linear", unstable_linear_data(driven, boundary=True))
        rng = np.random.default_rng(search.seed)
        slopes = search_slopes(system, rng=rng, deadline=deadline.share(0.3), enough=1e-4)
        proved = np.isfinite(slopes.excess) and accepted_refutation(system, "destabilising_slopes", slope_data(slopes))
        finding = slope_finding(slopes, system.is_discrete, bool(proved))
        regions = (search.region, ANYWHERE) if search.region.bounded else (ANYWHERE,)
        if slopes.excess <= ROUNDING and nonexpansive_claim(driven, time_limit=deadline) is not None:
            regions = ()
        candidates = (
            _candidates(
                replace(
                    search,
                    region=region,
                    effort=0.3 * search.effort if edge else search.effort,
                    deadline=deadline.share(0.5) if region.bounded else deadline,
                ),
                rng,
                slopes,
            )
            for region in (regions if system.channels else ())
        )
        last = [[]] if edge is None else [[edge]]
        ordered = itertools.chain.from_iterable(itertools.chain(candidates, last))
        return first_accepted(search, ordered, finding.detail, (finding,))


def _candidates(search: RefutationTask, rng: np.random.Generator, slopes: UnstableSlopes) -> Iterator[Candidate]:
    """Yield equilibria first, then runs that stay apart, under inputs of the search's range."""
    driven, deadline = search.subject, search.deadline
    thorough = slopes.excess > 0  # without destabilizing slopes no equilibrium can be unstable
    aim = _activation_slopes(driven, slopes, rng, deadline.share(0.3)) if thorough else None
    equilibria = search_equilibria(replace(search, deadline=deadline.share(0.6)), rng, slopes=aim, thorough=thorough)
    best, pair = equilibria.unstable, equilibria.pair
    if best is not None and best.excess > 0:
        yield from unstable_candidate(driven, best.x[None], best.u[None])
    if pair is not None:
        yield "two_equilibria", {"state1": pair[0].x, "state2": pair[1].x, "input": pair[0].u}
    yield from search_separated_pairs(search, rng, inputs=None if best is None else best.u[None], brief=not thorough)
    if thorough:
        yield from _unstable_periodic_inputs(search, rng)


def _unstable_periodic_inputs(search: RefutationTask, rng: np.random.Generator) -> Iterator[Candidate]:
    """Yield orbits under periodic inputs, optimized for growing differences, in a known range."""
    driven, region = search.subject, search.region
    moved = driven.E.any() or driven.F.any()
    smooth = activation(driven.activation).width is not None and not driven.system.D.any()
    if not (driven.is_discrete and moved and smooth and region.bounded and driven.states <= ASCENT_STATES):
        return
    for periodic in ascend_periodic_inputs(
        driven, region, rng=rng, deadline=search.deadline, periods=PERIODS, starts=ASCENTS
    ):
        if periodic.radius > 1.0:
            yield from unstable_candidate(driven, periodic.orbit, periodic.inputs)


def _activation_slopes(
    driven: DrivenSystem, slopes: UnstableSlopes, rng: np.random.Generator, deadline: Deadline
) -> Array:
    """Return destabilizing slopes within the activation's interval, which may be smaller than the system's."""
    system, (low, high) = driven.system, activation(driven.activation).slope
    if ((low <= slopes.K) & (high >= slopes.K)).all():
        return slopes.K
    loop = LureSystem(system.A, system.B, system.C, system.D, (low, high), system.dt)
    return search_slopes(loop, rng=rng, deadline=deadline, hint=slopes.K).K
