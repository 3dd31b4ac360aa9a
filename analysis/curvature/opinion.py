"""PyHessian's largest eigenvalue and trace beside those of Lanczos: a second opinion by other code on the same data."""

from __future__ import annotations

from dataclasses import dataclass

from stability.statistics import student_half_width

from ..results import Record
from .hessian import HessianSummary
from .products import HessianOperator
from .pyhessian import Search, pyhessian_largest


@dataclass(frozen=True)
class HessianOpinion(Record):
    """What PyHessian says of the same loss on the same sequences, and how far it is from a summary.

    Attributes:
        lambda_max: Rayleigh quotient of its vector by power iteration, which comes from below: the largest eigenvalue
            is at least this.
        lambda_max_residual: ``|H v - lambda v|`` of that vector.
        lambda_max_difference: from the summary's, relative to the summary's magnitude; ``None`` for zero.
        trace: Hutchinson's mean over its probes.
        trace_half_width: 95 % for those probes.
        trace_difference: from the summary's, relative to its magnitude; ``None`` for zero.
        trace_samples: probes.
        matvecs: products taken, an upper bound.
    """

    lambda_max: float
    lambda_max_residual: float
    lambda_max_difference: float | None
    trace: float
    trace_half_width: float
    trace_difference: float | None
    trace_samples: int
    matvecs: int


def opinion_on(summary: HessianSummary, operator: HessianOperator, search: Search) -> HessianOpinion:
    """Ask PyHessian about the Hessian of a summary; none of the operator's own products is used.

    Args:
        summary: of this Hessian.
        operator: supplies model, data, loss and the parameters' names.
        search: power iterations, probes and seed.

    Raises:
        NonFiniteError: PyHessian returned NaN.

    Source: Z. Yao, A. Gholami, K. Keutzer, M. Mahoney, PyHessian (2020).
    """
    before = operator.matvecs
    (value, residual), (trace, error, samples) = pyhessian_largest(operator, search)
    return HessianOpinion(
        lambda_max=value,
        lambda_max_residual=residual,
        lambda_max_difference=_relative(value, summary.lambda_max),
        trace=trace,
        trace_half_width=student_half_width(error, samples),
        trace_difference=_relative(trace, summary.trace),
        trace_samples=samples,
        matvecs=operator.matvecs - before,
    )


def _relative(value: float, reference: float) -> float | None:
    return (value - reference) / abs(reference) if reference else None
