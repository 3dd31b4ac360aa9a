r"""Rule ``destabilising_slopes``: constant slopes that make a bare Lur'e system unstable.

The activation ``phi_i(s) = K_i s`` with ``alpha <= K <= beta`` is one that the claim admits, and with it the
difference of two trajectories obeys ``A + B K (I - D K)^{-1} C``. When that matrix has an eigenvalue outside
the open left half-plane (the open unit disc), differences along its eigenvector do not decay. The eigenvalue
is proved with every rounding error inside (``stability.rigor.instability.prove_not_stable``); one that the sentence
names is enclosed itself.

It says nothing about a particular network, whose activation is not linear: there it is refused.
"""

from __future__ import annotations

from stability.certificate import Claim, Verdict
from stability.rigor.balls import Ball
from stability.rigor.eigenpairs import closed_loop
from stability.rules.fields import Channels, require
from stability.rules.named_eigenvalue import Unstable
from stability.rules.registry import rule
from stability.statements import describe
from stability.systems import LureSystem

__all__ = ["DestabilisingSlopes"]


@rule(
    "destabilising_slopes",
    subject=LureSystem,
    claim="contraction",
    verdict=Verdict.REFUTED,
    size="K must be a finite vector of {m} slopes",
)
class DestabilisingSlopes(Unstable):
    """``K``: a slope a channel."""

    K: Channels

    def sentence(self, subject: LureSystem, claim: Claim) -> str:
        value = self.phrase(subject.is_discrete, strict=False)
        if subject.channels == 0:
            return f"{describe(subject)} is not exponentially stable: A has {value}."
        return (
            f"{describe(subject)} is not exponentially stable for every activation with its slopes: the linear "
            f"activation with the slopes K of the proof gives A + B K (I - D K)^-1 C {value}."
        )

    def check(self, subject: LureSystem, claim: Claim) -> str:
        require(((subject.alpha <= self.K) & (subject.beta >= self.K)).all(), "a slope in K lies outside [alpha, beta]")
        proved = self.outside(
            closed_loop(subject, Ball.exact(self.K)),
            subject.is_discrete,
            "the eigenvalue outside the stability region is not proved for these slopes",
            strict=False,
        )
        return f"with the slopes K: {proved}"
