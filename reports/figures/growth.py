"""Where on the data a network is unstable, and the eigenvalues of the map that runs, there and elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..formatting import number, percent
from ..stored.records import ModelRecord, select
from .crowd import square
from .small import BAD, GOOD, INK, MUTED, Axis, Plot, Rows, color_of

WIDTH, HEIGHT = 320.0, 210.0
COLUMNS = 112
"""Steps that are drawn beside each other; of more, some share a column, which shows the largest of them."""
LEVELS = ((-np.inf, GOOD, 0.42), (-0.1, GOOD, 0.16), (0.0, BAD, 0.26), (0.1, BAD, 0.55), (0.3, BAD, 0.95))
"""From which exponent on a step has which colour, and how strong."""
CELLS = 150
"""Places beside each other at which a dot may stand; dots on one place are one."""


def exponents(model: ModelRecord) -> np.ndarray | None:
    """Local exponents ``(sequences, steps)``, NaN where a step leaves nothing; ``None`` where none were measured."""
    frame = model.frames.get("growth")
    if frame is None:
        return None
    table = frame.drop_duplicates(["sequence", "t"]).pivot(index="sequence", columns="t", values="exponent")
    return table.to_numpy(dtype=float)


def growth(model: ModelRecord) -> str | None:
    """Sequences over steps, coloured by the growth of the fastest direction, the least stable sequence at the top."""
    found = exponents(model)
    if found is None:
        return None
    told: Mapping[str, Any] = model.documents.get("growth", {})
    means = np.where(np.isnan(found), -50.0, found).mean(1)
    order = np.argsort(-means, kind="stable")
    values, steps = found[order], found.shape[1]
    every = -(-steps // COLUMNS)
    blocks = [np.where(np.isnan(b), -np.inf, b).max(1) for b in np.split(values, range(every, steps, every), axis=1)]
    shown = np.column_stack(blocks)
    count = len(order)
    names = {count - 0.5 - k: f"no. {order[k]}" for k in sorted({0, count // 2, count - 1})}
    axis = Rows(0.0, float(count), title="test sequences", names=names)
    plot = Plot("Growth along the data", Axis(0.0, float(steps), title="step"), axis, WIDTH, HEIGHT)
    starts = [low for low, _, _ in LEVELS]
    levels = np.searchsorted(starts, shown, side="right") - 1
    levels = np.where(shown > 0, np.maximum(levels, 2), np.minimum(levels, 1))
    for k, (_, color, strength) in enumerate(LEVELS):
        plot.cells(_runs(levels == k, every, steps), color, "measured", opacity=strength)
    worst = f"; no. {order[0]} has the largest mean, {number(float(means[order[0]]))} a step"
    share = percent(told.get("growing")) if isinstance(told.get("growing"), (int, float)) else "an unknown share"
    return plot.svg(
        f"Growth of the fastest direction of {model.title} in {steps} steps of {count} test sequences: it grows in "
        f"{share} of the steps{worst}"
    )


def _runs(where: np.ndarray, every: int, steps: int) -> list[tuple[float, float, float, float]]:
    """Rectangles of cells beside each other, from the top: left, right, bottom, top."""
    out = []
    for k, row in enumerate(where):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
        bottom = float(len(where) - 1 - k)
        out += [(float(a * every), float(min(b * every, steps)), bottom, bottom + 1) for a, b in edges.reshape(-1, 2)]
    return out


def map_eigenvalues(model: ModelRecord) -> str | None:
    """The unit disc, eigenvalues of Jacobians along the data (light), of the steepest map, and the one of a proof."""
    frame = model.frames.get("jacobians")
    if frame is None:
        return None
    data, steepest = (select(frame, what=what)[["real", "imag"]].to_numpy(float) for what in ("data", "slope"))
    found = (model.certificate or {}).get("eigenvalue")
    named = (float(found[0]), float(found[1])) if found else None
    every = np.vstack([data, steepest, [[1.0, 1.0], [-1.0, -1.0]], *([[named]] if named else [])])
    low, high = every.min(0), every.max(0)
    reach = 0.54 * float((high - low).max())
    (a, b), color = (low + high) / 2, color_of(model.place - 1)
    x, y = Axis(a - reach, a + reach, title="real part"), Axis(b - reach, b + reach, title="imaginary part")
    plot = Plot("Eigenvalues of the map that runs", x, y, WIDTH, 250.0)
    square(plot)
    turn = np.linspace(0, 2 * np.pi, 181)
    plot.line(np.cos(turn), np.sin(turn), INK, width=1.0)
    if len(steepest):
        plot.dots(steepest[:, 0], steepest[:, 1], color, "heuristic", size=3.6)
    cell = 2 * reach / CELLS
    places = np.unique(np.round(data / cell).astype(int), axis=0) * cell
    plot.dots(places[:, 0], places[:, 1], MUTED, "measured", size=2.2, opacity=0.55)
    outside = int((np.hypot(data[:, 0], data[:, 1]) > 1).sum())
    said = f"{outside} of {len(data)} eigenvalues of Jacobians along the data lie outside the unit circle"
    if named:
        plot.ring(named[0], named[1], BAD, "proved")
        side, anchor = (-8.0, "end") if named[0] > a else (8.0, "start")
        size = number(float(np.hypot(*named)), 4)
        plot.say(named[0], named[1], f"modulus {size}", BAD, "proved", anchor=anchor, shift=(side, -7.0))
        said += f"; the one of the refutation, of modulus {size}, is ringed"
    return plot.svg(f"Eigenvalues of the map that {model.title} runs, in the complex plane: {said}")
