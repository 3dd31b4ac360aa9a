r"""Rule ``local_planes``: no perturbation of an input within an l_inf radius changes its class.

The proof is a tree. A node cuts the box of inputs in two at one entry; a leaf stands for a box. Around all runs from
that box the checker builds the tube of ``stability.local.forms``, affine forms with a plane for each unit, and where
these do not prove a margin positive, the parabolas of ``stability.local.parabolas``: the leaf names for such a class
the input at which they touch (``point``, relative to the box, from -1 to 1) and Lagrange's ``multipliers``, one for
each symbol of the tube. Planes, slopes and curvatures are found again; all of them are proved where they are used.
Whatever the numbers of the proof, what the checker accepts is so; rounding is inside every bound.

Sources: for planes and affine forms G. Singh, T. Gehr, M. Mirman, M. Pueschel, M. Vechev, Fast and effective robustness
certification, NeurIPS 2018; for the bound by multipliers N. Z. Shor, Quadratic optimization problems (1987).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import numpy as np

from stability.certificate import Claim
from stability.errors import UnsupportedError
from stability.local.classifier import Classifier
from stability.local.forms import Form, Tube
from stability.local.leaves import entries, input_box, touched
from stability.local.parabolas import Quadratic, quadratic
from stability.local.runs import margins, steps_of
from stability.rules.fields import Inner, Pair, is_float64, require
from stability.rules.local_ball import LocalBall
from stability.rules.registry import certifies
from stability.systems.parts import exactly

Array = np.ndarray
DEEPEST = 200
"""Cuts one below the other."""


def uncovered(subject: Classifier) -> str | None:
    """Why there is no tube of such a network, or ``None``."""
    try:
        steps_of(subject)
    except UnsupportedError as error:
        return str(error)
    return None


@certifies("local_planes", subject=Classifier, claim="local_robustness", value="radius", unfit=uncovered)
class LocalPlanes(LocalBall):
    """The ball, the ``tree``, and ``bounds`` where a perturbed input stays between two numbers."""

    tree: Inner
    bounds: Pair | None = None

    measure: ClassVar[str] = "l_inf"
    closing: ClassVar[tuple[str, ...]] = ("class", "point", "multipliers")
    """What a leaf says of a class that planes leave open."""

    def sentence(self, subject: Classifier, claim: Claim) -> str:
        if self.bounds is None:
            return self.claimed(subject)
        low, high = (exactly(end) for end in self.bounds)
        return self.claimed(subject, f", under which the input stays in [{low}, {high}],")

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_ball(subject)
        x = self.x
        if self.bounds is not None:
            low, high = self.bounds
            require(low <= float(x.min()) and float(x.max()) <= high, "the input itself is not within the bounds")
        leaves = self.node(subject, *input_box(x, self.radius, self.mask, self.bounds), self.tree, 0)
        return f"the margins of all inputs in {leaves} box{'es' * (leaves > 1)} that cover the ball are positive"

    def node(self, subject: Classifier, low: Array, high: Array, tree: Any, depth: int) -> int:
        """Proves a box; returns the number of leaves."""
        require(isinstance(tree, Mapping) and depth <= DEEPEST, "a node of the tree must be a mapping, not too deep")
        node = cast(Mapping[str, Any], tree)
        if set(node) == {"classes"}:
            self._leaf(subject, low, high, node["classes"])
            return 1
        require(set(node) == {"entry", "at", "parts"}, "a node has entry, at and parts, a leaf classes")
        entry, at = node["entry"], node["at"]
        require(isinstance(node["parts"], (list, tuple)), "parts must be the two halves")
        parts = cast(Sequence[Any], node["parts"])
        require(type(entry) is int and 0 <= entry < low.size, "entry must be the number of an entry of x")
        inside = isinstance(at, float) and low.flat[entry] <= at <= high.flat[entry]
        require(inside, "at must be a number within the box")
        require(len(parts) == 2, "parts must be the two halves")
        upper, lower = high.copy(), low.copy()
        upper.flat[entry] = lower.flat[entry] = at
        below = self.node(subject, low, upper, parts[0], depth + 1)
        return below + self.node(subject, lower, high, parts[1], depth + 1)

    def _leaf(self, subject: Classifier, low: Array, high: Array, classes: Any) -> None:
        require(isinstance(classes, (list, tuple)), "classes must be a list")
        tube = self.tube()
        margin = margins(subject, tube, low, high, self.label)
        others = [k for k in range(subject.classes) if k != self.label]
        named: dict[int, Mapping[str, Any]] = {}
        for entry in cast(Sequence[Any], classes):
            keys = f"{', '.join(self.closing[:-1])} and {self.closing[-1]}"
            require(isinstance(entry, Mapping), f"a class has {keys}")
            part = cast(Mapping[str, Any], entry)
            require(set(part) == set(self.closing), f"a class has {keys}")
            require(type(part["class"]) is int and part["class"] not in named, "a class is a number, and named once")
            named[part["class"]] = part
        require(set(named) <= set(others), "a named class is none of the other classes")
        for row, other in enumerate(others):
            if other in named:
                proved = self._by_parabolas(subject, tube, margin, row, named[other])
            else:
                proved = float(margin.low[row])
            require(proved > 0.0, f"within the radius, logit {other} is not proved to stay below that of {self.label}")

    def _by_parabolas(self, subject: Classifier, tube: Tube, margin: Form, row: int, part: Mapping[str, Any]) -> float:
        point, multipliers = part["point"], part["multipliers"]
        require(not tube.merged, "there are no parabolas for a tube of so many symbols")
        arrays = all(is_float64(v) and np.isfinite(v).all() for v in (point, multipliers))
        fits = arrays and point.shape == (entries(tube),) and bool((np.abs(point) <= 1.0).all())
        require(fits, f"point must be {entries(tube)} numbers from -1 to 1")
        fits = multipliers.shape == (tube.symbols,) and bool((multipliers >= 0.0).all())
        require(fits, f"multipliers must be {tube.symbols} numbers from zero")
        met, _ = touched(subject, tube, point, self.label)
        return self.bounded(quadratic(tube, margin, row, met), tube, part).least(multipliers)

    def tube(self) -> Tube:
        """An empty tube."""
        return Tube()

    def bounded(self, F: Quadratic, tube: Tube, part: Mapping[str, Any]) -> Quadratic:
        """A function below the margin, nowhere above one that the ball's inputs do not exceed."""
        return F
