"""Spectral density of a Hessian by stochastic Lanczos quadrature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import nn

from stability.errors import ConfigurationError

from ..drawn import Curve
from ..guard import check_int, check_number
from ..results import Record
from .hessian import HessianSummary, estimates_of, summary_of
from .lanczos import Krylov
from .opinion import opinion_on
from .products import HessianOperator, LossFunction, hessian_of
from .pyhessian import Search

if TYPE_CHECKING:
    from ..campaign.work import Work

_REACH = 6.0  # standard deviations of the kernel by which the grid exceeds the outermost nodes


@dataclass(frozen=True, eq=False)
class SpectralDensity(Record):
    """Spectral density ``phi(t) = (1/n) sum_i delta(t - lambda_i)``, smoothed by a Gaussian of width ``sigma``.

    Attributes:
        grid: ``(points,)`` values of ``t``.
        density: ``(points,)``, mean over the probes; integrates to 1.
        density_standard_error: ``(points,)``, over the probes.
        nodes: ``(n_vectors, steps)`` Ritz values of each probe.
        weights: ``(n_vectors, steps)``, each row sums to 1 (zero where a probe ended early).
        sigma: width of the kernel.
        n_parameters: size of the Hessian.
        parameters: ``all``, ``recurrent``, or names.
        matvecs: products taken.
        seed: seed of the probes.
    """

    curve = Curve("eigenvalue", ("density",), ("low", "high"), log=True)

    grid: NDArray[np.float64]
    density: NDArray[np.float64]
    density_standard_error: NDArray[np.float64]
    nodes: NDArray[np.float64]
    weights: NDArray[np.float64]
    sigma: float
    n_parameters: int
    parameters: str | tuple[str, ...]
    matvecs: int
    seed: int

    def moment(self, order: int) -> tuple[float, float]:
        """Return ``tr(H^order) / n`` and its standard error; exact for each probe up to order ``2 steps - 1``."""
        values = (self.weights * self.nodes ** check_int("order", order, 0)).sum(axis=1)
        return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))

    @property
    def trace(self) -> float:
        """Estimate of ``tr H``."""
        return self.n_parameters * self.moment(1)[0]

    @property
    def trace_standard_error(self) -> float:
        """Standard error of :attr:`trace` over the probes."""
        return self.n_parameters * self.moment(1)[1]

    def curves(self) -> pd.DataFrame:
        """Return the density with one standard error on both sides, where that is positive."""
        table = self.frame()
        low = (table.density - table.standard_error).clip(lower=table.density.max() * 1e-9)
        return table.assign(low=low, high=table.density + table.standard_error)

    def frame(self) -> pd.DataFrame:
        """Return columns ``eigenvalue``, ``density``, ``standard_error``, one row per grid point."""
        return pd.DataFrame(
            {"eigenvalue": self.grid, "density": self.density, "standard_error": self.density_standard_error}
        )


def _kernel(grid: NDArray[np.float64], nodes: NDArray[np.float64], sigma: float) -> NDArray[np.float64]:
    """Return Gaussians ``(points, steps)`` of width ``sigma`` around the nodes."""
    z = (grid[:, None] - nodes[None, :]) / sigma
    return np.exp(-0.5 * z**2) / (sigma * np.sqrt(2 * np.pi))


def spectral_density(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    n_vectors: int = 8,
    steps: int = 40,
    seed: int = 0,
    loss: LossFunction | None = None,
    parameters: str | Sequence[str] = "all",
    batch_size: int | None = None,
    grid_points: int = 1001,
    sigma: float | None = None,
) -> SpectralDensity:
    """Estimate the density of ``d^2 loss / d theta^2``: ``phi(t) ~ mean_v sum_i tau_i^2 N(t; theta_i, sigma^2)``.

    For each probe ``v``, uniform on the sphere, Lanczos gives nodes ``theta_i`` and weights ``tau_i^2``
    (squared first components of the eigenvectors of ``T``), a Gauss quadrature of the spectral measure of
    ``v``. The model is run in evaluation mode and is restored exactly.

    Args:
        model: ``model(x) -> outputs``.
        x: ``(batch, time, features)``, or a loader of ``(x, y)`` batches when ``y`` is ``None``.
        y: targets, one per sequence.
        n_vectors: probes, 2 or more (one has no standard error).
        steps: Lanczos steps of each.
        seed: seed of the probes.
        loss: ``(outputs, targets) -> scalar``, a mean over samples; default: cross entropy of logits.
        parameters: ``"all"`` that require a gradient, ``"recurrent"``, or a list of names.
        batch_size: sum over minibatches of this size; ``None``: one batch.
        grid_points: number of grid points.
        sigma: width of the kernel; ``None``: 1 % of the spectrum's extent.

    Returns:
        Density, nodes and weights.

    Raises:
        ConfigurationError: an invalid option or tensor.
        DimensionError: lengths of x and y differ.
        NonFiniteError: NaN in data, weights or loss.
        UnsupportedError: two passes over the data disagree.

    Source: L. Lin, Y. Saad, C. Yang (2016); B. Ghorbani, S. Krishnan, Y. Xiao (2019), algorithm 1.

    >>> import torch
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 1, bias=False)).double()
    >>> x = torch.tensor([[[3.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    >>> square = lambda outputs, targets: (outputs - targets).square().mean()
    >>> d = spectral_density(model, x, torch.zeros(2, 1, dtype=torch.float64), loss=square)
    >>> np.allclose(d.nodes, [1, 9])
    True
    """
    n_vectors, steps = check_int("n_vectors", n_vectors, 2), check_int("steps", steps)
    points, seed = check_int("grid_points", grid_points, 3), check_int("seed", seed, 0)
    width = None if sigma is None else check_number("sigma", sigma, strict=True)
    with hessian_of(model, x, y, loss, parameters, batch_size) as operator:
        rng = np.random.default_rng(seed)
        spaces = [operator.krylov(steps, rng) for _ in range(n_vectors)]
        return _smoothed(operator, spaces, parameters, seed, points, width)


def _smoothed(
    operator: HessianOperator,
    spaces: Sequence[Krylov],
    parameters: str | Sequence[str],
    seed: int,
    points: int = 1001,
    width: float | None = None,
) -> SpectralDensity:
    """Return the density from the Krylov space of each probe."""
    n_vectors, steps = len(spaces), max(space.steps for space in spaces)
    nodes, weights = np.zeros((n_vectors, steps)), np.zeros((n_vectors, steps))
    for row, space in enumerate(spaces):
        values, vectors = space.ritz()
        nodes[row, : len(values)] = values
        nodes[row, len(values) :] = values[-1]
        weights[row, : len(values)] = vectors[0] ** 2
    low, high = float(nodes.min()), float(nodes.max())
    if width is None:
        width = max(0.01 * (high - low), 1e-6 * max(abs(low), abs(high)), 1e-12)
    grid = np.linspace(low - _REACH * width, high + _REACH * width, points)
    if grid[1] - grid[0] > 2 * width:
        raise ConfigurationError(
            f"sigma {width:g} is too narrow for {points} grid points over [{low:g}, {high:g}]: "
            "raise sigma or grid_points"
        )
    densities = np.stack([_kernel(grid, nodes[row], width) @ weights[row] for row in range(n_vectors)])
    return SpectralDensity(
        grid=grid,
        density=densities.mean(axis=0),
        density_standard_error=densities.std(axis=0, ddof=1) / np.sqrt(n_vectors),
        nodes=nodes,
        weights=weights,
        sigma=width,
        n_parameters=operator.size,
        parameters=parameters if isinstance(parameters, str) else tuple(operator.names),
        matvecs=sum(space.steps for space in spaces),
        seed=seed,
    )


def spectrum_of(
    operator: HessianOperator, *, steps: int, probes: int, seed: int = 0, parameters: str = "all"
) -> tuple[HessianSummary, SpectralDensity]:
    """Estimate extreme eigenvalues, trace and density together; the first probe's Krylov space serves for all.

    This space is the one of ``hessian_summary`` with the same seed, with all steps.

    Args:
        operator: the Hessian, before any product.
        steps: steps of Lanczos, for each probe.
        probes: number of probes of the density, and of the trace outside the first Krylov space.
        seed: seed of all probes.
        parameters: the recorded selection of parameters.

    Returns:
        The summary, whose number of products includes the first space, and the density.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Flatten(), nn.Linear(2, 1, bias=False)).double()
        >>> x, y = torch.tensor([[[3.0, 0.0]], [[0.0, 1.0]]]).double(), torch.zeros(2, 1).double()
        >>> with hessian_of(model, x, y, nn.functional.mse_loss, "all", None) as operator:  # H = diag(9, 1)
        ...     summary, density = spectrum_of(operator, steps=9, probes=2)
        >>> round(summary.lambda_max, 6), np.allclose(density.nodes, [1, 9]), operator.matvecs
        (9.0, True, 6)
    """
    search = Search(steps, 1e-3, probes, seed)
    rng = np.random.default_rng(seed)
    spaces = [operator.krylov(steps, rng) for _ in range(probes)]
    beside = np.random.default_rng(seed)
    beside.standard_normal(operator.size)  # skip the start vector of the space: the probes come after it
    others = sum(space.steps for space in spaces[1:])
    summary = summary_of(operator, estimates_of(operator, spaces[0], probes, beside), search, "lanczos", parameters)
    return replace(summary, matvecs=operator.matvecs - others), _smoothed(operator, spaces, parameters, seed)


def hessian_step(work: Work) -> None:
    """Run the step ``hessian`` of an analysis and write its files."""
    model, task = work.with_answers()
    x, y = (part[: work.budget.curved] for part in task.train)
    steps, probes = work.budget.iterations, work.budget.probes
    with hessian_of(model, x, y, task.loss, "all", None) as operator:
        summary, density = spectrum_of(operator, steps=steps, probes=probes, seed=work.seed)
        opinion = opinion_on(summary, operator, Search(steps, 0.0, probes, work.seed))
    work.write_result("hessian.json", summary, samples=len(x), pyhessian=opinion)
    work.write_table("density.csv", density.frame())
