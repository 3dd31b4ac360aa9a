"""Norm of the hidden state over time, the figure of ``stability compare``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any
from xml.etree import ElementTree as ET

import pandas as pd

from ..names import printable
from ..stored.records import select
from .crowd import span, thinned
from .small import DASHED, DOTTED, Plot, color_of

THEORY = (("envelope", "proved bound", DOTTED), ("expected", "expected", DASHED))
"""Column, name and dashes of what theory says."""


def norm_drift(frames: Sequence[tuple[str, pd.DataFrame]], lengths: Iterable[float]) -> str:
    """Draw the median norm and the band from 10 % to 90 %, with the proved bound and the expected root mean square.

    Args:
        frames: title and table of each model, with the columns layer, t, q10, q50, q90 and, if known, expected and
            envelope; the last layer is drawn.
        lengths: steps of the sequences that came first, marked by a line.

    Returns:
        One ``<svg>``.
    """
    last = [(title, select(frame, layer=frame["layer"].max())) for title, frame in frames]
    columns = ("q10", "q50", "q90", "envelope", "expected")
    y = span([f[c] for _, f in last for c in columns if c in f], log=True, title="‖h‖")()
    x = span([f["t"] for _, f in last], title="time step")()
    plot = Plot("Norm of the hidden state over time", x, y, 480.0, 300.0)
    for k, (title, frame) in enumerate(last):
        frame, color = thinned(frame), color_of(k)
        plot.band(frame["t"], frame["q10"], frame["q90"], color)
        plot.line(frame["t"], frame["q50"], color)
        plot.beneath(title, color)
        for column, words, dash in THEORY:
            if column in frame and frame[column].notna().to_numpy().any():
                plot.line(frame["t"], frame[column], color, width=1.1, dash=dash)
                plot.beneath(f"{title}: {words}", color)
    for length in sorted(set(lengths)):
        plot.upright(float(length))
    return plot.svg(f"Norm of the hidden state over time of {', '.join(printable(title) for title, _ in last)}")


def standalone(svg: str) -> str:
    """Return a drawing as a file of its own: with the page's light colours, on white."""
    css = resources.files("stability.reports.page.templates").joinpath("report.css").read_text(encoding="utf-8")
    light = css[css.index(":root") : css.index("}")]
    values: dict[str, Any] = dict(re.findall(r"(--[\w-]+):\s*(#[0-9a-f]{6})", light))
    root = ET.fromstring(svg)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key != "aria-label":
                element.set(key, re.sub(r"var\((--[\w-]+)\)", lambda m: values[m[1]], value))
    look = f"background: {values['--card']}; font-family: sans-serif"
    root.attrib.update({"xmlns": "http://www.w3.org/2000/svg", "style": look})
    return ET.tostring(root, encoding="unicode") + "\n"
