"""Adapter to PyHessian that works around its faults without changing the meaning of its numbers.

What is worked around, and how (each is said in the result's notes):

- it puts the model in evaluation mode and leaves gradients in it: it gets a copy;
- it takes ``cuda=True`` unless told otherwise: the data's own device is passed;
- its eigenvalues come by magnitude only: the other end is found from ``H - mu I``;
- its power iteration divides by ``norm + 1e-6`` and stops early: Rayleigh quotient and residual of its vector count;
- its trace stops after a few samples when two means agree: the tolerance is minus infinity;
- its density calls a function that torch no longer has: it is not called, see ``spectral_density``.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.errors import NonFiniteError

from .products import HessianOperator

_NOTES = (
    "PyHessian ran on a copy of the model: it changes mode and gradients of what it is given",
    "PyHessian finds the eigenvalue mu of largest magnitude only; the other end comes from H - mu I",
    "eigenvalues are Rayleigh quotients of PyHessian's vectors, with residuals: its own value is biased "
    "by +1e-6 in the normalisation and it stops when two iterates agree",
    "trace over all samples asked for: PyHessian's own stopping rule ends after a few",
    "matvecs is an upper bound: PyHessian does not tell how many it took",
)
_POWER_TOLERANCE = 1e-7  # relative change between two power iterates; the error is far larger than this


@dataclass(frozen=True)
class Search:
    """Settings of an estimate: most iterations, relative tolerance, number of trace probes, seed."""

    max_iter: int
    tol: float
    trace_samples: int
    seed: int


@dataclass(frozen=True)
class Estimates:
    """Estimates of a method: (value, residual) of both extreme eigenvalues; (mean, error, samples) of the trace."""

    largest: tuple[float, float]
    smallest: tuple[float, float]
    trace: tuple[float, float, int]
    notes: tuple[str, ...] = ()


def sample_mean(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the mean, its standard error, and the number of samples."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values))), len(values)


class _Driver:
    """PyHessian object for ``H - shift I`` on a copy of the operator's model."""

    def __init__(self, operator: HessianOperator, shift: float) -> None:
        from pyhessian import hessian  # heavy, and needed by this method alone

        model = copy.deepcopy(operator.model)
        named = dict(model.named_parameters())
        self.parameters = [named[name] for name in operator.names]
        for parameter in named.values():
            parameter.grad = None
            parameter.requires_grad_(False)
        for parameter in self.parameters:
            parameter.requires_grad_(True)
        self.matvecs = 0

        def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
            # the quadratic term moves the spectrum by -shift and makes every parameter take part, used or not
            return operator.loss_function(outputs, targets) - shift / 2 * sum(p.square().sum() for p in self.parameters)

        batches = operator.batches
        single = isinstance(batches, list) and len(batches) == 1
        data: dict[str, Any] = {"data": batches[0]} if single else {"dataloader": batches}  # type: ignore[index]
        self.hessian = hessian(model, criterion, cuda=self.parameters[0].is_cuda, **data)
        self.order = [next(i for i, p in enumerate(self.parameters) if p is q) for q in self.hessian.params]

    def product(self, v: list[Tensor]) -> list[Tensor]:
        from pyhessian.utils import hessian_vector_product

        self.matvecs += 1
        if self.hessian.full_dataset:
            return self.hessian.dataloader_hv_product(v)[1]
        return list(hessian_vector_product(self.hessian.gradsH, self.hessian.params, v))

    def top(self, max_iter: int) -> tuple[float, float]:
        """Return the eigenvalue of ``H - shift I`` of largest magnitude and the residual of its vector."""
        _, vectors = self.hessian.eigenvalues(maxIter=max_iter, tol=_POWER_TOLERANCE)
        self.matvecs += max_iter  # an upper bound: PyHessian does not tell
        v = [part.double() for part in vectors[0]]
        norm = float(sum(part.square().sum() for part in v)) ** 0.5
        if not norm > 0:  # the operator is zero: PyHessian normalised its image to nothing
            return 0.0, 0.0
        unit = [part / norm for part in v]
        dtypes = [p.dtype for p in self.hessian.params]
        image = [part.double() for part in self.product([u.to(d) for u, d in zip(unit, dtypes)])]
        theta = float(sum((u * w).sum() for u, w in zip(unit, image)))
        residual = float(sum((w - theta * u).square().sum() for u, w in zip(unit, image))) ** 0.5
        return theta, residual

    def trace(self, samples: int) -> list[float]:
        self.matvecs += samples
        return list(self.hessian.trace(maxIter=samples, tol=float("-inf")))


def _seeded(seed: int) -> contextlib.ExitStack:
    """Seed torch's global generator, from which PyHessian draws (the caller restores it), and silence its warnings."""
    torch.manual_seed(seed)
    quiet = contextlib.ExitStack()
    quiet.enter_context(warnings.catch_warnings())
    warnings.filterwarnings("ignore", message="Using backward\\(\\) with create_graph=True", category=UserWarning)
    return quiet


def pyhessian_estimates(operator: HessianOperator, search: Search, both: bool = True) -> Estimates:
    """Estimate both extreme eigenvalues and sample the trace with PyHessian 0.1.

    Args:
        operator: supplies model, data, loss and the parameters' names; its count of products alone is changed.
        search: power iterations for each end, probes, and the seed of torch's global generator, which PyHessian draws
            from (the caller restores its state).
        both: False: the smallest eigenvalue is not needed, which may save half the work; it is not meant then.

    Raises:
        NonFiniteError: PyHessian returned NaN.

    Source: Z. Yao, A. Gholami, K. Keutzer, M. Mahoney, PyHessian (2020).
    """
    with _seeded(search.seed):
        plain = _Driver(operator, 0.0)
        top = other = plain.top(search.max_iter)
        samples = plain.trace(search.trace_samples)
        operator.matvecs += plain.matvecs
        if both or top[0] < 0:  # the eigenvalue of largest magnitude may lie at the other end
            shifted = _Driver(operator, top[0])
            theta, residual = shifted.top(search.max_iter)
            other = theta + top[0], residual
            operator.matvecs += shifted.matvecs
    if not np.isfinite([top[0], other[0], *samples]).all():
        raise NonFiniteError("PyHessian's result", "use method='lanczos'")
    return Estimates(max(top, other), min(top, other), sample_mean(samples), _NOTES)
