r"""Theorem ``as_it_runs``: a bound on the distance between a contracting network and its run in finite precision.

Let ``|f(x, u) - f(y, u)|_P <= rho |x - y|_P`` for all states and inputs, and let a set ``S`` contain the exact and the
computed states ``x(k)``, ``x~(k)``. If the computed step is within ``delta`` of the exact step from the same state of
``S``, in the norm of ``P``, then

.. math:: |\tilde x(k) - x(k)|_P \le \rho^k |\tilde x(0) - x(0)|_P + \delta \frac{1 - \rho^k}{1 - \rho} .

Here both start at zero, and ``|x|_2 <= |x|_P / sqrt(p_min)``. With a bounded activation and a stable ``A`` the set is a
box: the sums of the impulse responses of ``A`` bound every entry, the errors of the steps included (``peak_gain``).
Or it is the ellipsoid of a ``ball`` proof (``bounded``), times a factor; this set has a smaller Euclidean diameter.
Otherwise it is the ball ``|x - c|_P <= R`` around a state ``c``. If ``|f(c, u) - c|_P <= g`` for every input of the
box, no step leaves this ball as long as ``rho R + g + delta <= R``.

``delta`` bounds the error of a step in the norm of ``P``: :math:`\delta^2 = e^T |P| e`, where ``e`` bounds the error
of every entry of the state (``step_errors``).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.definiteness import gamma, spectral_bounds
from stability.kernel.arithmetic.directed_functions import norm_above, upper
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.arithmetic.intervals import Interval, affine, upper_product
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import (
    Inner,
    Input,
    Number,
    NumberOrNull,
    Refused,
    State,
    require,
    required,
)
from stability.kernel.format.sentences import at_most, for_every, inputs_phrase, theorem
from stability.kernel.format.theorem_table import RULES, certifies, reason_of
from stability.kernel.reachability.peak_gain import peak_bounds
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.execution import ExecutionModel
from stability.kernel.theorems.multiplier_lmi import Decay, majorant
from stability.kernel.theorems.step_errors import (
    StateSet,
    StepError,
    driven_step_error,
    stages_of,
)

Array = np.ndarray
SIZE = "arrays of a proof about a run must have the sizes of the network: center ({n},), low and high ({p},)"


def norm_of_entries(P: Array, entries: Array) -> float:
    """Bound ``|e|_P`` above for all ``|e_i| <= entries_i``.

    Example:
        >>> 1.0 <= norm_of_entries(np.eye(2), np.array([0.6, 0.8])) < 1.000001
        True
    """
    scale = float(entries.max(initial=0.0))
    if not 0.0 < scale < math.inf:
        return scale
    share = entries / scale * (1.0 + EPS)
    square = float(share @ upper_product(np.abs(P), share)) * (1.0 + gamma(len(entries) + 4))
    return math.sqrt(square) * scale * (1.0 + 8.0 * EPS) + TINY


def model_of(data: Any) -> ExecutionModel:
    """Return the execution model of a proof.

    Raises:
        Refused: its settings are unknown.
    """
    try:
        return ExecutionModel.from_payload(data)
    except (ConfigurationError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"the arithmetic of the proof is unknown: {error}") from error


def displacement(subject: DrivenSystem, center: Array, low: Array, high: Array) -> Array:
    """Bound ``|f(c, u) - c|`` entry by entry, for every input in the box."""
    system, phi = subject.system, activation(subject.activation)
    big = majorant(system)
    at, u = Interval.point(center), Interval(low, high)
    stored = gamma(big.roundings) if big.roundings else 0.0
    w = Interval.point(np.zeros(system.channels))
    w_size = np.zeros(system.channels)
    relative, absolute = phi.error
    for _ in range(stages_of(subject) or 1):
        inexact = upper(stored * upper(upper_product(big.C, np.abs(center)) + upper_product(big.D, w_size)))
        z = affine(system.C, at) + affine(system.D, w) + affine(subject.E, u, Interval.point(subject.b))
        z = z + Interval(-inexact, inexact)
        ends = phi.function(z.low), phi.function(z.high)  # every activation here rises
        slack = [2.0 * EPS * (relative * np.abs(end) + absolute) + TINY for end in ends]
        w = Interval(ends[0] - slack[0], ends[1] + slack[1])
        w_size = w.magnitude
    inexact = upper(stored * upper(upper_product(big.A, np.abs(center)) + upper_product(big.B, w_size)))
    moved = affine(system.A, at) + affine(system.B, w) + affine(subject.F, u) - at
    return upper(moved.magnitude + inexact)


def why_no_run(subject: DrivenSystem) -> str | None:
    """Return the reason why the theorem does not apply to a network, or ``None``."""
    if not subject.is_discrete:
        return "a run has steps, and this is a differential equation"
    return None if stages_of(subject) else "the channels of this step are an implicit equation"


def run_sentence(
    subject: Any, bound: float, model: ExecutionModel, box: tuple[Array, Array] | None, steps: int | None = None
) -> str:
    """State the bound on the distance between a run and the exact network, over ``steps`` or at all times."""
    inputs, when = inputs_phrase(subject, box=box), "k >= 0" if steps is None else f"0 <= k <= {steps}"
    return theorem(
        subject,
        f"{for_every(subject, inputs)}, representable in {model.format}, let x be the states of the network in exact "
        f"arithmetic and y those of any step-by-step run in {model.phrase}, both from zero. "
        f"Then |y(k) - x(k)|_2 <= {at_most(bound)} for all {when}.",
    )


@certifies("as_it_runs", subject=DrivenSystem, claim="as_it_runs", value="bound", unfit=why_no_run, size=SIZE)
class AsItRuns(Decay):
    """Metric of a contraction proof, set of the states, box of the inputs, arithmetic and bound.

    The set is ``|x_i| <= entries_i`` (``peak_gain``); or the ellipsoid of ``ball``, the data of a proof of that kind,
    times ``room``, with ``Y > y_min I``; or the ball of ``radius`` around ``center`` in the metric.
    """

    low: Input
    high: Input
    arithmetic: Inner
    bound: Number
    entries: State | None = None
    ball: Inner | None = None
    room: NumberOrNull = None
    y_min: NumberOrNull = None
    center: State | None = None
    radius: NumberOrNull = None

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return run_sentence(subject, self.bound, model_of(self.arithmetic), (self.low, self.high))

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        require((self.low <= self.high).all(), "low and high must satisfy low <= high")
        self.decays_at_the_rate(subject.system)
        found = self.errors(subject)
        delta = norm_of_entries(self.P, found.step)
        if self.ball is not None:
            self.require_ellipsoid(subject, found.step)
        elif self.entries is None:
            self.require_ball(subject, delta)
        else:
            reached = required(reached_entries(subject, self.inputs, found.step), "no bound of the states is known")
            require((reached <= self.entries).all(), "the computed states are not proved to stay in the set")
        least = run_bound(delta, self.rate, self.p_min, float(norm_above(found.stored)))
        require(least <= self.bound, f"the bound is below the proved one, {at_most(least)}")
        return f"the errors of a step are at most {at_most(delta)} in the norm of P"

    @property
    def inputs(self) -> Array:
        """Bounds of the absolute values of the inputs."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def require_ellipsoid(self, subject: DrivenSystem, step: Array) -> None:
        r"""Prove that no computed state leaves the ellipsoid times ``room``.

        A step takes :math:`N = \sqrt{x^T Y^{-1} x}` to at most :math:`\sqrt{(1 - \mu) N^2 + \mu}`, and errors ``e`` add
        at most :math:`|e|_2 / \sqrt{y_{\min}}`.

        Raises:
            Refused: the proof fails.
        """
        data, room, least = required(self.ball), required(self.room), required(self.y_min)
        claim = Claim("bounded", "", Verdict.CERTIFIED, Proof("ball", data), data.get("radius"))
        reason_of(RULES["ball"](subject, claim))
        limit = data.get("input_bound")
        covered = not subject.F.any() or (limit is not None and bool((self.inputs <= limit).all()))
        require(covered, "the ellipsoid is for smaller inputs")
        require(least > 0.0 and spectral_bounds(data["Y"], least, 1e100).holds, "y_min is not proved to be below Y")
        mu, error = float(data["mu"]), float(norm_above(step)) / math.sqrt(least)
        after = float(upper(np.array(math.sqrt((1.0 - mu) * room * room + mu) * (1.0 + 8.0 * EPS) + error)))
        require(after <= room, "the computed states are not proved to stay in the ellipsoid")

    def require_ball(self, subject: DrivenSystem, delta: float) -> None:
        """Prove that no computed state leaves the ball, which contains zero.

        Raises:
            Refused: the proof fails.
        """
        center, radius = required(self.center), required(self.radius)
        push = norm_of_entries(self.P, displacement(subject, center, self.low, self.high))
        inside = upper(np.array(self.rate * radius)) + push + delta
        require(inside <= radius, "the computed states are not proved to stay in the ball")
        require(norm_of_entries(self.P, np.abs(center)) <= radius, "the zero state is not in the ball")

    def errors(self, subject: DrivenSystem) -> StepError:
        """Return the errors of a step from a state of the set.

        Raises:
            Refused: neither set is given, or numbers exceed a format.
        """
        require(self.p_min > 0.0, "p_min must be positive")
        zero = np.zeros(subject.states)
        if self.ball is not None:
            data, room = self.ball, required(self.room, "an ellipsoid needs room")
            known = isinstance(data.get("Y"), np.ndarray) and data["Y"].shape == (len(zero),) * 2
            require(known and type(data.get("radius")) is float and 1.0 <= room < 1e50, "the ellipsoid is malformed")
            entries = upper(room * np.sqrt(np.maximum(np.diagonal(data["Y"]), 0.0)))
            states = StateSet(entries, zero, float(upper(np.array(room * data["radius"]))))
        elif self.entries is not None:
            require((self.entries >= 0.0).all(), "entries must not be negative")
            states = StateSet(self.entries, zero, float(norm_above(self.entries)))
        else:
            center = required(self.center, "a proof needs entries, or center and radius")
            radius = required(self.radius, "a proof needs entries, or center and radius")
            require(0.0 < radius < math.inf, "the radius must be positive")
            radius = float(upper(np.array(radius / math.sqrt(self.p_min))))
            states = StateSet(upper(np.abs(center) + radius), center, radius)
        return driven_step_error(subject, model_of(self.arithmetic), states, self.inputs)


def reached_entries(subject: DrivenSystem, inputs: Array, step: Array) -> Array | None:
    """Bound the entries of the computed states from zero, for a bounded activation and a stable ``A``."""
    system, limit = subject.system, activation(subject.activation).bound
    if not math.isfinite(limit) and system.channels:
        return None
    big, w = majorant(system), np.full(system.channels, limit if system.channels else 0.0)
    stored = gamma(big.roundings) if big.roundings else 0.0
    terms = (
        (system.B, w),
        (subject.F, inputs),
        (np.eye(subject.states), upper(step + stored * upper_product(big.B, w))),
    )
    return peak_bounds(system.A, stored * big.A, terms)


def run_bound(delta: float, rate: float, p_min: float, stored: float) -> float:
    """Return ``delta / ((1 - rate) sqrt(p_min)) + stored``, rounded up."""
    return float(upper(np.array(delta / ((1.0 - rate) * math.sqrt(p_min)) + stored)))
