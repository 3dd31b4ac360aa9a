r"""Theorem ``local_linear``: certified radius of one input of an affine network.

Without activations every margin is :math:`M(x) + g^T d`, and what a ball takes of it is known:

.. math:: r \|g\|_1 \; (l_\infty), \quad r \|g\|_2 \; (l_2), \quad r \textstyle\sum_t \|g_t\|_2 \; (\text{every step}).

Where inputs are clipped, the conditions of the balls have a price, see ``affine_margin``. All numbers
are integers over a power of two (``fixed_point``), with as many binary places as roundings take: nothing is
searched for, and states may grow by any factor.

Sources: the dual norm; for the price, Lagrange's multipliers (S. Boyd, L. Vandenberghe, Convex Optimization, 5.1).
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.adjacent_floats import next_down, next_up
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Text, require, required
from stability.kernel.format.theorem_table import certifies
from stability.kernel.reachability.affine_network import kernel, why_not_applicable
from stability.kernel.systems.classifier import Classifier
from stability.kernel.theorems.local_ball import LocalClippedBall

Array = np.ndarray


@certifies("local_linear", subject=Classifier, claim="local_robustness", value="radius", unfit=why_not_applicable)
class LocalLinear(LocalClippedBall):
    """Ball in either norm; the check recomputes everything else.

    ``bounds`` of clipped inputs; ``budget``, where in l2 the radius is that of every step.
    """

    budget: Text | None = None

    @property
    def norm_name(self) -> str:
        return "linf" if self.norm == "linf" else "l2"

    def sentence(self, subject: Classifier, claim: Claim) -> str:
        return self.claimed(subject, self.budget is not None, self.bounds)

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_ball(subject)
        stepwise = self.budget == "step" and self.norm == "l2"
        require(self.budget is None or stepwise, "budget is left out or, in l2, step")
        found = required(kernel(subject, len(self.x)), "the integers that it takes are too long, or too many")
        each = self.norm == "l2" and self.budget == "step"
        free = np.ones(self.x.shape, dtype=bool) if self.mask is None else self.mask != 0
        radius, box = (None if self.norm == "linf" else self.radius), self._box(free)
        for other in range(subject.classes):
            if other != self.label:
                left = found.margin(self.x, self.label, other).left(radius, box, free, each)
                self.require_below(other, left > 0)
        return f"no margin's linear function loses all of it, by integers of {found.bits} binary places"

    def _box(self, free: Array) -> tuple[Array, Array] | None:
        """Return the box of all perturbations, rounded outwards; ``None`` for an l2 ball without clipping."""
        wide, bounds = self.radius if self.norm == "linf" else np.inf, self.bounds
        if bounds is None:
            return None if self.norm == "l2" else (np.where(free, -wide, 0.0), np.where(free, wide, 0.0))
        low, high = np.minimum(next_down(bounds[0] - self.x), 0.0), np.maximum(next_up(bounds[1] - self.x), 0.0)
        return np.where(free, np.maximum(low, -wide), 0.0), np.where(free, np.minimum(high, wide), 0.0)
