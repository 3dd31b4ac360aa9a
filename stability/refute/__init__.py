"""Refutation: a search by optimisation for witnesses against a claim, each checked by its rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import stability.rules  # noqa: F401 - fills the table of rules
from stability.errors import ConfigurationError, DimensionError
from stability.gated.cell import GatedCell
from stability.refute.answer import NOTHING, Refutation, accepted, witness_claim
from stability.refute.gated import search_gated
from stability.refute.inputs import input_range as checked_range
from stability.refute.network import refute_network, slope_data, slope_finding
from stability.refute.slopes import search_slopes
from stability.refute.stack import search_stack
from stability.solve.deadline import Deadline, TimeLimit
from stability.stacks.cascade import Cascade
from stability.systems import DrivenSystem, LureSystem
from stability.systems.subjects import as_subject

__all__ = ["Refutation", "refute", "witness_claim"]

Array = np.ndarray


def refute(
    subject: Any,
    *,
    seed: int = 0,
    time_limit: TimeLimit = None,
    hint: Any = None,
    input_range: Any = None,
    start: Any = None,
    horizon: int | None = None,
    effort: float = 1.0,
) -> Refutation:
    """Search for a witness against exponential incremental stability.

    For a bare ``LureSystem`` ("for every activation with these slopes"): constant slopes ``K`` that make
    ``A + B K (I - D K)^{-1} C`` unstable. For a network ("its weights, bias and activation, for every
    input"): an unstable linear part that the bounded activation cannot hold back, an unstable equilibrium or orbit
    under a constant or periodic input, two equilibria or orbits under one input, or two disjoint boxes of states that
    no trajectory leaves. Constant slopes are only a finding there. For a stack: a witness against a layer of its lowest
    level, one against the stack as one network, or two runs of the whole stack. Every witness returned has passed its
    rule. Two trajectories that were only seen to stay apart refute nothing: they come back with evidence ``replayed``
    where nothing is proved.

    Args:
        subject: a system, or anything that ``stability.systems.subjects.as_subject`` turns into one.
        seed: of the random starts.
        time_limit: seconds, or the deadline of the call that this one is part of: a safety net, respected between
            eigenvalue problems. What is tried is counted, so that without it the answer depends on nothing else.
        hint: ``(m,)`` slopes to start from, such as those suggested by an infeasible inequality.
        input_range: ``(low, high)``, the range of the data's inputs, where witnesses are looked for first.
        start: the initial state in use, zero by default.
        horizon: the number of steps in use: whether the witness's states can come up within it is told.
        effort: multiplies the number of attempts.

    Returns:
        The witness, or none; without one nothing is proved.

    Raises:
        ConfigurationError: a seed, time limit, hint, range, horizon or effort that is none.
        DimensionError: a range or start of another size than the network's.
        UnsupportedError: when the subject is no system.

    Source:
        Ascent of the spectral abscissa: J. V. Burke, A. S. Lewis, M. L. Overton, "Two numerical methods for
        optimizing matrix stability" (2002); equilibria and orbits by R. Krawczyk's test (1969).

    Example:
        >>> refute(LureSystem.recurrent([[-1.0]], [[2.0]])).proof.kind
        'destabilising_slopes'
        >>> refute(LureSystem.recurrent([[-2.0]], [[1.0]])).proof is None
        True
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ConfigurationError(f"seed must be an integer >= 0, got {seed!r}")
    if isinstance(effort, bool) or not isinstance(effort, (int, float)) or not 0.0 < effort < np.inf:
        raise ConfigurationError(f"effort must be a positive number, got {effort!r}")
    if horizon is not None and (isinstance(horizon, bool) or not isinstance(horizon, (int, np.integer)) or horizon < 0):
        raise ConfigurationError(f"horizon must be None or a number of steps >= 0, got {horizon!r}")
    deadline = Deadline.after(time_limit)
    target = as_subject(subject)
    if isinstance(target, LureSystem):
        return _refute_bare(target, np.random.default_rng(seed), deadline, _hint(hint, target))
    if isinstance(target, DrivenSystem):
        return refute_network(
            target,
            seed=int(seed),
            deadline=deadline,
            hint=_hint(hint, target.system),
            region=checked_range(input_range, target.inputs),
            start=_start(start, target.system.states),
            horizon=None if horizon is None else int(horizon),
            effort=float(effort),
        )
    if isinstance(target, GatedCell):
        return search_gated(
            target,
            seed=int(seed),
            time_limit=deadline,
            region=checked_range(input_range, target.inputs),
            start=_start(start, target.states),
            horizon=None if horizon is None else int(horizon),
        )
    if isinstance(target, Cascade):
        region = checked_range(input_range, target.inputs)
        return search_stack(target, refute, seed=int(seed), time_limit=deadline, region=region)
    return Refutation(
        None, "", (), f"no search for witnesses exists for a {type(target).__name__}; this proves nothing"
    )


def _start(start: Any, states: int) -> Array | None:
    if start is None:
        return None
    try:
        state = np.asarray(start, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"start must be a state of {states} entries, got {start!r}") from error
    if state.shape != (states,):
        raise DimensionError("start", (states,), state.shape)
    if not np.isfinite(state).all():
        raise ConfigurationError("start must be finite")
    return state


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


def _refute_bare(
    system: LureSystem, rng: np.random.Generator, deadline: Deadline, hint: np.ndarray | None
) -> Refutation:
    with np.errstate(all="ignore"):
        found = search_slopes(system, rng=rng, deadline=deadline, hint=hint)
        corners = [slope_data(found)] if np.isfinite(found.excess) else []
        corners += [{"K": K} for K in _boundary_cases(system)]
    for data in corners:
        answer = accepted(system, "destabilising_slopes", data)
        if answer is not None:
            return replace(answer, findings=(slope_finding(found, system.is_discrete, True),))
    finding = slope_finding(found, system.is_discrete, False)
    return Refutation(None, "", (finding,), f"{NOTHING} (constant slopes reach {found.excess:.3g})")


def _boundary_cases(system: LureSystem) -> list[Array]:
    """Ends of the box whose matrix may sit exactly on the boundary, where the trace decides."""
    cases = []
    for K in (system.alpha, system.beta):
        trace = float(np.trace(system.jacobian(K)))
        if (abs(trace) >= system.states) if system.is_discrete else (trace >= 0):
            cases.append(K.copy())
    return cases
