"""Curves that are marked as proved show the certificate's own numbers."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from stability.certification import certify
from stability.reports.figures.two_runs import two_runs
from stability.reports.formatting import bound_at
from stability.reports.stored.certificates import view
from stability.reports.stored.records import ModelRecord
from stability.systems import LureSystem

SEVERAL = (
    [[0.5, 1.0]],
    [[0.98, 8.0]],
    [[0.9, 4e4]],  # begins above the axes
    [[0.97, 1.5], [0.9, 80.0]],
    [[0.9, 1e6], [0.99, 12.0]],
    [[0.01, 3.0]],  # falls below them at once
)


@pytest.fixture(scope="module")
def models() -> list[ModelRecord]:
    first = view(certify(LureSystem([[0.5]], [[0.0]], [[0.0]], dt=1.0)))
    return [ModelRecord(f"model {k}", Path(), {**first, "pairs": pairs}, {}, {}) for k, pairs in enumerate(SEVERAL)]


def curves(svg: str) -> dict[str, tuple[np.ndarray, np.ndarray, tuple[float, float]]]:
    """Vertices of each marked line in the units of its axes, and the range of the vertical axis."""
    found = {}
    for group in ET.fromstring(svg).iterfind(".//*[@data-curve]"):
        *words, scale = group.get("data-axes", "").split()
        assert (words.pop(6), scale) == ("linear", "log")
        left, top, right, bottom, x0, x1, y0, y1 = map(float, words)
        (path,) = group
        numbers = np.array(re.findall(r"-?[\d.]+", path.get("d", "")), dtype=float).reshape(-1, 2)
        assert re.fullmatch(r"(M|[L\d.\s-])+", path.get("d", ""))
        x = x0 + (x1 - x0) * (numbers[:, 0] - left) / (right - left)
        exponent = (bottom - numbers[:, 1]) / (bottom - top)
        found[group.get("data-curve")] = x, y0 * (y1 / y0) ** exponent, (y0, y1)
    return found


def test_a_proved_curve_gives_the_values_of_the_certificate(models: list[ModelRecord]) -> None:
    """At ten steps the drawn bound is never below the certified one, and at most 2 % above it."""
    figure = two_runs(models)
    assert figure is not None
    drawn = curves(figure.svg())
    assert sorted(drawn) == [m.name for m in models]
    for name, pairs in zip(sorted(drawn), SEVERAL):
        x, y, (low, high) = drawn[name]
        for step in np.linspace(0, 100, 10).round():
            shown = np.clip(np.exp(np.interp(step, x, np.log(y))), low, high)  # lines are cut at the ends of the axes
            proved = np.clip(bound_at(step, pairs, True), low, high)
            assert 0.999 * proved <= shown <= 1.02 * proved, (name, step)


def test_a_clamped_curve_is_noticed(models: list[ModelRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[two_runs.__module__]
    honest = module.envelope
    monkeypatch.setattr(module, "envelope", lambda m, s: None if (v := honest(m, s)) is None else np.minimum(v, 100.0))
    with pytest.raises(AssertionError, match="model"):
        test_a_proved_curve_gives_the_values_of_the_certificate(models)
