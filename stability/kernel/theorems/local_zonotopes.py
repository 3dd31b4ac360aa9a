r"""Theorem ``local_zonotopes``: certified l_inf radius of one input, by zonotopes.

The checker runs the network on the midpoint of the ball's box and computes the tube of ``zonotope_tube`` around that
run. The tube has symbols for the inputs and for the linearization errors of the last steps; an ellipsoid bounds the
rest. If the network contracts along the run, the ellipsoid stays small for every sequence length. The proof holds only
the number of steps that keep their symbols (``window``) and the number that keep their inputs (``kept``). The checker
computes everything else, with bounds of all rounding errors, and bounds each margin by a backward pass.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Index, required
from stability.kernel.format.theorem_table import certifies
from stability.kernel.reachability.input_box import input_box
from stability.kernel.reachability.margin_loss import differences
from stability.kernel.reachability.network_stages import loop_of_channels, stages_of
from stability.kernel.reachability.zonotope_tube import ZonotopeTube, zonotope_tube
from stability.kernel.systems.classifier import Classifier
from stability.kernel.theorems.local_ball import LocalClippedBall

Array = np.ndarray


def margin_bounds(subject: Classifier, head: Array, tube: ZonotopeTube, label: int, steps: int) -> tuple[Array, Array]:
    """Return lower bounds of all margins over the box, rounding errors included, and the linear effect of the inputs.

    The margin of ``label`` itself is infinite. For a network that averages its outputs, margins are multiplied by
    ``steps``. The linear effect (at most zero) estimates the share of the inputs alone.

    Args:
        subject: the network.
        head: ``(k, n)`` weights of the logits on the vector after the last stage.
        tube: tube of ``zonotope_tube``.
        label: class of the input.
        steps: steps of the sequence.
    """
    w, scale = -differences(head, np.asarray(label)), float(steps) if subject.reduction == "mean" else 1.0
    bias, (least, direct) = scale * subject.bias, tube.lower_bounds(w)
    sizes = np.abs(head) + np.abs(head[label])
    error = gamma(len(tube.y) + 16) * (
        sizes @ (np.abs(tube.y) + tube.half_widths) + np.abs(bias) + abs(bias[label]) + np.abs(least)
    )
    out = w @ tube.y + (bias[label] - bias) + least - error
    out[label] = np.inf
    return out, direct


@certifies("local_zonotopes", subject=Classifier, claim="local_robustness", value="radius", unfit=loop_of_channels)
class LocalZonotopes(LocalClippedBall):
    """Proof by zonotopes: a ball, ``window`` and ``kept`` in steps, and optional ``bounds`` of the perturbed input."""

    window: Index
    kept: Index

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_ball(subject)
        net = stages_of(subject)
        box = input_box(self.x, self.radius, self.mask, self.bounds)
        tube = required(zonotope_tube(net, box, self.window, self.kept), "the tube diverges")
        lower_bounds, _ = margin_bounds(subject, net.head, tube, self.label, len(self.x))
        worst = int(np.argmin(lower_bounds))  # the first NaN, if there is one
        self.require_below(worst, lower_bounds[worst] > 0)
        return f"zonotopes with a tail of {len(self.x)} steps keep every logit below that of class {self.label}"
