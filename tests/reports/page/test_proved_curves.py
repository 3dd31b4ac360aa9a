"""Curves that are marked as proved show the certificate's own numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from stability.certification import certify
from stability.reports.figures.small import Axis, Plot
from stability.reports.figures.trajectories import HIGHEST, trajectories
from stability.reports.formatting import bound_at
from stability.reports.stored.certificates import view
from stability.reports.stored.records import ModelRecord
from stability.systems import LureSystem


def proved_lines(svg: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Vertices of each proved line in the units of the axes."""
    root = ET.fromstring(svg)
    left, top, right, bottom, x0, x1, _, y0, y1, log = map(float, root.get("data-axes", "").split())
    assert log
    for path in root.iterfind("g[@class='proved']/path[@fill='none']"):
        for piece in path.get("d", "").removeprefix("M").split("M"):
            x, y = np.array([point.split() for point in piece.split("L")], dtype=float).T
            yield x0 + (x1 - x0) * (x - left) / (right - left), y0 * (y1 / y0) ** ((bottom - y) / (bottom - top))


def test_a_proved_curve_gives_the_values_of_the_certificate() -> None:
    """Bounds that rise far above the measured range, that fall below the axis, and of several certified rates."""
    first = view(certify(LureSystem([[0.5]], [[0.0]], [[0.0]], dt=1.0)))
    several = ([[0.5, 1.0]], [[0.98, 8.0]], [[0.9, 4e4]], [[0.97, 1.5], [0.9, 80.0]], [[0.9, 1e6], [0.99, 12.0]])
    models = [ModelRecord(str(k), Path(), {**first, "pairs": pairs}, {}, {}) for k, pairs in enumerate(several)]
    drawn = trajectories(models)
    assert len(drawn) == len(models)
    for model, svg in drawn:
        pairs = (model.certificate or {})["pairs"]
        highest = bound_at(0.0, pairs, True)
        (x, y), *_ = [line for line in proved_lines(svg) if line[0].size > 1 and line[0][0] >= -1e-6]
        assert (x[0] == pytest.approx(0.0, abs=0.1)) == (highest <= HIGHEST)
        for at in np.linspace(x[0], x[-1], 10):
            drawn_at = math.exp(np.interp(at, x, np.log(y)))
            assert drawn_at == pytest.approx(bound_at(at, pairs, True), rel=0.02), (model.name, at)


def test_lines_are_cut_at_the_edges_of_the_axes() -> None:
    plot = Plot("cut", Axis(0.0, 4.0), Axis(1.0, 1e4, log=True))
    plot.line([0, 1, 2, 3, 4], [10, 1e6, 10, 0.1, 100], "black", "proved")
    pieces = [(x.round(1).tolist(), y.round(0).tolist()) for x, y in proved_lines(plot.svg("")) if len(x) > 1]
    assert [x for x, _ in pieces] == [[0.0, 0.6], [1.4, 2.0, 2.5], [3.3, 4.0]]
