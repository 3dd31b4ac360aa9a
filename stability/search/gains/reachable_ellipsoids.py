r"""Reachable ellipsoids under inputs of bounded energy, as functions of the multipliers.

In the centered loop ``x+ = A x + F u + B p``, ``q = C x + E u + D p``, ``|p_i| <= |q_i|``, started from rest, positive
numbers :math:`\tau_t` (``1 / (2 L_t)``) give matrices with :math:`x_t x_t^T \preceq Q_t \sum_{s<t} |u_s|^2`:

.. math:: Q_{t+1} = S_{MM} + S_{MN} (\tau_t - S_{NN})^{-1} S_{NM}, \qquad
          S = \begin{bmatrix} N \\ M \end{bmatrix} \mathrm{blkdiag}(Q_t, I, \tau_t)
              \begin{bmatrix} N \\ M \end{bmatrix}^T, \quad N = [C\; E\; D], \; M = [A\; F\; B],

if :math:`\tau_t - S_{NN} > 0`. Every ``z^T Q_T z`` is jointly convex in all multipliers (a supremum of affine
functions), and its gradient costs one backward pass of vectors. For the gain to the whole output sequence, ``Q_t`` is
first enlarged to :math:`(Q_t^{-1} - \epsilon H^T H)^{-1}`, where the price :math:`\epsilon` weights the output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import get_lapack_funcs

from stability.kernel.systems.channels import close_loop
from stability.kernel.systems.lure import LureSystem
from stability.search.solvers.loop_transformation import centered_loop

Array = np.ndarray
_POTRF, _POTRI = get_lapack_funcs(("potrf", "potri"), dtype=np.float64)
_DOUBLINGS, _SWEEPS = 40, 24  # most doublings of initial multipliers, and sweeps for multipliers of dependent channels
_LEAST = 1e-8
"""Smallest initial multiplier, relative to the effect of the input in the step."""


Spread = tuple[Array, Array]
"""Blocks of ``S`` up to symmetry: ``[S_NN S_NM] (m, m + n)`` and ``S_MM (n, n)``."""


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """Final ellipsoid of a forward pass, and the matrices of all steps for the backward pass.

    Attributes:
        Q: ``(n, n)``, final reachable ellipsoid.
        feedback: ``(m, n)`` per step, ``(tau - S_NN)^{-1} S_NM``.
        wider: ``(k, n)`` per step, ``price`` times ``H Q`` after the enlargement, or ``None``; the backward pass maps
            ``z`` to ``z + H^T wider z``.
        price: weight of the outputs before the last.
    """

    Q: Array
    feedback: list[Array]
    wider: list[Array | None]
    price: float


class ReachableEllipsoids:
    """Ellipsoid recursion of a system with inputs.

    Args:
        system: the map.
        E: ``(m, p)`` input to channel.
        F: ``(n, p)`` input to state.
        H: ``(k, n)`` state to output.
        slack: relative enlargement of every set, which the storage functions of a proof need for rounding errors.
    """

    def __init__(self, system: LureSystem, E: Array, F: Array, H: Array, slack: float = 1e-5) -> None:
        middle, radius = 0.5 * (system.alpha + system.beta), 0.5 * (system.beta - system.alpha)
        output, loop = close_loop(system.D, middle, E), centered_loop(system)
        self.n, self.m, self.H, self.slack = system.states, system.channels, H, slack
        self.A, self.B, self.C, self.D = loop.matrices
        through = np.vstack([radius[:, None] * output, F + (system.B * middle) @ output])
        self.states, self.inputs = np.vstack([self.C, self.A]), through @ through.T
        self.channels = np.vstack([self.D, self.B])
        self.direct = bool(self.D.any())

    def spread(self, Q: Array, tau: Array | None) -> Spread:
        """Return ``S`` for an ellipsoid; with ``tau = None`` without the part of the multipliers."""
        m, half = self.m, self.states @ Q
        S = self.inputs[:m] + half[:m] @ self.states.T, self.inputs[m:, m:] + half[m:] @ self.A.T
        return S if tau is None else self._with_channels(S, tau)

    def _with_channels(self, S: Spread, tau: Array) -> Spread:
        block = S[0] + (self.D * tau) @ self.channels.T if self.direct else S[0]
        return block, S[1] + (self.B * tau) @ self.B.T

    def step(self, S: Spread, tau: Array) -> tuple[Array, Array] | None:
        """Return the next ellipsoid and the feedback from ``S``; ``None`` if the multipliers are too small."""
        (channels, states), m = S, self.m
        if not m:
            return self._enlarged(states), np.zeros((0, self.n))
        room = -channels[:, :m]
        _diagonal(room)[:] += tau
        inverse = _inverse(room)
        if inverse is None:
            return None
        feedback = inverse @ channels[:, m:]
        return self._enlarged(states + channels[:, m:].T @ feedback), feedback

    def _enlarged(self, Q: Array) -> Array:
        Q *= 1.0 + self.slack
        _diagonal(Q)[:] *= 1.0 + self.slack
        return Q

    def through(self, tau: Array, price: float = 0.0) -> ForwardPass | None:
        """Propagate the ellipsoid through all steps.

        Args:
            tau: ``(T, m)``.
            price: weight ``epsilon`` of the squared outputs before the last; zero for the gain to the last output.

        Returns:
            The result of the pass, or ``None`` if a multiplier is too small or the price too large.
        """
        Q, feedback, wider = np.zeros((self.n, self.n)), [], []
        for t, row in enumerate(tau):
            turn = None
            if price and t:
                widened = self._widened(Q, price)
                if widened is None:
                    return None
                Q, turn = widened
            ellipsoid = self.step(self.spread(Q, row), row)
            if ellipsoid is None or not np.isfinite(ellipsoid[0]).all():
                return None
            Q = ellipsoid[0]
            feedback.append(ellipsoid[1])
            wider.append(turn)
        return ForwardPass(Q, feedback, wider, price)

    def _widened(self, Q: Array, price: float) -> tuple[Array, Array] | None:
        """Return ``(Q^{-1} - price H^T H)^{-1}`` and its ``wider`` (see ``ForwardPass``)."""
        output = self.H @ Q
        inverse = _inverse(np.eye(len(self.H)) - price * (output @ self.H.T))
        if inverse is None:
            return None
        middle = price * (inverse @ output)
        return Q + output.T @ middle, middle

    def slopes(self, passage: ForwardPass, z: Array) -> tuple[Array, float]:
        """Return derivatives of ``sum_j z_j^T Q_T z_j``.

        Args:
            passage: result of the forward pass.
            z: ``(n, k)``.

        Returns:
            Derivatives ``(T, m)`` by the multipliers, and the derivative by the price.
        """
        by_tau, by_price = np.empty((len(passage.feedback), self.m)), 0.0
        for t in range(len(by_tau) - 1, -1, -1):
            z = math.sqrt(1.0 + self.slack) * z
            back = passage.feedback[t] @ z
            out = self.B.T @ z + self.D.T @ back if self.direct else self.B.T @ z
            by_tau[t] = (out * out).sum(axis=1) - (back * back).sum(axis=1)
            z = self.A.T @ z + self.C.T @ back
            turn = passage.wider[t]
            if turn is not None:
                turned = turn @ z
                by_price += float((turned * turned).sum()) / passage.price**2
                z = z + self.H.T @ turned
        return by_tau, by_price

    def start(self, steps: int) -> Array:
        """Return initial multipliers ``(T, m)``, which are nearly optimal for each step alone."""
        tau, Q = np.empty((steps, self.m)), np.zeros((self.n, self.n))
        weight = self.H.T @ self.H
        weight[np.diag_indices(self.n)] += 1e-3 * np.trace(weight) / self.n + 1e-300
        size = np.maximum(np.einsum("ji,jk,ki->i", self.B, weight, self.B), 1e-300)
        for t in range(steps):
            S, ellipsoid = self.spread(Q, None), None
            base = self._greedy(S, weight, size)
            for _ in range(_DOUBLINGS):
                tau[t] = self._room_for_direct(base)
                ellipsoid = self.step(self._with_channels(S, tau[t]), tau[t])
                if ellipsoid is not None:
                    break
                base *= 2.0
            if ellipsoid is None:
                tau[t:] = np.inf
                break
            Q = ellipsoid[0]
        return tau

    def _greedy(self, S: Spread, weight: Array, size: Array) -> Array:
        """Return multipliers that nearly minimize the next ellipsoid, weighted by ``weight``."""
        m = self.m
        if not m:
            return np.zeros(0)
        cross, reach = S[0][:, m:], np.diagonal(S[0])
        pull = np.maximum(np.einsum("ij,jk,ik->i", cross, weight, cross), 0.0)
        root = np.sqrt(np.maximum(reach, 1e-300))
        most = float(np.linalg.eigvalsh(S[0][:, :m] / root[:, None] / root)[-1])
        floor = _LEAST * (float((weight * S[1]).sum()) / self.n / size + float(reach.max())) + 1e-150
        return np.maximum(1.01 * most * reach + np.sqrt(pull / size), floor)

    def _room_for_direct(self, base: Array) -> Array:
        """Return multipliers that exceed ``D tau D^T`` by the given ones, if channels read each other."""
        tau = base.copy()
        for _ in range(_SWEEPS if self.direct else 0):
            before, tau = tau, base + 1.01 * np.abs((self.D * tau) @ self.D.T).sum(axis=1)
            if (tau == before).all():  # D has no cycle
                break
        return tau


def _inverse(symmetric: Array) -> Array | None:
    """Return the inverse of a symmetric matrix, given by its lower triangle; ``None`` if not positive definite."""
    root, failed = _POTRF(symmetric, lower=1)
    if failed:
        return None
    half, failed = _POTRI(root, lower=1)
    if failed:
        return None
    half = np.tril(half)
    inverse = half + half.T
    _diagonal(inverse)[:] *= 0.5
    return inverse


def _diagonal(square: Array) -> Array:
    """Return a writable view of the diagonal."""
    return np.einsum("ii->i", square)
