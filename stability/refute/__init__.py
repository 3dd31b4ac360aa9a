"""Refutation: a search by optimisation for witnesses against a claim, each replayed by its rule."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import stability.rules  # noqa: F401 - fills the table of rules
from stability.activations import activation
from stability.certificate import Finding
from stability.errors import ConfigurationError
from stability.gated import GatedCell
from stability.refute.answer import NOTHING, Refutation, witness_claim
from stability.refute.equilibria import search_equilibria
from stability.refute.gated import search_gated
from stability.refute.linear import unstable_linear_data
from stability.refute.slopes import SlopeSearch, search_slopes
from stability.refute.stack import search_stack
from stability.refute.trajectories import search_trajectories
from stability.rules.registry import RULES
from stability.stacks import Cascade
from stability.subjects import as_subject
from stability.systems import DrivenSystem, LureSystem

__all__ = ["Refutation", "refute", "witness_claim"]


def refute(subject: Any, *, seed: int = 0, time_limit: float = 10.0, hint: Any = None) -> Refutation:
    """Search for a witness against exponential incremental stability.

    For a bare ``LureSystem`` ("for every activation with these slopes"): constant slopes ``K`` that make
    ``A + B K (I - D K)^{-1} C`` unstable. For a network ("its weights, bias and activation, for every
    input"): an unstable linear part that the bounded activation cannot hold back, an unstable equilibrium
    under a constant input, two equilibria under one input, or two trajectories that do not approach each
    other. Constant slopes are only a finding there. For a stack: a witness against a layer of its lowest level, one
    against the stack as one network, or two runs of the whole stack. Every witness returned has passed its rule.

    Args:
        subject: a system, or anything that ``stability.subjects.as_subject`` turns into one.
        seed: of the random starts.
        time_limit: seconds, respected between eigenvalue problems.
        hint: ``(m,)`` slopes to start from, such as those suggested by an infeasible inequality.

    Returns:
        The witness, or none; without one nothing is proved.

    Raises:
        ConfigurationError: a seed, time limit or hint that is none.
        UnsupportedError: when the subject is no system.

    Source:
        Ascent of the spectral abscissa: J. V. Burke, A. S. Lewis, M. L. Overton, "Two numerical methods for
        optimizing matrix stability" (2002); equilibria by R. Krawczyk's test (1969).

    Example:
        >>> refute(LureSystem.recurrent([[-1.0]], [[2.0]])).proof.kind
        'destabilising_slopes'
        >>> refute(LureSystem.recurrent([[-2.0]], [[1.0]])).proof is None
        True
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigurationError(f"seed must be an integer >= 0, got {seed!r}")
    if isinstance(time_limit, bool) or not isinstance(time_limit, (int, float)) or not time_limit >= 0:
        raise ConfigurationError(f"time_limit must be a number of seconds >= 0, got {time_limit!r}")
    target = as_subject(subject)
    if isinstance(target, LureSystem):
        rng = np.random.default_rng(seed)
        return _refute_bare(target, rng, time.monotonic() + time_limit, _hint(hint, target))
    if isinstance(target, DrivenSystem):
        rng = np.random.default_rng(seed)
        return _refute_network(target, rng, float(time_limit), _hint(hint, target.system))
    if isinstance(target, GatedCell):
        return search_gated(target, seed=seed, time_limit=time_limit)
    if isinstance(target, Cascade):
        return search_stack(target, refute, seed=seed, time_limit=float(time_limit))
    return Refutation(
        None, "", (), f"no search for witnesses exists for a {type(target).__name__}; this proves nothing"
    )


def _hint(hint: Any, system: LureSystem) -> np.ndarray | None:
    if hint is None:
        return None
    try:
        slopes = np.asarray(hint, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"hint must be a vector of {system.channels} slopes") from error
    if slopes.shape != (system.channels,):
        raise ConfigurationError(f"hint must be a vector of {system.channels} slopes, got shape {slopes.shape}")
    return slopes


def _accept(subject: Any, kind: str, data: Mapping[str, Any] | None) -> Refutation | None:
    """The refutation when the verifier's rule accepts the witness."""
    if data is None:
        return None
    claim = witness_claim(subject, kind, data)
    valid, reason = RULES[kind](subject, claim)
    return Refutation(claim.proof, claim.statement, (), reason) if valid else None


def _slope_data(found: SlopeSearch) -> dict[str, Any]:
    return {"K": found.K, "eigenvalue": [found.value.real, abs(found.value.imag)]}


def _refute_bare(system: LureSystem, rng: np.random.Generator, deadline: float, hint: np.ndarray | None) -> Refutation:
    with np.errstate(all="ignore"):
        found = search_slopes(system, rng=rng, deadline=deadline, hint=hint)
        corners = [_slope_data(found)] if np.isfinite(found.excess) else []
        corners += [{"K": K, "eigenvalue": e} for K, e in _boundary_cases(system)]
    for data in corners:
        answer = _accept(system, "destabilising_slopes", data)
        if answer is not None:
            return Refutation(answer.proof, answer.statement, (_finding(system, found, True),), answer.detail)
    return Refutation(
        None, "", (_finding(system, found, False),), f"{NOTHING} (constant slopes reach {found.excess:.3g})"
    )


def _boundary_cases(system: LureSystem) -> list[tuple[np.ndarray, list[float]]]:
    """Ends of the box whose matrix may sit exactly on the boundary, where the trace decides."""
    cases = []
    for K in (system.alpha, system.beta):
        matrix = system.jacobian(K)
        if not np.isfinite(matrix).all():
            continue
        trace = float(np.trace(matrix))
        if (abs(trace) >= system.states) if system.is_discrete else (trace >= 0):
            values = np.linalg.eigvals(matrix)
            top = complex(values[int(np.argmax(np.abs(values) if system.is_discrete else values.real))])
            cases.append((K.copy(), [top.real, abs(top.imag)]))
    return cases


def _finding(system: LureSystem, found: SlopeSearch, holds: bool) -> Finding:
    what = "modulus of an eigenvalue less one" if system.is_discrete else "real part of an eigenvalue"
    detail = f"constant slopes reach {found.excess:+.4g} ({what}): " + (
        "no certificate that ignores bias and slopes can exist" if holds else "none found that destabilise"
    )
    margin = float(found.excess) if np.isfinite(found.excess) else None
    return Finding("destabilising_slopes", holds, margin, detail, None, {"K": found.K})


def _refute_network(
    driven: DrivenSystem, rng: np.random.Generator, limit: float, hint: np.ndarray | None
) -> Refutation:
    start = time.monotonic()
    with np.errstate(all="ignore"):
        answer = _accept(driven, "unstable_linear", unstable_linear_data(driven))
        if answer is not None:
            return answer
        system = driven.system
        edge = _accept(driven, "unstable_linear", unstable_linear_data(driven, boundary=True))
        limit = min(limit, 2.0) if edge is not None else limit
        found = search_slopes(system, rng=rng, deadline=start + 0.3 * limit, hint=hint, enough=1e-4)
        bare = _accept(system, "destabilising_slopes", _slope_data(found)) if np.isfinite(found.excess) else None
        findings = (_finding(system, found, bare is not None),)
        answer = _network_witness(driven, rng, start, limit, found) if system.channels else None
    answer = answer or edge
    if answer is None:
        return Refutation(None, "", findings, f"{NOTHING} ({findings[0].detail})")
    return Refutation(answer.proof, answer.statement, findings, answer.detail)


def _network_witness(
    driven: DrivenSystem, rng: np.random.Generator, start: float, limit: float, slopes: SlopeSearch
) -> Refutation | None:
    thorough = slopes.excess > 0  # without destabilising slopes no equilibrium can be unstable: look only briefly
    if not thorough:
        limit = (time.monotonic() - start) + 0.2 * limit
    aim = _own_slopes(driven, slopes, rng, start + 0.4 * limit) if thorough else None
    result = search_equilibria(driven, rng=rng, deadline=start + 0.75 * limit, slopes=aim, thorough=thorough)
    best = result.unstable
    if best is not None and best.excess > 0:
        value = [best.value.real, abs(best.value.imag)]
        answer = _accept(driven, "unstable_equilibrium", {"state": best.x, "input": best.u, "eigenvalue": value})
        if answer is not None:
            return answer
    if result.pair is not None:
        first, second = result.pair
        data = {"state1": first.x, "state2": second.x, "input": first.u}
        answer = _accept(driven, "two_equilibria", data)
        if answer is not None:
            return answer
    inputs = None if best is None else best.u[None, :]
    data = search_trajectories(driven, rng=rng, deadline=start + limit, inputs=inputs)
    return _accept(driven, "separated_trajectories", data)


def _own_slopes(driven: DrivenSystem, found: SlopeSearch, rng: np.random.Generator, deadline: float) -> np.ndarray:
    """Destabilising slopes that the activation itself has, where the system admits more."""
    system, (low, high) = driven.system, activation(driven.activation).slope
    if ((low <= found.K) & (high >= found.K)).all():
        return found.K
    own = LureSystem(system.A, system.B, system.C, system.D, (low, high), system.dt)
    return search_slopes(own, rng=rng, deadline=deadline, hint=found.K).K
