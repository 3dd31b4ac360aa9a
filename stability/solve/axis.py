r"""Leading singular triplets of a scaled loop at many points of its axis at once, with their derivatives.

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

from stability.solve.deadline import Deadline
from stability.systems.statespace import StateSpace

Array = np.ndarray
_SKEWED = 1e8
"""Eigenvectors of a larger condition number (in the Frobenius norm) do not serve."""


@dataclass(frozen=True, eq=False)
class Triplets:
    """At ``K`` points of the axis, ``r`` singular values each, the largest first.

    Attributes:
        log: ``(K, r)`` logarithms of the singular values.
        by_scale: ``(K, r, m)`` their derivatives by the logarithms of the scales.
        by_rate: ``(K, r)`` their derivatives by the rate.
    """

    log: Array
    by_scale: Array
    by_rate: Array


class Axis:
    """The transfer matrix of a loop, its points and the vectors that belong to them.

    Args:
        loop: the centred loop, unshifted, with channels.
        block: singular values at a point.
        deadline: asked before each power step; triplets after fewer steps are as good a proposal.

    Cost:
        One eigenproblem; then ``16 n m K r`` complex multiplications a power step; memory ``16 (n + m) K r`` bytes.
    """

    def __init__(self, loop: StateSpace, block: int = 5, deadline: Deadline | None = None) -> None:
        self.deadline = deadline or Deadline()
        self.is_discrete, self.D = loop.is_discrete, loop.D
        self.poles, X = np.linalg.eig(loop.A)
        inverse = np.linalg.inv(X)
        self.usable = bool(np.linalg.norm(X) * np.linalg.norm(inverse) < _SKEWED * loop.states)
        self.B, self.C = inverse @ loop.B, loop.C @ X
        self.block = min(block, loop.channels)
        self._direct = bool(self.D.any())

    def point(self, omega: Any) -> Any:
        """``i omega`` or ``exp(i omega)``."""
        return np.exp(1j * omega) if self.is_discrete else 1j * omega

    def start(self, count: int) -> Array:
        """``(m, count, r)``: vectors to start from."""
        shape = (self.B.shape[1], count, self.block)
        rng = np.random.default_rng(0)
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)

    def triplets(self, omega: Array, rate: float, x: Array, v: Array, steps: int) -> tuple[Triplets, Array]:
        """Triplets after some power steps.

        Args:
            omega: ``(K,)``.
            rate: ``lambda`` or ``rho``.
            x: ``(m,)`` logarithms of the scales.
            v: ``(m, K, r)`` vectors of a call before, or ``start``; they are not changed.
            steps: block power steps; the first call at a point takes about eight, one from near by two.

        Returns:
            The triplets, and the right vectors for the next call.
        """
        points = self.point(omega)
        resolvent = (1.0 / ((rate * points if self.is_discrete else points - rate) - self.poles[:, None]))[:, :, None]
        delta = np.exp(np.clip(x, -300.0, 300.0))[:, None, None]
        v = _orthonormal(v)
        for _ in range(steps):
            if self.deadline.over:
                break
            u, _, _, _ = self._image(v, resolvent, delta)
            v = _orthonormal(self._back(u, resolvent, delta)[0])
        u, sigma, turn, inner = self._image(v, resolvent, delta)
        v, inner = _turned(v, turn), _turned(inner, turn)
        outer = self._back(u, resolvent, delta)[1]
        slope = -np.einsum("nkr,nkr->kr", outer.conj(), inner)
        towards = points[:, None] if self.is_discrete else -1.0
        by_scale = (np.abs(u) ** 2 - np.abs(v) ** 2).transpose(1, 2, 0)
        return Triplets(np.log(sigma), by_scale, np.real(towards * slope) / sigma), v

    def _image(self, v: Array, resolvent: Array, delta: Array) -> tuple[Array, Array, Array, Array]:
        """``u``, ``sigma`` and the rotation ``W`` of ``M v = u sigma W^H``, and ``(s I - Lambda)^{-1} B v``."""
        w = v / delta
        inner = resolvent * _product(self.B, w)
        y = delta * (_product(self.C, inner) + _product(self.D, w) if self._direct else _product(self.C, inner))
        values, turn = np.linalg.eigh(_gram(y))
        values, turn = values[:, ::-1], turn[:, :, ::-1]
        sigma = np.sqrt(np.maximum(values, 1e-300))
        return _turned(y, turn) / sigma, sigma, turn, inner

    def _back(self, u: Array, resolvent: Array, delta: Array) -> tuple[Array, Array]:
        """``M^H u``, and ``(s I - Lambda)^{-H} C^H Delta u``."""
        w = delta * u
        outer = resolvent.conj() * _product(self.C.conj().T, w)
        z = _product(self.B.conj().T, outer)
        return (z + _product(self.D.T, w) if self._direct else z) / delta, outer


def _product(matrix: Array, blocks: Array) -> Array:
    """One product for all blocks ``(m, K, r)``."""
    return (matrix @ blocks.reshape(len(blocks), -1)).reshape(len(matrix), *blocks.shape[1:])


def _gram(y: Array) -> Array:
    """``(K, r, r)``."""
    y = y.transpose(1, 2, 0)
    return y.conj() @ y.transpose(0, 2, 1)


def _turned(y: Array, turn: Array) -> Array:
    """Every block times its own matrix ``(K, r, r)``."""
    return (y.transpose(1, 0, 2) @ turn).transpose(1, 0, 2)


def _orthonormal(z: Array) -> Array:
    values, turn = np.linalg.eigh(_gram(z))
    least = 1e-14 * values[:, -1:] + 1e-300
    return _turned(z, turn / np.sqrt(np.maximum(values, least))[:, None, :])
