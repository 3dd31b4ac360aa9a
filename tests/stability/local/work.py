"""What a check costs, counted where it is spent: a test of hostile files fails as soon as they cost too much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from stability.local import refining, togo
from stability.local.bellman import Stage
from stability.local.clipped import Clipped
from stability.local.spans import Span
from stability.rules import local_cells

FLAT = 400
"""Boxes that cost about as much as one call of what looks at many at once."""


@dataclass
class Work:
    """Boxes that were looked at, and what calls cost besides.

    Attributes:
        most: at which the test fails.
        done: until now.
    """

    most: float
    done: float = 0.0

    def add(self, boxes: float) -> None:
        self.done += boxes + FLAT
        assert self.done <= self.most, f"a check looks at more than {self.most:g} boxes"

    def count(self, patch: pytest.MonkeyPatch, owner: Any, name: str, size: Callable[..., float]) -> None:
        """Count a function's calls, each with the boxes that ``size`` tells from its arguments."""
        function = getattr(owner, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            self.add(size(*args))
            return function(*args, **kwargs)

        patch.setattr(owner, name, counted)

    @classmethod
    def at_most(cls, boxes: float, patch: pytest.MonkeyPatch) -> Work:
        """All that looks at boxes of states and of moves, whichever rule asks, fails beyond so many."""
        own = cls(boxes)
        own.count(patch, Stage, "lines", lambda stage, table, boxes: len(boxes.y))
        own.count(patch, Span, "_touching", lambda span, side, B, z, *rest: len(z))
        own.count(patch, Clipped, "tangents", lambda clip, v: v.size * len(clip.E) / 16.0)
        for module in (togo, refining):
            own.count(patch, module, "least", lambda step, after, boxes: len(boxes.s))
        own.count(patch, local_cells, "image", lambda *rest: 0.0)
        own.count(patch, local_cells.Cells, "of", lambda low, high, cut, *rest: 0.0)
        return own
