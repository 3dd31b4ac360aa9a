"""PyHessian's largest eigenvalue and trace beside those of Lanczos: a second opinion by other code on the same data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from stability.statistics import student_half_width

from ..results import Record
from .hessian import HessianSummary
from .products import HessianOperator, LossFunction, hessian_of
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


def hessian_opinion(
    summary: HessianSummary,
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: LossFunction | None = None,
    max_iter: int = 100,
    trace_samples: int = 32,
) -> HessianOpinion:
    """Ask PyHessian about the Hessian that a summary is about.

    Args:
        summary: by ``hessian_summary``, whose parameters and seed are taken over.
        model: the same model.
        x: the same sequences.
        y: the same targets.
        loss: the same loss.
        max_iter: power iterations at most.
        trace_samples: probes of the trace, 2 or more.

    Returns:
        The second opinion.

    Raises:
        NonFiniteError: PyHessian returned NaN.
        StabilityError: data and options that ``hessian_summary`` refuses, too.

    Source: Z. Yao, A. Gholami, K. Keutzer, M. Mahoney, PyHessian (2020).

    Example:
        >>> import torch
        >>> from stability.analysis.curvature.hessian import hessian_summary
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 1, bias=False)).double()
        >>> x, y = torch.tensor([[[3.0, 0.0]], [[0.0, 1.0]]]).double(), torch.zeros(2, 1).double()
        >>> square = lambda outputs, targets: (outputs - targets).square().mean()
        >>> summary = hessian_summary(model, x, y, loss=square)  # H = diag(9, 1)
        >>> opinion = hessian_opinion(summary, model, x, y, loss=square)
        >>> round(opinion.lambda_max, 4), round(opinion.trace, 4), abs(opinion.lambda_max_difference) < 1e-4
        (9.0, 10.0, True)
    """
    with hessian_of(model, x, y, loss, summary.parameters, None) as operator:
        return opinion_on(summary, operator, Search(max_iter, 0.0, trace_samples, summary.seed))


def opinion_on(summary: HessianSummary, operator: HessianOperator, search: Search) -> HessianOpinion:
    """The same of a Hessian that is open already; none of its own products is used.

    Args:
        summary: of this Hessian.
        operator: supplies model, data, loss and the parameters' names.
        search: power iterations, probes and seed.
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
