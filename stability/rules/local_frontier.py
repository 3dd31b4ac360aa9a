r"""Rule ``local_frontier``: no perturbation of an input of a network of one state within a radius changes its class.

The state is one number, and the class is that of an interval of last states. Where every step has a range of its own
(l_inf, or a budget for each step), the states that are reached are an interval that is found exactly, step by step
(``stability.local.ranges``). In l2 the least cost at which the last state leaves the class is bounded from below by
dynamic programming (``stability.local.least``), and has to be more than the radius' square. The proof names the states
(``paths``) near which cells are to be small, and how fast they may grow (``fine``); what these are proves nothing, they
make the bound sharp. Nothing depends on the margin being convex, on kinks, or on how many steps there are.

With a head on the mean the class is that of an interval of sums of states. Of each of its ends the least sum is bounded
(``stability.local.sums``); in l2 in total, what a run costs is added to ``prices`` times the sum, and has to be more
than the radius' square for whatever leaves the interval there. Where no price does for all runs, ``cuts`` tell them
apart by their states at some steps (``stability.local.parts``), and each part has a price, and a path, of its own.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError
from stability.local.classifier import Classifier
from stability.local.least import WIDER, kept_states, least_cost
from stability.local.parts import MOST_CUTS, Part, parts
from stability.local.ranges import reached
from stability.local.scalar import WIDEST, ScalarStep, scalar_steps, unfit
from stability.local.sums import least_sum, limits, told
from stability.rigor.constants import EPS, TINY
from stability.rules.fields import AnyArray, Index, Refused, require
from stability.rules.local_ball import LARGEST, EitherBall
from stability.rules.registry import certifies
from stability.systems.activations import activation

Array = np.ndarray
ROOM, LONGEST, PATHS, FINEST = 16_000_000, 2_000, 8, 32
"""Boxes at which a check gives up, which takes seconds; most steps; most ``paths``, and most ``fine``."""
PARTED = 20_000_000
"""Boxes at which it gives up where there are ``cuts``."""
ENOUGH = 1.001
"""Of the radius' square: what no part need cost more than."""


@certifies("local_frontier", subject=Classifier, claim="local_robustness", value="radius", unfit=unfit)
class LocalFrontier(EitherBall):
    """The ball in either norm; ``paths (q, K + 1)``, ``K`` at most twice the steps, ``fine``, ``prices (2,)``; with
    ``cuts (s, 3)`` (a part, a step from one on, a value) ``prices (2 + s,)`` and ``paths (2 + s, K + 1)``.
    """

    paths: AnyArray | None = None
    fine: Index | None = None
    prices: AnyArray | None = None
    cuts: AnyArray | None = None

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_asked(subject)
        require(len(self.x) <= LONGEST, f"there are more than {LONGEST} steps")
        boxed = self.norm == "linf" or self.budget == "step"
        mean = subject.reduction == "mean" and len(self.x) > 1  # the mean of one step is its output
        searched = mean or not boxed
        said = "paths and fine are for a total budget in l2 and for heads on the mean"
        require(searched == (self.paths is not None) == (self.fine is not None), said)
        said = "prices are for heads on the mean with a total budget in l2"
        require((mean and not boxed) == (self.prices is not None), said)
        require(
            self.cuts is None or self.prices is not None, "cuts are for heads on the mean with a total budget in l2"
        )
        if not searched:
            return self._by_ranges(subject)
        return self._by_sums(subject, boxed) if mean else self._by_costs(subject)

    def _searched(self, steps: list[ScalarStep]) -> tuple[Array, int]:
        """``paths`` and ``fine``, where they fit."""
        paths, fine = self.paths, self.fine
        assert paths is not None
        assert fine is not None
        fits = paths.ndim == 2 and paths.shape[1] == len(steps) + 1
        require(
            fits and (self.cuts is not None or len(paths) <= PATHS),
            f"paths must be (q, {len(steps) + 1}), q <= {PATHS}",
        )
        require(bool((np.abs(paths) < LARGEST).all()), "paths are out of range")
        require(1 <= fine <= FINEST, f"fine must be from 1 to {FINEST}")
        return paths, fine

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
        steps = self._steps(subject, WIDER * self.radius)
        paths, fine = self._searched(steps)
        try:
            found = least_cost(subject, steps, self.label, self.radius, paths, fine, ROOM)
        except ConfigurationError as error:
            raise Refused("the network's numbers overflow") from error
        require(found.boxes <= ROOM, f"it takes more than {ROOM} boxes")
        above = found.cost > self.radius * self.radius * (1.0 + 4 * EPS)
        require(above, f"within the radius, the class is not proved to stay {self.label}")
        return f"what changes the class costs {found.cost**0.5:.9g} or more, by {found.boxes} boxes"

    def _parts(self, steps: list[ScalarStep], paths: Array) -> list[tuple[Part | None, int, Array, float]]:
        """All parts of the runs: each with its side, its paths and its price."""
        count = 0 if self.cuts is None else len(self.cuts)
        prices = np.ones(2) if self.prices is None else self.prices
        require(prices.shape == (2 + count,), "prices must be (2,), and one more for each of cuts")
        require(bool(((prices >= 0.0) & (prices < LARGEST**2)).all()), "prices must be numbers from zero")
        if self.cuts is None:
            return [(None, side, paths, float(prices[side])) for side in (0, 1)]
        fits = self.cuts.shape == (count, 3) and count <= MOST_CUTS and len(paths) == 2 + count
        require(fits, f"cuts must be (s, 3), s <= {MOST_CUTS}, with a path for each part")
        found = parts(self.cuts, len(steps))
        require(found is not None, "each of cuts must be a part that is there, a step from one on, and a number")
        return [(part, part.side, paths[[k]], float(prices[k])) for k, part in enumerate(found or ())]

    def _by_sums(self, subject: Classifier, boxed: bool) -> str:
        steps, start, boxes = self._steps(subject, self.radius), float(subject.start[0]), 0
        paths, fine = self._searched(steps)
        told_apart, room = self._parts(steps, paths), ROOM if self.cuts is None else PARTED
        phi, square = activation(subject.recurrent.activation), self.radius * self.radius * (1.0 + 4 * EPS)
        said = f"steps of more than {WIDEST} features that go to the state are not known"
        require(not boxed or told(steps, phi), said)
        try:
            low, high = reached(steps, phi, start)
            ends = limits(subject, self.label, steps, low, high)
            require(ends is not None, f"within the radius, the class is not proved to stay {self.label}")
            scale = float((high - low).sum()) if boxed else self.radius * self.radius
            for part, side, own, price in told_apart:
                for sign, most in (end for end in ends or () if (end[0] < 0.0) == (side == 1)):
                    found = least_sum(
                        steps, phi, start, sign * price, scale, own, fine, room - boxes, paid=not boxed,
                        part=part, enough=price * most + ENOUGH * scale,
                    )  # fmt: skip
                    boxes += found.boxes
                    require(boxes <= room, f"it takes more than {room} boxes")
                    lost = 4 * EPS * (abs(found.value) + abs(price * most)) + TINY
                    above = found.value > most if boxed else found.value - price * most - lost > square
                    above |= found.value == np.inf  # of a part without runs
                    require(above, f"within the radius, the class is not proved to stay {self.label}")
        except ConfigurationError as error:
            raise Refused("the network's numbers overflow") from error
        return f"means of the states that leave the class are out of reach, by {boxes} boxes"
