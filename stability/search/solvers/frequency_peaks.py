r"""Leading singular values of a scaled loop along the frequency axis, with derivatives.

In the eigenvectors' coordinates :math:`A = X \Lambda X^{-1}` the resolvent is diagonal, so that one matrix product
serves all frequencies:

.. math:: M_k = \Delta\,\bigl(C X (s_k I - \Lambda)^{-1} X^{-1} B + D\bigr)\,\Delta^{-1}, \qquad
          s_k = i\omega_k - \lambda \quad\text{or}\quad \rho\,e^{i\omega_k}.

Block power steps from the last call's vectors give the triplets :math:`(\sigma, u, v)`; with them

.. math:: \frac{\partial \log\sigma}{\partial \log\Delta_i} = |u_i|^2 - |v_i|^2, \qquad
          \frac{\partial \log\sigma}{\partial s} =
          -\frac{1}{\sigma}\,\mathrm{Re}\,u^H \Delta C (s I - A)^{-2} B \Delta^{-1} v.

All of this only steers: nothing here is a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.search.solvers.deadline import Deadline
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_SKEWED = 1e8
"""Largest usable condition number of the eigenvectors (Frobenius norm)."""
_WHOLE = 16
"""Most channels for computing all singular values."""


def axis_frequencies(poles: Array, discrete: bool, peaks: int, grid: int, span: tuple[float, float]) -> Array:
    """Sample the frequency axis: resonances first, then a logarithmic (continuous) or even (discrete) grid, and zero.

    Args:
        poles: ``(n,)`` eigenvalues of the loop.
        discrete: whether the axis is the unit circle.
        peaks: largest number of resonances.
        grid: number of points of the grid, its ends included.
        span: ends of the logarithmic grid in units of the smallest and the largest pole.

    Returns:
        Sorted frequencies.
    """
    if discrete:
        resonances = np.abs(np.angle(poles[np.argsort(-np.abs(poles))]))[:peaks]
        return np.unique(np.concatenate([resonances, np.linspace(0.0, np.pi, grid)]))
    resonances, size = np.abs(np.imag(poles)[np.argsort(-np.real(poles))])[:peaks], np.abs(poles) + 1e-300
    return np.unique(
        np.concatenate([[0.0], resonances, np.geomspace(span[0] * size.min(), span[1] * size.max(), grid)])
    )


@dataclass(frozen=True, eq=False)
class SingularTriplets:
    """Singular values at ``K`` points of the axis, ``r`` each, the largest first.

    Attributes:
        log: ``(K, r)`` logarithms of the singular values.
        by_scale: ``(K, r, m)`` their derivatives by the logarithms of the scales.
        by_rate: ``(K, r)`` their derivatives by the rate.
        by_omega: ``(K, r)`` their derivatives by the frequency.
    """

    log: Array
    by_scale: Array
    by_rate: Array
    by_omega: Array


class FrequencyAxis:
    """Transfer matrix of a loop, with its points and their vectors.

    Args:
        loop: the centered loop, unshifted, with channels.
        block: singular values at a point.
        deadline: checked before each step; triplets after fewer steps are as good a proposal.

    Cost:
        One eigenproblem; then ``24 n m K r`` complex multiplications a step; memory ``48 (n + m) K r`` bytes.
    """

    def __init__(self, loop: StateSpace, block: int = 5, deadline: Deadline | None = None) -> None:
        self.deadline = deadline or Deadline()
        self.is_discrete, self.D = loop.is_discrete, loop.D
        self.poles, X = np.linalg.eig(loop.A)
        inverse = np.linalg.inv(X)
        self.usable = bool(np.linalg.norm(X) * np.linalg.norm(inverse) < _SKEWED * loop.states)
        self.B, self.C = inverse @ loop.B, loop.C @ X
        self._BH, self._CH = (np.ascontiguousarray(x.conj().T) for x in (self.B, self.C))
        self.block = min(block, loop.channels)
        self._direct = bool(self.D.any())

    def point(self, omega: Any) -> Any:
        """Return ``i omega`` or ``exp(i omega)``."""
        return np.exp(1j * omega) if self.is_discrete else 1j * omega

    def start(self, count: int, block: int | None = None) -> Array:
        """Return orthonormal initial vectors ``(m, count, r)``."""
        shape = (self.B.shape[1], count, self.block if block is None else min(block, self.block))
        rng = np.random.default_rng(0)
        return _orthonormal(rng.standard_normal(shape) + 1j * rng.standard_normal(shape))

    def triplets(self, omega: Array, rate: float, x: Array, v: Array, steps: int) -> tuple[SingularTriplets, Array]:
        """Return triplets from the best vectors of a Krylov space of two blocks, once a step.

        Args:
            omega: ``(K,)``.
            rate: ``lambda`` or ``rho``.
            x: ``(m,)`` logarithms of the scales.
            v: ``(m, K, r)`` orthonormal vectors, of a call before or from ``start``; they are not changed.
            steps: the first call at a point takes about four, one from near by one.

        Returns:
            The triplets, and the right vectors for the next call.
        """
        points = self.point(omega)
        s = self.shifted(points, rate)[:, None]
        resolvent = 1.0 / (s - self.poles[:, None, None])
        scales = [scale[:, None, None] for scale in self.scales(np.clip(x, -300.0, 300.0), rate)]
        r, m = v.shape[2], len(v)
        if m <= _WHOLE:
            v = np.broadcast_to(np.eye(m, dtype=complex)[:, None, :], (m, len(omega), m))
        y, inner = self._image(v, resolvent, *scales)
        for step in range(steps):
            if self.deadline.over or v.shape[2] >= m or (step and 2 * r >= m):
                break
            more = self._back(y, resolvent, *scales)[0]
            for _ in range(2):  # what lies outside the block, to the last digit
                more = more - _turned(v, _gram(v, more))
                more /= np.linalg.norm(more, axis=0) + 1e-300
            more = _orthonormal(more)
            images = self._image(more, resolvent, *scales)
            v, y, inner = (np.concatenate(pair, axis=2) for pair in zip((v, y, inner), (more, *images)))
            turn = _singular(y)[1][:, :, :r]
            v, y, inner = _turned(v, turn), _turned(y, turn), _turned(inner, turn)
        sigma, turn = (z[..., :r] for z in _singular(y))
        v, inner, u = _turned(v, turn), _turned(inner, turn), _turned(y, turn) / sigma
        outer = self._back(u, resolvent, *scales)[1]
        slope = -np.einsum("nkr,nkr->kr", outer.conj(), inner) / sigma
        by_scale = self.by_scale(np.abs(u) ** 2, np.abs(v) ** 2).transpose(1, 2, 0)
        by_omega = np.real(1j * (s if self.is_discrete else 1.0) * slope)
        return SingularTriplets(np.log(sigma), by_scale, self.by_rate(points, v, slope), by_omega), v

    def shifted(self, points: Array, rate: float) -> Array:
        """Return ``s`` at points of the axis, ``(K,)``."""
        return rate * points if self.is_discrete else points - rate

    def scales(self, x: Array, rate: float) -> tuple[Array, Array]:
        """Return the factors of the rows and the divisors of the columns of the transfer matrix."""
        delta = np.exp(x)
        return delta, delta

    def by_scale(self, u: Array, v: Array) -> Array:
        """Return derivatives of the logarithms by ``x``, from the squared vector entries ``(m, K, r)``."""
        return u - v

    def by_rate(self, points: Array, v: Array, slope: Array) -> Array:
        """Return derivatives of the logarithms by the rate, from those by ``s``."""
        return np.real((points[:, None] if self.is_discrete else -1.0) * slope)

    def _image(self, v: Array, resolvent: Array, left: Array, right: Array) -> tuple[Array, Array]:
        """Return ``M v``, and ``(s I - Lambda)^{-1} B v``."""
        w = v / right
        inner = resolvent * _product(self.B, w)
        y = _product(self.C, inner)
        return left * (y + _product(self.D, w) if self._direct else y), inner

    def _back(self, u: Array, resolvent: Array, left: Array, right: Array) -> tuple[Array, Array]:
        """Return ``M^H u``, and ``(s I - Lambda)^{-H} C^H Delta u``."""
        w = left * u
        outer = resolvent.conj() * _product(self._CH, w)
        z = _product(self._BH, outer)
        return (z + _product(self.D.T, w) if self._direct else z) / right, outer


def _product(matrix: Array, blocks: Array) -> Array:
    """Multiply a matrix by all blocks ``(m, K, r)``."""
    return (matrix @ blocks.reshape(len(blocks), -1)).reshape(len(matrix), *blocks.shape[1:])


def _gram(x: Array, y: Array) -> Array:
    """Return ``x^H y`` of blocks: ``(K, r, s)``."""
    return x.transpose(1, 2, 0).conj() @ y.transpose(1, 0, 2)


def _turned(y: Array, turn: Array) -> Array:
    """Multiply every block by its own matrix ``(K, r, s)``."""
    return (y.transpose(1, 0, 2) @ turn).transpose(1, 0, 2)


def _singular(y: Array) -> tuple[Array, Array]:
    """Return singular values ``(K, r)`` of blocks, the largest first, and the right singular vectors."""
    values, turn = np.linalg.eigh(_gram(y, y))
    least = 1e-24 * values[:, -1:] + 1e-300  # beyond the rank there is no direction
    return np.sqrt(np.maximum(values[:, ::-1], least)), turn[:, :, ::-1]


def _orthonormal(z: Array) -> Array:
    values, turn = np.linalg.eigh(_gram(z, z))
    least = 1e-14 * values[:, -1:] + 1e-300
    return _turned(z, turn / np.sqrt(np.maximum(values, least))[:, None, :])
