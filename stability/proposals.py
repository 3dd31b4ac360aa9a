"""Claims proposed by searches, in the words of the rule that checks them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stability.kernel.format.claims import Claim, Proof
from stability.kernel.format.theorem_table import RULES, worded


def propose(
    subject: Any, kind: str, data: Mapping[str, Any], name: str | None = None, *, value: float | None = None
) -> Claim:
    """Return the claim that a proof supports, in the words of its rule, not yet checked.

    Args:
        subject: the certified system.
        kind: the proof's kind.
        data: its data.
        name: the claim; the first of the rule's by default.
        value: value of the claim; by default that of the proof.

    Returns:
        The claim.
    """
    about = RULES[kind]
    value = data.get(about.value) if value is None and about.value else value
    return worded(subject, Claim(name or about.claim[0], "", about.verdict, Proof(kind, data), value))


def accepted_claim(subject: Any, kind: str, data: Mapping[str, Any], name: str | None = None) -> Claim | None:
    """Return the claim of ``propose`` if its rule accepts it, else ``None``."""
    claim = propose(subject, kind, data, name)
    return claim if RULES[kind](subject, claim)[0] else None


def pack(claim: Claim) -> dict[str, Any]:
    """Return a layer's claim as data of the proof of its stack."""
    assert claim.proof is not None
    return {"kind": claim.proof.kind, "data": dict(claim.proof.data), "rate": claim.value}
