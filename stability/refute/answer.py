"""The outcome of a search for witnesses, and the claim that a witness supports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stability.certificate import Claim, Evidence, Finding, Proof
from stability.rules.registry import STATEMENTS, verdict_of

__all__ = ["NOTHING", "Refutation", "witness_claim"]

NOTHING = "no witness found; this proves nothing"


@dataclass(frozen=True, eq=False)
class Refutation:
    """The outcome of the search.

    Attributes:
        proof: a witness that its rule has accepted, or ``None``; ``evidence`` tells whether it proves or replays.
        statement: what the witness shows, in the words of the rule; empty without one.
        findings: what was learnt on the way, whether or not it refutes.
        detail: one sentence for a reader.
    """

    proof: Proof | None
    statement: str
    findings: tuple[Finding, ...] = ()
    detail: str = ""

    @property
    def witness(self) -> Proof | None:
        """The same as ``proof``."""
        return self.proof

    @property
    def evidence(self) -> Evidence:
        """``proved`` where the witness refutes, ``replayed`` where it was only seen, else ``none``."""
        return Evidence.NONE if self.claim is None else self.claim.evidence

    @property
    def claim(self) -> Claim | None:
        """The claim that the witness decides: refuted by a proof, open beside a replay; ``None`` without a witness."""
        if self.proof is None:
            return None
        verdict = verdict_of(self.proof.kind, self.proof.data)
        return Claim("contraction", self.statement, verdict, self.proof)

    @property
    def found(self) -> bool:
        """Whether the claim is refuted: by a proof, not by a replay."""
        return self.evidence is Evidence.PROVED


def witness_claim(subject: Any, kind: str, data: Mapping[str, Any], name: str = "contraction") -> Claim:
    """The claim that a witness decides, refuted by a proof or open beside a replay, in the rule's own words.

    Args:
        subject: the system.
        kind: the proof's kind.
        data: its data.
        name: the claim that it is about.

    Returns:
        The claim, unchecked.
    """
    proof = Proof(kind, data)
    draft = Claim(name, "", verdict_of(kind, data), proof)
    return replace(draft, statement=STATEMENTS[kind](subject, draft))
