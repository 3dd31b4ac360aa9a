"""Claims about a subject, with their verdict and their proof."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class Verdict(enum.StrEnum):
    """Outcome of a claim; a claim is never certified because a search found nothing."""

    CERTIFIED = "certified"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


class Evidence(enum.StrEnum):
    """Evidence for a claim: a proof that can be checked, or none."""

    PROVED = "proved"
    NONE = "none"


@dataclass(frozen=True, eq=False, repr=False)
class Proof:
    """Kind and data of a proof.

    Attributes:
        kind: the theorem that turns the data into the claim; ``docs/certificate-format.md`` lists them.
        data: numbers, strings, float64 arrays, or lists of nested mappings.
    """

    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Proof: {self.kind}, {', '.join(sorted(self.data))}>"


@dataclass(frozen=True, eq=False, repr=False)
class Claim:
    """Statement about the subject with its verdict and its proof.

    A certified or refuted claim has a proof, an inconclusive one has none.

    Attributes:
        name: ``contraction``, ``equilibrium``, ``bounded``, ``regional``, ``gain``.
        statement: the claim as a theorem, quantifiers included.
        verdict: the answer.
        proof: its proof; ``None`` for an inconclusive claim.
        value: the number of the claim (rate, radius, gain), or ``None``.
    """

    name: str
    statement: str
    verdict: Verdict
    proof: Proof | None = None
    value: float | None = None

    def __repr__(self) -> str:
        return f"<Claim: {self.name}, {self.verdict}, {self.statement}>"

    @property
    def evidence(self) -> Evidence:
        """Evidence: ``proved`` for a certified or refuted claim with a proof, else ``none``."""
        return Evidence.NONE if self.proof is None or self.verdict is Verdict.INCONCLUSIVE else Evidence.PROVED

    def summary(self) -> dict[str, Any]:
        """Return the claim as plain numbers and strings, its proof by its kind."""
        return {
            "name": self.name,
            "statement": self.statement,
            "verdict": str(self.verdict),
            "evidence": str(self.evidence),
            "value": finite_or_none(self.value),
            "proof": self.proof.kind if self.proof else None,
        }


def finite_or_none(value: float | None) -> float | None:
    """Return a finite number as a float, anything else as ``None``."""
    return None if value is None or not math.isfinite(value) else float(value)
