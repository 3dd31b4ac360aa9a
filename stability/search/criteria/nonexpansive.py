"""Non-expansiveness: distances grow by at most a stated factor per step.

Orthogonal networks are of this kind: ``|W h| = |h|`` and an activation of slope at most one never stretch a
difference, but nothing shrinks it either, so they are no contractions. In floating point ``W`` is orthogonal to
rounding only; the factor proved is therefore ``1 + epsilon`` with the smallest epsilon tried that can be proved. A
network whose activation acts on pairs says of its ``W`` whether the orthogonal matrix beside it is meant: then the
factor is one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.multiplier_lmi import LARGEST_FACTOR, check_lmi
from stability.proposals import accepted_claim
from stability.search.solvers.deadline import Deadline, TimeLimit

EPSILONS = (1e-9, 1e-8, 1e-7, LARGEST_FACTOR - 1.0)  # excesses over one that are tried in turn


def nonexpansive_claim(subject: Any, *, time_limit: TimeLimit = None) -> Claim | None:
    """Prove that no step increases a difference by more than ``1 + epsilon`` in the Euclidean norm.

    Args:
        subject: a discrete ``LureSystem`` or ``DrivenSystem``, or a ``PairwiseSystem``.
        time_limit: seconds.

    Returns:
        The certified claim ``nonexpansive_claim`` with the factor as its value, or ``None``.

    Example:
        >>> rotation = LureSystem([[0.0, 0.0], [0.0, 0.0]], np.eye(2), [[0.0, 1.0], [-1.0, 0.0]], dt=1.0)
        >>> nonexpansive_claim(rotation).value
        1.000000001
    """
    if isinstance(subject, PairwiseSystem):
        factors = (1.0,) if subject.orthogonal else tuple(1.0 + e for e in EPSILONS)
        claims = (accepted_claim(subject, "pair_growth", {"factor": factor}) for factor in factors)
        return next((claim for claim in claims if claim is not None), None)
    system: Any = getattr(subject, "system", None)
    if not isinstance(system, LureSystem) or not system.is_discrete:
        return None
    deadline = Deadline.from_limit(time_limit).named("nonexpansive")
    p = np.eye(system.states)
    room = np.maximum(1.0 - system.alpha, 1e-3)
    column = np.maximum(np.einsum("ij,ij->j", system.B, system.B), 1e-30)
    for epsilon in EPSILONS:
        for factor in (1.0, 0.5, 2.0):
            if deadline.over:
                return None
            multipliers = factor * column / room
            if check_lmi(system, p, multipliers, 1.0 + epsilon, limit=2.0)[0]:
                return accepted_claim(subject, "growth_lmi", {"L": multipliers, "factor": 1.0 + epsilon})
    return None
