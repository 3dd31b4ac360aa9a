"""The honesty benchmark in small: nothing false is accepted, and its judges are not blind."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from stability import LureSystem, certify, refute
from stability.kernel.format.claims import Proof
from stability.systems import DrivenSystem
from stability.verification import verify_claim

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from honesty.constructions import KINDS, draw, drive
from honesty.corruptions import CERTIFYING, certifying_proofs, run_corruptions
from honesty.judges import contradicted, is_unstable
from honesty.networks import gated_cell, stack
from honesty.witnesses import WITNESSES, run_borrowed, run_invented

FALSE = {  # one number of the proof that makes its claim false beyond doubt
    "multiplier_lmi": ("rate", lambda x: 1e-9 if x < 1.0 else 1e3),
    "ball": ("radius", lambda x: 1e-3 * x),
    "box": ("radius", lambda x: 1e-3 * x),
    "regional_lmi": ("overshoot", lambda x: 0.5),
    "growth_lmi": ("factor", lambda x: 0.9 * x),
    "interval_jacobian": ("rate", lambda x: 1e-6),
    "interval_lmi": ("rate", lambda x: 1e-6),
    "cascade": ("rate", lambda x: 1e-6),
    "stack_gain": ("gain", lambda x: 1e-4 * x),
}


@pytest.mark.parametrize("kind", CERTIFYING)
def test_corrupted_proofs(kind):
    tally = run_corruptions(kind, 60, np.random.default_rng(7))
    assert tally.corruptions >= 60
    assert tally.false == 0
    assert tally.accepted < 0.8 * tally.corruptions


@pytest.mark.parametrize("kind", sorted(FALSE))
def test_judges_see_what_is_false(kind):
    rng = np.random.default_rng(1)
    seen = 0
    for (subject, claim), _ in zip(certifying_proofs(kind, rng), range(3)):
        assert not contradicted(subject, claim, rng)
        name, bend = FALSE[kind]
        data = {**claim.proof.data, name: bend(claim.proof.data[name])}
        if kind == "multiplier_lmi":
            data["rate"] = 1e-9 if subject.is_discrete else 1e3
        bent = replace(claim, proof=Proof(kind, data), value=data[name])
        seen += contradicted(subject, bent, rng)
        assert not verify_claim(subject, bent).valid
    assert seen >= 2


@pytest.mark.parametrize("kind", WITNESSES)
def test_no_witness_against_what_contracts(kind):
    tally = run_invented(kind, 20, np.random.default_rng(3))
    assert tally.corruptions >= 20
    assert tally.accepted == 0


def test_no_borrowed_witness():
    tallies = run_borrowed(300, np.random.default_rng(2))
    assert len(tallies) >= 4
    assert sum(t.false for t in tallies) == 0


def test_the_judge_of_slopes():
    system = LureSystem([[0.5]], [[1.0]], [[1.0]], dt=1.0)
    assert is_unstable(system, np.array([0.5]))  # an eigenvalue at one: no contraction
    assert not is_unstable(system, np.array([0.49]))
    assert not is_unstable(system, np.array([1.5]))  # no admissible slope


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_contracts_is_not_refuted(kind):
    """Down to margins where nothing can be proved in float64: open, seen or certified, never refuted."""
    rng = np.random.default_rng([1, *kind.encode()])
    for exponent in (2, 5, 8, 10, 11, 12):
        made = draw(kind, rng, int(rng.integers(1, 4)), 10.0**-exponent)
        assert refute(made.system).proof is None
        network = drive(made.system, rng)
        if network is not None and exponent in (2, 10):
            assert isinstance(network, DrivenSystem)
            assert not refute(network).found


def test_cells_and_stacks_that_contract_are_not_refuted():
    rng = np.random.default_rng(4)
    for exponent in (1, 4, 8, 11):
        for subject in (gated_cell(rng, 10.0**-exponent), stack(rng, 10.0**-exponent)):
            assert certify(subject, rate="any").verdict != "refuted"
