"""Numbers in sentences: short, and never on the wrong side of the number that is proved."""

from __future__ import annotations

import dataclasses
import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stability import LureSystem, Verdict, certify, verify
from stability.kernel.format.sentences import at_least, at_most, decay_factor
from stability.verification import verify_claim

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(x=FINITE)
def test_the_number_shown_is_on_the_safe_side_and_near(x):
    low, high = Decimal(at_least(x)), Decimal(at_most(x))
    assert low <= Decimal(x) <= high
    assert high - low <= Decimal("0.001") * abs(Decimal(x))
    assert len(at_most(x).lstrip("-").split("e")[0].replace(".", "").strip("0")) <= 4


@given(gap=st.floats(1e-15, 0.9))
def test_a_rate_below_one_stays_below_one(gap):
    rate = 1.0 - gap
    shown = Decimal(at_most(rate, near=1.0))
    assert Decimal(rate) <= shown < 1
    assert 1 - shown >= Decimal("0.98") * (1 - Decimal(rate))


def test_simple_numbers_stay_simple():
    assert (at_most(0.5), at_most(1.0), at_most(2.0), at_least(0.25), at_most(0.0)) == ("0.5", "1", "2", "0.25", "0")
    assert decay_factor(0.95, True) == "0.95^k"
    assert decay_factor(1.25, False) == "exp(-1.25 t)"


@pytest.mark.parametrize("value", [None, "many", True, np.inf, float("nan"), [1.0]])
def test_what_is_no_number_is_shown_as_it_is(value):
    assert at_most(value) == repr(value)


@pytest.mark.parametrize("dt", [None, 1.0])
def test_sentences_hold_short_numbers_and_the_file_the_exact_ones(dt, rng):
    A, W = rng.normal(size=(4, 4)) / 8, rng.normal(size=(4, 4)) / 8
    certificate = certify(LureSystem(A - 1.7 * np.eye(4) if dt is None else A, np.eye(4), W, dt=dt))
    assert certificate.verdict is Verdict.CERTIFIED
    for claim in (certificate.claim, *certificate.claims):
        assert max((len(x) for x in re.findall(r"[0-9.]+", claim.statement)), default=0) <= 7
    overshoot, rate = re.findall(r"<= ([0-9.]+) \* (?:exp\(-)?([0-9.]+)", certificate.claim.statement)[0]
    assert Decimal(overshoot) >= Decimal(certificate.overshoot)
    slower = Decimal(rate) >= Decimal(certificate.rate) if dt else Decimal(rate) <= Decimal(certificate.rate)
    assert slower
    assert verify(certificate).valid


def test_a_sentence_of_a_better_number_is_refused():
    certificate = certify(LureSystem.recurrent([[-2.0, 0.5], [0.0, -3.0]], [[0.3, 0.0], [0.4, 0.2]]))
    shown = at_least(certificate.rate)
    for other in (repr(certificate.rate), f"{float(shown) * 1.01:.4g}", f"{float(shown) * 0.99:.4g}"):
        forged = certificate.claim.statement.replace(f"exp(-{shown} t)", f"exp(-{other} t)")
        assert forged != certificate.claim.statement
        assert not verify_claim(certificate.subject, dataclasses.replace(certificate.claim, statement=forged)).valid
