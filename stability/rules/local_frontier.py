r"""Rule ``local_frontier``: no perturbation of an input of a network of one state within a radius changes its class.

The state is one number, and the class is that of an interval of last states. Where every step has a range of its own
(l_inf, or a budget for each step), the states that are reached are an interval that is found exactly, step by step
(``stability.local.ranges``). In l2 the least cost at which the last state leaves the class is bounded from below by
dynamic programming (``stability.local.least``), and has to be more than the radius' square. The proof names the states
(``paths``) near which cells are to be small, and how fast they may grow (``fine``); what these are proves nothing, they
make the bound sharp. Nothing depends on the margin being convex, on kinks, or on how many steps there are.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError
from stability.local.classifier import Classifier
from stability.local.least import WIDER, kept_states, least_cost
from stability.local.ranges import reached
from stability.local.scalar import ScalarStep, scalar_steps, unfit
from stability.rigor.constants import EPS
from stability.rules.fields import AnyArray, Index, Refused, require
from stability.rules.local_ball import LARGEST, EitherBall
from stability.rules.registry import certifies
from stability.systems.activations import activation

Array = np.ndarray
ROOM, LONGEST, PATHS, FINEST = 8_000_000, 2_000, 8, 32
"""Boxes at which a check gives up, which takes seconds; most steps; most ``paths``, and most ``fine``."""


@certifies("local_frontier", subject=Classifier, claim="local_robustness", value="radius", unfit=unfit)
class LocalFrontier(EitherBall):
    """The ball in either norm; for a total budget ``paths (q, K + 1)``, ``K`` at most twice the steps, and ``fine``."""

    paths: AnyArray | None = None
    fine: Index | None = None

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_asked(subject)
        require(subject.reduction == "last", "the head must read the last output")
        require(len(self.x) <= LONGEST, f"there are more than {LONGEST} steps")
        boxed = self.norm == "linf" or self.budget == "step"
        require(boxed == (self.paths is None) == (self.fine is None), "paths and fine are for a total budget in l2")
        return self._by_ranges(subject) if boxed else self._by_costs(subject)

    def _steps(self, subject: Classifier, radius: float) -> list[ScalarStep]:
        try:
            return scalar_steps(subject, self.x, radius, self.norm, self.mask, self.bounds, self.budget == "step")
        except ConfigurationError as error:
            raise Refused("the network's numbers overflow") from error

    def _by_ranges(self, subject: Classifier) -> str:
        phi, start = activation(subject.recurrent.activation), float(subject.start[0])
        low, high = (float(end[-1]) for end in reached(self._steps(subject, self.radius), phi, start))
        require(np.isfinite(low) and np.isfinite(high), "the network's numbers overflow")
        kept = kept_states(subject, self.label, low, high)
        safe = kept is not None and kept[0] <= low and high <= kept[1]
        require(safe, f"within the radius, the class is not proved to stay {self.label}")
        return f"all last states, from {low:.6g} to {high:.6g}, have the class"

    def _by_costs(self, subject: Classifier) -> str:
        steps, paths, fine = self._steps(subject, WIDER * self.radius), self.paths, self.fine
        assert paths is not None
        assert fine is not None
        fits = paths.ndim == 2 and paths.shape[1] == len(steps) + 1 and len(paths) <= PATHS
        require(fits, f"paths must be (q, {len(steps) + 1}), q <= {PATHS}")
        require(bool((np.abs(paths) < LARGEST).all()), "paths are out of range")
        require(1 <= fine <= FINEST, f"fine must be from 1 to {FINEST}")
        try:
            found = least_cost(subject, steps, self.label, self.radius, paths, fine, ROOM)
        except ConfigurationError as error:
            raise Refused("the network's numbers overflow") from error
        require(found.boxes <= ROOM, f"it takes more than {ROOM} boxes")
        above = found.cost > self.radius * self.radius * (1.0 + 4 * EPS)
        require(above, f"within the radius, the class is not proved to stay {self.label}")
        return f"what changes the class costs {found.cost**0.5:.9g} or more, by {found.boxes} boxes"
