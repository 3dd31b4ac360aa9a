"""Outcome of a search for counterexamples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stability.certificate import Finding
from stability.display import Displayed
from stability.kernel.format.claims import Claim, Evidence, Proof, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.proposals import propose

NOTHING = "no witness found; this proves nothing"


@dataclass(frozen=True, eq=False, repr=False)
class Refutation(Displayed):
    """The outcome of the search.

    Attributes:
        proof: a witness that its rule has accepted, or ``None``.
        statement: what the witness shows, in the words of the rule; empty without one.
        findings: what was learnt on the way, whether or not it refutes.
        detail: one sentence for a reader.
        input_in_data_range: whether the witness's input lies in the range of the data; ``None`` where none was given.
        states_reachable: whether its states can come up in use; ``None`` where that is not known.
    """

    TABLE = "findings"

    proof: Proof | None
    statement: str
    findings: tuple[Finding, ...] = ()
    detail: str = ""
    input_in_data_range: bool | None = None
    states_reachable: bool | None = None

    def facts(self) -> list[tuple[str, str]]:
        """Return the outcome for a prompt or a notebook."""
        if self.proof is None:
            return [("", "no witness"), ("", self.detail)]
        return [("", "refuted"), ("by", self.proof.kind), ("", self.statement), ("checked", self.detail)]

    @property
    def evidence(self) -> Evidence:
        """``proved`` with a witness, else ``none``."""
        return Evidence.PROVED if self.found else Evidence.NONE

    @property
    def claim(self) -> Claim | None:
        """The refuted claim; ``None`` without a witness."""
        return None if self.proof is None else Claim("contraction", self.statement, Verdict.REFUTED, self.proof)

    @property
    def found(self) -> bool:
        """Return True if the claim is refuted, by a proof."""
        return self.proof is not None


def accepted_refutation(subject: Any, kind: str, data: Mapping[str, Any] | None) -> Refutation | None:
    """The outcome for a witness that its rule accepts, else ``None``.

    Where the rule refuses a named eigenvalue, the proof is tried without the name: what it says is then weaker.

    Args:
        subject: the system.
        kind: the proof's kind.
        data: its data; ``None`` is refused.

    Returns:
        The outcome, or ``None``.
    """
    if data is None:
        return None
    claim = propose(subject, kind, data)
    valid, reason = RULES[kind](subject, claim)
    if valid:
        return Refutation(claim.proof, claim.statement, (), reason)
    if "eigenvalue" in data and "eigenvalue" in RULES[kind].optional:
        return accepted_refutation(subject, kind, {key: value for key, value in data.items() if key != "eigenvalue"})
    return None
