r"""Rule ``local_pieces``: no perturbation of an input within an l2 radius changes its class, piece by piece.

The ball lies in a box, which the proof's tree cuts as that of ``local_planes`` does; a leaf without anything stands for
a box that has no point of the ball. In the others forms know of the ball (``stability.local.pieces``), and a class that
planes leave open has a ``price`` beside its multipliers: what is paid for an input that leaves the ball. With
``budget`` the radius is that of every step, and each has a price. For few numbers that may change, pieces come as near
to the truth as one likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from stability.local.classifier import Classifier
from stability.local.forms import Tube
from stability.local.parabolas import Quadratic
from stability.local.pieces import PieceTube, beyond, priced
from stability.rules.fields import Text, is_float64, require
from stability.rules.local_ball import LARGEST
from stability.rules.local_planes import LocalPlanes, uncovered
from stability.rules.registry import certifies

Array = np.ndarray


@certifies("local_pieces", subject=Classifier, claim="local_robustness", value="radius", unfit=uncovered)
class LocalPieces(LocalPlanes):
    """As of ``local_planes``, in l2; ``budget`` is there, and ``step``, where every step has one."""

    budget: Text | None = None

    measure: ClassVar[str] = "l2"
    closing: ClassVar[tuple[str, ...]] = (*LocalPlanes.closing, "price")
    inside: ClassVar[bool] = False

    def claimed(self, subject: Classifier, condition: str = "") -> str:
        return super().claimed(subject, ("" if self.budget is None else " at every step") + condition)

    def require_ball(self, subject: Classifier) -> None:
        super().require_ball(subject)
        require(self.budget in (None, "step"), "budget is left out, or step")

    def node(self, subject: Classifier, low: Array, high: Array, tree: Any, depth: int) -> int:
        if isinstance(tree, Mapping) and not tree:
            require(
                beyond(self.x, self.radius, low, high, self.budget is not None),
                "a box that is left out has points of the ball",
            )
            return 0
        return super().node(subject, low, high, tree, depth)

    def tube(self) -> Tube:
        return PieceTube(x=self.x, ball=self.radius, each=self.budget is not None)

    def bounded(self, F: Quadratic, tube: Tube, part: Mapping[str, Any]) -> Quadratic:
        price, prices = part["price"], np.zeros(0)
        if self.budget is None:
            require(isinstance(price, float) and 0.0 <= price < LARGEST**2, "price must be a number from zero")
            prices = np.array([price])
        else:
            fits = is_float64(price) and price.shape == (len(self.x),)
            require(fits and bool(((price >= 0.0) & (price < LARGEST**2)).all()), "price must be one for each step")
            prices = price
        assert isinstance(tube, PieceTube)
        return priced(F, tube, prices)
