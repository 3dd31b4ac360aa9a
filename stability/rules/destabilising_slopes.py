r"""Rule ``destabilising_slopes``: constant slopes that make a bare Lur'e system unstable.

The activation ``phi_i(s) = K_i s`` with ``alpha <= K <= beta`` is one that the claim admits, and with it the
difference of two trajectories obeys ``A + B K (I - D K)^{-1} C``. When that matrix has an eigenvalue outside
the open left half-plane (the open unit disc), differences along its eigenvector do not decay. The eigenvalue
is proved with every rounding error inside (``stability.rigor.instability.prove_not_stable``); one that the sentence
names is enclosed itself.

It says nothing about a particular network, whose activation is not linear: there it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stability.certificate import Claim, Verdict
from stability.rigor.balls import Ball
from stability.rigor.eigenpairs import closed_loop
from stability.rigor.instability import prove_not_stable
from stability.rules.named_eigenvalue import OPTIONAL, eigenvalue_phrase, named
from stability.rules.registry import Outcome, rule
from stability.rules.witness_data import vector
from stability.statements import describe
from stability.systems import LureSystem

__all__ = ["check"]


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    value = eigenvalue_phrase(data, subject.is_discrete, strict=False)
    if subject.channels == 0:
        return f"{describe(subject)} is not exponentially stable: A has {value}."
    return (
        f"{describe(subject)} is not exponentially stable for every activation with its slopes: the linear activation "
        f"with the slopes K of the proof gives A + B K (I - D K)^-1 C {value}."
    )


@rule(
    "destabilising_slopes",
    subject=LureSystem,
    claim="contraction",
    verdict=Verdict.REFUTED,
    fields={"K": "array"},
    optional=OPTIONAL,
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``K`` (m,) slopes; ``eigenvalue`` (re, im) where the sentence names it."""
    K = vector(data, "K", subject.channels)
    if K is None:
        return False, f"K must be a finite vector of {subject.channels} slopes"
    if not ((subject.alpha <= K) & (subject.beta >= K)).all():
        return False, "a slope in K lies outside [alpha, beta]"
    proved = prove_not_stable(closed_loop(subject, Ball.exact(K)), subject.is_discrete, named(data))
    if proved is None:
        return False, "the eigenvalue outside the stability region is not proved for these slopes"
    return True, f"with the slopes K: {proved}"
