"""Outcome of a search for counterexamples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.display import Displayed
from stability.kernel.format.claims import Claim, Evidence, Proof, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.proposals import propose
from stability.search.counterexamples.reachability_in_use import inputs_in_range, states_reachable
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import ANYWHERE, InputRange

NOTHING = "no counterexample found; this proves nothing"


@dataclass(frozen=True, eq=False, repr=False)
class Refutation(Displayed):
    """Outcome of a search for counterexamples.

    Attributes:
        proof: a witness that the verifier accepts, or ``None``.
        statement: sentence that the witness proves; empty without one.
        findings: findings of the search, with or without a refutation.
        detail: result of the search as a sentence.
        input_in_data_range: whether the witness's input lies in the range of the data; ``None`` where none was given.
        states_reachable: whether its states can occur in use; ``None`` where that is not known.
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
        """Evidence: ``proved`` with a witness, else ``none``."""
        return Evidence.PROVED if self.found else Evidence.NONE

    @property
    def claim(self) -> Claim | None:
        """The refuted claim; ``None`` without a witness."""
        return None if self.proof is None else Claim("contraction", self.statement, Verdict.REFUTED, self.proof)

    @property
    def found(self) -> bool:
        """Return True if there is a proof that the claim is false."""
        return self.proof is not None


def accepted_refutation(subject: Any, kind: str, data: Mapping[str, Any] | None) -> Refutation | None:
    """Return the outcome for a witness that its rule accepts, else ``None``.

    If the rule refuses the stated eigenvalue, the proof is tried without it, with a weaker sentence.

    Args:
        subject: the system.
        kind: the proof's kind.
        data: its data; ``None`` is refused.
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


Array = np.ndarray
Candidate = tuple[str, Mapping[str, Any] | None]
"""Kind and data of an unchecked witness; ``None`` for data that could not be made."""


@dataclass(frozen=True, eq=False)
class RefutationTask:
    """Checked arguments of one call of ``refute``.

    Attributes:
        subject: system whose stability is to be refuted.
        seed: seed of the random starts.
        deadline: time limit; normally the search ends after a fixed number of attempts.
        region: the range of the data's inputs, searched first.
        start: ``(n,)`` initial state in use; ``None`` for zero.
        horizon: number of steps in use, or ``None``.
        effort: multiplies the number of attempts.
    """

    subject: Any
    seed: int
    deadline: Deadline
    region: InputRange = ANYWHERE
    start: Array | None = None
    horizon: int | None = None
    effort: float = 1.0


def first_accepted(
    search: RefutationTask,
    candidates: Iterable[Candidate | Refutation],
    tried: str = "",
    findings: tuple[Finding, ...] = (),
) -> Refutation:
    """Return the first candidate that its rule accepts.

    Args:
        search: arguments of the search.
        candidates: witnesses, the most promising first, or outcomes with an accepted witness.
        tried: description of the attempts, for an outcome without a witness.
        findings: findings of the search.

    Returns:
        The outcome; with a witness it says whether inputs and states of the witness occur in use.
    """
    result: Refutation | None = None
    with np.errstate(all="ignore"):
        for candidate in candidates:
            result = candidate if isinstance(candidate, Refutation) else accepted_refutation(search.subject, *candidate)
            if result is not None:
                break
    if result is None or result.proof is None:
        return Refutation(None, "", findings, f"{NOTHING} ({tried})" if tried else NOTHING)
    data = result.proof.data
    return replace(
        result,
        findings=findings,
        # a witness about a part of a stack keeps its data under "data"
        input_in_data_range=inputs_in_range(data.get("data", data), search.region),
        states_reachable=states_reachable(search.subject, data, search.region, search.start, search.horizon),
    )
