r"""Contraction under inputs in a box: sets that every trajectory enters, and the multiplier inequality on them.

A claim about every input is lost with the first input under which a network does not contract. Inputs of a range, and
biases that keep units saturated, leave the activation's derivative a narrower interval in every channel, on which the
same inequality may hold. The rule ``driven_lmi`` makes the sets again; here they are made until they no longer shrink:
zonotopes first, then linear bounds traced back through several steps, at last with the latest inputs told apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from stability.certificate import Claim, Finding, Verdict
from stability.claims.bounded import ellipsoids
from stability.claims.flows import flow_contraction
from stability.criteria.multiplier import multiplier_criterion
from stability.errors import ConfigurationError, StabilityError
from stability.refute.inputs import input_range
from stability.rigor.backward import BackwardBounds, Schedule
from stability.rigor.spectrum import spectrum_bracket
from stability.rigor.zonotopes import Tube
from stability.rules.absorbed import MOST_STEPS, box_balance, kept_in, no_tube, pushed, wide_box
from stability.rules.decaying import grows, signed_balance
from stability.rules.driven_lmi import slopes_on
from stability.rules.registry import accepted
from stability.solve.deadline import Deadline, TimeLimit
from stability.solve.rates import Rate
from stability.stacks.skewed import skewed
from stability.stacks.stack import LayerStack
from stability.statements import undecided_in_box
from stability.systems import DrivenSystem

Array = np.ndarray
ROOM = 0.0625
"""``eta``: how much wider than what is never left the first box is, where it is only approached."""
WINDOW, WAITS = 20, 60
"""Steps whose symbols are kept apart in zonotopes, and time constants that are waited for."""
FIRST = 2
"""Zonotopes where there is no linear part: linear bounds do the rest."""
BACKWARD = (Schedule(120, 6, 2), Schedule(40, 6, 1, 2, 3), Schedule(40, 6, 1, 2, 4), Schedule(40, 6, 1, 2, 2))
"""Linear bounds: as long as they become narrower, with the inputs told apart once they do not."""
MOST_APART = 16
"""Histories of inputs that are looked at here."""
_SETTLED, _NARROWING = 1e-3, 2e-3
"""Sets that shrink by less than this share, in a time constant or a round, are taken as they are."""
_HOPELESS = -0.4
"""Where it fails by more on linear bounds, deeper ones or inputs told apart have not been seen to help."""
TOLERANCE = 1e-3
"""Of the best rate: a finer one says little of sets that are bounds themselves, and where a stack's layers only feed
one another it takes scales, and an overshoot, that grow without end.
"""
_SAYS = 0.1
"""A rate that uses less of what the linear part alone would forget is looked for again on narrower sets."""
_DEEPEST = 30
"""Steps that bounds are traced back where a linear part keeps what was longer than one step."""
_WIDE = 0.75
"""Where linear bounds leave more than this share of what all states give, inputs told apart do not help either: what
keeps them wide is what units add to one another."""
_LIFTED = 0.02
"""By how much, of its largest side, a box of a network without a bound of its activation is wider than it must be."""
_PRODUCTS = 60.0
"""Operations of a box by signs, by n^3, on a slow core."""
_PATIENCE = 4
"""Rounds that may bring less than that before the others are given up."""


def driven_contraction(
    subject: DrivenSystem | LayerStack,
    input_box: Any,
    *,
    rate: Rate = "best",
    tol: float | None = None,
    time_limit: TimeLimit = None,
) -> tuple[Claim, Finding]:
    r"""Whether any two trajectories approach each other under every input in a box, from a known step on.

    Args:
        subject: a network: a map, its activation bounded and smooth (tanh, sigmoid) or piecewise linear (of one
            without a bound, like ReLU, without feedthrough), or a stack of such layers with one activation; or a
            flow without feedthrough whose activation is bounded and whose linear part is stable.
        input_box: ``(low, high)``, numbers or ``(p,)``.
        rate: ``"best"``, ``"any"``, or a number: at least this rate.
        tol: relative tolerance of the best rate, see ``multiplier_criterion``; 1e-3 by default.
        time_limit: seconds.

    Returns:
        The claim ``driven_contraction``, certified or open, and the outcome in words; of an open one the witness holds
        the data of the last sets (``claims_in_box`` says what they prove).

    Raises:
        ConfigurationError: no box, or an empty one.
        DimensionError: a box of another size than the inputs.

    Cost:
        ``O((w + 1) n^2 (n + m))`` a step of the zonotopes with a window of ``w`` steps, ``O(k s m^2 n)`` a round of
        linear bounds over ``k`` steps and ``s`` sequences of cells, and after each kind a search for multipliers.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = LureSystem([[0.0]], [[1.0]], [[1.5]], dt=1.0)
        >>> claim, _ = driven_contraction(DrivenSystem(cell, "tanh", [[1.0]], [1.5]), (-0.1, 0.1))
        >>> str(claim.verdict), claim.value < 0.05
        ('certified', True)
    """
    box = input_range(input_box, subject.inputs, "input_box")
    if not box.bounded:
        raise ConfigurationError("input_box must be (low, high), the range that inputs stay in")
    low, high = (np.ascontiguousarray(np.broadcast_to(end, (subject.inputs,))) for end in (box.low, box.high))
    with np.errstate(all="ignore"):
        if isinstance(subject, DrivenSystem) and not subject.is_discrete:
            return _of_a_flow(subject, low, high, rate, tol, Deadline.after(time_limit).named("driven"))
        return _searched(
            subject, low, high, rate, TOLERANCE if tol is None else tol, Deadline.after(time_limit).named("driven")
        )


def _of_a_flow(
    subject: DrivenSystem, low: Array, high: Array, rate: Rate, tol: float | None, deadline: Deadline
) -> tuple[Claim, Finding]:
    claim, finding = flow_contraction(subject, low, high, rate, TOLERANCE if tol is None else tol, deadline)
    if claim is not None:
        return claim, finding
    return Claim("driven_contraction", undecided_in_box(subject), Verdict.INCONCLUSIVE), finding


def _searched(
    whole: DrivenSystem | LayerStack, low: Array, high: Array, rate: Rate, tol: float, deadline: Deadline
) -> tuple[Claim, Finding]:
    subject = skewed(whole) if isinstance(whole, LayerStack) else whole
    first = subject if isinstance(subject, str) else no_tube(subject) or first_box(subject, low, high, deadline)
    if isinstance(first, str) or isinstance(subject, str):
        return _open(whole, str(first))
    if isinstance(whole, LayerStack) and "Y" in first:
        return _open(whole, "of stacks this is proved where the sizes of their linear parts decay, |A| r < r")
    margin, width, best, made = None, math.inf, None, {}
    for sets in narrowed(subject, low, high, first, deadline):
        width, made = sets.width, sets.data
        try:
            inner = slopes_on(subject, sets.low, sets.high)
            finding = multiplier_criterion(inner, rate=rate, solver="riccati", tol=tol, time_limit=deadline)
        except StabilityError as error:
            return best or _open(whole, f"the slopes on the sets make no system: {error}", margin, made)
        margin = finding.margin if margin is None else max(margin, finding.margin or margin)
        claim = _claim(whole, finding, sets)
        if claim is None and best is not None:
            break
        if claim is not None:
            words = f"on sets of width {width:.3g} on average, {sets.settled} steps after entry"
            before, reached = 0.0 if best is None else best[1].margin or 0.0, finding.margin or 0.0
            if reached > before:
                best = claim, Finding("driven", True, finding.margin, words, finding.rate)
            if rate != "best" or reached >= _SAYS * (1.0 - first["share"]) or reached < 1.1 * before:
                break
        elif "backward" in sets.data and finding.margin is not None and finding.margin < _HOPELESS:
            break
    words = "the time limit came first" if deadline.cut else f"it fails on sets of width {width:.3g} on average"
    return best or _open(whole, words, margin, made)


def _open(
    subject: DrivenSystem | LayerStack, why: str, margin: float | None = None, sets: Mapping[str, Any] | None = None
) -> tuple[Claim, Finding]:
    claim = Claim("driven_contraction", undecided_in_box(subject), Verdict.INCONCLUSIVE)
    return claim, Finding("driven", False, margin, why, witness=sets or {})


def first_box(subject: DrivenSystem, low: Array, high: Array, deadline: Deadline) -> dict[str, Any] | str:
    """Half widths ``r`` of a box that no step leaves, and ``q`` with ``|A| r <= q r``; or those of the box around an
    ellipsoid ``Y``; or why there is none.
    """
    n = subject.states
    if grows(subject.activation):
        return _signed_box(subject, low, high, deadline)
    _, added = box_balance(subject, np.ones(n), low, high)
    kept = np.abs(subject.system.A)
    if not kept.any():
        return {"r": np.maximum(added * (1 + 1e-12), 1e-200), "share": 0.0, "room": 0.0}
    solved = _balance(kept, added)
    if solved is None:
        return _ellipsoid(subject, low, high, deadline)
    r, lift = solved
    r = r * (1 + 1e-9) + 1e-9 * float(r.max(initial=1e-100)) / float(lift.max()) * lift
    share = float(((kept @ r) / r).max()) * (1 + 1e-12)
    if not (share < 1.0 and (r > 0).all()):
        return "no box of states is known that every trajectory enters"
    return {"r": r, "share": share, "room": ROOM}


def _signed_box(subject: DrivenSystem, low: Array, high: Array, deadline: Deadline) -> dict[str, Any] | str:
    """``r`` and ``falls`` of a network whose activation has no bound, by the signs of its weights."""
    n = subject.states
    if not deadline.affords(_PRODUCTS * n**3):
        return "the time limit came first"
    units = np.eye(2 * n)
    kept = np.vstack(signed_balance(subject, units[:n], units[n:], low, high)[0])
    solved = _balance(kept, np.concatenate(signed_balance(subject, np.ones(n), np.ones(n), low, high)[1]))
    if solved is None:
        return (
            f"{subject.activation} has no bound, and by sizes and signs of the weights no box of states is known that "
            "every trajectory enters: what negative weights hold back is not counted"
        )
    both, lift = solved
    both = both * (1 + 1e-9) + _LIFTED * float(both.max(initial=1e-100)) / float(lift.max()) * lift
    share = float(((kept @ both) / both).max()) * (1 + 1e-12)
    if not (share < 1.0 and (both > 0).all()):
        return "no box of states is known that every trajectory enters"
    return {"r": both[:n], "falls": both[n:], "share": max(share, 1e-3), "room": ROOM}


def _balance(kept: Array, added: Array) -> tuple[Array, Array] | None:
    """``(I - K)^-1 s`` and ``(I - K)^-1 1`` for ``K >= 0``; ``None`` where its spectral radius is one or more, which is
    where the second is not positive, or next to one.
    """
    try:
        both = np.linalg.solve(np.eye(len(kept)) - kept, np.column_stack([added, np.ones(len(kept))])).T
    except np.linalg.LinAlgError:
        return None
    return (both[0], both[1]) if np.isfinite(both).all() and (both[1] > 0.0).all() and both[1].max() < 1e9 else None


def _ellipsoid(subject: DrivenSystem, low: Array, high: Array, deadline: Deadline) -> dict[str, Any] | str:
    push, bounds = pushed(subject, low, high)
    for _, data in ellipsoids(subject, push.mid, bounds, deadline):
        Y = np.ascontiguousarray(data["Y"])
        r = np.sqrt(np.diagonal(Y)) * (1 + 1e-12)
        return {"r": r, "share": 1.0 - float(data["mu"]), "room": ROOM, "Y": Y, "tau": data["tau"]}
    return "no box of states is known that every trajectory enters: A has an eigenvalue of modulus one or more"


@dataclass(frozen=True, eq=False)
class _Sets:
    """Bounds of the pre-activations, and the data of a proof that say how they are made."""

    low: Array
    high: Array
    settled: int
    data: Mapping[str, Any]

    @property
    def width(self) -> float:
        """How wide they are, on average."""
        return float(np.mean(self.high - self.low))


def narrowed(
    subject: DrivenSystem, low: Array, high: Array, first: Mapping[str, Any], deadline: Deadline
) -> Iterator[_Sets]:
    """Bounds that become narrower from one to the next, until they do not."""
    r, share = first["r"], first["share"]
    falls = first.get("falls")
    tube = _settled(subject, low, high, r, falls, share, deadline)
    if tube is None:
        return
    data = {"low": low, "high": high, **first, "steps": tube.steps, "window": WINDOW}
    if share:
        yield _Sets(tube.low, tube.high, tube.steps, data)
    if subject.system.D.any():
        if not share:
            yield _Sets(tube.low, tube.high, tube.steps, data)
        return
    room = ROOM if share else 0.0
    states = kept_in(wide_box(r, room), None if falls is None else wide_box(falls, room), tube.states())
    bounds = BackwardBounds(subject, low, high, (tube.low, tube.high), states)
    made: list[Schedule] = []
    widest = float(np.mean(tube.high - tube.low))
    for schedule in _schedules(share):
        stuck = bool(made) and float(np.mean(bounds.high - bounds.low)) > _WIDE * widest
        if schedule.histories(subject.inputs) > MOST_APART or stuck or deadline.over:
            continue
        rounds = _rounds(bounds, schedule, deadline)
        if not np.isfinite(bounds.high - bounds.low).all() or (made and rounds <= _PATIENCE):
            continue
        made.append(replace(schedule, rounds=rounds))
        rows = np.array([astuple(part) for part in made], dtype=np.float64)
        yield _Sets(bounds.low, bounds.high, tube.steps + bounds.steps, {**data, "backward": rows})


def _schedules(share: float) -> tuple[Schedule, ...]:
    """``BACKWARD``, its first with more steps at a time for a state that keeps the share ``q`` of itself."""
    first, *others = BACKWARD
    return replace(first, depth=min(first.depth * _beat(share), _DEEPEST)), *others


def _beat(share: float) -> int:
    """Steps of a time constant of the linear part."""
    return max(1, min(round(1.0 / (1.0 - share)), 50))


def _rounds(bounds: BackwardBounds, schedule: Schedule, deadline: Deadline) -> int:
    """Rounds of a schedule until they bring little; how many they were."""
    bounds.begin()
    last, idle, k = float(np.mean(bounds.high - bounds.low)), 0, 0
    while k < schedule.rounds and idle < _PATIENCE and not deadline.over:
        bounds.round(schedule)
        width, k = float(np.mean(bounds.high - bounds.low)), k + 1
        idle = idle + 1 if last - width <= _NARROWING * width else 0
        last = width
    return k


def _settled(
    subject: DrivenSystem,
    low: Array,
    high: Array,
    r: Array,
    falls: Array | None,
    share: float,
    deadline: Deadline,
) -> Tube | None:
    """Zonotopes, with a linear part once they no longer shrink; ``None`` where time is over or they have no bounds.

    A symbol lives for about a time constant of the linear part, ``1 / (1 - q)`` steps: the window is as many of them as
    the largest number of columns allows.
    """
    beat = _beat(share)
    room = ROOM if share else 0.0
    below = None if falls is None else wide_box(falls, room)
    tube = Tube(subject, low, high, wide_box(r, room), WINDOW, below)
    last = math.inf
    long = share or subject.system.D.any()  # linear bounds are not traced back through feedthrough
    for k in range(min(WAITS * beat, MOST_STEPS) if long else FIRST):
        if deadline.over:
            return None
        tube.step()
        if k % (5 * beat) == 5 * beat - 1:
            width = float(np.mean(tube.high - tube.low))
            if not math.isfinite(width) or last - width <= 5 * _SETTLED * width:
                break
            last = width
    return tube if np.isfinite(tube.high - tube.low).all() and (tube.low <= tube.high).all() else None


def _claim(subject: DrivenSystem | LayerStack, finding: Finding, sets: _Sets) -> Claim | None:
    """The claim where its rule accepts it."""
    if not finding.holds or not finding.witness or finding.rate is None or not finding.rate < 1.0:
        return None
    P = np.ascontiguousarray(finding.witness["P"], dtype=np.float64)
    bracket = spectrum_bracket(P)
    if bracket is None:
        return None
    p_min, p_max, overshoot = bracket
    data = {
        "P": P,
        "L": np.ascontiguousarray(finding.witness["L"], dtype=np.float64),
        "rate": float(finding.rate),
        "overshoot": overshoot,
        "p_min": p_min,
        "p_max": p_max,
        **sets.data,
    }
    if isinstance(subject, LayerStack):
        return accepted(subject, "stack_driven", {**data, "levels": len(subject.layers)})
    return accepted(subject, "driven_lmi", data)
