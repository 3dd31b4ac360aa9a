"""Second opinion on a Hessian: PyHessian's largest eigenvalue and trace beside those of Lanczos."""

from __future__ import annotations

from typing import Any

from stability.statistics import student_half_width

from .hessian import HessianSummary
from .products import HessianOperator
from .pyhessian import Search, pyhessian_estimates


def opinion_on(summary: HessianSummary, operator: HessianOperator, search: Search) -> dict[str, Any]:
    """Run PyHessian on the Hessian of a summary, with its own products only.

    Args:
        summary: summary of the same Hessian.
        operator: supplies model, data, loss and the parameters' names.
        search: power iterations, probes and seed.

    Returns:
        ``lambda_max``, the Rayleigh quotient of its vector, a lower bound of the largest eigenvalue, with
        ``lambda_max_residual``; ``trace``, Hutchinson's mean over ``trace_samples`` probes, with ``trace_half_width``
        (95 %); the differences of both from the summary's, relative to these (``None`` for zero); ``matvecs``.

    Raises:
        NonFiniteError: PyHessian returned NaN.

    Source: Z. Yao, A. Gholami, K. Keutzer, M. Mahoney, PyHessian (2020).
    """
    before = operator.matvecs
    estimates = pyhessian_estimates(operator, search, both=False)
    (value, residual), (trace, error, samples) = estimates.largest, estimates.trace
    return {
        "lambda_max": value,
        "lambda_max_residual": residual,
        "lambda_max_difference": _relative(value, summary.lambda_max),
        "trace": trace,
        "trace_half_width": student_half_width(error, samples),
        "trace_difference": _relative(trace, summary.trace),
        "trace_samples": samples,
        "matvecs": operator.matvecs - before,
    }


def _relative(value: float, reference: float) -> float | None:
    return (value - reference) / abs(reference) if reference else None
