"""Search for a region of attraction: an ellipsoid of initial states from which a control loop returns to zero.

One semidefinite program finds the largest ellipsoid for given bounds of the pre-activations. A pattern search in these
bounds widens it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import solve_continuous_lyapunov, solve_discrete_lyapunov

from stability.arguments import as_vector
from stability.errors import ConfigurationError
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.reachability.ellipsoid_region import ellipsoid_reach, through_loop
from stability.kernel.systems.driven import ControlLoop
from stability.kernel.systems.lure import LureSystem
from stability.proposals import accepted_claim
from stability.search.counterexamples.eigenvalue_gradient import stability_excess
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.semidefinite import pose_attraction

Array = np.ndarray
_ATTEMPTS = 120
"""Most semidefinite programs of one search."""
_SLOW = 0.02
"""Share of the equilibrium's own decay that the default rate asks for: slower decay gives larger regions."""
_STEPS = (1.5, 1.2, 1.07)
"""Factors on the bounds of pre-activations in the pattern search, in turn."""
_WIDEST = (50.0, 10.0, 2.0)
"""Largest half axes of the ellipsoid, over those of a region without saturation: tried in turn, as accuracy needs."""
_UNLIMITED = 1e30
_LOCAL = ("tanh", "sin", "deadzone")
"""Nonlinearities whose sector depends on the bound of the pre-activation."""


def attraction(loop: ControlLoop, rate: float | None, box: Any, deadline: Deadline) -> Claim:
    """Return the claim ``attraction`` with the largest region found, or an undecided one; see ``regional``."""
    if box is not None:
        box = as_vector("box", box, loop.states, "box must be a vector of one number per state")
        if not ((box >= 0).all() and box.any()):
            raise ConfigurationError(f"box must have entries >= 0, not all of them zero, got {box}")
    linear = loop.jacobian(loop.sectors(np.full(loop.channels, 1e-9))[1])
    excess = float(stability_excess(np.linalg.eigvals(linear), loop.is_discrete).max())
    if not excess < 0:
        return _open(f"the equilibrium 0 of the loop is not stable (excess {excess:.3g})")
    if rate is None:
        rate = 1.0 + _SLOW * excess if loop.is_discrete else -_SLOW * excess
    plane = [i for i in range(loop.states) if box is None or box[i] > 0]
    for widest in _WIDEST:
        try:
            search = _Search(loop, rate, plane, widest * _unsaturated(loop, linear), deadline)
            search.run()
            claim = _proved(search, box)
        except (np.linalg.LinAlgError, ValueError):  # LAPACK on extreme entries
            claim = None
        if claim is not None:
            return claim
    return _open(f"no ellipsoid was proved at the rate {rate:.6g}")


def _open(reason: str) -> Claim:
    return Claim("attraction", f"A region of attraction was not found: {reason}.", Verdict.INCONCLUSIVE)


def _unsaturated(loop: ControlLoop, linear: Array) -> Array:
    """Return ``T``: ``T T^T`` is the shape of an ellipsoid with ``|z| <= 1`` that the linear loop leaves invariant."""
    lyapunov = solve_discrete_lyapunov if loop.is_discrete else solve_continuous_lyapunov
    Q = lyapunov(linear, np.eye(loop.states) if loop.is_discrete else -np.eye(loop.states))
    C = np.linalg.solve(np.eye(loop.channels) - loop.D, loop.C)
    return np.linalg.cholesky(Q / np.einsum("ij,jk,ik->i", C, Q, C).max())


@dataclass
class _Search:
    """Pattern search in the bounds of the pre-activations.

    Attributes:
        loop: the loop.
        rate: rate of the decay.
        plane: coordinates in which initial states lie.
        into: ``(n, n)`` coordinates of the program, whose unit ball limits the ellipsoid.
        deadline: time limit.
        attempts: number of programs solved.
        size: logarithm of the squared volume of the largest section found.
        swing: bounds of ``C x``, ``(m,)``, by which it was found; there are none for saturated channels.
        solution: the data ``reach``, ``P``, ``L`` and ``G`` of its proof, or ``None``.
    """

    loop: ControlLoop
    rate: float
    plane: list[int]
    into: Array
    deadline: Deadline
    attempts: int = 0
    size: float = -math.inf
    swing: Array = field(default_factory=lambda: np.zeros(0))
    solution: tuple[Array, Array, Array, Array] | None = None

    def improves(self, swing: Array) -> bool:
        """Solve the program for bounds of ``C x``; keep its solution if its section is larger."""
        if self.attempts >= _ATTEMPTS or self.deadline.over:
            return False
        self.attempts += 1
        loop, into = self.loop, self.into
        reach = through_loop(np.abs(loop.D) * np.maximum(-loop.alpha, loop.beta), swing)
        if reach is None:
            return False
        low, high = loop.sectors(reach)
        low[loop.clipped] = 0.0
        A, B = np.linalg.solve(into, loop.A @ into), np.linalg.solve(into, loop.B)
        system = LureSystem(A, B, loop.C @ into, loop.D, (low, high), loop.dt)
        plane = np.linalg.inv(into)[:, self.plane]
        found = pose_attraction(system, self.rate, loop.clipped, swing, plane, self.deadline)
        if found is None:
            return False
        P, G = (np.linalg.solve(into.T, part.T).T for part in (np.linalg.solve(into.T, found[0]), found[2]))
        size = -float(np.linalg.slogdet(P[np.ix_(self.plane, self.plane)])[1])
        if not size > self.size + 1e-4:
            return False
        self.size, self.swing, self.solution = size, swing, (reach, 0.5 * (P + P.T), found[1], G)
        return True

    def run(self) -> None:
        """Widen all bounds together, then change one at a time."""
        local = [i for i, name in enumerate(self.loop.activations) if name in _LOCAL]
        swing = np.where(self.loop.C.any(axis=1), 0.1, 1e-9)
        swing[self.loop.clipped] = _UNLIMITED
        if not self.improves(swing):
            return
        while local and self.improves(np.minimum(1.5 * self.swing, _UNLIMITED)):
            pass
        for step in _STEPS:
            while sum(self._change(i, step) or self._change(i, 1.0 / step) for i in local):
                pass

    def _change(self, channel: int, factor: float) -> bool:
        swing = self.swing.copy()
        swing[channel] *= factor
        return self.improves(swing)


def _proved(search: _Search, box: Array | None) -> Claim | None:
    """Return the claim at a slightly lower level, with multipliers of the channels of slope 1 that the rule accepts."""
    if search.solution is None:
        return None
    loop, (reach, P, L, G) = search.loop, search.solution
    eigenvalues = np.linalg.eigvalsh(P)
    p_max = float(eigenvalues[-1]) * (1 + 1e-9)
    p_min = float(eigenvalues[0]) * (1 - 1e-9) - 1e-12 * p_max
    swing = ellipsoid_reach(P, p_min, 1.0, Ball.exact(np.vstack([loop.C, G])))
    if swing is None or not p_min > 0:
        return None
    level = min(1.0, (1.0 - 1e-9) / float((swing / np.append(search.swing, np.ones(len(G)))).max()) ** 2)
    shape = _largest_box(P) if box is None else box
    data: dict[str, Any] = {
        "P": P,
        "rate": search.rate,
        "overshoot": math.sqrt(p_max / p_min) * (1 + 1e-12),
        "p_min": p_min,
        "p_max": p_max,
        "level": level,
        "reach": reach,
        "G": G,
        "box": math.sqrt(level / float(shape @ np.abs(P) @ shape)) * (1 - 1e-9) * shape,
    }
    for power in range(20):
        weights = L.copy()
        weights[loop.clipped] = 10.0 ** (0.5 * power) * float(L.max())
        claim = accepted_claim(loop, "attraction_lmi", {**data, "L": np.append(weights, L[loop.clipped])})
        if claim is not None:
            return claim
    return None


def _largest_box(P: Array) -> Array:
    """Return the shape of the box of largest volume with ``box^T |P| box <= 1``, by scaling ``|P|`` to row sums one."""
    box = 1.0 / np.sqrt(np.diag(P))
    for _ in range(200):
        box = np.sqrt(box / (np.abs(P) @ box))
    return box
