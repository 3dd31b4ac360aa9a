"""Gains of random systems of every kind against those that an earlier search, or a program, found for them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from stability.search.gains.lure import incremental_gain
from stability.systems import LureSystem
from tests.stability.reference_systems import systems

REFERENCE = {int(k): v for k, v in json.loads((Path(__file__).parent / "reference_gains.json").read_text()).items()}
"""By the number of the system: gains of ``asked``, in its order, infinite ones as ``null``."""


def asked(number: int, system: LureSystem):
    """The questions: the whole output, its end over every horizon, its end over six steps (or so much time)."""
    rng = np.random.default_rng(1000 + number)
    n, m = system.states, system.channels
    p, k = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    E, F = rng.normal(size=(m, p)), rng.normal(size=(n, p)) * (number % 3 > 0)
    H = rng.normal(size=(k, n))
    for measure, horizon in (("l2", None), ("final", None), ("final", 6)):
        yield {"E": E, "F": F, "output": H, "measure": measure, "horizon": horizon}


def worse(number: int, system: LureSystem) -> list[str]:
    """Where the gain is larger than it was, by more than a hundredth."""
    found = []
    for options, before in zip(asked(number, system), REFERENCE[number]):
        value = incremental_gain(system, **options).value
        if value > (math.inf if before is None else 1.01 * before):
            found.append(f"{number}, {options['measure']}, {options['horizon']}: {value} after {before}")
    return found


def test_gains_are_never_worse_than_those_of_the_search_before():
    small = [(number, system) for number, system in systems(200) if number in REFERENCE and system.states == 2][:3]
    assert len(small) == 3
    assert not [line for number, system in small for line in worse(number, system)]


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_two_hundred_gains_are_never_worse_than_before():
    assert not [line for number, system in systems(200) if number in REFERENCE for line in worse(number, system)]
