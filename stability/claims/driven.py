r"""Contraction under inputs in a box: sets that every trajectory enters, and the multiplier inequality on them.

A claim about every input is lost with the first input under which a network does not contract. Inputs of a range, and
biases that keep units saturated, leave the activation's derivative a narrower interval in every channel, on which the
same inequality may hold. The rule ``driven_lmi`` makes the sets again; here they are made until they no longer shrink.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stability.certificate import Claim, Finding, Verdict
from stability.criteria.multiplier import multiplier_criterion
from stability.errors import ConfigurationError, StabilityError
from stability.refute.inputs import input_range
from stability.rigor.spectrum import spectrum_bracket
from stability.rigor.zonotopes import Tube
from stability.rules.driven_lmi import MOST_STEPS, box_balance, no_tube, slopes_on
from stability.rules.registry import accepted
from stability.solve.deadline import Deadline, TimeLimit
from stability.solve.rates import Rate
from stability.statements import undecided_in_box
from stability.systems import DrivenSystem

Array = np.ndarray
ROOM = 0.0625
"""``eta``: how much wider than what is never left the first box is, where it is only approached."""
WINDOWS = ((20, 60), (60, 240))
"""Steps whose symbols are kept apart, and time constants that are waited for: first cheaply, then thoroughly."""
_SETTLED = 1e-3
"""Sets that shrink by less than this share in a time constant are taken as they are."""


def driven_contraction(
    subject: DrivenSystem,
    input_box: Any,
    *,
    rate: Rate = "best",
    tol: float | None = None,
    time_limit: TimeLimit = None,
) -> tuple[Claim, Finding]:
    r"""Whether any two trajectories approach each other under every input in a box, from a known step on.

    Args:
        subject: a discrete network without feedthrough, its activation bounded and smooth (tanh, sigmoid).
        input_box: ``(low, high)``, numbers or ``(p,)``.
        rate: ``"best"``, ``"any"``, or a number: at least this rate.
        tol: relative tolerance of the best rate, see ``multiplier_criterion``.
        time_limit: seconds.

    Returns:
        The claim ``driven_contraction``, certified or open, and the outcome in words.

    Raises:
        ConfigurationError: no box, or an empty one.
        DimensionError: a box of another size than the inputs.

    Cost:
        ``O((w + 1) n^2 (n + m))`` a step of the sets with a window of ``w`` steps, then a search for multipliers.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = LureSystem([[0.0]], [[1.0]], [[1.5]], dt=1.0)
        >>> claim, _ = driven_contraction(DrivenSystem(cell, "tanh", [[1.0]], [1.5]), (-0.1, 0.1))
        >>> str(claim.verdict), claim.value < 0.05
        ('certified', True)
    """
    box = input_range(input_box, subject.inputs)
    if not box.bounded:
        raise ConfigurationError("input_box must be (low, high), the range that inputs stay in")
    low, high = (np.ascontiguousarray(np.broadcast_to(end, (subject.inputs,))) for end in (box.low, box.high))
    with np.errstate(all="ignore"):
        return _searched(subject, low, high, rate, tol, Deadline.after(time_limit).named("driven"))


def _searched(
    subject: DrivenSystem, low: Array, high: Array, rate: Rate, tol: float | None, deadline: Deadline
) -> tuple[Claim, Finding]:
    first = no_tube(subject) or _first_box(subject, low, high)
    if isinstance(first, str):
        return _open(subject, first)
    r, share = first
    margin, width = None, math.inf
    for window, waits in WINDOWS:
        tube = _settled(subject, low, high, r, share, window, waits, deadline)
        if tube is None or not width - (found := _width(tube)) > _SETTLED * found:
            break
        width = found
        try:
            finding = multiplier_criterion(
                slopes_on(subject, tube), rate=rate, solver="riccati", tol=tol, time_limit=deadline
            )
        except StabilityError as error:
            return _open(subject, f"the slopes on the sets make no system: {error}", margin)
        margin = finding.margin if margin is None else max(margin, finding.margin or margin)
        claim = _claim(subject, finding, tube, low, high, r, share, window)
        if claim is not None:
            words = f"on sets of width {width:.3g} on average, {tube.steps} steps after entry"
            return claim, Finding("driven", True, finding.margin, words, finding.rate)
    words = "the time limit came first" if deadline.cut else f"it fails on sets of width {width:.3g} on average"
    return _open(subject, words, margin)


def _open(subject: DrivenSystem, why: str, margin: float | None = None) -> tuple[Claim, Finding]:
    claim = Claim("driven_contraction", undecided_in_box(subject), Verdict.INCONCLUSIVE)
    return claim, Finding("driven", False, margin, why)


def _first_box(subject: DrivenSystem, low: Array, high: Array) -> tuple[Array, float] | str:
    """Half widths ``r`` of a box that no step leaves, and ``q`` with ``|A| r <= q r``; or why there is none."""
    n = subject.states
    _, added = box_balance(subject, np.ones(n), low, high)
    kept = np.abs(subject.system.A)
    if not kept.any():
        return np.maximum(added * (1 + 1e-12), 1e-200), 0.0
    if not float(np.abs(np.linalg.eigvals(kept)).max()) < 1.0 - 1e-9:
        return "no box of states is known that every trajectory enters: |A| has an eigenvalue of one or more"
    lift = np.linalg.solve(np.eye(n) - kept, np.ones(n))
    r = np.linalg.solve(np.eye(n) - kept, added)
    r = r * (1 + 1e-9) + 1e-9 * float(r.max(initial=1e-100)) / float(lift.max()) * lift
    share = float(((kept @ r) / r).max()) * (1 + 1e-12)
    return (r, share) if share < 1.0 and (r > 0).all() else "no box of states is known that every trajectory enters"


def _settled(
    subject: DrivenSystem,
    low: Array,
    high: Array,
    r: Array,
    share: float,
    window: int,
    waits: int,
    deadline: Deadline,
) -> Tube | None:
    """The sets once they no longer shrink; ``None`` where time is over or they have no bounds.

    A symbol lives for about a time constant of the linear part, ``1 / (1 - q)`` steps: the window is as many of them as
    the largest number of columns allows.
    """
    beat = max(1, min(round(1.0 / (1.0 - share)), 50))
    tube = Tube(subject, low, high, np.nextafter((1 + (ROOM if share else 0.0)) * r, np.inf) if share else r, window)
    last = math.inf
    for k in range(min(waits * beat, MOST_STEPS)):
        if deadline.over:
            return None
        tube.step()
        if k % (5 * beat) == 5 * beat - 1:
            width = _width(tube)
            if not math.isfinite(width):
                return None
            if last - width <= 5 * _SETTLED * width:
                break
            last = width
    return tube if math.isfinite(_width(tube)) and (tube.low <= tube.high).all() else None


def _width(tube: Tube) -> float:
    return float(np.mean(tube.high - tube.low))


def _claim(
    subject: DrivenSystem, finding: Finding, tube: Tube, low: Array, high: Array, r: Array, share: float, window: int
) -> Claim | None:
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
        "low": low,
        "high": high,
        "r": r,
        "share": share,
        "room": ROOM if share else 0.0,
        "steps": tube.steps,
        "window": window,
    }
    return accepted(subject, "driven_lmi", data)
