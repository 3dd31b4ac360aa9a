"""PyHessian beside another method, on Hessians whose largest eigenvalue is, or is not, that of largest magnitude."""

from __future__ import annotations

import pytest
from torch import nn

from stability.analysis.curvature.hessian import hessian_summary
from stability.analysis.curvature.opinion import opinion_on
from stability.analysis.curvature.products import hessian_of
from stability.analysis.curvature.pyhessian import Search

from .test_hessian import problem


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_second_opinion_is_about_the_largest_eigenvalue_and_the_same_trace(sign):
    """Also where an eigenvalue of larger magnitude lies at the other end."""
    model, x, y = problem()

    def loss(outputs, targets):
        return sign * nn.functional.cross_entropy(outputs, targets)

    exact = hessian_summary(model, x, y, loss=loss, method="dense")
    assert (abs(exact.lambda_min) > exact.lambda_max) == (sign < 0)
    with hessian_of(model, x, y, loss, "all", None) as operator:
        opinion = opinion_on(exact, operator, Search(400, 0.0, 60, exact.seed))
    assert opinion.lambda_max == pytest.approx(exact.lambda_max, rel=1e-2)
    assert opinion.lambda_max_difference == pytest.approx(opinion.lambda_max / exact.lambda_max - 1, abs=1e-9)
    assert abs(opinion.trace - exact.trace) < 2 * opinion.trace_half_width
    assert opinion.trace_difference == pytest.approx((opinion.trace - exact.trace) / abs(exact.trace))
    assert opinion.trace_samples == 60
