"""Which of two proofs about one input is kept."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from stability.certificate import Claim, Proof, Verdict
from stability.local.files import budget_of
from stability.local.keeping import Question, says_as_much

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
        (claim(1.0), claim(0.5, bounds=BOX), True),
        (claim(1.0, bounds=BOX), claim(0.5), False),
        (claim(1.0, bounds=BOX), claim(0.5, bounds=BOX), True),
        (claim(1.0, bounds=2 * BOX), claim(0.5, bounds=BOX), False),
        (dataclasses.replace(claim(1.0), proof=None), claim(0.5), False),
        (claim(1.0), dataclasses.replace(claim(2.0), proof=None), True),
    ],
)
def test_a_proof_gives_way_to_one_that_implies_it(new: Claim, old: Claim, wanted: bool) -> None:
    assert says_as_much(new, old) is wanted


def test_a_question_knows_its_proofs() -> None:
    asked = Question(X[None], "l2", "step", MASK)
    data = {"x": X, "norm": "l2", "budget": "step", "mask": MASK}
    assert asked.asks_for(0, data)
    assert asked.asks_for(0, {**data, "x": X[:1], "mask": MASK[:1]})
    for change in ({"x": X + 1}, {"norm": "linf"}, {"budget": "total"}, {"mask": ~MASK}, {"x": np.zeros(2)}):
        assert not asked.asks_for(0, {**data, **change})
    assert not asked.asks_for(1, data)
    assert budget_of({"tau": 1.0}) == budget_of({"budget": "step"}) == "step"
    assert budget_of({}) == "total"
