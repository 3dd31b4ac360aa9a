"""What else is true of a subject beside the main claim: further claims, each proved or left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stability.certificate import Claim, Verdict
from stability.claims.bounded import bounded, equilibrium_claim
from stability.claims.contraction import calmer_claims
from stability.claims.gain import norm_gain, stack_norm_gain
from stability.claims.gated_ends import gated_bounds, gated_equilibrium
from stability.claims.nonexpansive import nonexpansive
from stability.claims.regional import regional
from stability.claims.residual import residual_norm_gain
from stability.claims.stack import stack_equilibrium
from stability.gated.cell import GatedCell
from stability.solve.deadline import Deadline
from stability.solve.rates import Rate
from stability.stacks.residual import ResidualStack
from stability.stacks.stack import LayerStack
from stability.systems import DrivenSystem, LureSystem
from stability.systems.pairwise import PairwiseSystem

_ANY, _NETWORKS, _PAIRS = (LureSystem, DrivenSystem), (DrivenSystem,), (LureSystem, DrivenSystem, PairwiseSystem)
_CELLS = (GatedCell,)
_FURTHER: tuple[tuple[Callable[[Any, Claim, Deadline], Claim | None], tuple[type, ...], bool], ...] = (
    (lambda subject, main, limit: equilibrium_claim(subject, main), _ANY, False),
    (lambda subject, main, limit: bounded(subject, time_limit=limit), _NETWORKS, False),
    (lambda subject, main, limit: gated_equilibrium(subject, main), _CELLS, False),
    (lambda subject, main, limit: gated_bounds(subject, main, time_limit=limit), _CELLS, False),
    (lambda subject, main, limit: nonexpansive(subject, time_limit=limit), _PAIRS, True),
    (lambda subject, main, limit: norm_gain(subject), (PairwiseSystem,), False),
    (lambda subject, main, limit: stack_norm_gain(subject), (LayerStack,), False),
    (lambda subject, main, limit: residual_norm_gain(subject, main), (ResidualStack,), False),
    (lambda subject, main, limit: stack_equilibrium(subject, main), (LayerStack,), False),
    (lambda subject, main, limit: _limit(subject, main, limit), (*_ANY, GatedCell, LayerStack), False),
    (lambda subject, main, limit: regional(subject, time_limit=limit), _NETWORKS, True),
)
"""Makers of further claims, what each is about, and whether it is asked only where contraction is not certified."""


def _limit(subject: Any, main: Claim, deadline: Deadline) -> Claim | None:
    """What no rate can be below, beside a certified one."""
    if main.verdict is not Verdict.CERTIFIED or not main.value:
        return None
    from stability.claims.limit import rate_limit

    return rate_limit(subject, time_limit=deadline)


def further_claims(subject: Any, main: Claim, *, rate: Rate, deadline: Deadline) -> tuple[Claim, ...]:
    """The strongest true statements below (or about) the main one.

    Args:
        subject: whom the main claim is about.
        main: the main claim.
        rate: the one asked for: ``"any"`` asks for nothing else, ``"best"`` for calmer rates beside it.
        deadline: asked before each.

    Returns:
        Proved claims.
    """
    certified = main.verdict is Verdict.CERTIFIED
    if certified and rate == "any":
        return ()
    claims: list[Claim] = []
    for make, about, of_the_open in _FURTHER:
        if not isinstance(subject, about) or (of_the_open and certified):
            continue
        if deadline.stops("further claims"):
            break
        claim = make(subject, main, deadline)
        if claim is not None and claim.verdict is not Verdict.INCONCLUSIVE:
            claims.append(claim)
    lure = isinstance(subject, _ANY) and certified and rate == "best"
    calmer = calmer_claims(subject, main, time_limit=deadline) if lure else []
    return (*calmer, *claims)
