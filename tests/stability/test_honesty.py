"""The honesty benchmark in small: nothing false is accepted, and its judges are not blind."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from stability import LureSystem, refute
from stability.systems import DrivenSystem

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from honesty.constructions import KINDS, draw, drive
from honesty.corruptions import CERTIFYING, run_corruptions
from honesty.judges import is_unstable
from honesty.witnesses import WITNESSES, run_invented


@pytest.mark.parametrize("kind", CERTIFYING)
def test_corrupted_proofs(kind):
    tally = run_corruptions(kind, 20, np.random.default_rng(7))
    assert tally.corruptions >= 20
    assert tally.false == 0
    assert tally.accepted < 0.8 * tally.corruptions


@pytest.mark.parametrize("kind", WITNESSES)
def test_no_witness_against_what_contracts(kind):
    tally = run_invented(kind, 6, np.random.default_rng(3))
    assert tally.corruptions >= 6
    assert tally.accepted == 0


def test_the_judge_of_slopes():
    system = LureSystem([[0.5]], [[1.0]], [[1.0]], dt=1.0)
    assert is_unstable(system, np.array([0.5]))  # an eigenvalue at one: no contraction
    assert not is_unstable(system, np.array([0.49]))
    assert not is_unstable(system, np.array([1.5]))  # no admissible slope


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_contracts_is_not_refuted(kind):
    """Down to margins where nothing can be proved in float64: open, seen or certified, never refuted."""
    rng = np.random.default_rng([1, *kind.encode()])
    for exponent in (2, 8, 11):
        made = draw(kind, rng, int(rng.integers(1, 4)), 10.0**-exponent)
        assert refute(made.system).proof is None
        network = drive(made.system, rng)
        if network is not None and exponent == 2:
            assert isinstance(network, DrivenSystem)
            assert not refute(network).found
