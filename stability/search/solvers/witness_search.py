"""Search for ``(P, L)`` by Riccati equations at given rates with improving multipliers.

Every candidate must pass the rigorous check.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.solvers.deadline import Deadline, TimeOverError
from stability.search.solvers.diagonal_multipliers import FrequencySamples, optimise_scaling
from stability.search.solvers.hinf import Peak, hinf_peak
from stability.search.solvers.loop_transformation import (
    centered_loop,
    completed_multipliers,
    fixed_channels,
    state_scales,
)
from stability.search.solvers.overshoot import condition_number, well_conditioned
from stability.search.solvers.rates import bisect, shift_factor
from stability.search.solvers.riccati import bounded_real
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_FAR = 3.0
"""Logarithmic ratio of multipliers' square roots above which states are balanced as well."""


@dataclass
class WitnessSearch:
    """Riccati attempts at given rates, with multipliers that improve as needed.

    Attributes:
        system: the system.
        deadline: time limit, at which the search returns its best result.
        loop: centered, without the fixed channels.
        fixed: ``(m,)`` booleans, the channels that bring no uncertainty.
        x: logarithms of the square roots of the multipliers, for the channels of ``loop``.
        samples: samples of the loop's transfer matrix after the multipliers were improved.
        attempts: Riccati equations so far.
        witness: the last proved one, ``P`` and ``L``.
        rate: its rate.
        most: condition number beyond which a ``P`` counts for nothing.
    """

    system: LureSystem
    deadline: Deadline
    loop: StateSpace = field(init=False)
    fixed: Array = field(init=False)
    x: Array = field(init=False)
    samples: FrequencySamples | None = None
    attempts: int = 0
    witness: dict[str, Array] = field(default_factory=dict)
    rate: float | None = None
    most: float = 1e22

    def __post_init__(self) -> None:
        self.fixed = fixed_channels(self.system)
        self.loop = centered_loop(self.system).restricted(~self.fixed)
        self.x = np.zeros(self.channels)

    @property
    def channels(self) -> int:
        """Number of channels whose multipliers are searched."""
        return self.loop.channels

    def spread(self) -> float:
        """Return the range of the logarithms of the multipliers' square roots."""
        return float(np.ptp(self.x)) if self.channels else 0.0

    def loop_at(self, rate: float, multipliers: Array | None = None) -> StateSpace:
        """Return the loop shifted to a rate and scaled by ``x``, or by given multipliers of the system."""
        delta = np.exp(self.x)
        if multipliers is not None:
            delta = np.sqrt(2.0 * multipliers[~self.fixed] / shift_factor(self.system, rate))
        return self.loop.shifted(rate).scaled(delta)

    def attempt(self, rate: float, slack: float, dtype: type = np.float64) -> bool:
        """Solve one Riccati equation and check the result rigorously; keep the witness if it holds.

        Multipliers far apart call for states as far apart: then the same once more in balanced coordinates.
        """
        if self.deadline.over:
            return False
        self.attempts += 1
        loop = self.loop_at(rate)
        if self._proved(bounded_real(loop, slack, dtype=dtype, deadline=self.deadline), rate):
            return True
        if self.spread() <= _FAR or self.deadline.over:
            return False
        t = state_scales(loop)
        p = bounded_real(loop.rescaled(t), slack, dtype=dtype, deadline=self.deadline)
        return self._proved(None if p is None else p / t / t[:, None], rate)

    def _proved(self, p: Array | None, rate: float) -> bool:
        """Check a solution at the present multipliers."""
        if p is None or not p.any():
            return False
        multipliers = np.zeros(self.system.channels)
        multipliers[~self.fixed] = 0.5 * shift_factor(self.system, rate) * np.exp(2.0 * self.x)
        unit = 2.0 ** -np.round(np.log2(np.abs(p).max()))
        return self.keep(unit * p, unit * multipliers, rate)

    def keep(self, p: Array, multipliers: Array, rate: float) -> bool:
        """Check a solution rigorously, once the fixed channels have their multipliers; a useless overshoot fails."""
        p = np.ascontiguousarray(0.5 * (p + p.T))
        if self.spread() > _FAR and condition_number(p) > self.most:
            better = self._conditioned(p, multipliers, rate)
            if better is None or condition_number(better) > self.most:
                return False
            p = better
        for full in completed_multipliers(self.system, p, multipliers, rate, self.fixed):
            if check_lmi(self.system, p, full, rate)[0]:
                self.witness, self.rate = {"P": p, "L": full}, rate
                return True
        return False

    def _conditioned(self, p: Array, multipliers: Array, rate: float) -> Array | None:
        """Return a better conditioned solution for the same multipliers."""
        if self.deadline.over or not (multipliers[~self.fixed] > 0).all():
            return None
        self.attempts += 1
        most = 24 if len(p) <= 512 else 8
        return well_conditioned(self.loop_at(rate, multipliers), p, most, deadline=self.deadline)

    def feasible(self, rate: float, gain: float | None = None) -> bool:
        """Try a rate with slacks that fit the distance of the gain from one."""
        if gain is None:
            return self.attempt(rate, 1e-3) or self.attempt(rate, 1e-7)
        slacks = [share * max(1.0 - gain * gain, 1e-9) for share in (0.1, 1e-3)]
        if any(self.attempt(rate, slack) for slack in slacks):
            return True
        far = self.x
        for share in (0.5, 0.25, 0.12) if self.spread() > _FAR else ():  # closer together: rounding, overshoot
            self.x = share * far
            if self.attempt(rate, slacks[1]):
                return True
        self.x = far
        return False

    def faster(self, rate: float) -> bool:
        """Return True if a rate is faster than the proved one."""
        return self.rate is None or (rate < self.rate if self.system.is_discrete else rate > self.rate)

    def condition(self) -> None:
        """Reduce the overshoot of the witness at its rate, if possible.

        First multipliers less far apart, then as much slack as the rate allows, then a metric from the middle of the
        set that belongs to these multipliers.
        """
        if not self.witness or self.rate is None or not self.channels or self.deadline.over:
            return
        before, rate = self.witness, self.rate
        self._draw_together(rate)
        multipliers = self.witness["L"]
        for slack in (1.0, 0.3, 0.1, 0.01) if (multipliers[~self.fixed] > 0).all() else ():
            if self.deadline.over:
                break
            self.attempts += 1
            p = bounded_real(self.loop_at(rate, multipliers), slack, deadline=self.deadline)
            if p is not None and self.keep(p, multipliers, rate):
                break
        better = self._conditioned(self.witness["P"], multipliers, rate)
        if better is not None:
            self.keep(better, multipliers, rate)
        if condition_number(self.witness["P"]) > condition_number(before["P"]):
            self.witness = before

    def _draw_together(self, rate: float) -> None:
        """Move multipliers as close to each other as the rate allows, on the ray from one to the witness's."""
        logarithms = 0.5 * np.log(np.maximum(self.witness["L"][~self.fixed], 1e-300))
        self.x = offsets = logarithms - logarithms.mean()
        if self.spread() < _FAR:
            return

        def proved(share: float) -> bool:
            self.x = share * offsets
            return self.attempt(rate, 1e-5)

        self.x = bisect(proved, 1.0, 0.0, 2.0**-5) * offsets

    def peak(self, rate: float, rtol: float = 1e-6) -> Peak | None:
        """Find the peak gain at a rate and the present multipliers; ``None`` if the search fails."""
        try:
            peak = hinf_peak(self.loop_at(rate), rtol=rtol, deadline=self.deadline)
        except (ArithmeticError, np.linalg.LinAlgError, TimeOverError):
            return None
        return peak if np.isfinite(peak.omega) else None

    def improve(self, rate: float, target: float) -> float:
        """Improve the multipliers for a rate; return the gain reached on the samples."""
        if self.samples is None:
            n = self.system.states
            if not self.deadline.affords(50.0 * n**3):  # a complex Schur form, which nothing can stop
                return np.inf
            self.samples = FrequencySamples(self.loop, 40 if n <= 128 else 24 if n <= 512 else 12)
        try:
            samples = self.samples.at(rate, self.deadline)
        except TimeOverError:
            return np.inf
        self.x, gain = optimise_scaling(samples, self.x, target=target, deadline=self.deadline)
        return gain
