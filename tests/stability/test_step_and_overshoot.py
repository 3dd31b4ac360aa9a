"""The largest certified step and the smallest overshoot, against values known by hand and against their own limits."""

from __future__ import annotations

import numpy as np
import pytest

from stability import LureSystem, Verdict, certify, largest_step, smallest_overshoot, verify
from stability.search.criteria.multiplier import multiplier_criterion


@pytest.mark.parametrize(("a", "w"), [(1.0, 0.0), (2.0, 1.0), (1.0, -3.0), (4.0, 2.0)])
def test_scalar_euler_step_is_the_textbook_one(a, w):
    """|1 + dt (-a + k w)| < 1 for every k in [0, 1]: dt < 2 / max(a, a - w)."""
    bound = largest_step(LureSystem.recurrent([[-a]], [[w]]))
    assert bound.dt == pytest.approx(2.0 / max(a, a - w), rel=2e-3)
    assert verify(bound.certificate).valid


@pytest.mark.parametrize("method", ["euler", "midpoint"])
def test_the_step_is_certified_and_the_next_is_not(method, rng):
    A = rng.normal(size=(5, 5)) / 2
    system = LureSystem.recurrent(A - A.T - np.eye(5), 0.4 * rng.normal(size=(5, 5)))
    bound = largest_step(system, method)
    assert verify(bound.certificate).valid
    assert bound.certificate.subject.dt == bound.dt
    assert not multiplier_criterion(system.discretise(method, bound.failed), rate="any", solver="riccati").holds
    assert bound.failed <= 1.01 * bound.dt


def test_overshoot_shrinks_as_the_rate_is_relaxed(rng):
    A = np.array([[-1.0, 4.0], [0.0, -1.0]])
    system = LureSystem.recurrent(A, 0.05 * rng.normal(size=(2, 2)))
    best = certify(system, criterion="multiplier")
    fast, slow = smallest_overshoot(system, 0.8 * best.rate), smallest_overshoot(system, 0.2 * best.rate)
    assert verify(fast).valid
    assert verify(slow).valid
    assert (
        slow.overshoot
        < fast.overshoot
        <= certify(system, rate=0.8 * best.rate, criterion="multiplier").overshoot * 1.01
    )


def test_a_rate_that_no_metric_has_is_an_open_question_not_an_error():
    certificate = smallest_overshoot(LureSystem.recurrent([[-1.0]], [[0.0]]), 5.0)
    assert certificate.verdict is Verdict.INCONCLUSIVE
    assert certificate.rate is None
    assert "the rate 5 could not be certified" in certificate.findings[0].detail
