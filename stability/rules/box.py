r"""Rule ``box``: a box that a bounded activation cannot leave.

With :math:`s = |B| b_\phi + |F| b_u` (what the activation and the inputs can add to each state in absolute
value) and ``r > 0``: in discrete time :math:`|A| r + s < r`, in continuous time
:math:`a_{ii} r_i + \sum_{j \ne i} |a_{ij}| r_j + s_i < 0`. Then :math:`\max_i |x_i| / r_i` falls as long as it is above
one, and ends there or below for every trajectory. For ``A = 0`` in discrete time this is the unit box of tanh.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rigor.balls import EPS, Ball, system_balls
from stability.rigor.intervals import length
from stability.rules.ball import Bounded
from stability.rules.fields import State, require
from stability.rules.registry import rule
from stability.systems import DrivenSystem

__all__ = ["BoxProof"]

SIZE = "r must be a positive vector of {n} entries"


@rule("box", subject=DrivenSystem, claim="bounded", verdict=Verdict.CERTIFIED, value="radius", size=SIZE)
class BoxProof(Bounded):
    """``radius`` is the norm of ``r`` or more."""

    r: State

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        system, r = subject.system, self.r
        push, bounds = self.push(subject)
        require((r > 0).all(), SIZE.format(n=system.states))
        require(np.isfinite(bounds).all(), "the activation or the input is not bounded")
        if system.is_discrete:
            flow = Ball.exact(system_balls(system)[0].upper()) @ r - r
        else:  # no discretisation: the stored matrix is the exact one
            diagonal = np.diagonal(system.A)
            flow = Ball.exact(np.abs(system.A - np.diag(diagonal))) @ r + Ball.exact(diagonal) * r
        total = flow + Ball.exact(push.upper()) @ bounds
        over = total.mid + total.rad
        norm = float(length(r)) * (1 + (len(r) + 8) * EPS)
        require((over < 0).all(), f"the box can be left through side {int(np.argmax(over))}, or is not entered there")
        require(norm <= self.radius, "the radius is smaller than the half diagonal of the box")
        return "the box is invariant and attracts every trajectory"
