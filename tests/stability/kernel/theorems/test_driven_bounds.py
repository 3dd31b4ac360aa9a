"""The length that a claim gives to the diagonal of its box is no shorter than the box's."""

from __future__ import annotations

import numpy as np
import pytest

from stability.kernel.format.fields import Refused
from stability.kernel.theorems.driven_bounds import within_diagonal


@pytest.mark.parametrize("short", [1e-15, 1e-9, 1e-3])
def test_a_diagonal_that_is_too_short_is_refused(short: float) -> None:
    low, high = np.array([-1.0, 0.0]), np.array([2.0, 4.0])  # 3 by 4
    assert within_diagonal(low, high, 5.0 * (1 + 1e-14)) == pytest.approx(3.5)
    with pytest.raises(Refused, match="diagonal of the box is longer"):
        within_diagonal(low, high, 5.0 * (1 - short))
