r"""Gain over a number of steps, with a storage function and multipliers for each step.

The smallest gain ``g`` is the value of a convex problem in ``T m`` multipliers (``reachable_ellipsoids``), solved by
descent. The rule ``gain_steps`` proves the result. The *price* of a search for the whole output is ``1 / g^2``, the
weight of the output in the storage function; a *pass* is a forward computation of all ellipsoids.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from stability.kernel.format.claims import Proof
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.gain_steps import MOST_NUMBERS, MOST_STEPS, check_steps, storages
from stability.search.gains.gain_objective import GainObjective
from stability.search.gains.reachable_ellipsoids import ForwardPass, ReachableEllipsoids
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.descent import minimize_lbfgs

Array = np.ndarray
_STEPS, _TOL = 80, 2e-3  # most steps of the descent, and its tolerance
_SHORT = 6
"""Steps of a descent whose first gain is not useful: they reach about half of the possible improvement."""
_WORK = 1.5e11
"""Most multiplications of a search: long horizons of large networks get fewer steps."""
_SMALL = 1e7
"""Largest ``T (n + m)^3``, about a quarter of the multiplications of a pass, for which a search for the whole output
also minimizes the sharp objective."""
_DESCENT: dict[str, dict[str, Any]] = {
    "final": {"pairs": 12, "tol": _TOL},
    "l2": {"pairs": 40, "tol": 2.5 * _TOL, "halvings": 7},
}
"""Options of the descent for each measure."""
_PASSES, _FIRST_TOL, _DESCENT_TOL, _FINAL_TOL = 20, 5e-3, 1e-4, 1e-5
"""Most passes for one price, and tolerances of its logarithm: at first, during the descent, and at its end."""
_SHARE = 0.05
"""Further tolerance of the logarithmic price, as a share of the improvement."""
_DECREASE = 0.5
"""Decrease of the logarithm of the first price after an unbounded pass, doubled after each further one."""
_PREDICTION, _LARGEST_PREDICTION = 0.7, 0.05
"""Share of a predicted improvement by which the first price is raised; larger predictions are too inaccurate."""
_SLACKS = (1e-7, 1e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2)  # slacks of a proof, tried in turn
_SEARCH_SLACKS = (1e-5, 1e-3)
"""Slacks of the search for multipliers, tried in turn until the proof needs at most ten times as much."""


class StepwiseSearch:
    """Search for one network, output and horizon.

    Args:
        system: the map.
        matrices: ``E``, ``F`` and ``H``.
        steps: the horizon.
        measure: ``final`` for the output at the end, ``l2`` for the whole output sequence.
        pairs: minimize the differences of pairs of outputs instead of all outputs; for the measure ``final`` only.
        deadline: checked before each step of the descent.
        worth: largest useful gain; the search is short if its first gain is larger. For the measure ``final`` only.
    """

    def __init__(
        self,
        system: LureSystem,
        matrices: tuple[Array, Array, Array],
        steps: int,
        measure: str,
        pairs: bool,
        deadline: Deadline,
        worth: float = math.inf,
    ) -> None:
        self.worth = worth
        self.system, self.deadline, self.steps, self.measure = system, deadline, steps, measure
        self.E, self.F, self.H = matrices
        self.reach = ReachableEllipsoids(system, *matrices)
        self.aim = GainObjective(self.H, pairs and measure == "final")
        self._known: _PriceRoot | None = None  # price of the best multipliers so far
        self._price, self._least_of = 0.0, cast(tuple[Array, float] | None, None)

    @property
    def fits(self) -> bool:
        """Return True if a proof of this horizon may be stored."""
        return self.steps <= MOST_STEPS and self.steps * self.system.channels <= MOST_NUMBERS

    def best(self) -> tuple[float, Proof] | None:
        """Return the gain and its proof, if one was found."""
        start = self.reach.start(self.steps)
        if not np.isfinite(start).all():
            return None
        size = sum(self.reach.channels.shape)
        most = int(min(_STEPS, _WORK / (4.0 * self.steps * size**3) + 4))
        best, aims, how = None, self.aim.sharper(), _DESCENT[self.measure]
        most = min(most, _SHORT) if self._begins_beyond(start) else most
        if self.measure == "l2":
            # near the root the sets grow so fast with the price that both objectives have nearly the same price
            aims = aims if self.steps * size**3 < _SMALL else aims[:1]
            self._price = self._first_price(start)
        log = np.log(start).ravel()
        for slack in _SEARCH_SLACKS:
            self.reach.slack = slack
            value = math.inf
            for aim in aims:
                self.aim, self._known = aim, None
                value, log = minimize_lbfgs(self._objective, log, steps=most, deadline=self.deadline, **how)
            gain = self._proved(np.exp(log.reshape(start.shape))) if math.isfinite(value) else None
            if gain is not None and (best is None or gain[0] < best[0]):
                best = gain
            if gain is not None and gain[1].data["slack"] <= 10.0 * slack:
                break
        return best

    def _begins_beyond(self, tau: Array) -> bool:
        """Return True if the first multipliers give a gain above the largest that is useful."""
        if self.measure != "final" or not math.isfinite(self.worth):
            return False
        passage = self.reach.through(tau)
        return passage is None or self.aim.largest(passage.Q)[0] > 2.0 * math.log(max(self.worth, 1e-300))

    def _objective(self, log: Array) -> tuple[float, Array | None]:
        with np.errstate(all="ignore"):
            tau = np.exp(log.reshape(self.steps, -1))
            price = self._final(tau) if self.measure == "final" else self._summed(tau)
        if price is None or not (math.isfinite(price[0]) and np.isfinite(price[1]).all()):
            return math.inf, None
        return price[0], (price[1] * tau).ravel()

    def _final(self, tau: Array) -> tuple[float, Array] | None:
        passage = self.reach.through(tau)
        if passage is None:
            return None
        value, z = self.aim.of(passage.Q)
        return value, self.reach.slopes(passage, z)[0]

    def _summed(self, tau: Array) -> tuple[float, Array] | None:
        """Return ``log g^2`` at which the largest eigenvalue at the end equals ``g^2``, if this is an improvement.

        With ``F(tau, log price) = log(price lambda_max)``, which is zero there, ``d log g^2 = F_tau / F_price d tau``.
        One pass at the best price so far shows whether the multipliers improve it.
        """
        known = self._known
        log, least = (self._price, -math.inf) if known is None else (known.price, known.price)
        if known is not None:
            predicted = -float((known.slopes * (np.log(tau) - known.log)).sum())
            log += _PREDICTION * predicted if 0.0 < predicted < _LARGEST_PREDICTION else 0.0
        root = self._root(tau, log, least, _FIRST_TOL if known is None else _DESCENT_TOL)
        if root is None:
            return None
        if known is None or root.price > known.price:
            self._known, self._price = root, root.price
        return -root.price, root.slopes / tau

    def _root(self, tau: Array, log: float, least: float, close: float) -> _PriceRoot | None:
        """Find the zero of F by Newton's method for ``exp(-F) - 1``, nearly linear; ``None`` below ``least``.

        Args:
            tau: ``(T, m)``.
            log: logarithm of the initial price.
            least: smallest price that is refined.
            close: allowed error of the logarithmic price, to first order.
        """
        bracket, allowed = _Bracket(least), close
        for _ in range(_PASSES):
            passage = self.reach.through(tau, math.exp(log))
            if passage is None:
                if log <= least:
                    return None
                log = bracket.lower(log)
                continue
            value, slopes, by_price = self._excess(passage, log)
            step = (-math.expm1(value) if value < 0.0 else -value) / by_price
            if value > 0.0 and log + step < least:
                return None
            if least > -math.inf:
                allowed = max(close, _SHARE * (log + step - least))
            if value < 1.0 and value * value < allowed * by_price:
                return _PriceRoot(log + step, np.log(tau), slopes * tau / by_price)
            log = bracket.onward(log, log + step, value)
        return None

    def _excess(self, passage: ForwardPass, log: float) -> tuple[float, Array, float]:
        value, z = self.aim.largest(passage.Q)
        slopes, by_price = self.reach.slopes(passage, z)
        return value + log, slopes, 1.0 + math.exp(log) * by_price

    def _first_price(self, tau: Array) -> float:
        """Return the logarithm of an initial price, which assumes that half of the outputs are as large as the last."""
        passage = self.reach.through(tau)
        top = self.aim.largest(passage.Q)[0] if passage is not None else 0.0
        return -min(max(top, -600.0), 600.0) - math.log(0.5 * self.steps)

    def _proved(self, tau: Array) -> tuple[float, Proof] | None:
        """Return the gain that the multipliers prove, with as little slack as rounding allows."""
        for slack in _SLACKS:
            if slack != _SLACKS[-1] and (self.deadline.over or not self._begins(tau, slack)):
                continue
            for gain in self._gains(tau, slack):
                L = gain * gain * 0.5 / tau
                data = {"L": L, "E": self.E, "F": self.F, "H": self.H, "gain": gain, "slack": slack}
                data["measure"] = self.measure
                if check_steps(self.system, **data)[0]:
                    return gain, Proof("gain_steps", {**data, "horizon": self.steps})
        return None

    def _begins(self, tau: Array, slack: float) -> bool:
        """Return True if the slack suffices for the first step, whose check does not depend on the gain."""
        H = np.zeros((1, self.system.states))
        data = {"L": 0.5 / tau[:1], "E": self.E, "F": self.F, "H": H, "gain": 1.0}
        return check_steps(self.system, **data, slack=slack, measure="final")[0]

    def _gains(self, tau: Array, slack: float) -> list[float]:
        """Return gains to try with this slack, the smallest first."""
        if self.measure == "l2":
            least = self._least(tau)
            return [least * (1.0 + step + self.steps * slack) for step in (1e-7, 1e-5, 1e-4)]
        *_, last = storages(self.system, 0.5 / tau, (self.E, self.F), None, 1.0, slack)
        least = math.sqrt(max(float(np.linalg.eigvalsh(self.H @ np.linalg.inv(last) @ self.H.T)[-1]), 0.0))
        return [least * (1.0 + 1e-9) + 1e-12]

    def _least(self, tau: Array) -> float:
        """Return the gain of the whole output for given multipliers."""
        if self._least_of is None or self._least_of[0] is not tau:
            aim, self.aim = self.aim, self.aim.sharper()[-1]
            root = self._root(tau, self._price, -math.inf, _FINAL_TOL)
            self.aim, self._least_of = aim, (tau, math.inf if root is None else math.exp(-0.5 * root.price))
        return self._least_of[1]


@dataclass(frozen=True, eq=False)
class _PriceRoot:
    """Price at which the last ellipsoid has exactly the size that the gain allows.

    Attributes:
        price: logarithm of the price.
        log: ``(T, m)`` logarithms of the multipliers.
        slopes: ``(T, m)`` derivatives of ``log g^2 = -price`` by ``log``.
    """

    price: float
    log: Array
    slopes: Array


class _Bracket:
    """Bracket of the logarithmic price: above prices that are too low, below ones that are too high or unbounded."""

    def __init__(self, least: float) -> None:
        self.least, self.low, self.high, self.down = least, -math.inf, math.inf, _DECREASE

    def lower(self, log: float) -> float:
        """Return the next price after a price with an unbounded pass."""
        self.high = min(self.high, log)
        if self.low > -math.inf:
            return 0.5 * (self.low + self.high)
        if self.least > -math.inf:
            return self.least
        self.down *= 2.0
        return log - 0.5 * self.down

    def onward(self, log: float, proposed: float, value: float) -> float:
        """Return the next price after a price with this ``value`` of F: the proposed one if the bracket contains it."""
        if value < 0.0:
            self.low = max(self.low, log)
        else:
            self.high = min(self.high, log)
        if self.low < proposed < self.high:
            return proposed
        return 0.5 * (self.low + self.high) if self.low > -math.inf else self.high - self.down


def final_storage(system: LureSystem, data: Mapping[str, Any]) -> Array:
    """Return ``P_T`` of a checked proof, with which ``x_T^T P_T x_T <= gain^2 |u|^2``.

    Args:
        system: the map.
        data: data of a proof of this kind.

    Returns:
        ``(n, n)``.
    """
    final = None if data["measure"] == "final" else data["H"]
    *_, last = storages(system, data["L"], (data["E"], data["F"]), final, data["gain"], data["slack"])
    return last
