"""The figures of single inputs: their lines are the shares that the table gives, radius by radius."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stability.reports.figures import local as figures


def model(tmp_path: Path, radius: list[float], attacked: list[float | None], correct: list[int] | None = None) -> Any:
    frame = {"index": range(len(radius)), "label": 0, "correct": correct or [1] * len(radius), "radius": radius}
    frame |= {"attack_radius": attacked, "seconds": 0.1}
    return SimpleNamespace(title="A model", frames={"local": pd.DataFrame(frame)}, documents={"local": {"norm": "l2"}})


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What is handed to matplotlib, line by line."""
    seen: dict[str, Any] = {}
    monkeypatch.setattr(figures, "to_svg", lambda figure, name, text, titles: seen.update(axes=figure.axes) or "<svg/>")
    return seen


def at(axes: Any, name: str, radius: float) -> float:
    """The height of a line of steps at a radius."""
    (line,) = [line for line in axes.lines if line.get_label() == name]
    x, y = line.get_data()
    return float(y[np.searchsorted(x, radius, side="right") - 1])


def test_the_strip_lies_between_what_is_proved_and_what_attacks_leave(tmp_path: Path, drawn: dict[str, Any]) -> None:
    radius, attacked = [0.0, 0.2, 0.5, 0.0], [0.4, 0.3, None, 0.0]
    assert figures.sandwich(model(tmp_path, radius, attacked, [1, 1, 1, 0]), 0, "a") == "<svg/>"
    (axes,) = drawn["axes"]
    upper = [0.4, 0.3, np.inf, -1.0]
    for r in (0.01, 0.19, 0.21, 0.31, 0.39, 0.41, 0.49, 0.51):
        assert at(axes, "certified", r) == np.mean([c >= r for c in [0.0, 0.2, 0.5, -1.0]])
        assert at(axes, "left by attacks", r) == np.mean([u > r for u in upper])
    (remark,) = [band.get_label() for band in axes.collections]
    assert "0.25 wide" in remark  # (0.4 + 0.1) / 2


def test_ratios_are_counted_where_both_numbers_are(tmp_path: Path, drawn: dict[str, Any]) -> None:
    one = model(tmp_path, [0.25, 0.5, 0.3, 0.0, 0.0], [0.5, 0.5, None, 0.0, 0.5], [1, 1, 1, 0, 1])
    assert figures.ratios([one], "a") == "<svg/>"
    (axes,) = drawn["axes"]
    counts = axes.patches[0].get_data().values
    assert counts.tolist() == [1, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    assert figures.ratios([model(tmp_path, [0.1], [None])], "a") is None


@pytest.mark.parametrize("shape", [(6, 9), (12, 2), (2, 98)])
def test_inputs_are_drawn_as_pictures_or_lines(shape: tuple[int, int]) -> None:
    t, feature = (grid.ravel() for grid in np.indices(shape))
    rng = np.random.default_rng(0)
    rows = {"sample": 3, "t": t, "feature": feature, "value": rng.random(t.size), "change": rng.normal(size=t.size)}
    frame = pd.DataFrame(rows)
    record: Any = SimpleNamespace(title="A model", frames={"local_inputs": frame}, documents={})
    svg = figures.inputs(record, 0, "inputs")
    assert svg is not None
    size = float(np.linalg.norm(frame["change"]))
    assert f"change of norm {size:.2g}" in svg
    assert "input 3" in svg
    assert "A model" in svg
    assert len(re.findall("<path", svg)) < 400
