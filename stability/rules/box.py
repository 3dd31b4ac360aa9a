r"""Rule ``box``: a box that a bounded activation cannot leave.

With :math:`s = |B| b_\phi + |F| b_u` (what the activation and the inputs can add to each state in absolute
value) and ``r > 0``: in discrete time :math:`|A| r + s < r`, in continuous time
:math:`a_{ii} r_i + \sum_{j \ne i} |a_{ij}| r_j + s_i < 0`. Then :math:`\max_i |x_i| / r_i` falls as long as it is above
one, and ends there or below for every trajectory. For ``A = 0`` in discrete time this is the unit box of tanh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rigor.balls import EPS, Ball, system_balls
from stability.rigor.intervals import length
from stability.rules.ball import bounded_problem, bounded_statement, push_bounds
from stability.rules.registry import Outcome, rule
from stability.rules.witness_data import vector
from stability.systems import DrivenSystem

__all__ = ["check"]


@rule(
    "box",
    subject=DrivenSystem,
    claim="bounded",
    verdict=Verdict.CERTIFIED,
    value="radius",
    fields={"r": "array", "radius": "number"},
    optional={"input_bound": "number"},
    statement=bounded_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``r`` (n,), ``radius`` (the norm of ``r`` or more); ``input_bound`` where F is not zero."""
    problem = bounded_problem(subject, data)
    if problem is not None:
        return False, problem
    system = subject.system
    r = vector(data, "r", system.states)
    if r is None or not (r > 0).all():
        return False, f"r must be a positive vector of {system.states} entries"
    push, bounds = push_bounds(subject, data.get("input_bound"))
    if not np.isfinite(bounds).all():
        return False, "the activation or the input is not bounded"
    if system.is_discrete:
        flow = Ball.exact(system_balls(system)[0].upper()) @ r - r
    else:  # no discretisation: the stored matrix is the exact one
        diagonal = np.diagonal(system.A)
        flow = Ball.exact(np.abs(system.A - np.diag(diagonal))) @ r + Ball.exact(diagonal) * r
    total = flow + Ball.exact(push.upper()) @ bounds
    over = total.mid + total.rad
    norm = float(length(r)) * (1 + (len(r) + 8) * EPS)
    if not (over < 0).all():
        return False, f"the box can be left through side {int(np.argmax(over))}, or is not entered there"
    if not norm <= float(data["radius"]):
        return False, "the radius is smaller than the half diagonal of the box"
    return True, "the box is invariant and attracts every trajectory"
