"""Small drawings of many models: staircases are the shares of the tables, on the same axes, strips as wide as said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stability.reports.figures import strips
from stability.reports.figures.small import Plot


def model(place: int, **frames: Any) -> Any:
    tables = {name: pd.DataFrame(frame) for name, frame in frames.items()}
    trainings = SimpleNamespace(several=False, curve=lambda *_: None, surface=lambda *_: None)
    return SimpleNamespace(
        name=f"m{place}", title=f"Model {place}", place=place, frames=tables, documents={}, trainings=trainings
    )


def radii(radius: list[float], attacks: list[float | None], correct: list[int]) -> dict[str, Any]:
    return {"index": range(len(radius)), "correct": correct, "radius": radius, "attack_radius": attacks}


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Plot, dict[str, Any]]]:
    """Each drawing with its lines by their mark, and its words."""
    seen: list[tuple[Plot, dict[str, Any]]] = []

    class Recorder(Plot):
        def line(self, xs: Any, ys: Any, color: str, mark: str = "", **more: Any) -> None:
            self.told[mark] = np.asarray(xs, dtype=float), np.asarray(ys, dtype=float)
            super().line(xs, ys, color, mark, **more)

        def name(self, words: str, *rest: Any, **more: Any) -> None:
            self.told["words"] = words
            super().name(words, *rest, **more)

        @property
        def told(self) -> dict[str, Any]:
            if not seen or seen[-1][0] is not self:
                seen.append((self, {}))
            return seen[-1][1]

    monkeypatch.setattr(strips, "Plot", Recorder)
    return seen


def height(line: tuple[np.ndarray, np.ndarray], at: float) -> float:
    """Of a staircase between two of its steps."""
    x, y = line
    return float(y[np.searchsorted(x, at, side="right") - 1])


def test_strips_of_single_inputs_are_those_of_the_table_on_one_axis(lines: list[Any]) -> None:
    two = [
        model(1, local=radii([0.0, 0.2, 0.5, 0.0], [0.4, 0.3, None, 0.0], [1, 1, 1, 0])),
        model(2, local=radii([0.1, 0.2], [0.9, 2.0], [1, 1])),
    ]
    drawn = strips.sandwich([*two, model(3)])
    assert [m.title for m, _ in drawn] == ["Model 1", "Model 2"]
    assert len({plot.x.high for plot, _ in lines}) == 1
    plot, told = lines[0]
    assert plot.x.high > 2.0
    for r in (0.01, 0.19, 0.21, 0.31, 0.39, 0.41, 0.49, 0.51, 1.5):
        assert height(told["proved"], r) == np.mean([c >= r for c in [0.0, 0.2, 0.5, -1.0]])
        assert height(told["measured"], r) == np.mean([u > r for u in [0.4, 0.3, np.inf, -1.0]])
    assert told["words"] == "strip 0.25 wide"  # (0.4 + 0.1) / 2
    assert all("<svg" in svg and "wide" in svg for _, svg in drawn)


def test_what_a_gain_proves_holds_below_a_radius_and_what_an_attack_leaves_above_it(lines: list[Any]) -> None:
    rows = {"attack": "strong", "norm": "l2", "epsilon": [0.0, 0.4, 0.8], "accuracy": [0.9, 0.6, 0.2]}
    told_of = {"robustness": {"radius": [0.0, 0.2, 0.4, 1.0], "certified_accuracy": [0.9, 0.5, 0.3, 0.1]}}
    ((_, svg),) = strips.proved([model(1, attacks=rows, **told_of), model(2, **told_of)])
    ((_, told),) = lines
    for r, low, high in ((0.1, 0.5, 0.9), (0.3, 0.3, 0.9), (0.5, 0.1, 0.6), (0.79, 0.1, 0.6)):
        assert height(told["proved"], r) == low
        assert height(told["measured"], r) == high
    share = (0.2 * 0.4 + 0.2 * 0.6 + 0.4 * 0.5) / 0.8
    assert told["words"] == f"strip {100 * share:.1f} % wide"
    assert told["words"].split(" wide")[0] in svg
