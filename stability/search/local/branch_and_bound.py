"""Branch and bound over boxes of inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.systems.classifier import Classifier
from stability.proposals import accepted_claim
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
Tree = Mapping[str, Any]
DEEP = 24
"""Most nested cuts: a file may be nested at most 64 deep."""


@dataclass(frozen=True)
class Outcome:
    """Outcome of one node: its leaf, or the entry at which to cut it; neither if that would not help.

    Attributes:
        leaf: leaf of the tree.
        cut: number of an entry, counted through all steps.
    """

    leaf: Tree | None = None
    cut: int | None = None


@dataclass(frozen=True, eq=False)
class About:
    """Input with its label, mask, bounds and deadline."""

    classifier: Classifier
    x: Array
    label: int
    mask: Array | None
    bounds: tuple[float, float] | None
    deadline: Deadline

    def claimed(self, kind: str, radius: float, **proof: Any) -> Claim | None:
        """Return the claim about an l_inf ball with the proof's own data, if the rule accepts it."""
        data: dict[str, Any] = {"x": self.x, "label": self.label, "norm": "linf", "radius": radius, **proof}
        if self.mask is not None:
            data["mask"] = self.mask
        if self.bounds is not None:
            data["bounds"] = self.bounds
        return accepted_claim(self.classifier, kind, data)


def tree_of(
    box: tuple[Array, Array], look: Callable[[Array, Array], Outcome], room: int, deadline: Deadline
) -> Tree | None:
    """Return a tree whose leaves are all proved, or ``None`` if none was found.

    Args:
        box: ends of the inputs.
        look: function of a piece that returns its result.
        room: largest number of pieces; an empty leaf also counts.
        deadline: time limit of the search.

    Example:
        >>> def small(low, high):
        ...     return Outcome({}) if high[0, 0] - low[0, 0] <= 1.0 else Outcome(cut=0)
        >>> tree_of((np.zeros((1, 1)), np.full((1, 1), 2.0)), small, 9, Deadline.from_limit(None))
        {'entry': 0, 'at': 1.0, 'parts': [{}, {}]}
    """
    remaining = room

    def node(low: Array, high: Array, depth: int) -> Tree | None:
        nonlocal remaining
        if remaining <= 0 or depth > DEEP or deadline.over:
            return None
        remaining -= 1
        proof = look(low, high)
        if proof.leaf is not None or proof.cut is None:
            return proof.leaf
        at = float(0.5 * low.flat[proof.cut] + 0.5 * high.flat[proof.cut])
        upper, lower = high.copy(), low.copy()
        upper.flat[proof.cut] = lower.flat[proof.cut] = at
        parts: list[Tree] = []
        for bounds in ((low, upper), (lower, high)):
            part = node(*bounds, depth + 1)
            if part is None:
                return None
            parts.append(part)
        return {"entry": proof.cut, "at": at, "parts": parts}

    return node(*box, 0)
