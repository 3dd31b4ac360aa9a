r"""Best rate and multipliers together, by an exchange of frequency peaks.

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
from scipy.optimize import nnls

from stability.search.solvers.deadline import Deadline
from stability.search.solvers.frequency_peaks import FrequencyAxis, SingularTriplets, axis_frequencies
from stability.search.solvers.rates import spectral_rate, start_rate
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_ROUNDS, _FEW, _STEPS, _MANY, _HALVINGS = 24, 3, 8, 30, 6
_WRONG = 0.5
"""Logarithm of a missed peak above which the search starts again."""
_GRID = 48
_SEEN, _REFINED, _TOPS = 3, 4, 40
"""Singular values per grid point, refinement steps per peak, and most peaks."""
_FAR = 2.0
"""Largest change of a logarithmic multiplier root in one step."""
_NEAR, _LOW = -1.0, -0.3
"""Constraints with a logarithm below the first are left out of the quadratic program; points with one below the second
leave the set when others enter.
"""


@dataclass(eq=False)
class _Set:
    """Frequencies in use, with their vectors and the last computed singular values."""

    axis: FrequencyAxis
    omega: Array
    vectors: Array
    fresh: int = 4
    log: Array = field(default_factory=lambda: np.zeros(0))

    def at(self, rate: float, x: Array, steps: int = 1) -> SingularTriplets:
        values, self.vectors = self.axis.triplets(self.omega, rate, x, self.vectors, self.fresh or steps)
        self.fresh, self.log = 0, values.log[:, 0]
        return values

    def subset(self, index: Array) -> _Set:
        """Select some of the points."""
        return _Set(self.axis, self.omega[index], self.vectors[:, index], self.fresh, self.log[index])

    def with_points(self, omega: Array, low: float = _LOW) -> _Set:
        """Return the points that are not far below one, and the new ones."""
        nearest = np.abs(self.omega[None, :] - omega[:, None]).argmin(axis=1)
        high = np.flatnonzero(self.log > low)
        vectors = np.concatenate([self.vectors[:, high], self.vectors[:, nearest]], axis=1)
        return _Set(self.axis, np.concatenate([self.omega[high], omega]), vectors, 2)

    def beside(self, omega: Array) -> _Set:
        """Return the two points on either side of each of these."""
        order = np.argsort(self.omega)
        place = np.searchsorted(self.omega[order], omega)
        return self.subset(np.unique(order[np.clip(place[:, None] + np.arange(-2, 2), 0, len(order) - 1)]))


@dataclass
class Exchange:
    """Search by an exchange of peaks.

    Attributes:
        loop: the centered loop without fixed channels, in continuous time with A of about unit size.
        deadline: checked before each step.
        x: ``(m,)`` logarithms of the scales; where to start.
    """

    loop: StateSpace
    deadline: Deadline
    x: Array
    axis: FrequencyAxis = field(init=False)

    def __post_init__(self) -> None:
        self.axis = FrequencyAxis(self.loop, deadline=self.deadline)
        self.start = start_rate(self.loop)
        self.span = spectral_rate(self.axis.poles, self.loop.is_discrete) - self.start
        """Decay of the centered loop; negative in discrete time."""
        self._reset()

    def _reset(self) -> None:
        self._hessian: Array | None = None
        self._began = self.x, 0.0
        self._grid = self._points = _Set(self.axis, np.zeros(0), np.zeros((0, 0, 0)))
        self._settled = False  # no further step on the set gains anything
        self._price = 1.0  # of the logarithm of a singular value, in shares of the span

    @property
    def usable(self) -> bool:
        """Return True for a stable centered loop with well-conditioned eigenvectors and some channels."""
        inside = self.span < 0 if self.loop.is_discrete else self.span > 0
        return inside and self.axis.usable and len(self.x) > 0

    def at(self, share: float) -> float:
        """Return the rate at a share of the span."""
        return float(self.start + share * self.span)

    def run(self, tol: float, share: float = 0.3) -> float:
        """Search until no peak exceeds one by more than ``tol`` allows.

        Args:
            tol: tolerance of the rate, relative to its distance from no decay.
            share: starting point as a share of the span.

        Returns:
            The share of the span that was reached; ``x`` holds its scales.
        """
        self._grid = _Set(self.axis, self._frequencies(), self.axis.start(0))
        self._grid.vectors = self.axis.start(len(self._grid.omega), _SEEN)
        self._began, first = (self.x, share), self._first(self._grid, share)
        points = _Set(self.axis, self._grid.omega[first], self.axis.start(len(first)))
        return self._exchange(points, tol, share, max(0.02, tol))

    def run_on(self, omega: float, tol: float, share: float) -> float:
        """Continue ``run`` with a peak that it has not seen."""
        points = self._points.with_points(np.array([omega]))
        self._grid = self._grid.with_points(np.array([omega]), -np.inf)
        if points.at(self.at(share), self.x).log.max() > _WRONG:
            (self.x, share), self._hessian = self._began, None
        return self._exchange(points, tol, share, 0.3 * tol)

    def _exchange(self, points: _Set, tol: float, share: float, target: float) -> float:
        """Maximize the rate on the points, add the raised peaks between them, and repeat."""
        most, best = _STEPS, None
        for _ in range(_ROUNDS):
            share = self._solve(points, share, target, most)
            if self.deadline.over:
                break
            cost = self._price / max(share, 1e-3)  # of an excess, as a part of the share
            missed, excess = self._missed(best, points, share, 0.2 * tol / cost) if best is not None else ([], -1.0)
            if excess * cost <= 0.2 * tol:  # the summits that are known: now all others
                steps = 2 if target > tol else 8  # in the end, peaks that lie close to one are told from each other
                missed, excess = self._missed(self._grid, points, share, 0.2 * tol / cost, steps)
                if excess * cost <= 0.2 * tol and target <= tol and self._settled:
                    break
                best = self._grid.beside(np.append(points.omega[points.log > -0.05], missed))
            target = min(target, max(0.2 * excess * cost, 0.3 * tol)) if excess > 0 else 0.3 * tol
            most = _FEW if len(missed) else _MANY
            if excess > _WRONG and len(missed):
                (self.x, share), self._hessian = self._began, None
            points = points.with_points(np.asarray(missed)) if len(missed) else points
        self._points = points
        return share

    def gain(self, share: float) -> float:
        """Return the largest singular value on the set at a share of the span and the present scales."""
        return float(np.exp(self._points.at(self.at(share), self.x).log.max(initial=-np.inf)))

    def _first(self, grid: _Set, share: float) -> list[int]:
        """Return indices of initial points: the highest peaks, and some that cover the axis."""
        log = grid.at(self.at(share), self.x).log[:, 0]
        parts = np.array_split(np.arange(len(log)), 6)
        return sorted({*_maxima(log)[:4], *(int(part[log[part].argmax()]) for part in parts if len(part))})

    def _frequencies(self) -> Array:
        return axis_frequencies(self.axis.poles, self.loop.is_discrete, 2 * _GRID, _GRID, (0.05, 4.0))

    def _missed(self, grid: _Set, points: _Set, share: float, tol: float, steps: int = 2) -> tuple[Array, float]:
        """Return peaks above one at frequencies outside the set, and the largest excess of their logarithms."""
        rate = self.at(share)
        grid_values, mine = grid.at(rate, self.x, steps), points.at(rate, self.x)
        omega = np.concatenate([grid.omega, points.omega])
        order = np.argsort(omega, kind="stable")
        values = np.concatenate([grid_values.log[:, 0], mine.log[:, 0]])[order]
        slopes = np.concatenate([grid_values.by_omega[:, 0], mine.by_omega[:, 0]])[order]
        vectors = np.concatenate([grid.vectors, points.vectors[:, :, : grid.vectors.shape[2]]], axis=1)[:, order]
        omega = omega[order]
        tops = np.array([i for i in _maxima(values) if values[i] > -0.02][:_TOPS], dtype=int)
        if not len(tops) or self.deadline.over:
            return np.zeros(0), -1.0
        beside = np.clip(tops + np.where(slopes[tops] > 0.0, 1, -1), 0, len(omega) - 1)
        one, other = (np.array([omega[i], values[i], slopes[i]]) for i in (tops, beside))
        best, value, v = one[0], one[1], vectors[:, tops]
        for _ in range(_REFINED):
            at = _summit(one, other)
            found, v = self.axis.triplets(at, rate, self.x, v, 2)
            new = np.array([at, found.log[:, 0], found.by_omega[:, 0]])
            best, value = np.where(new[1] > value, at, best), np.maximum(value, new[1])
            uphill = (new[2] > 0.0) == (one[2] > 0.0)  # the summit lies beyond the new point, seen from ``one``
            one, other = np.where(uphill, new, one), np.where(uphill, other, new)
        missed = (value > tol) & (np.abs(best[:, None] - points.omega[None, :]).min(axis=1) > 0)
        return best[missed], float(value.max())

    def _solve(self, points: _Set, share: float, target: float, most: int) -> float:
        """Return the best share on a set of frequencies, to within ``target`` or after ``most`` steps; update ``x``."""
        now = points.at(self.at(share), self.x)
        if self._hessian is None:
            self._hessian = self._initial(now)
        weight, self._settled = 0.5, False
        for _ in range(most):
            if self.deadline.over:
                break
            values, slopes = self._constraints(now)
            try:
                step, multipliers = _step(self._hessian, values, slopes)
            except np.linalg.LinAlgError:  # rounding has made its way into the updates
                self._hessian = self._initial(now)
                step, multipliers = _step(self._hessian, values, slopes)
            self._price = max(float(multipliers.sum()), 1e-3)
            weight = max(weight, 1.2 * self._price)
            factor = self._factor(step, share)
            before = self.x, share, slopes
            merit = -share + weight * max(0.0, float(values.max()))
            gained = max(float(step @ self._hessian @ step), abs(float(step[-1])))  # as the quadratic program sees it
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
            close = 0.1 * target * max(share, 1e-3)
            self._settled = gained < close and self._price * excess < 5.0 * close
            if self._settled:
                break
        return share

    def _initial(self, now: SingularTriplets) -> Array:
        """Return initial second derivatives."""
        size = 0.4 / max(float(np.abs(now.by_rate * self.span).max()), 1e-9)
        return np.diag(np.append(np.full(len(self.x), size), 1.0))

    def _constraints(self, now: SingularTriplets) -> tuple[Array, Array]:
        """Return logarithms ``(K r,)`` and their derivatives ``(K r, m + 1)`` by ``x`` and the share of the span."""
        by_scale = now.by_scale.reshape(-1, len(self.x))
        return now.log.ravel(), np.column_stack([by_scale, self.span * now.by_rate.ravel()])

    def _factor(self, step: Array, share: float) -> float:
        """Return the share of a step that stays inside the span and near enough for the model."""
        factor = min(1.0, _FAR / max(float(np.abs(step[:-1]).max()), 1e-12))
        room = 0.9 * ((1.0 - share) if step[-1] > 0 else share)
        return min(factor, room / max(abs(float(step[-1])), 1e-12))


def _summit(one: Array, other: Array) -> Array:
    """Return the maximum between two points of the cubic through their values and slopes."""
    width = other[0] - one[0]
    mean = np.where(width != 0.0, (other[1] - one[1]) / np.where(width != 0.0, width, 1.0), 0.0)
    d = one[2] + other[2] - 3.0 * mean
    root = np.sign(width) * np.sqrt(np.maximum(d * d - one[2] * other[2], 0.0))
    curvature = other[2] - one[2] - 2.0 * root
    part = (other[2] - root - d) / np.where(curvature != 0.0, curvature, np.inf)
    inside = np.isfinite(part) & (part > 0.0) & (part < 1.0)
    return other[0] - width * np.where(inside, part, 0.5)


def _maxima(values: Array) -> list[int]:
    """Return the indices of the local maxima of a row of values, the largest first."""
    padded = np.concatenate([[-np.inf], values, [-np.inf]])
    inner = np.flatnonzero((padded[1:-1] >= padded[:-2]) & (padded[1:-1] >= padded[2:]))
    return [int(i) for i in inner[np.argsort(-values[inner])]]


def _step(hessian: Array, values: Array, slopes: Array) -> tuple[Array, Array]:
    """Minimize ``d^T H d / 2 - d_last`` with ``values + slopes d <= 0``; also return the constraints' multipliers.

    With ``H = L L^T`` the dual is a non-negative least squares problem in the multipliers.

    Raises:
        LinAlgError: no factorization, numbers that are not finite, or too many iterations.
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
    root = np.linalg.cholesky(gram)
    try:
        weights, _ = nnls(root.T, solve_triangular(root, right, lower=True), maxiter=20 * len(right) + 100)
    except (RuntimeError, ValueError) as error:  # too many iterations, or numbers that are not finite
        raise np.linalg.LinAlgError(str(error)) from error
    step = solve_triangular(L, aim - rows.T @ weights, lower=True, trans=1)
    step[:-1] -= step[:-1].mean()  # a common factor of all scales changes nothing
    multipliers = np.zeros(len(values))
    multipliers[active] = weights
    return step, multipliers


def _updated(hessian: Array, step: Array, change: Array) -> Array:
    """Apply Powell's damped BFGS update."""
    image = hessian @ step
    curved, projected = float(step @ image), float(step @ change)
    if not curved > 0.0:
        return hessian
    part = 1.0 if projected >= 0.2 * curved else 0.8 * curved / (curved - projected)
    change = part * change + (1.0 - part) * image
    return hessian - np.outer(image, image) / curved + np.outer(change, change) / float(step @ change)
