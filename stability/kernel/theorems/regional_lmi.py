r"""Theorems ``regional_lmi`` and ``attraction_lmi``: stability inside an invariant ellipsoid.

**Contraction** (``regional_lmi``). On :math:`\Omega = \{(x - c)^T P (x - c) \le \ell\}`, for inputs
:math:`|u_j - u_{0,j}| \le \bar u`, the pre-activations stay within a computed reach, so the activation's difference
quotients lie in a narrower interval than globally (for tanh :math:`[\mathrm{sech}^2 r_i, 1]` and often less). The
multiplier inequality with *those* slopes at ``(P, L, rate)`` proves that any two trajectories that stay in the region
approach each other at the rate in the norm of ``P``. Compared with the constant ``c``, whose right-hand side (step)
is at most :math:`\varepsilon` in that norm over all inputs, it also gives
:math:`|x - c|_P' \le -\lambda |x - c|_P + \varepsilon`
(:math:`|x^+ - c|_P \le \rho |x - c|_P + \varepsilon`), so :math:`\varepsilon < \lambda \sqrt\ell`
(:math:`< (1 - \rho) \sqrt\ell`) proves the region invariant.

**Convergence to zero** (``attraction_lmi``). On :math:`\Omega = \{x^T P x \le \ell\}` the pre-activations of a
``ControlLoop`` stay within a computed reach, so that :math:`\phi_i(z_i) / z_i` lies in a smaller interval than
globally. A saturated channel obeys the generalized sector condition: where :math:`|g_i^T x| \le 1`, the clipped value
lies between ``z_i`` and :math:`g_i^T x`, hence

.. math:: \mathrm{sat}(z_i) = z_i - k (z_i - g_i^T x), \qquad 0 \le k \le 1 .

Two channels state this: one of slope 1 that reads ``z_i``, and one of slopes [0, 1] that reads the difference of the
first and :math:`g_i^T x`. The multiplier inequality with these channels and sectors gives :math:`V^+ \le \rho^2 V`
(:math:`V' \le -2 \lambda V`) for :math:`V = x^T P x` in :math:`\Omega`, which is therefore invariant, and whose
trajectories converge to zero.

Sources: T. Hu, Z. Lin, *Control Systems with Actuator Saturation* (2001); S. Tarbouriech et al., *Stability and
Stabilization of Linear Systems with Saturating Actuators* (2011), lemma 1.6; H. K. Khalil, *Nonlinear Systems*, 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stability.errors import StabilityError
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Channels, Input, Metric, Number, Refused, State, require, required
from stability.kernel.format.sentences import (
    at_least,
    at_most,
    decay_bound,
    decay_factor,
    decays,
    for_every,
    inputs_phrase,
    theorem,
)
from stability.kernel.format.theorem_table import certifies
from stability.kernel.reachability.ellipsoid_region import Region, ellipsoid_reach, region_bounds, through_loop
from stability.kernel.systems.driven import ControlLoop, DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.multiplier_lmi import Decay, check_lmi, no_decay

Array = np.ndarray


def regional_system(system: LureSystem, low: Array, high: Array) -> LureSystem:
    """Return the same linear part with slopes in ``[low, high]``, ``(m,)`` each.

    A discretized system is rebuilt from its continuous one, so that the rounding of its formula stays inside
    the checker's error bound; channels that are copies of one another then share the wider interval.
    """
    if system.origin is None:
        return LureSystem(system.A, system.B, system.C, system.D, (low, high), system.dt)
    base, method = system.origin.base, system.origin.method
    copies = (system.channels // base.channels, base.channels)
    slopes = low.reshape(copies).min(axis=0), high.reshape(copies).max(axis=0)
    return LureSystem(base.A, base.B, base.C, base.D, slopes).discretise(method, system.origin.dt)


def _proved_in_region(proof: Decay, system: Callable[[], LureSystem]) -> str:
    """Prove the inequality for a system with the slopes of a region, if there is one."""
    try:
        valid, reason = check_lmi(system(), proof.P, proof.L, proof.rate)
    except StabilityError as error:
        raise Refused(f"no system with the region's slopes: {error}") from error
    require(valid, f"with the region's slopes {reason}")
    return reason


@certifies(
    "regional_lmi",
    subject=DrivenSystem,
    claim="regional",
    value="rate",
    size="P, L, centre and input must be of the network's sizes, P symmetric to the last bit",
)
class RegionalLmi(Decay):
    """Ellipsoid ``(x - c)^T P (x - c) <= level`` that contains the ball of ``radius`` around ``centre``."""

    P: Metric
    L: Channels
    level: Number
    radius: Number
    centre: State
    input: Input
    input_bound: Number

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        bound, inputs = self.input_bound, "the constant input u0 of the proof"
        if bound != 0:
            inputs = f"{inputs_phrase(subject)} with |u_j - u0_j| <= {at_least(bound)} (u0 of the proof)"
        decay = decay_bound(self.overshoot, self.rate, subject.is_discrete)
        return theorem(
            subject,
            f"{for_every(subject, inputs)}, the ellipsoid E of the proof, (x - c)^T P (x - c) <= l, is invariant.",
            f"Under every such input, any two trajectories x, y that start in E satisfy {decay}.",
            f"E contains the ball |x - c|_2 <= {at_least(self.radius)}.",
            "Trajectories outside E and other inputs are not covered.",
        )

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        positive = 0.0 < self.p_min <= self.p_max <= 1e30 and 0.0 < self.level <= 1e30 and self.radius > 0.0
        words = "p_min, p_max, level and radius must be positive, input_bound not negative"
        require(positive and self.input_bound >= 0.0, words)
        require(decays(self.rate, subject.is_discrete), no_decay(self.rate))
        self.require_metric()
        fits = self.radius * math.sqrt(self.p_max) * (1.0 + 1e-14) <= math.sqrt(self.level)
        require(fits, "the ball of the stated radius does not fit into the ellipsoid")
        region = required(
            region_bounds(subject, self.P, self.p_min, self.level, self.centre, self.input, self.input_bound),
            "the bounds over the region cannot be computed",
        )
        drift, allowed = self._drift(region), self._undone(subject)
        balance = f"the drift at its centre is {drift:.3g}, contraction undoes {allowed:.3g}"
        require(drift * (1 + 4 * EPS) < allowed, f"the region is not proved invariant: {balance}")
        reason = _proved_in_region(self, lambda: regional_system(subject.system, region.low, region.high))
        slopes = f"[{region.low.min(initial=1.0):.3g}, {region.high.max(initial=0.0):.3g}]"
        return f"on an invariant region, slopes in {slopes}; {reason}"

    def _drift(self, region: Region) -> float:
        r"""Bound :math:`\varepsilon`, the speed of the center in the norm of ``P``, above."""
        drift, most = region.drift, np.abs(self.P) @ region.drift
        squared = min(float(drift @ most), float(drift @ (self.p_max * drift)))
        return math.sqrt(squared * (1 + (2 * len(drift) + 16) * EPS) + TINY)

    def _undone(self, subject: DrivenSystem) -> float:
        r"""Bound :math:`\lambda \sqrt\ell` (:math:`(1 - \rho) \sqrt\ell`), which contraction absorbs, below."""
        return (1.0 - self.rate if subject.is_discrete else self.rate) * math.sqrt(self.level) * (1 - 8 * EPS)


def sector_system(loop: ControlLoop, G: Array, slopes: tuple[Array, Array]) -> LureSystem:
    """Return the loop with sectors as slopes and, after its channels, one for each saturated channel (row of ``G``)."""
    clipped, (low, high) = loop.clipped, (end.copy() for end in slopes)
    low[clipped] = high[clipped] = 1.0
    s = len(clipped)
    B, C = np.hstack([loop.B, -loop.B[:, clipped]]), np.vstack([loop.C, -G])
    D = np.block([[loop.D, -loop.D[:, clipped]], [np.eye(loop.channels)[clipped], np.zeros((s, s))]])
    return LureSystem(loop.A, B, C, D, (np.append(low, np.zeros(s)), np.append(high, np.ones(s))), loop.dt)


@certifies(
    "attraction_lmi",
    subject=ControlLoop,
    claim="attraction",
    value="rate",
    size="P must be (n, n), box (n,), reach (m,)",
)
class AttractionLmi(Decay):
    """Ellipsoid ``x^T P x <= level``, where ``|z_i| <= reach_i``, ``|G x| <= 1``; a row of G per saturated channel."""

    P: Metric
    level: Number
    reach: Channels
    G: AnyArray
    box: State

    def sentence(self, subject: ControlLoop, claim: Claim) -> str:
        factor, time = decay_factor(self.rate, subject.is_discrete), "k" if subject.is_discrete else "t"
        return theorem(
            subject,
            f"With the nonlinearities of the file ({', '.join(dict.fromkeys(subject.activations))}), every trajectory "
            f"x that starts in the ellipsoid E of the proof, x^T P x <= l, stays in E, and |x({time})|_2 <= "
            f"{at_most(self.overshoot)} * {factor} |x(0)|_2 for all {time} >= 0: it converges to the equilibrium 0.",
            "E contains the box |x_i| <= box_i of the proof. Trajectories outside E and inputs are not covered.",
        )

    def check(self, subject: ControlLoop, claim: Claim) -> str:
        m, box, clipped = subject.channels, Ball.exact(self.box), subject.clipped
        positive = 0.0 < self.p_min <= self.p_max <= 1e30 and 0.0 < self.level <= 1e30 and (self.box >= 0.0).all()
        fits = self.G.shape == (len(clipped), subject.states)
        require(positive and fits, "p_min, p_max and level must be positive, box >= 0, G (saturated channels, n)")
        require(decays(self.rate, subject.is_discrete), no_decay(self.rate))
        self.require_metric()
        rows, steepest = Ball.exact(np.vstack([subject.C, self.G])), np.maximum(-subject.alpha, subject.beta)
        swing = required(ellipsoid_reach(self.P, self.p_min, self.level, rows), "P has no computed inverse")
        require((swing[m:] <= 1.0).all(), "a row of G exceeds 1 in the ellipsoid")
        reach = required(through_loop(np.abs(subject.D) * steepest, swing[:m]), "the channels have no computed bound")
        require((reach <= self.reach).all(), "a channel exceeds its reach in the ellipsoid")
        reason = _proved_in_region(self, lambda: sector_system(subject, self.G, subject.sectors(self.reach)))
        require((box @ (np.abs(self.P) @ box)).upper() <= self.level, "the box does not fit into the ellipsoid")
        return f"on an invariant ellipsoid that contains the box; {reason}"
