"""Search for a region of attraction: an ellipsoid of initial states from which a control loop returns to zero.

One semidefinite program finds the largest ellipsoid for given bounds of the pre-activations. A pattern search in these
bounds widens it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stability.arguments import as_vector
from stability.errors import ConfigurationError
from stability.kernel.format.claims import Claim, Verdict
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
"""Factors on the bounds of pre-activations in the pattern search, the next one when the one before changes nothing."""


@dataclass
class _Search:
    loop: ControlLoop
    rate: float
    plane: list[int]
    deadline: Deadline
    attempts: int = 0
    best: float = -math.inf
    solution: tuple[Array, Array, Array] | None = None
    reach: Array = field(default_factory=lambda: np.zeros(0))

    def improves(self, reach: Array) -> bool:
        """Solve the program for bounds of the pre-activations; keep its solution if its section is larger."""
        if self.attempts >= _ATTEMPTS or self.deadline.over:
            return False
        self.attempts += 1
        loop = self.loop
        low, high = loop.sectors(reach)
        clipped = [i for i, name in enumerate(loop.activations) if name == "saturation"]
        low[clipped], high[clipped] = 0.0, 1.0
        system = LureSystem(loop.A, loop.B, loop.C, loop.D, (low, high), loop.dt)
        found = pose_attraction(system, self.rate, clipped, reach, self.plane, self.deadline)
        if found is None:
            return False
        section = found[0][np.ix_(self.plane, self.plane)]
        sign, size = np.linalg.slogdet(section)
        if sign <= 0 or -size <= self.best + 1e-4:
            return False
        self.best, self.solution, self.reach = -size, found, reach
        return True

    def run(self) -> None:
        """Widen the bounds of all pre-activations together, then one by one."""
        loop, scale = self.loop, np.linalg.norm(self.loop.C, axis=1)
        reach = 0.1 * np.where(scale > 0, 1.0, 1.0)
        while self.improves(reach):
            reach = 1.5 * self.reach
        for step in _STEPS:
            changed = True
            while changed and self.attempts < _ATTEMPTS:
                changed = False
                for i, name in enumerate(loop.activations):
                    for factor in (step, 1.0 / step) if name in ("tanh", "sin", "deadzone") and len(self.reach) else ():
                        trial = self.reach.copy()
                        trial[i] *= factor
                        if self.improves(trial):
                            changed = True
                            break


def attraction(loop: ControlLoop, rate: float | None, box: Any, deadline: Deadline) -> Claim:
    """Return the claim ``attraction`` with the largest region found, or an undecided one; see ``regional``."""
    if box is not None:
        box = as_vector("box", box, loop.states, "box must be a vector of one number per state")
        if not ((box >= 0).all() and box.any()):
            raise ConfigurationError(f"box must have entries >= 0, not all of them zero, got {box}")
    excess = float(stability_excess(np.linalg.eigvals(loop.jacobian(_slopes(loop))), loop.is_discrete).max())
    if not excess < 0:
        return _open(f"the equilibrium 0 of the loop is not stable (excess {excess:.3g})")
    if rate is None:
        rate = 1.0 + _SLOW * excess if loop.is_discrete else -_SLOW * excess
    plane = [i for i in range(loop.states) if box is None or box[i] > 0]
    search = _Search(loop, rate, plane, deadline)
    search.run()
    claim = None if search.solution is None else _proved(loop, rate, search.reach, *search.solution, box)
    return claim or _open(f"no ellipsoid was proved at the rate {rate:.6g} in {search.attempts} attempts")


def _slopes(loop: ControlLoop) -> Array:
    return loop.sectors(np.full(loop.channels, 1e-9))[1]


def _open(reason: str) -> Claim:
    return Claim("attraction", f"A region of attraction was not found: {reason}.", Verdict.INCONCLUSIVE)


def _proved(
    loop: ControlLoop, rate: float, reach: Array, P: Array, L: Array, G: Array, box: Array | None
) -> Claim | None:
    """Return the claim with multipliers of the channels of slope 1 that the rule accepts, at a slightly lower level."""
    clipped = [i for i, name in enumerate(loop.activations) if name == "saturation"]
    eigenvalues = np.linalg.eigvalsh(P)
    p_min, p_max = float(eigenvalues[0]) * (1 - 1e-9), float(eigenvalues[-1]) * (1 + 1e-9)
    if not p_min > 0:
        return None
    spread = np.einsum("ij,ji->i", G, np.linalg.solve(P, G.T))
    for slack in (1e-6, 1e-3, 1e-2, 5e-2):
        level = (1.0 - slack) / max(1.0, float(spread.max(initial=0.0)))
        shape = _largest_box(P) if box is None else box
        size = math.sqrt(level / float(shape @ np.abs(P) @ shape)) * (1 - 1e-9)
        for power in range(0, 10, 2):
            weights = L.copy()
            weights[clipped] = 10.0**power * max(float(L.max()), float(np.abs(loop.B.T @ P @ loop.B).max()))
            data: dict[str, Any] = {
                "P": P,
                "L": np.append(weights, L[clipped]),
                "rate": rate,
                "overshoot": math.sqrt(p_max / p_min) * (1 + 1e-12),
                "p_min": p_min,
                "p_max": p_max,
                "level": level,
                "reach": np.where([name == "saturation" for name in loop.activations], 1e30, reach),
                "G": G,
                "box": size * shape,
            }
            claim = accepted_claim(loop, "attraction_lmi", data)
            if claim is not None:
                return claim
    return None


def _largest_box(P: Array) -> Array:
    """Return the shape of the box of largest volume with ``box^T |P| box <= 1``, by scaling ``|P|`` to row sums one."""
    box = 1.0 / np.sqrt(np.diag(P))
    for _ in range(200):
        box = np.sqrt(box / (np.abs(P) @ box))
    return box
