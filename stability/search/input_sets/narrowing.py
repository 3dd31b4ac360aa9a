"""Search for nested absorbing sets under inputs in a box.

A first box of states comes from the sizes of the weights, from an ellipsoid or from their signs; zonotopes from it come
first, then linear bounds traced back through several steps, at last with the latest inputs told apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from stability.kernel.arithmetic.balls import has_feedthrough
from stability.kernel.reachability.backward_bounds import BackwardBounds, Schedule
from stability.kernel.reachability.invariant_zonotope import InvariantZonotope
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.absorbing_sets import (
    MOST_STEPS,
    bounds_in_invariant_box,
    box_balance,
    wide_box,
)
from stability.kernel.theorems.bounded import forcing_bounds
from stability.kernel.theorems.decaying_boxes import is_unbounded, signed_balance
from stability.search.input_sets.bounded import ball_candidates, positive_solutions
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
ROOM = 0.0625
"""Enlargement ``eta`` of an invariant set that is only approached asymptotically."""
WINDOW, WAITS = 20, 60
"""Steps with separate symbols in zonotopes, and time constants of waiting."""
FIRST = 2
"""Zonotope steps without a linear part; linear bounds do the rest."""
BACKWARD = (Schedule(120, 6, 2), Schedule(40, 6, 1, 2, 3), Schedule(40, 6, 1, 2, 4), Schedule(40, 6, 1, 2, 2))
"""Schedules of linear bounds: repeated while they become narrower, then with split inputs."""
MOST_APART = 16
"""Most input histories of a search."""
_SETTLED, _NARROWING = 1e-3, 2e-3
"""Relative decrease, in a time constant or a round, below which sets count as final."""
_DEEPEST = 30
"""Most steps of backward bounds with a linear part of memory longer than one step."""
_WIDE = 0.75
"""Share of the range over all states above which split inputs do not narrow linear bounds: their width then comes from
the sums of units.
"""
_LIFTED = 0.02
"""Relative enlargement of a box for an unbounded activation beyond the necessary one."""
_PRODUCTS = 60.0
"""Operations of a box by signs on a slow core, in units of n^3."""
_PATIENCE = 4
"""Rounds with smaller progress before the others are skipped."""


def initial_box(subject: DrivenSystem, low: Array, high: Array, deadline: Deadline) -> dict[str, Any] | str:
    """Return half widths ``r`` of an invariant box, and ``q`` with ``|A| r <= q r``; or those of the box around an
    ellipsoid ``Y``; or the reason why there is none.
    """
    n = subject.states
    if is_unbounded(subject.activation):
        return _signed_box(subject, low, high, deadline)
    _, added = box_balance(subject, np.ones(n), low, high)
    absolute = np.abs(subject.system.A)
    if not absolute.any():
        return {"r": np.maximum(added * (1 + 1e-12), 1e-200), "share": 0.0, "room": 0.0}
    solved = positive_solutions(absolute, added)
    if solved is None:
        return _ellipsoid(subject, low, high, deadline)
    r, lift = solved
    r = r * (1 + 1e-9) + 1e-9 * float(r.max(initial=1e-100)) / float(lift.max()) * lift
    share = float(((absolute @ r) / r).max()) * (1 + 1e-12)
    if not (share < 1.0 and (r > 0).all()):
        return "no absorbing box of states was found"
    return {"r": r, "share": share, "room": ROOM}


def _signed_box(subject: DrivenSystem, low: Array, high: Array, deadline: Deadline) -> dict[str, Any] | str:
    """Return ``r`` and ``falls`` of a network with an unbounded activation, by the signs of its weights."""
    n = subject.states
    if not deadline.affords(_PRODUCTS * n**3):
        return "the time limit was reached"
    units = np.eye(2 * n)
    matrix = np.vstack(signed_balance(subject, units[:n], units[n:], low, high)[0])
    solved = positive_solutions(matrix, np.concatenate(signed_balance(subject, np.ones(n), np.ones(n), low, high)[1]))
    if solved is None:
        return (
            f"the activation {subject.activation} is unbounded, and sizes and signs of the weights give no absorbing "
            "box of states"
        )
    halves, lift = solved
    halves = halves * (1 + 1e-9) + _LIFTED * float(halves.max(initial=1e-100)) / float(lift.max()) * lift
    share = float(((matrix @ halves) / halves).max()) * (1 + 1e-12)
    if not (share < 1.0 and (halves > 0).all()):
        return "no absorbing box of states was found"
    return {"r": halves[:n], "falls": halves[n:], "share": max(share, 1e-3), "room": ROOM}


def _ellipsoid(subject: DrivenSystem, low: Array, high: Array, deadline: Deadline) -> dict[str, Any] | str:
    push, bounds = forcing_bounds(subject, np.maximum(np.abs(low), np.abs(high)))
    for _, data in ball_candidates(subject, push.mid, bounds, deadline):
        Y = np.ascontiguousarray(data["Y"])
        r = np.sqrt(np.diagonal(Y)) * (1 + 1e-12)
        return {"r": r, "share": 1.0 - float(data["mu"]), "room": ROOM, "Y": Y, "tau": data["tau"]}
    return "no absorbing box of states was found: A has an eigenvalue of modulus 1 or more"


@dataclass(frozen=True, eq=False)
class NarrowedBounds:
    """Bounds of the pre-activations, with the data of their proof."""

    low: Array
    high: Array
    settled: int
    data: Mapping[str, Any]

    @property
    def width(self) -> float:
        """Mean width of the bounds."""
        return _mean_width(self)


def _mean_width(bounds: NarrowedBounds | InvariantZonotope | BackwardBounds) -> float:
    """Return the mean width of bounds of the pre-activations; zero for a linear map, which has none."""
    return float(np.mean(bounds.high - bounds.low)) if bounds.high.size else 0.0


def narrowed_bounds(
    subject: DrivenSystem, low: Array, high: Array, first: Mapping[str, Any], deadline: Deadline
) -> Iterator[NarrowedBounds]:
    """Yield bounds that become narrower, until they no longer do."""
    r, share = first["r"], first["share"]
    falls = first.get("falls")
    tube = _settled(subject, low, high, r, falls, share, deadline)
    if tube is None:
        return
    data = {"low": low, "high": high, **first, "steps": tube.steps, "window": WINDOW}
    if share:
        yield NarrowedBounds(tube.low, tube.high, tube.steps, data)
    if has_feedthrough(subject.system):
        if not share:
            yield NarrowedBounds(tube.low, tube.high, tube.steps, data)
        return
    room = ROOM if share else 0.0
    states = bounds_in_invariant_box(wide_box(r, room), None if falls is None else wide_box(falls, room), tube.states())
    bounds = BackwardBounds(subject, low, high, (tube.low, tube.high), states)
    schedules: list[Schedule] = []
    widest = _mean_width(tube)
    for schedule in _schedules(share):
        stuck = bool(schedules) and _mean_width(bounds) > _WIDE * widest
        if schedule.histories(subject.inputs) > MOST_APART or stuck or deadline.over:
            continue
        rounds = _rounds(bounds, schedule, deadline)
        if not np.isfinite(bounds.high - bounds.low).all() or (schedules and rounds <= _PATIENCE):
            continue
        schedules.append(replace(schedule, rounds=rounds))
        rows = np.array([astuple(part) for part in schedules], dtype=np.float64)
        yield NarrowedBounds(bounds.low, bounds.high, tube.steps + bounds.steps, {**data, "backward": rows})


def _schedules(share: float) -> tuple[Schedule, ...]:
    """Return ``BACKWARD``, the first with more steps at a time for a state that keeps the share ``q`` of itself."""
    first, *others = BACKWARD
    return replace(first, depth=min(first.depth * _time_constant(share), _DEEPEST)), *others


def _time_constant(share: float) -> int:
    """Return the time constant of the linear part in steps."""
    return max(1, min(round(1.0 / (1.0 - share)), 50))


def _rounds(bounds: BackwardBounds, schedule: Schedule, deadline: Deadline) -> int:
    """Run rounds of a schedule until the progress is small; return their number."""
    bounds.begin()
    last, unimproved, k = _mean_width(bounds), 0, 0
    while k < schedule.rounds and unimproved < _PATIENCE and not deadline.over:
        bounds.round(schedule)
        width, k = _mean_width(bounds), k + 1
        unimproved = unimproved + 1 if last - width <= _NARROWING * width else 0
        last = width
    return k


def _settled(
    subject: DrivenSystem, low: Array, high: Array, r: Array, falls: Array | None, share: float, deadline: Deadline
) -> InvariantZonotope | None:
    """Return zonotopes, with a linear part once they no longer shrink; ``None`` without time or bounds.

    A symbol lives for about a time constant of the linear part, ``1 / (1 - q)`` steps: the window is as many of them as
    the largest number of columns allows.
    """
    beat = _time_constant(share)
    room = ROOM if share else 0.0
    lower_half = None if falls is None else wide_box(falls, room)
    tube = InvariantZonotope(subject, low, high, wide_box(r, room), WINDOW, lower_half)
    last = math.inf
    long = share or has_feedthrough(subject.system)  # linear bounds are not traced back through feedthrough
    for k in range(min(WAITS * beat, MOST_STEPS) if long else FIRST):
        if deadline.over:
            return None
        tube.step()
        if k % (5 * beat) == 5 * beat - 1:
            width = _mean_width(tube)
            if not math.isfinite(width) or last - width <= 5 * _SETTLED * width:
                break
            last = width
    return tube if np.isfinite(tube.high - tube.low).all() and (tube.low <= tube.high).all() else None
