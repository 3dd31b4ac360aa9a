"""Further claims about a subject, in addition to the main claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.residual_stack import ResidualStack
from stability.search.criteria.contraction_claim import slower_rate_claims
from stability.search.criteria.nonexpansive import nonexpansive_claim
from stability.search.gains.pairwise import weight_norm_claim
from stability.search.gains.residual import residual_norm_gain, stack_norm_gain
from stability.search.input_sets.bounded import bounded, equilibrium_claim
from stability.search.input_sets.stack_bounds import gated_bounds
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.rates import Rate

_ANY, _NETWORKS, _PAIRS = (LureSystem, DrivenSystem), (DrivenSystem,), (LureSystem, DrivenSystem, PairwiseSystem)
_CELLS = (GatedCell,)
_FURTHER: tuple[tuple[Callable[[Any, Claim, Deadline], Claim | None], tuple[type, ...], bool], ...] = (
    (lambda subject, main, limit: equilibrium_claim(subject, main), (*_ANY, *_CELLS, LayerStack), False),
    (lambda subject, main, limit: bounded(subject, time_limit=limit), _NETWORKS, False),
    (lambda subject, main, limit: gated_bounds(subject, main, time_limit=limit), _CELLS, False),
    (lambda subject, main, limit: nonexpansive_claim(subject, time_limit=limit), _PAIRS, True),
    (lambda subject, main, limit: weight_norm_claim(subject), (PairwiseSystem,), False),
    (lambda subject, main, limit: stack_norm_gain(subject), (LayerStack,), False),
    (lambda subject, main, limit: residual_norm_gain(subject, main), (ResidualStack,), False),
)
"""Functions that return further claims, types of their subjects, and True for claims only without contraction."""


def further_claims(subject: Any, main: Claim, *, rate: Rate, deadline: Deadline) -> tuple[Claim, ...]:
    """Return the strongest provable claims in addition to the main one.

    Args:
        subject: system of the main claim.
        main: the main claim.
        rate: requested rate: ``"best"`` adds slower rates with a smaller overshoot, ``"any"`` does not.
        deadline: checked before each claim.

    Returns:
        Proved claims.
    """
    certified = main.verdict is Verdict.CERTIFIED
    if certified and rate == "any":
        return ()
    claims: list[Claim] = []
    for make, types, only_without_contraction in _FURTHER:
        if not isinstance(subject, types) or (only_without_contraction and certified):
            continue
        if deadline.stops("further claims"):
            break
        claim = make(subject, main, deadline)
        if claim is not None and claim.verdict is not Verdict.INCONCLUSIVE:
            claims.append(claim)
    if isinstance(subject, _ANY) and certified and rate == "best":
        return (*slower_rate_claims(subject, main, time_limit=deadline), *claims)
    return tuple(claims)
