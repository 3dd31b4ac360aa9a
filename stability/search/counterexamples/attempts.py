"""Parameters of one search for counterexamples, and the loop over its candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.search.counterexamples.reachability_in_use import inputs_in_range, states_reachable
from stability.search.counterexamples.refutation import NOTHING, Refutation, accepted_refutation
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import ANYWHERE, InputRange

Array = np.ndarray
Candidate = tuple[str, Mapping[str, Any] | None]
"""Kind and data of a witness that its rule has not seen yet; ``None`` for data that could not be made."""


@dataclass(frozen=True, eq=False)
class RefutationTask:
    """The question of one call of ``refute``, checked.

    Attributes:
        subject: whom to look for witnesses against.
        seed: of the random starts.
        deadline: a safety net; attempts are counted.
        hint: ``(m,)`` slopes to start from, or ``None``.
        region: the range of the data's inputs, searched first.
        start: ``(n,)`` initial state in use, or ``None``: zero.
        horizon: number of steps in use, or ``None``.
        effort: multiplies the number of attempts.
    """

    subject: Any
    seed: int
    deadline: Deadline
    hint: Array | None = None
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
    """The first candidate that its rule accepts.

    Args:
        search: the question.
        candidates: witnesses in the order in which they are worth trying, or answers that were accepted already.
        tried: what was tried, said where nothing was found.
        findings: what was learnt on the way.

    Returns:
        The outcome, with what is known of the use.
    """
    found: Refutation | None = None
    with np.errstate(all="ignore"):
        for candidate in candidates:
            found = candidate if isinstance(candidate, Refutation) else accepted_refutation(search.subject, *candidate)
            if found is not None:
                break
    if found is None or found.proof is None:
        return Refutation(None, "", findings, f"{NOTHING} ({tried})" if tried else NOTHING)
    data = found.proof.data
    return replace(
        found,
        findings=findings,
        input_in_data_range=inputs_in_range(
            data.get("data", data), search.region
        ),  # a stack hands on the data of its parts
        states_reachable=states_reachable(search.subject, data, search.region, search.start, search.horizon),
    )
