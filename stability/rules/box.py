r"""Rule ``box``: a box that a bounded activation cannot leave.

With :math:`s = |B| b_\phi + |F| b_u` (what the activation and the inputs can add to each state in absolute
value) and ``r > 0``: in discrete time :math:`|A| r + s \le r` and :math:`|A| r < r`, in continuous time the
same with :math:`a_{ii} r_i + \sum_{j \ne i} |a_{ij}| r_j + s_i \le 0` and the sum without ``s_i`` negative.
Then :math:`\max_i |x_i| / r_i` ends at one or below for every trajectory. For ``A = 0`` in discrete time
this is the unit box of tanh.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.balls import EPS, Ball, system_balls
from stability.certificate import Claim
from stability.rules.ball import BOUNDED, bounded_problem, bounded_statement, push_bounds
from stability.rules.registry import Outcome, rule
from stability.rules.witness_data import number, vector

__all__ = ["check"]


@rule(
    "box",
    **BOUNDED,
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
    with np.errstate(all="ignore"):
        push, bounds = push_bounds(subject, number(data, "input_bound"))
        if not np.isfinite(bounds).all():
            return False, "the activation or the input is not bounded"
        A = system_balls(system)[0]
        size = Ball.exact(A.upper())
        if system.is_discrete:
            flow = size @ r - r
        else:
            diagonal = np.diagonal(A.mid) + np.diagonal(A.rad) * (1 + 4 * EPS)
            off = size.mid - np.diag(np.diagonal(size.mid))
            flow = Ball.exact(off) @ r + Ball.exact(diagonal) * r
        total = flow + Ball.exact(push.upper()) @ bounds
        alone, with_push = flow.mid + flow.rad, total.mid + total.rad
        norm = float(np.sqrt((r * r).sum())) * (1 + (len(r) + 8) * EPS)
    if not (alone < 0).all():
        return False, "the linear part does not shrink the box"
    if not (with_push <= 0).all():
        return False, f"the box can be left through side {int(np.argmax(with_push))}"
    if not norm <= float(data["radius"]):
        return False, "the radius is smaller than the half diagonal of the box"
    return True, "the box is invariant and attracts every trajectory"
