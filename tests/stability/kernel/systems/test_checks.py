"""The front door of systems: masked entries are refused as NaN is, and errors name what came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stability import DrivenSystem, LureSystem
from stability.errors import DimensionError, MaskedError, NonFiniteError, StabilityError
from stability.kernel.checks import as_column
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.pairwise import PairwiseSystem

EYE = np.eye(2)
A = -3.0 * EYE


def masked(value: Any) -> np.ma.MaskedArray:
    """Return an array whose first entry is masked."""
    array = np.array(value, dtype=float)
    mask = np.zeros(array.shape, dtype=bool)
    mask.flat[0] = True
    return np.ma.masked_array(array, mask=mask)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LureSystem.recurrent(masked(A), EYE),
        lambda: LureSystem.recurrent(A, masked(EYE)),
        lambda: LureSystem.recurrent(list(masked(A)), EYE),
        lambda: LureSystem(A, EYE, EYE, D=masked(np.zeros((2, 2)))),
        lambda: LureSystem.recurrent(A, EYE, slope=(0.0, masked([1.0, 1.0]))),
        lambda: DrivenSystem(LureSystem.recurrent(A, EYE), "tanh", masked(EYE)),
        lambda: DrivenSystem(LureSystem.recurrent(A, EYE), "tanh", EYE, masked([0.0, 0.0])),
        lambda: PairwiseSystem(EYE, EYE, masked([0.0, 0.0]), "oplu"),
        lambda: GatedCell("gru", masked(np.ones((3, 1))), np.ones((3, 1)), np.zeros(3), np.zeros(3)),
        lambda: GatedCell("gru", np.ones((3, 1)), np.ones((3, 1)), masked(np.zeros(3)), np.zeros(3)),
    ],
)
def test_masked_entries_are_refused(make: Any) -> None:
    with pytest.raises(MaskedError, match="1 masked entry") as caught:
        make()
    assert isinstance(caught.value, NonFiniteError)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: LureSystem.recurrent(np.ones((3, 2)), np.eye(3)), r"A must have shape \(n, n\), got \(3, 2\)"),
        (lambda: LureSystem.recurrent(EYE, np.eye(3)), r"W must have shape \(2, 2\) like A"),
        (lambda: LureSystem.recurrent([1.0], EYE), r"A must have shape \(rows, columns\), got \(1,\)"),
        (
            lambda: DrivenSystem(LureSystem.recurrent(A, EYE), "tanh", np.ones((3, 1))),
            r"E must have shape \(2, columns\), got \(3, 1\)",
        ),
        (
            lambda: DrivenSystem(LureSystem.recurrent(A, EYE), "tanh", EYE, np.zeros((3, 3))),
            r"b must have shape \(2,\), got \(3, 3\)",
        ),
    ],
)
def test_a_wrong_shape_is_told_as_it_came(make: Any, says: str) -> None:
    with pytest.raises(DimensionError, match=says):
        make()


def test_a_column_is_a_vector_however_its_axes_lie() -> None:
    for value in ([1.0, 2.0], [[1.0, 2.0]], [[1.0], [2.0]]):
        np.testing.assert_array_equal(as_column("b", value, 2), [1.0, 2.0])
    with pytest.raises(StabilityError, match="real numbers"):
        as_column("b", [1.0, [2.0]], 2)
