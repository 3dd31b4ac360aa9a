"""Drift of the state norm beyond the trained length, of all models on one pair of axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..formatting import count, number
from ..stored.facts import recommended
from ..stored.records import ModelRecord, select
from .figure import MUTED, PROVEN, RULE, UNDECIDED, WIDTH, Figure, blank, color_of
from .layout import counted, joined, lengths, logarithmic, name_ends, protocol, selected, short_names

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

POINTS = 300
LOWEST = 1e-3


@dataclass(frozen=True, eq=False)
class Norms:
    """Median norm of a network's state.

    Attributes:
        name: unique.
        label: for readers.
        state: the verdict.
        rows: columns step, value, and low and high of an interval over trainings or NaN; relative to the norm at the
            trained length.
        best: whether the network is recommended.
    """

    name: str
    label: str
    state: str | None
    rows: pd.DataFrame
    best: bool = False

    @property
    def ratio(self) -> float:
        """Norm at the end over that at the trained length."""
        return float(self.rows["value"].iloc[-1])

    @property
    def color(self) -> str:
        """Color of the verdict where the norm at least doubles or halves, blue for the recommended network."""
        return PROVEN if self.best else color_of(self.state) if drifts(self.ratio) else UNDECIDED


def drifts(ratio: float) -> bool:
    """Return True for a norm that has at least doubled or halved."""
    return not 0.5 < ratio < 2.0


def relative(frame: pd.DataFrame, length: int | None) -> pd.DataFrame | None:
    """Return norms over that at the trained length.

    Args:
        frame: columns step, value, and low and high of an interval or neither.
        length: trained length, in steps.
    """
    frame = frame.reindex(columns=["step", "value", "low", "high"]).dropna(subset=["value"]).sort_values("step")
    start = frame.loc[frame["step"] == length, "value"]
    if len(start) != 1 or not start.iloc[0] > 0 or frame["step"].max() <= length:
        return None
    columns = ["value", "low", "high"]
    frame[columns] = frame[columns].astype(float) / float(start.iloc[0])
    keep = np.unique(np.append(np.arange(0, len(frame), max(1, len(frame) // POINTS)), len(frame) - 1))
    return frame.iloc[keep].reset_index(drop=True)


def norm_drift(models: Sequence[ModelRecord]) -> Figure | None:
    """Return the figure of a report; ``None`` where no norm is known beyond a trained length."""
    best, names = recommended(models), short_names(models)
    found = [Norms(m.name, names[m.name], m.state, rows, m is best) for m in models if (rows := _rows(m)) is not None]
    shown, note = selected([m for m in models if any(m.name == f.name for f in found)])
    kept = {m.name for m in shown}
    known = {m.length for m in shown}
    length = next(iter(known)) if len(known) == 1 else None
    chosen = [f for f in found if f.name in kept]
    titles = {m.name: m.title for m in shown}
    return drift_figure(chosen, length, protocol(shown, _protocol), note, titles) if chosen else None


def _rows(model: ModelRecord) -> pd.DataFrame | None:
    frame, over = model.frames.get("norms"), model.trainings.curve("norms")
    if frame is None:
        return None
    if over is not None:
        return relative(over.rename(columns={"at": "step", "mean": "value"}), model.length)
    frame = select(frame, layer=frame["layer"].max())
    return relative(frame[["t", "q50"]].rename(columns={"t": "step", "q50": "value"}), model.length)


def drift_figure(
    found: Sequence[Norms], length: int | None, said: str, note: str = "", titles: dict[str, str] | None = None
) -> Figure:
    """Return the figure of some networks.

    Args:
        found: their norms.
        length: trained length in steps; ``None`` where networks differ in it.
        said: protocol.
        note: end of the reading.
        titles: full names of the networks.
    """
    table = pd.concat([f.rows.assign(model=f.name) for f in found], ignore_index=True)
    table = table.reindex(columns=["model", "step", "value", "low", "high"]).rename(columns={"value": "relative_norm"})
    start = "the trained length" if length is None else f"step {count(length)}"
    banded = "Bands: 95 % intervals over trainings. " if table["low"].notna().to_numpy().any() else ""
    quiet = "Gray: the norm stays within a factor of two. " if any(not drifts(f.ratio) for f in found) else ""
    reading = f"Median state norm over its value at {start}. {quiet}{banded}".rstrip() + note
    title = _finding(found, length, titles or {})
    return Figure("norm-drift", title, reading, said, table, partial(_draw, found, length))


def _draw(found: Sequence[Norms], length: int | None) -> Drawing:
    drawing = blank(WIDTH, 3.5)
    axes = drawing.subplots()
    late = np.concatenate([f.rows["value"][f.rows["step"] >= 0.25 * (length or 0)].to_numpy() for f in found])
    late = late[np.isfinite(late) & (late > 0)]
    last = max(float(f.rows["step"].iloc[-1]) for f in found)
    axes.set_xlim(0, last)
    axes.set_yscale("log")
    axes.set_ylim(
        max(LOWEST, min(0.2, 0.7 * float(late.min(initial=1.0)))), max(5.0, 1.6 * float(late.max(initial=1.0)))
    )
    logarithmic(axes.yaxis, 6)
    lengths(axes.xaxis, length, last)
    axes.grid(axis="y")
    axes.set_xlabel("step")
    axes.set_ylabel("state norm / norm at " + ("trained length" if length is None else f"step {length}"))
    if length is not None:
        axes.axvline(length, color=MUTED, linestyle=":", linewidth=1.0)
        axes.text(length, 1.01, " trained length", color=MUTED, fontsize=8, transform=axes.get_xaxis_transform())
    for f in sorted(found, key=lambda f: (f.best, f.color != UNDECIDED)):
        quiet = f.color == UNDECIDED and not drifts(f.ratio)
        axes.fill_between(f.rows["step"], f.rows["low"], f.rows["high"], color=f.color, alpha=0.15, linewidth=0)
        color = UNDECIDED if quiet else f.color
        axes.plot(
            f.rows["step"], f.rows["value"], color=color, alpha=0.35 if quiet else 1.0, linewidth=1.1 if quiet else 1.7
        )
    ends = [(f"{f.label} × {factor(f.ratio)}", f.rows["step"].iloc[-1], f.ratio, f.color) for f in found]
    name_ends(axes, ends)
    return drawing


def factor(value: float) -> str:
    """Return a factor to three digits, larger ones as whole numbers.

    Example:
        >>> factor(1.0053), factor(24.55)
        ('1.01', '24.6')
    """
    return count(value) if 1000 <= value < 1e6 else number(value)


def _finding(found: Sequence[Norms], length: int | None, titles: dict[str, str]) -> str:
    last = max(float(f.rows["step"].iloc[-1]) for f in found)
    beyond = "At the end" if length is None else f"At {number(last / length, 2)} times the trained length"
    if len(found) == 1:
        name = titles.get(found[0].name, found[0].label)
        return f"{beyond}, the state norm of {name} has changed by a factor of {factor(found[0].ratio)}."
    grown, fallen = (sum(test(f.ratio) for f in found) for test in (lambda r: r >= 2, lambda r: r <= 0.5))
    if not grown and not fallen:
        return f"{beyond}, all {len(found)} state norms are within a factor of two of their value there."
    parts = [
        f"{n} of {len(found)} state norms {'has' if n == 1 else 'have'} at least {word}"
        for n, word in ((grown, "doubled"), (fallen, "halved"))
        if n
    ]
    return f"{beyond}, {joined(parts)}."


def _protocol(model: ModelRecord) -> str:
    found = model.documents.get("drift", {})
    n, extension = (
        found.get("sequences"),
        {
            "repeat": "repeated",
            "zero": "followed by zeros",
            "hold": "held at their last value",
            "noise": "followed by noise",
        },
    )
    on = (
        f", inputs {extension[found['extension']]} beyond the trained length"
        if found.get("extension") in extension
        else ""
    )
    runs = f", {len(model.trainings.runs)} trainings" if model.trainings.several else ""
    return f"{counted(n, 'test sequence')}{on}{runs}" if isinstance(n, int) else ""
