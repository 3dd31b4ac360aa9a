r"""Theorem ``local_zonotopes``: certified l_inf radius of one input, by zonotopes.

The checker runs the network on the middle of the ball's box and builds the tube of ``zonotope_tube`` around
that run: symbols for the inputs and for what late steps leave of a linear map, an ellipsoid for the rest, which a
network that contracts along the run keeps small however long the sequence is. The proof says only how many steps keep
their symbols (``window``) and their inputs (``kept``); everything else is found again and proved where it is used, with
every rounding error. Each margin is then closed from its end.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Index, require
from stability.kernel.format.theorem_table import certifies
from stability.kernel.reachability.input_box import input_box
from stability.kernel.reachability.margin_loss import differences
from stability.kernel.reachability.network_stages import loop_of_channels, stages_of
from stability.kernel.reachability.zonotope_tube import ZonotopeTube, zonotope_tube
from stability.kernel.systems.classifier import Classifier
from stability.kernel.theorems.local_ball import LocalClippedBall

Array = np.ndarray


def margins_left(subject: Classifier, head: Array, tube: ZonotopeTube, label: int, steps: int) -> tuple[Array, Array]:
    """Bound all margins over the box below, roundings included; of a mean times its steps; infinite for the class.

    Beside them, about what the inputs themselves take of each, without what the network bends.

    Args:
        subject: the network.
        head: ``(k, n)`` on the vector after the last stage.
        tube: the tube.
        label: the class.
        steps: steps of the sequence.
    """
    w, scale = -differences(head, np.asarray(label)), float(steps) if subject.reduction == "mean" else 1.0
    bias, (least, direct) = scale * subject.bias, tube.least(w)
    sizes = np.abs(head) + np.abs(head[label])
    error = gamma(len(tube.y) + 16) * (
        sizes @ (np.abs(tube.y) + tube.sides) + np.abs(bias) + abs(bias[label]) + np.abs(least)
    )
    out = w @ tube.y + (bias[label] - bias) + least - error
    out[label] = np.inf
    return out, direct


@certifies("local_zonotopes", subject=Classifier, claim="local_robustness", value="radius", unfit=loop_of_channels)
class LocalZonotopes(LocalClippedBall):
    """Ball, ``window`` and ``kept`` in steps, and ``bounds`` if a perturbed input stays between two numbers."""

    window: Index
    kept: Index

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_ball(subject)
        net = stages_of(subject)
        tube = zonotope_tube(net, input_box(self.x, self.radius, self.mask, self.bounds), self.window, self.kept)
        require(tube is not None, "the tube leaves all bounds")
        assert tube is not None
        left, _ = margins_left(subject, net.head, tube, self.label, len(self.x))
        worst = int(np.argmin(left))  # of NaN, the first one
        require(left[worst] > 0, f"within the radius, logit {worst} is not proved to stay below that of {self.label}")
        return f"zonotopes with a tail of {len(self.x)} steps keep every logit below that of class {self.label}"
