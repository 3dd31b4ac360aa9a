"""Counterexamples of networks with an activation on pairs, decided without a search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stability.kernel.systems.pairwise import PairwiseSystem
from stability.search.counterexamples.attempts import Candidate, RefutationTask, first_accepted
from stability.search.counterexamples.refutation import Refutation


def search_pairwise(search: RefutationTask) -> Refutation:
    """An isometry, an eigenvalue of ``W`` or a jump of the activation, in this order."""
    return first_accepted(
        search, _candidates(search.subject), "the norm, the eigenvalues and the biases decide nothing"
    )


def _candidates(subject: PairwiseSystem) -> Iterator[Candidate]:
    yield "pair_isometry", {}
    if subject.activation != "modrelu":
        return
    if not subject.orthogonal:
        values = np.linalg.eigvals(subject.W)
        largest = values[np.argmax(np.abs(values))]
        if abs(largest) >= 1.0 - 1e-9:
            yield "pair_linear", {"eigenvalue": [float(largest.real), abs(float(largest.imag))]}
    for pair in np.argsort(-subject.b)[: int((subject.b > 0.0).sum())]:
        yield "pair_jump", {"pair": int(pair)}
