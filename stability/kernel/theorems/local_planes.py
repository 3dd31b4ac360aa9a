r"""Theorem ``local_planes``: certified l_inf radius of one input, by affine forms and quadratic relaxation.

The proof is a tree. A node cuts the box of inputs in two at one entry; a leaf stands for a box. Around all runs from
that box the checker builds the tube of ``affine_forms``, affine forms with a plane for each unit, and where
these do not prove a margin positive, the parabolas of ``quadratic_relaxation``: the leaf names for such a class
the input at which they touch (``point``, relative to the box, from -1 to 1) and Lagrange's ``multipliers``, one for
each symbol of the tube. Planes, slopes and curvatures are found again; all of them are proved where they are used.

A class may have a tree of its own, ``cuts``. A node cuts a ``value`` of the tube, numbered in the order in which the
tube makes them, in two: the runs in which it is at most ``at``, and those in which it is at least ``at``. A leaf stands
for the runs that keep the cuts above it. It is proved where the interval of a value that was cut is empty, by affine
forms where the leaf is ``{}``, or by a ``point`` and ``multipliers``: after those of the symbols one for each value
that was cut, in the order of their numbers, for :math:`(y - low)(high - y) \ge 0`. Numbers do not depend on the cuts.

Whatever the numbers of the proof, what the checker accepts is so; rounding is inside every bound.

Sources: for planes and affine forms G. Singh, T. Gehr, M. Mirman, M. Pueschel, M. Vechev, Fast and effective robustness
certification, NeurIPS 2018; for the bound by multipliers N. Z. Shor, Quadratic optimization problems (1987).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Inner, is_float64, require
from stability.kernel.format.theorem_table import certifies
from stability.kernel.reachability.affine_forms import AffineArithmetic, Form
from stability.kernel.reachability.classifier_run import margins
from stability.kernel.reachability.input_box import count_perturbed, evaluate_at, input_box
from stability.kernel.reachability.network_stages import loop_of_channels
from stability.kernel.reachability.quadratic_relaxation import quadratic
from stability.kernel.systems.classifier import Classifier
from stability.kernel.theorems.local_ball import LocalClippedBall

Array = np.ndarray
DEEPEST = 200
"""Most nested cuts."""


@certifies("local_planes", subject=Classifier, claim="local_robustness", value="radius", unfit=loop_of_channels)
class LocalPlanes(LocalClippedBall):
    """Ball, ``tree`` of branch and bound, and ``bounds`` if a perturbed input stays between two numbers."""

    tree: Inner

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_ball(subject)
        leaves = self.node(subject, *input_box(self.x, self.radius, self.mask, self.bounds), self.tree, 0)
        return f"the margins of all inputs in {leaves} box{'es' * (leaves > 1)} that cover the ball are positive"

    def node(self, subject: Classifier, low: Array, high: Array, tree: Any, depth: int) -> int:
        """Prove a box; return the number of leaves."""
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
        tube = AffineArithmetic()
        margin = margins(subject, tube, low, high, self.label)
        others = [k for k in range(subject.classes) if k != self.label]
        named: dict[int, Mapping[str, Any]] = {}
        for entry in cast(Sequence[Any], classes):
            require(isinstance(entry, Mapping), "a class has class, point and multipliers")
            part = cast(Mapping[str, Any], entry)
            known = set(part) in ({"class", "point", "multipliers"}, {"class", "cuts"})
            require(known, "a class has class, point and multipliers, or class and cuts")
            require(type(part["class"]) is int and part["class"] not in named, "a class is a number, and named once")
            named[part["class"]] = part
        require(set(named) <= set(others), "a named class is none of the other classes")
        for row, other in enumerate(others):
            part = named.get(other)
            if part is not None and "cuts" in part:
                self._runs(subject, low, high, row, part["cuts"], {}, 0)
                continue
            proved = float(margin.low[row]) if part is None else self._by_parabolas(subject, tube, margin, row, part)
            self.require_below(other, proved > 0.0)

    def _runs(
        self, subject: Classifier, low: Array, high: Array, row: int, tree: Any, cuts: Mapping[int, Any], depth: int
    ) -> None:
        """Prove the margin of the runs of a box that satisfy the cuts."""
        require(isinstance(tree, Mapping) and depth <= DEEPEST, "a node of cuts must be a mapping, not too deep")
        node = cast(Mapping[str, Any], tree)
        if set(node) == {"value", "at", "parts"}:
            value, at = node["value"], node["at"]
            require(isinstance(node["parts"], (list, tuple)), "parts must be the two halves")
            parts = cast(Sequence[Any], node["parts"])
            require(len(parts) == 2, "parts must be the two halves")
            require(type(value) is int and value >= 0, "value must be the number of a value of the tube")
            require(isinstance(at, float) and bool(np.isfinite(at)), "at must be a number")
            least, most = cuts.get(value, (-np.inf, np.inf))
            self._runs(subject, low, high, row, parts[0], {**cuts, value: (least, min(most, at))}, depth + 1)
            self._runs(subject, low, high, row, parts[1], {**cuts, value: (max(least, at), most)}, depth + 1)
            return
        require(set(node) in (set(), {"point", "multipliers"}), "a node of cuts has value, at and parts, or is a leaf")
        tube = AffineArithmetic(cuts=cuts)
        margin = margins(subject, tube, low, high, self.label)
        require(set(tube.met) == set(cuts), "value must be the number of a value of the tube")
        if tube.empty:
            return
        proved = self._by_parabolas(subject, tube, margin, row, node) if node else float(margin.low[row])
        self.require_below(row + (row >= self.label), proved > 0.0)

    def _by_parabolas(
        self, subject: Classifier, tube: AffineArithmetic, margin: Form, row: int, part: Mapping[str, Any]
    ) -> float:
        point, multipliers, count = part["point"], part["multipliers"], tube.symbols + len(tube.met)
        require(not tube.merged, "there are no parabolas for a tube of so many symbols")
        arrays = all(is_float64(v) and np.isfinite(v).all() for v in (point, multipliers))
        fits = arrays and point.shape == (count_perturbed(tube),) and bool((np.abs(point) <= 1.0).all())
        require(fits, f"point must be {count_perturbed(tube)} numbers from -1 to 1")
        fits = multipliers.shape == (count,) and bool((multipliers >= 0.0).all())
        require(fits, f"multipliers must be {count} numbers from zero")
        met, _ = evaluate_at(subject, tube, point, self.label)
        return quadratic(tube, margin, row, met).least(multipliers)
