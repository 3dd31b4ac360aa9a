"""Choice between two proofs about one input."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.search.local.proof_folder import budget_of
from stability.search.local.proof_merging import ProofQuery, implies_claim

X, MASK = np.zeros((2, 1)), np.array([[True], [False]])
BOX = np.array([[0.0], [1.0]])


def claim(radius: float, **more: Any) -> Claim:
    data = {"x": X, "label": 0, "norm": "linf", "radius": radius, **more}
    return Claim("local_robustness", "", Verdict.CERTIFIED, Proof("toy", data), radius)


@pytest.mark.parametrize(
    ("new", "old", "wanted"),
    [
        (claim(1.0), claim(1.0), True),
        (claim(1.0), claim(1.1), False),
        (claim(1.0), claim(0.5, x=X + 1), False),
        (claim(1.0), claim(0.5, label=1), False),
        (claim(1.0), claim(0.5, norm="l2"), False),
        (claim(1.0), claim(0.5, budget="step"), False),
        (claim(1.0), claim(0.5, mask=MASK), False),
        (claim(1.0), claim(0.5, mask=np.ones((2, 1), bool)), True),
        (claim(1.0), claim(0.5, mask=np.ones((2, 1))), True),  # as files hold it
        (claim(1.0, mask=np.ones((2, 1))), claim(0.5), True),
        (claim(1.0), claim(0.5, mask=np.zeros((0, 1))), False),
        (claim(1.0, x=np.ones((2, 1))), claim(0.5, x=np.ones((3, 1))), False),
        (claim(1.0, label=1), claim(0.5, label=None), False),
        (claim(1.0), claim(0.5, x="abc"), False),
        (claim(1.0), claim(0.5, label=((1,), (1, 2))), False),
        (claim(1.0), claim(0.5, label={}), False),
        (claim(1.0), claim(0.5, norm=np.zeros(2)), False),
        (claim(1.0), claim(0.5, mask=((1,), (1, 2))), False),
        (claim(1.0), claim(0.5, bounds=BOX), True),
        (claim(1.0, bounds=BOX), claim(0.5), False),
        (claim(1.0, bounds=BOX), claim(0.5, bounds=BOX), True),
        (claim(1.0, bounds=2 * BOX), claim(0.5, bounds=BOX), False),
        (dataclasses.replace(claim(1.0), proof=None), claim(0.5), False),
        (claim(1.0), dataclasses.replace(claim(2.0), proof=None), True),
    ],
)
def test_a_proof_gives_way_to_one_that_implies_it(new: Claim, old: Claim, wanted: bool) -> None:
    assert implies_claim(new, old) is wanted


def test_a_question_knows_its_proofs() -> None:
    asked = ProofQuery(X[None], "l2", "step", MASK)
    data = {"x": X, "norm": "l2", "budget": "step", "mask": MASK}
    assert asked.asks_for(0, data)
    strange = [{"x": value} for value in (X + 1, X[:1], np.zeros(2), "abc", ((1.0,), (2.0, 3.0)), (("a",),), None)]
    strange += [{"mask": value} for value in (~MASK, MASK[:1], ((1,), (1, 2)), None)]
    strange += [{"norm": "linf"}, {"norm": np.zeros(2)}, {"budget": "total"}, {"budget": np.zeros(2)}]
    for change in strange:
        assert not asked.asks_for(0, {**data, **change})
    assert not asked.asks_for(0, {**data, "x": X[:1], "mask": MASK[:1]})
    assert not asked.asks_for(1, data)
    assert budget_of({"tau": 1.0}) == budget_of({"budget": "step"}) == "step"
    assert budget_of({}) == budget_of({"budget": np.zeros(2)}) == "total"
