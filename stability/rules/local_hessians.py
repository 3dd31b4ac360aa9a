r"""Rule ``local_hessians``: no perturbation of an input of a small network within a radius changes its class.

The ball is written in the coordinates that count (``stability.local.coordinates``), and cut into boxes until in each of
them a margin, or its Lagrangian with the proof's ``prices`` and ``bends``, is proved positive by intervals of its
value, its slopes or its Hessian (``stability.local.covering``). The proof names for each other class the point at which
the Lagrangian touches zero, or nearly: the worst input of the ball. The checker cuts the boxes again, and accepts
whatever these numbers are where all boxes come to an end. There is no loss but rounding: near the worst input the
Lagrangian is convex, elsewhere it is positive with room. So a radius may be proved up to about 1e-7 of itself. Where
the worst input lies on kinks, the Lagrangian is that of lines through them, whose ``slopes`` make it stationary there
(``stability.local.supports``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stability.certificate import Claim
from stability.errors import ConfigurationError
from stability.local.classifier import Classifier
from stability.local.coordinates import MOST, Coordinates, coordinates, uncovered
from stability.local.covering import Cover, covered, turn_cost
from stability.local.lagrangians import Touch
from stability.rules.fields import AnyArray, Refused, require
from stability.rules.local_ball import LARGEST, EitherBall
from stability.rules.registry import certifies

ROOM, WORK = 200_000, 24e6
"""Boxes and work, see ``turn_cost``, for all classes together, at which a check gives up: some twenty seconds."""


@certifies("local_hessians", subject=Classifier, claim="local_robustness", value="radius", unfit=uncovered)
class LocalHessians(EitherBall):
    """The ball; for ``c`` other classes ``points (c, k)``, ``prices (c, g)``, ``bends (c,)``, ``slopes (c, T m)``."""

    points: AnyArray
    prices: AnyArray
    bends: AnyArray
    slopes: AnyArray | None = None

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_asked(subject)
        each = self.budget == "step"
        moved = len(self.x) if self.mask is None else int(self.mask.any(axis=1).sum())
        require(moved <= MOST, f"there are more than {MOST} coordinates")
        require(turn_cost(subject, len(self.x), moved, 1) <= WORK, "the sequence is too long for such a proof")
        of = self._ball(subject, each)
        require(len(of.low) <= MOST, f"there are more than {MOST} coordinates")
        require(len(of.low), "no entry of the input may change")
        others = [k for k in range(subject.classes) if k != self.label]
        sizes = (len(others), len(of.low)), (len(others), len(of.balls)), (len(others),)
        parts = self.points, self.prices, self.bends
        require(tuple(p.shape for p in parts) == sizes, f"points, prices and bends must be {sizes}")
        inside = bool(((of.low <= self.points) & (self.points <= of.high)).all())
        require(inside, "points must lie in the box of the ball")
        slopes = np.zeros((len(others), 0)) if self.slopes is None else self.slopes
        size = (len(others), of.bent)
        require(self.slopes is None or slopes.shape == size, f"slopes must be {size}")
        require(bool((np.abs(slopes) < LARGEST).all()), "slopes must be numbers below 1e12")
        positive = all(bool(((p >= 0.0) & (p < LARGEST**2)).all()) for p in parts[1:])
        require(positive, "prices and bends must be numbers from zero")
        boxes, left = 0, WORK
        for other, point, prices, bend, steep in zip(others, *parts, slopes):
            touch = Touch(point, prices, float(bend), steep)
            try:
                found = covered(of, self.label, other, touch, ROOM - boxes, most=left)
            except ConfigurationError:  # NaN in an interval: what overflows proves nothing
                found = Cover(False, 0)
            said = f"within the radius, logit {other} is not proved to stay below that of {self.label}"
            require(found.holds, said)
            boxes, left = boxes + found.boxes, left - found.work
        return f"the margins in {boxes} boxes that cover the ball are positive"

    def _ball(self, subject: Classifier, each: bool) -> Coordinates:
        ends: Sequence[float] | None = self.bounds
        try:
            return coordinates(subject, self.x, self.radius, self.norm, self.mask, ends, each)
        except ConfigurationError as error:
            raise Refused("the network's numbers overflow") from error
