"""Extreme eigenvalues and trace of a loss's Hessian, with residuals and confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice
from stability.statistics import student_half_width

from ..guard import check_int, check_number
from ..results import Record
from .lanczos import Krylov, Vector
from .products import HessianOperator, LossFunction, hessian_of
from .pyhessian import Estimates, Search, pyhessian_estimates, sample_mean

CONDITION_DEFINITION = "|lambda_max / lambda_min|, the largest over the smallest eigenvalue in algebraic order"
DENSE_LIMIT = 4096  # parameters up to which ``dense`` forms the Hessian: 128 MiB in float64


@dataclass(frozen=True)
class HessianSummary(Record):
    """Extreme eigenvalues and trace of ``H = d^2 loss / d theta^2``.

    Attributes:
        method: ``lanczos``, ``pyhessian`` or ``dense``.
        parameters: ``all``, ``recurrent``, or names.
        n_parameters: size of ``H``.
        loss: the loss itself at these parameters.
        gradient_norm: ``|d loss / d theta|_2``.
        lambda_max: largest eigenvalue, signed.
        lambda_min: smallest eigenvalue in algebraic order, signed (usually negative).
        lambda_max_residual: ``|H v - lambda_max v|`` of the unit vector found: an eigenvalue lies within it.
        lambda_min_residual: likewise.
        top_magnitude: the eigenvalue of largest magnitude, signed (what PyHessian calls the top one).
        trace: trace of ``H``.
        trace_standard_error: standard error of the trace over the random probes; 0 where it is exact.
        trace_half_width: half the width of the 95 % interval of the trace, Student's: with four probes that is 3.2
            standard errors, not 2; 0 where it is exact.
        trace_samples: number of probes.
        condition_number: see ``condition_definition``; ``None`` where ``lambda_min`` is indistinguishable from 0.
        condition_definition: in words.
        matvecs: Hessian-vector products taken.
        converged: each residual is at most ``tol`` times the magnitude of its own eigenvalue.
        seed: seed of start vector and probes.
        notes: remarks on the validity of these numbers.
    """

    method: str
    parameters: str | tuple[str, ...]
    n_parameters: int
    loss: float
    gradient_norm: float
    lambda_max: float
    lambda_min: float
    lambda_max_residual: float
    lambda_min_residual: float
    top_magnitude: float
    trace: float
    trace_standard_error: float
    trace_half_width: float
    trace_samples: int
    condition_number: float | None
    condition_definition: str
    matvecs: int
    converged: bool
    seed: int
    notes: tuple[str, ...] = ()


def _trace(
    operator: HessianOperator, krylov: Krylov, samples: int, rng: np.random.Generator
) -> tuple[float, float, int]:
    """Estimate ``tr H = tr T + E[g^T (I - QQ^T) H (I - QQ^T) g]`` with random signs ``g``: sampled outside ``Q`` only.

    ``Q`` does not depend on the probes, so the estimate is unbiased; the outliers, which cause most of
    Hutchinson's variance, are in ``Q``.
    """
    known = float(krylov.diagonal.sum())
    if krylov.steps == operator.size:
        return known, 0.0, 0
    probes = np.stack([rng.choice([-1.0, 1.0], operator.size) for _ in range(samples)])
    probes -= (probes @ krylov.basis.T) @ krylov.basis
    mean, error, _ = sample_mean([float(probe @ operator.matvec(probe)) for probe in probes])
    return known + mean, error, samples


def _residual(v: Vector, product: Vector) -> tuple[float, float]:
    """Return the Rayleigh quotient of the unit vector ``v`` from its product, and ``|H v - theta v|``."""
    theta = float(v @ product)
    return theta, float(np.linalg.norm(product - theta * v))


def _by_lanczos(operator: HessianOperator, settings: Search) -> Estimates:
    rng = np.random.default_rng(settings.seed)
    return ends_and_trace(operator, operator.krylov(settings.max_iter, rng, settings.tol), settings.trace_samples, rng)


def ends_and_trace(operator: HessianOperator, krylov: Krylov, samples: int, rng: np.random.Generator) -> Estimates:
    """Return both extreme eigenvalues from a Krylov space, with their residuals, and the trace.

    Args:
        operator: the Hessian.
        krylov: a space of it, from any start.
        samples: probes of the trace beside the space.
        rng: generator of these probes.
    """
    _, vectors = krylov.ritz()
    ends = vectors[:, [0, -1]].T @ krylov.basis
    ends /= np.linalg.norm(ends, axis=1, keepdims=True)
    smallest, largest = (_residual(end, operator.matvec(end)) for end in ends)
    return Estimates(largest, smallest, _trace(operator, krylov, samples, rng))


def _by_dense(operator: HessianOperator, settings: Search) -> Estimates:
    if operator.size > DENSE_LIMIT:
        raise ConfigurationError(
            f"method='dense' needs at most {DENSE_LIMIT} parameters, got {operator.size}: use 'lanczos'"
        )
    values = np.linalg.eigvalsh(operator.dense())
    rounding = operator.size * operator.precision * float(np.abs(values).max(initial=0.0))
    return Estimates((float(values[-1]), rounding), (float(values[0]), rounding), (float(values.sum()), 0.0, 0))


METHODS: dict[str, Callable[[HessianOperator, Search], Estimates]] = {
    "lanczos": _by_lanczos,
    "pyhessian": pyhessian_estimates,
    "dense": _by_dense,
}


def _condition(largest: float, smallest: tuple[float, float]) -> float | None:
    value, residual = smallest
    return abs(largest / value) if abs(value) > residual and value != 0 else None


def hessian_summary(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    loss: LossFunction | None = None,
    parameters: str | Sequence[str] = "all",
    method: str = "lanczos",
    seed: int = 0,
    batch_size: int | None = None,
    max_iter: int = 100,
    tol: float = 1e-3,
    trace_samples: int = 32,
) -> HessianSummary:
    """Estimate extreme eigenvalues, trace and condition number of ``H = d^2 loss / d theta^2``.

    ``lanczos`` takes both ends from one Krylov space with full re-orthogonalization and stops when both
    residuals fall below ``tol`` times the magnitude of their own eigenvalue; the trace is exact on that space and
    sampled beside it. ``pyhessian`` drives the library of that name and works around its faults (listed in
    ``notes``). ``dense`` forms ``H``: small models only. The model is run in evaluation mode and is left
    exactly as it was found.

    Args:
        model: ``model(x) -> outputs``.
        x: ``(batch, time, features)``, or a loader of ``(x, y)`` batches when ``y`` is ``None``.
        y: targets, one per sequence.
        loss: ``(outputs, targets) -> scalar``, a mean over samples; default: cross entropy of logits.
        parameters: ``"all"`` that require a gradient, ``"recurrent"``, or a list of names.
        method: ``"lanczos"``, ``"pyhessian"`` or ``"dense"``.
        seed: seed of the start vector and the probes.
        batch_size: sum over minibatches of this size; ``None``: one batch, its graph kept (fastest).
        max_iter: at most this many products for the eigenvalues.
        tol: largest residual of each eigenvalue, relative to its own magnitude; an eigenvalue near zero may not get
            there within ``max_iter``, and ``converged`` is false then.
        trace_samples: random probes for the trace, 2 or more.

    Returns:
        The summary.

    Raises:
        ConfigurationError: an invalid option or tensor.
        DimensionError: lengths of x and y differ.
        NonFiniteError: NaN in data, weights or loss.
        UnsupportedError: two passes over the data disagree.

    Source: B. Pearlmutter (1994) for the products; M. Hutchinson (1990) for the trace; Z. Yao et al.,
        PyHessian (2020).

    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 1, bias=False)).double()
    >>> x = torch.tensor([[[3.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    >>> square = lambda outputs, targets: (outputs - targets).square().mean()
    >>> s = hessian_summary(model, x, torch.zeros(2, 1).double(), loss=square)  # H = 2/2 diag(9, 1)
    >>> round(s.lambda_max, 6), round(s.lambda_min, 6), round(s.trace, 6)
    (9.0, 1.0, 10.0)
    """
    as_choice("method", method, METHODS)
    settings = Search(
        max_iter=check_int("max_iter", max_iter, 2),
        tol=check_number("tol", tol),
        trace_samples=check_int("trace_samples", trace_samples, 2),
        seed=check_int("seed", seed, 0),
    )
    with hessian_of(model, x, y, loss, parameters, batch_size) as operator:
        return summary_of(operator, METHODS[method](operator, settings), settings, method, parameters)


def summary_of(
    operator: HessianOperator, result: Estimates, settings: Search, method: str, parameters: str | Sequence[str]
) -> HessianSummary:
    """Return the summary of a method's estimates for a Hessian, with loss and gradient norm.

    Args:
        operator: the Hessian; the products that it counts are the summary's.
        result: both ends and the trace.
        settings: settings of the estimate.
        method: name of the method.
        parameters: the selection, as an argument of ``select_parameters``.
    """
    (largest, largest_residual), (smallest, smallest_residual) = result.largest, result.smallest
    top = largest if abs(largest) >= abs(smallest) else smallest
    return HessianSummary(
        method=method,
        parameters=parameters if isinstance(parameters, str) else tuple(operator.names),
        n_parameters=operator.size,
        loss=operator.loss,
        gradient_norm=float(np.linalg.norm(operator.gradient)),
        lambda_max=largest,
        lambda_min=smallest,
        lambda_max_residual=largest_residual,
        lambda_min_residual=smallest_residual,
        top_magnitude=top,
        trace=result.trace[0],
        trace_standard_error=result.trace[1],
        trace_half_width=student_half_width(*result.trace[1:]),
        trace_samples=result.trace[2],
        condition_number=_condition(largest, result.smallest),
        condition_definition=CONDITION_DEFINITION,
        matvecs=operator.matvecs,
        converged=all(residual <= settings.tol * abs(value) for value, residual in (result.largest, result.smallest)),
        seed=settings.seed,
        notes=result.notes,
    )
