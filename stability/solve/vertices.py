r"""One metric for all vertices of a few slopes: an interior-point method for its inequalities.

For a vertex ``v`` of the slopes of a few channels ``S`` let :math:`A_v = A + B_S v C_S`; the other channels, ``R``,
keep their intervals and have multipliers of their own at every vertex. Sought are one ``P`` and ``L_v`` with

.. math:: F_v = \rho^2 E^T P E - G_v^T P G_v + \sum_i L_{v,i}\,(a_i b_i^T + b_i a_i^T) > 0, \qquad
          G_v = [A_v\; B_R],\; E = [I\; 0],\; a_i = e_i - \alpha_i c_i,\; b_i = e_i - \beta_i c_i

(in continuous time :math:`-E^T P G_v - G_v^T P E - 2 \lambda E^T P E` in front). Minimised is ``tau`` under
:math:`F_v + \tau E^T E > 0`, ``0 < P < I``, ``tr P = n / 2``, ``L > 0``, by Newton's method on
:math:`\kappa \tau - \sum \log\det` for larger and larger :math:`\kappa`, until ``tau`` is negative, or kept
positive by the gap :math:`\nu / \kappa`. The Hessian by ``P`` is a sum of Kronecker products, those by ``L_v`` are
eliminated: ``O(2^s n^4 + n^6)`` a step.

Source:
    S. Boyd, L. Vandenberghe, "Convex Optimization" (2004), chapter 11.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np

from stability.solve.deadline import Deadline
from stability.systems import LureSystem

Array = np.ndarray
SHARPER = 8.0
"""The factor between two values of ``kappa``."""
MOST_STEPS = 70
_TINY = 1e-9


@dataclass(eq=False)
class _Block:
    """The inequality of one vertex: ``sum_k c_k U_k^T P V_k``, the multipliers' terms, ``tau`` on the states."""

    a: Array
    b: Array
    L: Array
    terms: tuple[tuple[float, Array, Array], ...] = field(default=())

    def matrix(self, P: Array, L: Array, tau: float) -> Array:
        out = sum(c * (u.T @ P @ v) for c, u, v in self.terms) + (self.a * L) @ self.b.T + (self.b * L) @ self.a.T
        states = np.diag_indices(len(P))
        out[states] += tau
        return 0.5 * (out + out.T)


class CommonMetric:
    """The inequalities of all vertices at one rate, and the best point so far.

    Args:
        system: without feedthrough.
        split: the channels whose slopes go to their ends.
        rate: ``rho`` of a map, ``lambda`` of a flow.
        deadline: asked before every step.
    """

    def __init__(self, system: LureSystem, split: tuple[int, ...], rate: float, deadline: Deadline) -> None:
        n = system.states
        self.system, self.split, self.rate, self.deadline = system, split, rate, deadline
        self.rest = np.setdiff1d(np.arange(system.channels), split)
        self.P, self.steps = 0.5 * np.eye(n), 0
        self.blocks = self._blocks(np.full(system.channels, 1.0 + float(np.linalg.norm(system.B, 2)) ** 2))
        rows, columns = np.triu_indices(n)
        self._upper, self._twice = (rows, columns), np.where(rows == columns, 1.0, 2.0)
        self.tau = 0.1
        while self._barrier(self.P, [k.L for k in self.blocks], self.tau) is None and self.tau < 1e12:
            self.tau *= 2.0

    def _blocks(self, L: Array) -> list[_Block]:
        system, n, chosen = self.system, self.system.states, list(self.split)
        self.E = np.eye(n, n + len(self.rest))
        channels = np.zeros((n + len(self.rest), len(self.rest)))
        channels[:n] = system.C[self.rest].T
        own = np.eye(n + len(self.rest))[:, n:]
        a, b = own - system.alpha[self.rest] * channels, own - system.beta[self.rest] * channels
        ends = itertools.product(*((float(system.alpha[c]), float(system.beta[c])) for c in chosen))
        self.vertices = np.array(list(ends)).reshape(2 ** len(chosen), len(chosen))
        blocks = []
        for v in self.vertices:
            G = np.hstack([system.A + (system.B[:, chosen] * v) @ system.C[chosen], system.B[:, self.rest]])
            if system.is_discrete:
                terms: tuple[tuple[float, Array, Array], ...] = ((self.rate**2, self.E, self.E), (-1.0, G, G))
            else:
                shifted = -G - self.rate * self.E
                terms = ((1.0, self.E, shifted), (1.0, shifted, self.E))
            blocks.append(_Block(a, b, L[self.rest].copy(), terms))
        return blocks

    def solve(self) -> bool:
        """Whether a point is found at which every inequality holds; ``P`` and the multipliers are then there."""
        nu = float(2 * len(self.P) + sum(len(k.a) + len(k.L) for k in self.blocks))
        kappa = nu / max(self.tau, 1e-6)
        while self.steps < MOST_STEPS and not self.deadline.over:
            if not self._centre(kappa) or self.tau < -_TINY:
                break
            if self.tau - 1.5 * nu / kappa > 0.0 or nu / kappa < _TINY:
                break
            kappa *= SHARPER
        return self.tau < -_TINY

    def _centre(self, kappa: float) -> bool:
        """Newton's method towards the centre; false where it does not get on."""
        value = self._value(self.P, [k.L for k in self.blocks], self.tau, kappa)
        while self.steps < MOST_STEPS and not self.deadline.over and value is not None:
            self.steps += 1
            try:
                dP, dtau, dL, fall = self._newton(kappa)
            except np.linalg.LinAlgError:
                return False
            if not np.isfinite(fall) or fall < 0:
                return False
            length = 1.0
            while True:
                P, L = self.P + length * dP, [k.L + length * d for k, d in zip(self.blocks, dL)]
                new = self._value(P, L, self.tau + length * dtau, kappa)
                if new is not None and new <= value - 0.1 * length * fall:
                    break
                length *= 0.5
                if length < 1e-7:
                    return fall < 1.0
            self.P, self.tau, value = P, self.tau + length * dtau, new
            for block, own in zip(self.blocks, L):
                block.L = own
            if fall < 0.5 or self.tau < -_TINY:
                return True
        return False

    def _value(self, P: Array, L: list[Array], tau: float, kappa: float) -> float | None:
        inside = self._barrier(P, L, tau)
        return None if inside is None else inside + kappa * tau

    def _barrier(self, P: Array, L: list[Array], tau: float) -> float | None:
        """Minus the logarithms of all determinants, or ``None`` outside."""
        if any((own <= 0).any() for own in L):
            return None
        value = -sum(float(np.log(own).sum()) for own in L)
        for matrix in (P, np.eye(len(P)) - P, *(k.matrix(P, own, tau) for k, own in zip(self.blocks, L))):
            try:
                value -= 2.0 * float(np.log(np.diagonal(np.linalg.cholesky(matrix))).sum())
            except np.linalg.LinAlgError:
                return None
        return value if np.isfinite(value) else None

    def _vector(self, matrix: Array) -> Array:
        """Derivative by the entries on and above the diagonal, from the derivative by a full matrix."""
        return 0.5 * (matrix + matrix.T)[self._upper] * self._twice

    def _newton(self, kappa: float) -> tuple[Array, float, list[Array], float]:
        """Newton's step in ``P``, ``tau`` and the multipliers, and its squared decrement."""
        n = len(self.P)
        inverse, other = np.linalg.inv(self.P), np.linalg.inv(np.eye(n) - self.P)
        full = _kronecker(inverse, inverse) + _kronecker(other, other)
        gradient = np.append(self._vector(other - inverse), kappa)
        mixed, both, eliminated = np.zeros((n, n)), 0.0, []
        for block in self.blocks:
            X = np.linalg.inv(block.matrix(self.P, block.L, self.tau))
            X = 0.5 * (X + X.T)
            top = X[:n]
            gradient[:-1] -= self._vector(np.sum([c * (v @ X @ u.T) for c, u, v in block.terms], axis=0))
            gradient[-1] -= float(np.trace(X[:n, :n]))
            both += float((X[:n, :n] ** 2).sum())
            mixed += sum(c * (v @ top.T) @ (top @ u.T) for c, u, v in block.terms)
            for c, u, v in block.terms:
                for c2, u2, v2 in block.terms:
                    full += (c * c2) * _kronecker(v @ X @ u2.T, v2 @ X @ u.T)
            eliminated.append(self._of_multipliers(block, X))
        half = full + full.transpose(1, 0, 2, 3)
        half = 0.25 * (half + half.transpose(0, 1, 3, 2))
        i, j = self._upper
        H = np.empty((len(i) + 1, len(i) + 1))
        H[:-1, :-1] = half[i, j][:, i, j] * np.outer(self._twice, self._twice)
        H[:-1, -1] = H[-1, :-1] = self._vector(mixed)
        H[-1, -1] = both
        right = -gradient
        for factor, slope, rows in eliminated:
            w, s = np.linalg.solve(factor, rows), np.linalg.solve(factor, slope)
            H, right = H - w.T @ w, right + w.T @ s
        trace = np.append(1.0 * (i == j), 0.0)
        step, along = np.linalg.solve(H, np.column_stack([right, trace])).T
        step = step - float(trace @ step) / float(trace @ along) * along  # the trace stays
        multipliers = [-np.linalg.solve(f.T, np.linalg.solve(f, slope + rows @ step)) for f, slope, rows in eliminated]
        fall = -float(gradient @ step) - sum(float(e[1] @ d) for e, d in zip(eliminated, multipliers))
        dP = np.zeros((n, n))
        dP[i, j] = step[:-1]
        return dP + np.triu(dP, 1).T, float(step[-1]), multipliers, fall

    def _of_multipliers(self, block: _Block, X: Array) -> tuple[Array, Array, Array]:
        """Of one vertex's multipliers: factor of the Hessian, gradient, mixed derivatives with ``P`` and ``tau``."""
        n = len(self.P)
        xa, xb = X @ block.a, X @ block.b
        aa, bb, ab = block.a.T @ xa, block.b.T @ xb, block.a.T @ xb
        own = 2.0 * (aa * bb + ab * ab.T) + np.diag(block.L**-2.0)
        slope = -2.0 * np.diagonal(ab) - 1.0 / block.L
        cross = np.zeros((len(block.L), n, n))
        for c, u, v in block.terms:
            va, vb, ua, ub = v @ xa, v @ xb, u @ xa, u @ xb
            cross += c * (va.T[:, :, None] * ub.T[:, None, :] + vb.T[:, :, None] * ua.T[:, None, :])
        rows = 0.5 * (cross + cross.transpose(0, 2, 1))[:, self._upper[0], self._upper[1]] * self._twice
        with_tau = 2.0 * (xa[:n] * xb[:n]).sum(axis=0)
        return np.linalg.cholesky(own), slope, np.column_stack([rows, with_tau])

    def multipliers(self) -> Array:
        """``(2^s, m)``: those of each vertex, zero at the channels that are split."""
        out = np.zeros((len(self.blocks), self.system.channels))
        out[:, self.rest] = [block.L for block in self.blocks]
        return out

    def loose(self) -> Array:
        """By how much each channel that is not split speaks against the inequality, ``(m,)``, zero at split ones.

        It chooses what is split next and proves nothing: numbers beyond the range of floats count as none.
        """
        out = np.zeros(self.system.channels)
        with np.errstate(all="ignore"):
            for block in self.blocks:
                values, vectors = np.linalg.eigh(block.matrix(self.P, block.L, self.tau))
                out[self.rest] += block.L * (np.abs((block.a.T @ vectors) * (block.b.T @ vectors)) / values).sum(axis=1)
        return np.nan_to_num(out, nan=0.0, posinf=0.0, neginf=0.0)


def _kronecker(R: Array, S: Array) -> Array:
    """The Hessian of ``tr(dP R dP' S)``, ``(n, n, n, n)``."""
    return np.multiply.outer(R, S).transpose(3, 0, 1, 2)  # [a, b, c, d] = R[b, c] S[d, a]
