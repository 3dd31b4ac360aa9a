"""Result of a search for a gain: a bound with its proof."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.proposals import propose


@dataclass(frozen=True, eq=False)
class Gain:
    """Upper bound of an incremental gain, with its proof.

    Attributes:
        value: the bound; infinite where none was proved.
        measure: ``l2`` (the whole output) or ``final`` (the output at the last step).
        horizon: steps or time, or ``None`` for every horizon.
        subject: the system or network.
        proof: proof for ``verify``; ``None`` if the bound is infinite.
        detail: description of the search that found it.
    """

    value: float
    measure: str
    horizon: float | None
    subject: LureSystem | DrivenSystem | PairwiseSystem
    proof: Proof | None = field(default=None, repr=False)
    detail: str = ""

    @property
    def claim(self) -> Claim:
        """Return the claim for a certificate."""
        if self.proof is None:
            return Claim("gain", "No incremental gain was found.", Verdict.INCONCLUSIVE)
        return propose(self.subject, self.proof.kind, self.proof.data, value=self.value)

    def radius(self, margin: float) -> float:
        """Return the l2 radius of input changes that cannot turn a decision with this margin between two outputs.

        Args:
            margin: smallest difference of the winning output and another (logits at the last step).

        Returns:
            ``margin / (sqrt(2) g)``; zero where no gain is known.
        """
        if not math.isfinite(self.value):
            return 0.0
        if self.value == 0.0:
            return math.inf
        return max(float(margin), 0.0) / (math.sqrt(2.0) * self.value)
