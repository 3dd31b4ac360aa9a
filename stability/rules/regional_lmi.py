r"""Rule ``regional_lmi``: contraction at a rate inside an ellipsoid that is proved invariant.

On :math:`\Omega = \{(x - c)^T P (x - c) \le \ell\}`, for inputs :math:`|u_j - u_{0,j}| \le \bar u`, the
pre-activations stay within a computed reach, so the activation's difference quotients lie in a narrower
interval than globally (for tanh :math:`[\mathrm{sech}^2 r_i, 1]` and often less). The multiplier inequality
with *those* slopes at ``(P, L, rate)`` proves that any two trajectories that stay in the region approach
each other at the rate in the norm of ``P``. Compared with the constant ``c``, whose right-hand side (step)
is at most :math:`\varepsilon` in that norm over all inputs, it also gives
:math:`|x - c|_P' \le -\lambda |x - c|_P + \varepsilon`
(:math:`|x^+ - c|_P \le \rho |x - c|_P + \varepsilon`), so :math:`\varepsilon < \lambda \sqrt\ell`
(:math:`< (1 - \rho) \sqrt\ell`) proves the region invariant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.errors import StabilityError
from stability.rigor.balls import EPS, TINY
from stability.rigor.definite import spectral_bounds
from stability.rigor.region import Region, region_bounds
from stability.rules.multiplier_lmi import LMI_FIELDS, check_lmi, overshoot_fits
from stability.rules.registry import Outcome, rule
from stability.rules.witness_data import symmetric, vector
from stability.statements import at_least, at_most, decay_factor, decays, describe
from stability.systems import DrivenSystem, LureSystem

__all__ = ["check", "regional_system"]

Array = np.ndarray


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    discrete = isinstance(subject, DrivenSystem) and subject.system.is_discrete
    decay = decay_factor(data["rate"], discrete)
    bound = data["input_bound"]
    moves = f"every input with |u_j - u0_j| <= {at_least(bound)} at all times, u0 that of the proof,"
    inputs = "the constant input u0 of the proof" if bound == 0 else moves
    return (
        f"{describe(subject)} contracts regionally: under {inputs} the ellipsoid "
        f"(h - c)^T P (h - c) <= l of the proof is never left, and any two trajectories that start "
        f"in it satisfy |d| <= {at_most(data['overshoot'])} * {decay} |d(0)|. It contains the ball "
        f"|h - c| <= {at_least(data['radius'])}; nothing is said about states outside the ellipsoid."
    )


def regional_system(system: LureSystem, region: Region) -> LureSystem:
    """The same linear part with the slopes that the region allows.

    A discretised system is rebuilt from its continuous one, so that the rounding of its formula stays inside
    the checker's error bound; channels that are copies of one another then share the wider interval.
    """
    low, high = region.low, region.high
    if system.origin is None:
        return LureSystem(system.A, system.B, system.C, system.D, (low, high), system.dt)
    base, method = system.origin.base, system.origin.method
    copies = (system.channels // base.channels, base.channels)
    slopes = low.reshape(copies).min(axis=0), high.reshape(copies).max(axis=0)
    return LureSystem(base.A, base.B, base.C, base.D, slopes).discretise(method, system.origin.dt)


@rule(
    "regional_lmi",
    subject=DrivenSystem,
    claim="regional",
    verdict=Verdict.CERTIFIED,
    fields={
        **LMI_FIELDS,
        "level": "number",
        "radius": "number",
        "centre": "array",
        "input": "array",
        "input_bound": "number",
    },
    value="rate",
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``P L rate overshoot p_min p_max level radius centre input input_bound``."""
    system = subject.system
    P, L = symmetric(data, "P", system.states), vector(data, "L", system.channels)
    centre, inputs = vector(data, "centre", system.states), vector(data, "input", subject.inputs)
    names = ("rate", "overshoot", "p_min", "p_max", "level", "radius", "input_bound")
    if P is None or L is None or centre is None or inputs is None:
        return False, "P, L, centre and input must be of the network's sizes, P symmetric to the last bit"
    rate, overshoot, p_min, p_max, level, radius, bound = (float(data[name]) for name in names)
    if not (0.0 < p_min <= p_max <= 1e30 and 0.0 < level <= 1e30 and radius > 0.0 and bound >= 0.0):
        return False, "p_min, p_max, level and radius must be positive, input_bound not negative"
    if not decays(rate, system.is_discrete):
        return False, f"the rate {rate} is no exponential decay: below one a step, above zero in continuous time"
    outcome = spectral_bounds(P, p_min, p_max)
    if not outcome.holds:
        return False, f"P does not lie between p_min and p_max: {outcome.reason}"
    if not overshoot_fits(overshoot, p_min, p_max):
        return False, f"the overshoot {overshoot} is smaller than sqrt(p_max / p_min)"
    if not radius * math.sqrt(p_max) * (1.0 + 1e-14) <= math.sqrt(level):
        return False, "the ball of the stated radius does not fit into the ellipsoid"
    region = region_bounds(subject, P, p_min, level, centre, inputs, bound)
    if region is None:
        return False, "the bounds over the region cannot be computed"
    drift, most = region.drift, np.abs(P) @ region.drift
    squared = min(float(drift @ most), float(drift @ (p_max * drift))) * (1 + (2 * system.states + 16) * EPS) + TINY
    allowed = (1.0 - rate if system.is_discrete else rate) * math.sqrt(level) * (1 - 8 * EPS)
    if not math.sqrt(squared) * (1 + 4 * EPS) < allowed:
        return False, (
            f"the region is not proved invariant: the drift at its centre is {math.sqrt(squared):.3g}, "
            f"contraction undoes {allowed:.3g}"
        )
    try:
        inner = regional_system(system, region)
    except StabilityError as error:
        return False, f"no system with the region's slopes: {error}"
    valid, reason = check_lmi(inner, P, L, rate)
    if not valid:
        return False, f"with the region's slopes {reason}"
    return (
        True,
        f"on an invariant region, slopes in [{region.low.min(initial=1.0):.3g}, "
        f"{region.high.max(initial=0.0):.3g}]; {reason}",
    )
