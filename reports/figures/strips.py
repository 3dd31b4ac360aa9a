"""What is proved and what attacks leave, of many models: a small drawing each on the same axes, shaded between."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd

from ..formatting import number, percent
from ..stored.records import ModelRecord, select
from ..stored.sweeps import attacked
from .crowd import HEIGHT, WIDTH, Drawn
from .small import DASHED, INK, MUTED, Axis, Plot, color_of

LEVELS = 5
"""Shades of a drawn input."""
WIDE = 8
"""Features from which on an input is drawn as a picture, time downwards; fewer are drawn as lines over time."""

BINS = 10
"""Of the histograms of ratios."""


def _stairs(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ends of a staircase over a grid, and for each end the place on the grid whose value holds there."""
    return np.repeat(at, 2)[1:], np.repeat(np.arange(len(at)), 2)[:-1]


def _shares(model: ModelRecord, end: float) -> Plot:
    """Axes of accuracy over the radius."""
    x, y = Axis(0.0, end, title="radius"), Axis(0.0, 1.0, percent=True, title="accuracy")
    return Plot(model.title, x, y, WIDTH, HEIGHT, row=True)


def _strip(plot: Plot, at: np.ndarray, low: np.ndarray, high: np.ndarray, color: str, width: str) -> None:
    """Both staircases with the strip between them, whose width is said under the title."""
    ends, place = _stairs(at)
    plot.band(ends, low[place], high[place], color, "measured", opacity=0.25)
    plot.line(ends, high[place], color, "measured", dash=DASHED)
    plot.line(ends, low[place], color, "proved", width=2.4)
    plot.name(width, mark="measured")


def sandwich(models: Sequence[ModelRecord]) -> Drawn:
    """Share of single inputs that is certified within a radius, and that attacks leave."""
    known = [(m, found) for m in models if (found := radii(m)) is not None]
    every = [np.concatenate([radius, attacks[np.isfinite(attacks)]]) for _, (_, radius, attacks) in known]
    end, out = 1.05 * max([float(v.max(initial=0.0)) for v in every] + [1e-12]), []
    for m, (correct, radius, attacks) in known:
        at = np.unique([0.0, *radius, *attacks[np.isfinite(attacks)], end])
        low = np.array([(correct & (radius > r)).mean() for r in at])  # until the next place on the grid
        high = np.array([(correct & (attacks > r)).mean() for r in at])
        both = correct & np.isfinite(attacks)
        width = f"{number(float((attacks - radius)[both].mean()), 2)} wide" if both.any() else "no attack succeeded"
        plot = _shares(m, end)
        _strip(plot, at, low, high, color_of(m.place - 1), width if width[0] == "n" else f"strip {width}")
        middle = [number(float(np.median(r[correct]))) if correct.any() else "–" for r in (radius, attacks)]
        said = f"half are certified up to {middle[0]} and attacked from {middle[1]} on; the strip is {width}"
        out.append((m, plot.svg(f"{m.title}: of the inputs classified correctly {said}")))
    return out


def ratios(models: Sequence[ModelRecord]) -> Drawn:
    """How many single inputs have which share of their attacked radius certified."""
    found: list[tuple[ModelRecord, np.ndarray, float]] = []
    edges = np.linspace(0.0, 1.0, BINS + 1)
    for m in models:
        if (known := radii(m)) is None:
            continue
        correct, radius, attacks = known
        both = correct & np.isfinite(attacks) & (attacks > 0)
        if both.any():
            share = np.minimum(radius[both] / attacks[both], 1.0)
            found.append((m, np.histogram(share, edges)[0], float(np.median(share))))
    top, out = max([1.0] + [float(counts.max()) for _, counts, _ in found]), []
    for m, counts, middle in found:
        axes = Axis(0.0, 1.0, title="certified / attacked"), Axis(0.0, top, title="inputs")
        plot = Plot(m.title, *axes, WIDTH, HEIGHT, row=True)
        x, y = np.repeat(edges, 2)[1:-1], np.repeat(counts, 2)
        plot.band(x, np.zeros(len(y)), y, color_of(m.place - 1), "measured", opacity=0.4)
        plot.upright(middle, INK, "measured")
        said = f"median {number(middle, 2)}"
        plot.name(said, INK, "measured", dash="2 2")
        out.append((m, plot.svg(f"{m.title}: histogram of certified over attacked radius of single inputs, {said}")))
    return out


def inputs(models: Sequence[ModelRecord]) -> Drawn:
    """The input that gives way first, and beside it the change that an attack found."""
    out = []
    for m in models:
        frame = m.frames.get("local_inputs")
        if frame is None or frame.empty:
            continue
        sample = frame["sample"].to_numpy()[0]
        group = select(frame, sample=sample)
        values, change = (matrix_of(group, column) for column in ("value", "change"))
        size = number(float(np.sqrt((change**2).sum())), 2)
        said = f"Input {int(sample)} of {m.title} and the change of norm {size} that misclassifies it"
        words = f"changed by {size}"
        out.append((m, (_picture if values.shape[1] >= WIDE else _lines)(m, values, change, words, said)))
    return out


def _lines(model: ModelRecord, values: np.ndarray, change: np.ndarray, words: str, said: str) -> str:
    """Over time, the changed input dashed."""
    both = np.concatenate([values, values + change])
    t = np.arange(len(values))
    y = Axis(float(both.min()), float(both.max()), title="input")
    plot = Plot(model.title, Axis(0.0, float(max(len(t) - 1, 1)), title="time step"), y, WIDTH, HEIGHT, row=True)
    for k in range(values.shape[1]):
        plot.line(t, values[:, k], color_of(model.place - 1 + k), "measured", width=1.2)
        plot.line(t, values[:, k] + change[:, k], color_of(model.place - 1 + k), "measured", width=1.1, dash=DASHED)
    plot.name(words, mark="measured")
    return plot.svg(said)


def _picture(model: ModelRecord, values: np.ndarray, change: np.ndarray, words: str, said: str) -> str:
    """Shades of one colour for the input, of two for more and less, time downwards."""
    values, change = (shaded(v) for v in (values, change))
    root = ET.fromstring(Plot(model.title, Axis(0, 1), Axis(0, 1), WIDTH, HEIGHT).svg(said))
    head = root[0]
    root[:] = [head]
    root.attrib.pop("data-axes")
    holder = ET.SubElement(root, "g", {"class": "measured"})
    rows, columns = values.shape
    cell = min(106.0 / columns, (HEIGHT - 42.0) / rows)
    span, largest = float(np.ptp(values)) or 1.0, float(np.abs(change).max()) or 1.0
    layers = ((0, (values - values.min()) / span, INK), (1, np.maximum(change, 0) / largest, color_of(1)),
              (1, np.maximum(-change, 0) / largest, color_of(0)))  # fmt: skip
    for side, shares, color in layers:
        level = np.rint(LEVELS * shares).astype(int)
        for shade in range(1, LEVELS + 1):
            path = "".join(
                _rectangle(8.0 + 118.0 * side + cell * a, 22.0 + cell * i, cell * (b - a), cell)
                for i, line in enumerate(level == shade)
                for a, b in _runs(line)
            )
            if path:
                ET.SubElement(holder, "path", {"d": path, "fill": color, "opacity": f"{shade / LEVELS:g}"})
    small = {"font-size": "10px", "fill": MUTED}
    for x, word in ((8.0, "input"), (126.0, words)):
        element = ET.SubElement(root, "text", {"x": f"{x:g}", "y": f"{HEIGHT - 6:g}", **small})
        element.text = word
    return ET.tostring(root, encoding="unicode")


def _rectangle(x: float, y: float, width: float, height: float) -> str:
    """A path around it."""
    return f"M{x:.1f} {y:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"


def _runs(line: np.ndarray) -> list[tuple[int, int]]:
    """Beginnings and ends of what is true in a row."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2])]


def proved(models: Sequence[ModelRecord]) -> Drawn:
    """Accuracy that a certified gain proves for every input within a radius, and that the strongest attack leaves.

    What is proved of a radius holds for all below it, what an attack left for all above: both are staircases, and
    the strip between them is as wide as they say.
    """
    known = []
    for m in models:
        frame, rows = m.frames.get("robustness"), attacked(m, {"norm": "l2"})
        if frame is not None and rows is not None and len(frame) and len(rows):
            known.append((m, frame.sort_values("radius"), rows.sort_values("epsilon")))
    ends = [float(rows["epsilon"].max()) for *_, rows in known]
    end, out = max([*ends, 1e-12]), []
    for m, frame, rows in known:
        radius, share = (frame[key].to_numpy(dtype=float) for key in ("radius", "certified_accuracy"))
        size, left = (rows[key].to_numpy(dtype=float) for key in ("epsilon", "accuracy"))
        at = np.unique([0.0, *radius[radius <= end], *size])
        after = np.searchsorted(radius, np.append(at[1:], end), side="left")  # the whole step up to the next place
        low = np.append(share, 0.0)[np.minimum(after, len(share))]
        before = np.searchsorted(size, at, side="right") - 1
        high = np.where(before >= 0, left[np.maximum(before, 0)], 1.0)
        wide = float(np.clip(high - low, 0.0, None)[:-1] @ np.diff(at) / (at[-1] or 1.0)) if len(at) > 1 else 0.0
        plot = _shares(m, end)
        _strip(plot, at, low, high, color_of(m.place - 1), f"strip {percent(wide)} wide")
        said = f"accuracy proved and left by attacks over the radius; {percent(wide)} lie between on average"
        out.append((m, plot.svg(f"{m.title}: {said}")))
    return out


def radii(model: ModelRecord) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Whether an input is classified correctly, its certified radius, and its attacked one, infinite where none is."""
    frame = model.frames.get("local")
    if frame is None:
        return None
    attacked = frame["attack_radius"].to_numpy(dtype=float) if "attack_radius" in frame else np.full(len(frame), np.nan)
    correct = frame["correct"].to_numpy(dtype=float) > 0
    return correct, frame["radius"].to_numpy(dtype=float), np.where(np.isnan(attacked), np.inf, attacked)


def matrix_of(group: pd.DataFrame, column: str) -> np.ndarray:
    """``(time, features)`` of one input; entries that are not in the table are zero."""
    t, feature = (group[key].to_numpy(dtype=int) for key in ("t", "feature"))
    out = np.zeros((int(min(max(t.max(), 0), 10**4)) + 1, int(min(max(feature.max(), 0), 10**4)) + 1))
    good = (t >= 0) & (feature >= 0) & (t < out.shape[0]) & (feature < out.shape[1])
    out[t[good], feature[good]] = group[column].to_numpy(dtype=float)[good]
    return out


def shaded(values: np.ndarray) -> np.ndarray:
    """What is drawn of an input: a few frames of many numbers as a square, for as one line they would not be seen."""
    height, width = values.shape
    if not height or width <= 8 * height:
        return values
    side = int(np.ceil(np.sqrt(values.size)))
    flat = np.zeros(side * side)
    flat[: values.size] = values.ravel()
    return flat.reshape(side, side)
