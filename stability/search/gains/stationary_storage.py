r"""Gain to the output at one time, by optimization of multipliers through the Riccati equation.

For positive numbers :math:`\tau` (``1 / (2 L)``) the least ellipsoid ``Q`` that holds what inputs of size one can reach
is the stabilizing solution of a Riccati equation (of the transposed loop), and every ``z^T Q z`` is convex in the
multipliers. With the feedback ``U`` of the equation, ``J = A + U^T C`` and ``W`` from one linear equation,

.. math:: W = J^T W J + z z^T \;\;(\text{or } J^T W + W J + z z^T = 0), \qquad
          \frac{\partial\, z^T Q z}{\partial \tau_i} = (B + U^T D)_i^T W (B + U^T D)_i - (U W U^T)_{ii}.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from stability.kernel.systems.channels import close_loop
from stability.kernel.systems.lure import LureSystem
from stability.search.gains.gain_objective import GainObjective
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.descent import minimize_lbfgs
from stability.search.solvers.loop_transformation import centered_loop
from stability.search.solvers.rates import shift_factor
from stability.search.solvers.riccati import bounded_real
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_STEPS, _TOL = 40, 3e-4  # descent steps, and tolerance of the gain's logarithm
_FACTORS = 10.0 ** np.arange(0, 10)
_DOUBLINGS = 50
_BARRIERS = (0.03, 0.003)
"""Weights of the barrier ``-log det(1 - S_NN / tau) / m``, which keeps the search inside the admissible multipliers;
the remaining relative excess over the smallest gain is half of the last one.
"""
_SLACKS = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)  # slacks of a proof that are tried in turn


class StationarySearch:
    """Search for one system, output and growth.

    Args:
        system: the system.
        matrices: ``E``, ``F`` and ``H``.
        growth: ``rho`` or ``lambda`` of the storage.
        pairs: whether pairs of outputs are aimed at.
        deadline: checked before each step.
    """

    def __init__(
        self, system: LureSystem, matrices: tuple[Array, Array, Array], growth: float, pairs: bool, deadline: Deadline
    ) -> None:
        E, F, H = matrices
        middle, radius = 0.5 * (system.alpha + system.beta), 0.5 * (system.beta - system.alpha)
        output = close_loop(system.D, middle, E)
        self.unshift, self.deadline, self.aim = shift_factor(system, growth), deadline, GainObjective(H, pairs)
        self.barrier = 0.0
        self.loop = centered_loop(system).shifted(growth)
        self.into = (F + (system.B * middle) @ output) / math.sqrt(self.unshift)
        self.direct = radius[:, None] * output

    def best(self, delta: Array) -> Iterator[tuple[Array, Array]]:
        """Yield ``P`` and ``L`` of the smallest gain, up to a common factor, with increasing slack.

        Args:
            delta: ``(m,)`` scales that prove the loop stable: where to start.

        Yields:
            The candidates, tightest first.
        """
        start = self._start(delta)
        if start is None:
            return
        value, log = math.inf, start
        aims = self.aim.sharper()
        for aim, barrier in ((aims[0], _BARRIERS[0]), (aims[-1], _BARRIERS[1])):
            self.aim, self.barrier = aim, barrier / max(len(delta), 1)
            value, log = minimize_lbfgs(self._objective, log, steps=_STEPS, tol=_TOL, deadline=self.deadline)
        tau = np.exp(log)
        for slack in _SLACKS if math.isfinite(value) else ():
            Q = self.ellipsoid(tau, slack)
            if Q is not None:
                P = np.linalg.inv(Q)
                yield 0.5 * (P + P.T), 0.5 * self.unshift / tau

    def _start(self, delta: Array) -> Array | None:
        """Return logarithms of multipliers with a finite gain, proportional to the given ones."""
        shape = -2.0 * np.log(delta)
        if not len(delta):
            return shape if math.isfinite(self._objective(shape)[0]) else None
        reached = (np.linalg.norm(self.into) * np.linalg.norm(self.loop.C) + np.linalg.norm(self.direct)) ** 2
        shape += math.log(1e-4 * float(reached) * float((delta * delta).max()) + 1e-300)
        best: tuple[float, Array | None] = (math.inf, None)
        for factor in _FACTORS:
            value = self._objective(shape + math.log(factor))[0]
            if value < best[0]:
                best = value, shape + math.log(factor)
            elif math.isfinite(best[0]):
                break
        return best[1]

    def ellipsoid(self, tau: Array, slack: float = 1e-9) -> Array | None:
        """Return ``Q`` of multipliers, if it exists."""
        root, loop = np.sqrt(tau), self.loop
        B, C = np.hstack([loop.B * root, self.into]), loop.C / root[:, None]
        D = np.hstack([loop.D * root, self.direct]) / root[:, None]
        dual = StateSpace(loop.A.T, C.T, B.T, D.T, loop.is_discrete)
        return bounded_real(dual, slack, deadline=self.deadline)

    def _objective(self, log: Array) -> tuple[float, Array | None]:
        with np.errstate(all="ignore"):
            tau = np.exp(log)
            try:
                Q = self.ellipsoid(tau)
                if Q is None:
                    return math.inf, None
                value, z = self.aim.of(Q)
                room, slopes = self._slopes(Q, tau, z)
                value -= self.barrier * room
            except (np.linalg.LinAlgError, ValueError):
                return math.inf, None
        if not (math.isfinite(value) and np.isfinite(slopes).all()):
            return math.inf, None
        return value, slopes * tau

    def _slopes(self, Q: Array, tau: Array, z: Array) -> tuple[float, Array]:
        """Return ``log det`` of the multipliers' remainder, and the derivatives of objective and barrier."""
        A, B, C, D = self.loop.matrices
        if not len(tau):
            return 0.0, np.zeros(0)
        outputs, states = C @ Q, (A if self.loop.is_discrete else np.eye(len(A)))
        cross = outputs @ states.T + self.direct @ self.into.T + (D * tau) @ B.T
        room = np.diag(tau) - self.direct @ self.direct.T - (D * tau) @ D.T
        if self.loop.is_discrete:
            room -= outputs @ C.T
        factor = cho_factor(room)
        feedback, inverse = cho_solve(factor, cross), cho_solve(factor, np.eye(len(tau)))
        square = z @ z.T + (self.barrier * C.T @ inverse @ C if self.loop.is_discrete else 0.0)
        weight = _summed(A + feedback.T @ C, square, self.loop.is_discrete)
        out, back = B + feedback.T @ D, weight @ feedback.T
        gradient = np.diagonal(inverse) - (D * (inverse @ D)).sum(axis=0) - 1.0 / tau
        slopes = ((weight @ out) * out).sum(axis=0) - (feedback.T * back).sum(axis=0) - self.barrier * gradient
        return float(2.0 * np.log(np.diagonal(factor[0])).sum() - np.log(tau).sum()), slopes


def _summed(J: Array, square: Array, discrete: bool) -> Array:
    """Solve ``W = J^T W J + Z`` or ``J^T W + W J + Z = 0`` for a stable ``J``, by doubling.

    Raises:
        numpy.linalg.LinAlgError: it does not converge.
    """
    if not discrete:
        shift = float(np.linalg.norm(J)) / math.sqrt(len(J)) + 1e-300
        inverse = np.linalg.inv(shift * np.eye(len(J)) - J)
        J, square = (J + shift * np.eye(len(J))) @ inverse, 2.0 * shift * inverse.T @ square @ inverse
    total = square
    for _ in range(_DOUBLINGS):
        more = J.T @ total @ J
        total = total + more
        if not np.abs(more).max() > 1e-12 * np.abs(total).max():
            return total
        J = J @ J
    raise np.linalg.LinAlgError("the closed loop is not stable")
