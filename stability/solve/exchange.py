r"""The best rate and its multipliers at once, by an exchange of peaks.

.. math:: \max_{x,\,\lambda} \lambda \quad\text{subject to}\quad
          \sigma_k\bigl(e^{X} G_\lambda(i\omega)\, e^{-X}\bigr) \le 1 \quad\text{for } \omega \in \Omega, \;
          X = \mathrm{diag}(x),

for a small set :math:`\Omega` of frequencies and the leading few singular values (near the optimum several coincide),
by sequential quadratic programming: the Hessian of the Lagrangian from BFGS updates, the quadratic program by its dual,
which has as many unknowns as constraints. Then the peaks of the result are looked for between all resonances; those
above one enter the set, until none is. What comes out is a proposal: one Riccati equation a hair below decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular

from stability.solve.axis import Axis, Triplets
from stability.solve.deadline import Deadline
from stability.solve.rates import spectral_rate, start_rate
from stability.systems.statespace import StateSpace

Array = np.ndarray
_ROUNDS, _STEPS, _HALVINGS = 12, 30, 6
_GRID = 48
_FAR = 2.0
"""No logarithm of a multiplier's root moves by more than this in one step."""
_NEAR = -1.0
"""Constraints whose logarithm lies below this are left out of the quadratic program."""


@dataclass(eq=False)
class _Set:
    """The frequencies in use, with the vectors that belong to them."""

    axis: Axis
    omega: Array
    vectors: Array
    fresh: bool = True

    def at(self, rate: float, x: Array, steps: int = 2) -> Triplets:
        found, self.vectors = self.axis.triplets(self.omega, rate, x, self.vectors, 10 if self.fresh else steps)
        self.fresh = False
        return found

    def with_points(self, omega: Array) -> _Set:
        """These points, and those of the set that are not replaced by one close by."""
        order = np.concatenate([self.omega, omega])
        nearest = np.abs(self.omega[None, :] - omega[:, None]).argmin(axis=1)
        vectors = np.concatenate([self.vectors, self.vectors[:, nearest]], axis=1)
        return _Set(self.axis, order, vectors, True)


@dataclass
class Exchange:
    """The search.

    Attributes:
        loop: the centred loop without fixed channels, in continuous time with A of about unit size.
        deadline: asked before each step.
        x: ``(m,)`` logarithms of the scales; where to start.
    """

    loop: StateSpace
    deadline: Deadline
    x: Array
    axis: Axis = field(init=False)

    def __post_init__(self) -> None:
        self.axis = Axis(self.loop, deadline=self.deadline)
        self.start = start_rate(self.loop)
        self.span = spectral_rate(self.axis.poles, self.loop.is_discrete) - self.start
        """The way from no decay at all to that of the centred loop; negative in discrete time."""
        self._hessian: Array | None = None
        self._points: _Set | None = None

    @property
    def usable(self) -> bool:
        """Whether there is anything to search: a stable centred loop whose eigenvectors serve."""
        inside = self.span < 0 if self.loop.is_discrete else self.span > 0
        return inside and self.axis.usable and len(self.x) > 0

    def at(self, share: float) -> float:
        """The rate at a share of the span."""
        return float(self.start + share * self.span)

    def run(self, tol: float, share: float = 0.3) -> float:
        """Search until no peak exceeds one by more than ``tol`` allows.

        Args:
            tol: of the rate, relative to the span.
            share: of the span where to begin.

        Returns:
            The share of the span that was reached; ``x`` holds its scales.
        """
        grid = _Set(self.axis, self._grid(), self.axis.start(0))
        grid.vectors = self.axis.start(len(grid.omega))
        first = self._first(grid, share)
        points = _Set(self.axis, grid.omega[first], grid.vectors[:, first], False)
        wanted = max(0.02, tol)
        for _ in range(_ROUNDS):
            share = self._solve(points, share, wanted, _STEPS if wanted < 0.01 else _STEPS // 4)
            if self.deadline.over:
                break
            missed, excess = self._missed(grid, points, share, 0.1 * tol)
            if excess <= 0.1 * tol and wanted <= tol:
                break
            wanted = min(wanted, max(0.2 * excess, 0.3 * tol)) if excess > 0 else 0.3 * tol
            points = points.with_points(missed) if len(missed) else points
        self._points = points
        return share

    def gain(self, share: float) -> float:
        """The largest singular value on the set at a share of the span and the scales that were found."""
        return float(np.exp(self._points.at(self.at(share), self.x).log.max())) if self._points is not None else np.inf

    def _first(self, grid: _Set, share: float) -> list[int]:
        """Indices of points to begin with: the highest peaks, and some that cover the axis."""
        log = grid.at(self.at(share), self.x).log[:, 0]
        parts = np.array_split(np.arange(len(log)), 6)
        return sorted({*_maxima(log)[:4], *(int(part[log[part].argmax()]) for part in parts if len(part))})

    def _grid(self) -> Array:
        poles = self.axis.poles
        if self.loop.is_discrete:
            order = np.argsort(-np.abs(poles))
            peaks = np.abs(np.angle(poles[order]))[: 2 * _GRID]
            return np.unique(np.concatenate([peaks, np.linspace(0.0, np.pi, _GRID)]))
        order = np.argsort(-np.real(poles))
        peaks = np.abs(np.imag(poles[order]))[: 2 * _GRID]
        size = np.abs(poles) + 1e-300
        return np.unique(np.concatenate([[0.0], peaks, np.geomspace(0.05 * size.min(), 4.0 * size.max(), _GRID)]))

    def _missed(self, grid: _Set, points: _Set, share: float, tol: float) -> tuple[Array, float]:
        """Peaks above one at frequencies that are not in the set, and the largest excess of their logarithms."""
        rate = self.at(share)
        omega, log = grid.omega, grid.at(rate, self.x, 3).log[:, 0]
        mine = points.at(rate, self.x).log[:, 0]
        every, values = np.concatenate([omega, points.omega]), np.concatenate([log, mine])
        order = np.argsort(every)
        every, values = every[order], values[order]
        tops = [i for i in _maxima(values) if values[i] > -0.02][:12]
        if not tops or self.deadline.over:
            return np.zeros(0), -1.0
        low, high = every[np.maximum(np.array(tops) - 1, 0)], every[np.minimum(np.array(tops) + 1, len(every) - 1)]
        best, value = every[tops], values[tops]
        vectors = grid.vectors[:, np.abs(omega[None, :] - best[:, None]).argmin(axis=1)]
        for _ in range(3):  # five points between the neighbours, the best of them the next middle
            inner = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, 7)[None, 1:-1]
            found, moved = self.axis.triplets(inner.ravel(), rate, self.x, np.repeat(vectors, 5, axis=1), 2)
            logs = found.log[:, 0].reshape(-1, 5)
            k, rows = logs.argmax(axis=1), np.arange(len(tops))
            better = logs[rows, k] > value
            best, value = np.where(better, inner[rows, k], best), np.where(better, logs[rows, k], value)
            vectors = moved.reshape(len(self.x), -1, 5, moved.shape[2])[:, rows, k]
            width = (high - low) / 6.0
            low, high = np.maximum(best - width, low), np.minimum(best + width, high)
        missed = (value > tol) & (np.abs(best[:, None] - points.omega[None, :]).min(axis=1) > 0)
        return best[missed], float(value.max())

    def _solve(self, points: _Set, share: float, wanted: float, most: int) -> float:
        """The best share on a set of frequencies, to within ``wanted`` or after ``most`` steps; ``x`` moves along."""
        now = points.at(self.at(share), self.x)
        if self._hessian is None:
            size = 0.1 / max(float(np.abs(now.by_rate * self.span).max()), 1e-9)
            self._hessian = np.diag(np.append(np.full(len(self.x), size), 1e-2))
        weight = 0.0
        for _ in range(most):
            if self.deadline.over:
                break
            values, slopes = self._constraints(now)
            step, multipliers = _step(self._hessian, values, slopes)
            weight = max(weight, 1.2 * float(multipliers.sum()))
            factor = self._factor(step, share)
            before = self.x, share, slopes
            pull = (self._hessian @ step)[:-1]
            merit = -share + weight * max(0.0, float(values.max()))
            for _ in range(_HALVINGS):
                self.x, share = before[0] + factor * step[:-1], before[1] + factor * step[-1]
                now = points.at(self.at(share), self.x)
                excess = float(now.log.max())
                if -share + weight * max(0.0, excess) < merit:
                    break
                factor *= 0.4
            moved = np.append(self.x - before[0], share - before[1])
            change = (self._constraints(now)[1] - before[2]).T @ multipliers
            self._hessian = _updated(self._hessian, moved, change)
            close = 0.1 * wanted
            steep = float(np.abs(pull).sum())  # of the Lagrangian, where the quadratic program was made
            if factor > 0.5 and max(abs(moved[-1]), 0.1 * steep) < close * max(share, 1e-3) and abs(excess) < close:
                break
        return share

    def _constraints(self, now: Triplets) -> tuple[Array, Array]:
        """Logarithms ``(K r,)`` and their derivatives ``(K r, m + 1)`` by ``x`` and the share of the span."""
        by_scale = now.by_scale.reshape(-1, len(self.x))
        return now.log.ravel(), np.column_stack([by_scale, self.span * now.by_rate.ravel()])

    def _factor(self, step: Array, share: float) -> float:
        """How much of a step stays inside the span and near enough for the model."""
        factor = min(1.0, _FAR / max(float(np.abs(step[:-1]).max()), 1e-12))
        room = 0.9 * ((1.0 - share) if step[-1] > 0 else share)
        return min(factor, room / max(abs(float(step[-1])), 1e-12))


def _maxima(values: Array) -> list[int]:
    """Indices of the local maxima of a row of values, the largest first."""
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    inner = np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:]))
    return [int(i) for i in inner[np.argsort(-values[inner])]]


def _step(hessian: Array, values: Array, slopes: Array) -> tuple[Array, Array]:
    """Minimiser of ``d^T H d / 2 - d_last`` with ``values + slopes d <= 0``, and the constraints' multipliers.

    With ``H = L L^T`` the dual is a non-negative least squares problem in the multipliers.
    """
    active = values > _NEAR
    active[int(values.argmax())] = True
    L = np.linalg.cholesky(hessian)
    rows = solve_triangular(L, slopes[active].T, lower=True).T
    last = np.zeros(len(hessian))
    last[-1] = 1.0
    aim = solve_triangular(L, last, lower=True)
    gram, right = rows @ rows.T, rows @ aim + values[active]
    gram[np.diag_indices(len(gram))] += 1e-10 * np.trace(gram) / len(gram)
    upper = np.linalg.cholesky(gram).T
    from scipy.optimize import nnls  # see solve/scalar.py

    found = nnls(upper, solve_triangular(upper, right, trans=1), maxiter=20 * len(right) + 100)[0]
    step = solve_triangular(L, aim - rows.T @ found, lower=True, trans=1)
    step[:-1] -= step[:-1].mean()  # a common factor of all scales changes nothing
    multipliers = np.zeros(len(values))
    multipliers[active] = found
    return step, multipliers


def _updated(hessian: Array, step: Array, change: Array) -> Array:
    """Powell's damped BFGS update."""
    image = hessian @ step
    curved, seen = float(step @ image), float(step @ change)
    if not curved > 0.0:
        return hessian
    part = 1.0 if seen >= 0.2 * curved else 0.8 * curved / (curved - seen)
    change = part * change + (1.0 - part) * image
    return hessian - np.outer(image, image) / curved + np.outer(change, change) / float(step @ change)
