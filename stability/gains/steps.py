r"""Gains over a number of steps: multipliers of their own for every step, all of them optimised together.

The least ``g`` is that of a convex problem in ``T m`` multipliers (``stability.gains.reach``). What is found is a
proposal, which rule ``gain_steps`` proves.
"""

from __future__ import annotations

import math

import numpy as np

from stability.certificate import Proof
from stability.gains.aims import Aim
from stability.gains.reach import Passage, Reach
from stability.rules.gain_steps import MOST_NUMBERS, MOST_STEPS, check_steps, storages
from stability.solve.deadline import Deadline
from stability.solve.descent import descend
from stability.systems import LureSystem

Array = np.ndarray
_STEPS, _TOL = 80, 2e-3
_WORK = 1.5e11
"""Multiplications that a search may take: long horizons of large networks get fewer steps."""
_ROOTS, _CLOSE = 12, 1e-3
"""Newton steps, and how near to zero they end: what is left counts in second order."""
_SLACKS = (1e-7, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 1e-2)
_ROOMS = (1e-5, 1e-3)
"""Slacks of the proof, and those with which multipliers are looked for."""


class StepSearch:
    """The search for one network, output and horizon.

    Args:
        system: the map.
        matrices: ``E``, ``F`` and ``H``.
        steps: the horizon.
        measure: ``final`` or ``l2``.
        pairs: whether pairs of outputs are aimed at instead of all of them; of the measure ``final`` only.
        deadline: asked before each step of the descent.
    """

    def __init__(
        self,
        system: LureSystem,
        matrices: tuple[Array, Array, Array],
        steps: int,
        measure: str,
        pairs: bool,
        deadline: Deadline,
    ) -> None:
        self.system, self.deadline, self.steps, self.measure = system, deadline, steps, measure
        self.E, self.F, self.H = matrices
        self.reach = Reach(system, *matrices)
        self.aim = Aim(self.H, pairs and measure == "final")
        self.price = 0.0

    @property
    def fits(self) -> bool:
        """Whether a proof of this horizon is one that may be stored."""
        return self.steps <= MOST_STEPS and self.steps * self.system.channels <= MOST_NUMBERS

    def best(self) -> tuple[float, Proof] | None:
        """The gain and its proof, where one was found."""
        start = self.reach.start(self.steps)
        if not np.isfinite(start).all():
            return None
        size = sum(self.reach.channels.shape)
        most = int(min(_STEPS, _WORK / (4.0 * self.steps * size**3) + 4))
        if self.measure == "l2":
            self.price = self._first_price(start)
        best, aims = None, self.aim.sharper()
        log = np.log(start).ravel()
        for room in _ROOMS:  # more, where the proof needs it and the multipliers did not leave it
            self.reach.slack = room
            value = math.inf
            for aim in aims:
                self.aim = aim
                value, log = descend(self._objective, log, steps=most, tol=_TOL, deadline=self.deadline)
            found = self._proved(np.exp(log.reshape(start.shape))) if math.isfinite(value) else None
            if found is not None and (best is None or found[0] < best[0]):
                best = found
            if found is not None and found[1].data["slack"] <= 10.0 * room:
                break
        return best

    def _objective(self, log: Array) -> tuple[float, Array | None]:
        with np.errstate(all="ignore"):
            tau = np.exp(log.reshape(self.steps, -1))
            found = self._final(tau) if self.measure == "final" else self._summed(tau)
        if found is None or not (math.isfinite(found[0]) and np.isfinite(found[1]).all()):
            return math.inf, None
        return found[0], (found[1] * tau).ravel()

    def _final(self, tau: Array) -> tuple[float, Array] | None:
        passage = self.reach.through(tau)
        if passage is None:
            return None
        value, z = self.aim.of(passage.Q)
        return value, self.reach.slopes(passage, z)[0]

    def _summed(self, tau: Array) -> tuple[float, Array] | None:
        """``log g^2`` at which the largest eigenvalue at the end just equals ``g^2``, by Newton's method in the price.

        With ``F(tau, log price) = log(price lambda_max)``, which is zero there, ``d log g^2 = F_tau / F_price d tau``.
        """
        low, high = -math.inf, math.inf  # logarithms of the price
        log = math.log(self.price)
        for _ in range(_ROOTS):
            passage = self.reach.through(tau, math.exp(log))
            if passage is None:
                high = min(high, log)
                log = log - 1.0 if low == -math.inf else 0.5 * (low + high)
                continue
            value, slopes, by_price = self._excess(passage, log)
            if value < 0.0:
                low = max(low, log)
            else:
                high = min(high, log)
            if abs(value) < _CLOSE:
                self.price = math.exp(log)
                return value / by_price - log, slopes / by_price
            log -= value / by_price
            if not low < log < high:
                log = 0.5 * (low + high) if low > -math.inf else high - 1.0
        return None

    def _excess(self, passage: Passage, log: float) -> tuple[float, Array, float]:
        value, z = self.aim.largest(passage.Q)
        slopes, by_price = self.reach.slopes(passage, z)
        return value + log, slopes, 1.0 + math.exp(log) * by_price

    def _first_price(self, tau: Array) -> float:
        """A price at which there is a passage: ten times as much as if every output were as large as the last."""
        passage = self.reach.through(tau)
        top = self.aim.largest(passage.Q)[0] if passage is not None else 0.0
        return math.exp(-min(max(top, -600.0), 600.0)) / (10.0 * self.steps)

    def _proved(self, tau: Array) -> tuple[float, Proof] | None:
        """The gain that the multipliers prove, with as little slack as rounding allows."""
        for slack in _SLACKS:
            if self.deadline.over and slack != _SLACKS[-1]:
                continue
            for gain in self._gains(tau, slack):
                L = gain * gain * 0.5 / tau
                data = {"L": L, "E": self.E, "F": self.F, "H": self.H, "gain": gain, "slack": slack}
                data["measure"] = self.measure
                if check_steps(self.system, **data)[0]:
                    return gain, Proof("gain_steps", {**data, "horizon": self.steps})
        return None

    def _gains(self, tau: Array, slack: float) -> list[float]:
        """Gains that may be proved with this slack, the smallest first."""
        if self.measure == "l2":
            least = math.exp(0.5 * self._root(tau))
            return [least * (1.0 + step + self.steps * slack) for step in (1e-7, 1e-5, 1e-4)]
        *_, last = storages(self.system, 0.5 / tau, (self.E, self.F), None, 1.0, slack)
        least = math.sqrt(max(float(np.linalg.eigvalsh(self.H @ np.linalg.inv(last) @ self.H.T)[-1]), 0.0))
        return [least * (1.0 + 1e-9) + 1e-12]

    def _root(self, tau: Array) -> float:
        found = self._summed(tau)
        return math.inf if found is None else found[0]
