"""The panels of the report, each drawn from stored tables alone.

Every function takes records and gives one ``<svg>``, or ``None`` where the files hold nothing to draw. A
model keeps its colour, its dash pattern and its marker through the whole page, so that no distinction rests
on colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..formatting import metric_word, number
from ..stored.records import ModelRecord, select
from ..vocabulary import NAMES
from .svg import INK, MUTED, label, legend_below, panel, series_color, to_svg

DASHES = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.6, 1.2, 1.6)), (0, (3, 1.2)), (0, (8, 2)))
LOWEST_EXPONENT = -0.75  # per step; what lies below is gone at once and would flatten the rest
FEW = 6  # lines whose bands are told apart
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")


def look(index: int) -> dict[str, Any]:
    """Colour, dash pattern and marker of the model with this index."""
    return {
        "color": series_color(index),
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markerfacecolor": "none" if index % 2 else series_color(index),
    }


def titles(models: Iterable[ModelRecord]) -> list[str]:
    """The names that stand in a figure."""
    return [m.title for m in models]


def _band(axes: Axes, x: Any, low: Any, high: Any, index: int, alpha: float = 0.15) -> None:
    axes.fill_between(x, low, high, color=series_color(index), alpha=alpha, linewidth=0)


def _faint(lines: Sized) -> float:
    """Opacity of bands: of many on top of each other each is nearly clear."""
    return 0.15 if len(lines) <= FEW else 0.05


def _plain_ticks(axes: Axes, which: str = "both") -> None:
    formatter = FuncFormatter(lambda v, _: number(v))
    if which in ("x", "both"):
        axes.xaxis.set_major_formatter(formatter)
    if which in ("y", "both"):
        axes.yaxis.set_major_formatter(formatter)


def _baseline(axes: Axes, value: float | None, text: str) -> None:
    if value is not None:
        axes.axhline(value, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), label=text)


def _percent_axis(axes: Axes, chance: float | None) -> None:
    axes.set_ylim(-0.02, 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
    axes.set_ylabel("accuracy")
    _baseline(axes, chance, "chance")


def _chance(models: Iterable[ModelRecord]) -> float | None:
    """What guessing gives, where it is the same for all."""
    values = {m.run.get("result", {}).get("chance") for m in models} - {None}
    return float(values.pop()) if len(values) == 1 else None


def _framed(models: Iterable[ModelRecord], frame: str) -> list[tuple[int, ModelRecord, pd.DataFrame]]:
    """The models that have such a table, with their places and the tables."""
    return [(i, m, m.frames[frame]) for i, m in enumerate(models) if frame in m.frames]


def _thin(x: Sized, most: int = 14) -> int:
    return max(1, round(len(x) / most))


def training(
    models: Sequence[ModelRecord], column: str, title: str, name: str, *, metric: str | None = None
) -> str | None:
    """One column of ``metrics.csv`` over epochs.

    Args:
        models: the records; all of them decide the colours.
        column: which column.
        title: the panel's title.
        name: identifier in the page.
        metric: of which task's metric the column holds values; models with another one are left out. ``accuracy`` is
            drawn in per cent, anything else as the number that it is.
    """
    with panel(title) as (figure, axes):
        drawn = []
        for i, m, frame in _framed(models, "metrics"):
            if column not in frame or np.isnan(frame[column].to_numpy(dtype=float)).all():
                continue
            if metric is None or m.metric == metric:
                over = m.trainings.curve("metrics", column)
                if over is not None:
                    _band(axes, over["at"], over["low"], over["high"], i)
                    frame = over.rename(columns={"at": "epoch", "mean": column})
                axes.plot(frame["epoch"], frame[column], label=label(m.title), markevery=_thin(frame), **look(i))
                drawn.append(m)
        if not drawn:
            return None
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if metric == "accuracy":
            _percent_axis(axes, _chance(drawn))
        else:
            _plain_ticks(axes, "y")
            axes.set_ylabel("loss" if metric is None else metric_word(metric))
            _baseline(axes, None if metric is None else _chance(drawn), "best constant answer")
        legend_below(axes)
        return to_svg(figure, name, f"{title} of {len(drawn)} models over epochs of training", titles(drawn))


def margin(models: Sequence[ModelRecord], criterion: str, name: str) -> str | None:
    """Signed margins of one criterion, in its own unit, a row a model; right of zero it holds."""
    known = [
        (i, m, m.trainings.number("margin", criterion), float(f["margin"]))
        for i, m in enumerate(models)
        for f in (m.certificate or {}).get("findings", ())
        if f["criterion"] == criterion and f["margin"] is not None
    ]
    if not known:
        return None
    with panel(str(NAMES.get(criterion, criterion)), height=0.85 + 0.26 * len(known)) as (figure, axes):
        for row, (i, _, spread, value) in enumerate(known):
            if spread is not None:
                value = spread["mean"]
                axes.plot([spread["low"], spread["high"]], [row, row], color=series_color(i), linewidth=5, alpha=0.3)
            axes.plot([0.0, value], [row, row], color=series_color(i), linewidth=1.2)
            style: dict[str, Any] = {**look(i), "linestyle": "none"}
            axes.plot([value], [row], **style)
        axes.axvline(0, color=INK, linewidth=1)
        axes.set_yticks(range(len(known)), [label(m.title) for _, m, _, _ in known])
        axes.set_ylim(len(known) - 0.5, -0.5)
        ends = [abs(end) for *_, spread, value in known for end in (value, *_ends(spread))]
        reach = 1.15 * max(ends) or 1.0
        axes.set_xlim(-reach, reach)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        _plain_ticks(axes, "x")
        axes.set_xlabel("← fails | margin | holds →")
        text = f"Margins of the criterion {NAMES.get(criterion, criterion)}; the numbers stand in the table"
        return to_svg(figure, name, text, titles(m for _, m, _, _ in known))


def _ends(spread: Mapping[str, float] | None) -> tuple[float, ...]:
    return () if spread is None else (spread["low"], spread["high"])


def rows_of(model: ModelRecord, frame: str, keys: Mapping[str, str]) -> pd.DataFrame | None:
    """What a perturbation leaves by its strength; of several trainings the mean and its interval."""
    strength, stored = ("level" if frame.startswith("noise") else "epsilon"), model.frames.get(frame)
    if stored is None:
        return None
    over = model.trainings.curve(frame, " ".join(keys.values()))
    if over is not None:
        value = "score" if frame.endswith("scores") else "accuracy"
        return over.rename(columns={"at": strength, "mean": value, "low": "ci_low", "high": "ci_high"})
    rows = select(stored, **keys)
    return None if rows.empty else rows.sort_values(strength)


def sweep(
    models: Sequence[ModelRecord],
    frame: str,
    keys: Mapping[str, str],
    title: str,
    axis: str,
    name: str,
    clean: Mapping[str, float],
) -> str | None:
    """Accuracy with its confidence band against the strength of a perturbation.

    Args:
        models: the records.
        frame: ``"noise"`` or ``"attacks"``.
        keys: columns and values that select the rows.
        title: the panel's title.
        axis: the horizontal axis in words.
        name: identifier in the page.
        clean: the accuracy of models by name, undisturbed; it stands at 0 in place of that of the curve's sequences.
    """
    strength = "level" if frame == "noise" else "epsilon"
    found = [(i, m, rows) for i, m in enumerate(models) if (rows := rows_of(m, frame, keys)) is not None]
    if not found:
        return None
    with panel(title) as (figure, axes):
        for i, m, rows in found:
            if m.name in clean:
                rows = rows[rows[strength] > 0]
                axes.plot([0.0], [clean[m.name]], "_", color=series_color(i), markersize=9, markeredgewidth=1.8)
            _band(axes, rows[strength], rows["ci_low"], rows["ci_high"], i, alpha=_faint(found))
            axes.plot(rows[strength], rows["accuracy"], label=label(m.title), **look(i))
        _percent_axis(axes, _chance(models))
        axes.set_xlabel(axis)
        _plain_ticks(axes, "x")
        legend_below(axes)
        return to_svg(figure, name, f"{title}: accuracy of each model against {axis}", titles(m for _, m, _ in found))


def scores(
    models: Sequence[ModelRecord], frame: str, keys: Mapping[str, str], title: str, axis: str, name: str
) -> str | None:
    """A task's metric with its confidence band against the strength of a perturbation; arguments as for ``sweep``."""
    strength, measured = ("level" if frame == "noise_scores" else "epsilon"), keys["metric"]
    found = [(i, m, rows) for i, m in enumerate(models) if (rows := rows_of(m, frame, keys)) is not None]
    if not found:
        return None
    with panel(title) as (figure, axes):
        for i, m, rows in found:
            _band(axes, rows[strength], rows["ci_low"], rows["ci_high"], i, alpha=_faint(found))
            axes.plot(rows[strength], rows["score"], label=label(m.title), **look(i))
        if measured == "accuracy":
            _percent_axis(axes, _chance(m for _, m, _ in found))
        else:
            _plain_ticks(axes, "y")
            axes.set_ylabel(metric_word(measured))
            _baseline(axes, _chance(m for _, m, _ in found), "best constant answer")
        axes.set_xlabel(axis)
        _plain_ticks(axes, "x")
        legend_below(axes)
        text = f"{metric_word(measured)} of each model against {axis}"
        return to_svg(figure, name, f"{title}: {text}", titles(m for _, m, _ in found))


def proved(models: Sequence[ModelRecord], keys: Mapping[str, str], title: str, name: str) -> str | None:
    """Certified accuracy (thick, a lower bound) and accuracy under attack (an upper bound) over l2 radii."""
    stored = _framed(models, "robustness")
    known = [(i, m, f[f["radius"] > 0]) for i, m, f in stored if float(f["radius"].to_numpy().max()) > 0]
    if not known:
        return None
    with panel(title) as (figure, axes):
        for i, m, frame in known:
            over = m.trainings.curve("robustness")
            if over is not None:
                frame = over.rename(columns={"at": "radius", "mean": "certified_accuracy"}).query("radius > 0")
                _band(axes, frame["radius"], frame["low"], frame["high"], i)
            axes.plot(frame["radius"], frame["certified_accuracy"], color=series_color(i), linewidth=3.4, alpha=0.6)
            rows = attacked(m, keys)
            if rows is None:
                axes.plot([], [], color=series_color(i), linewidth=3.4, alpha=0.6, label=label(m.title))
            else:
                rows = rows[rows["epsilon"] > 0]
                axes.plot(rows["epsilon"], rows["accuracy"], label=label(m.title), **look(i))
        _percent_axis(axes, _chance(models))
        axes.set(xscale="log", xlabel="radius, Euclidean norm of the change")
        axes.xaxis.set_major_locator(LogLocator(numticks=5))
        axes.xaxis.set_minor_locator(NullLocator())
        _plain_ticks(axes, "x")
        legend_below(axes)
        text = "certified accuracy and accuracy under attack of each model over the radius, logarithmic"
        return to_svg(figure, name, f"{title}: {text}", titles(m for _, m, _ in known))


def attacked(model: ModelRecord, keys: Mapping[str, str]) -> pd.DataFrame | None:
    """Accuracy under the strongest attack, of whole sequences or over the answers of each; ``None`` if neither."""
    frames = (("attacks", {"attack": "strong"}), ("attack_scores", {"attack": "pgd", "metric": "accuracy"}))
    every = (rows_of(model, name, {**keys, **more}) for name, more in frames)
    return next((rows.rename(columns={"score": "accuracy"}) for rows in every if rows is not None), None)


def density(model: ModelRecord, index: int, name: str) -> str | None:
    """Spectral density of the Hessian of one model."""
    frame = model.frames.get("density")
    if frame is None:
        return None
    with panel(label(model.title, 40)) as (figure, axes):
        y = frame["density"].clip(lower=frame["density"].max() * 1e-6)
        _band(axes, frame["eigenvalue"], y, y.min(), index, alpha=0.25)
        axes.plot(frame["eigenvalue"], y, color=series_color(index), linewidth=1.4)
        axes.set(yscale="log", xlabel="eigenvalue of the Hessian", ylabel="density")
        axes.yaxis.set_minor_locator(NullLocator())
        _plain_ticks(axes)
        text = f"Spectral density of the Hessian of {model.title}, logarithmic vertical axis"
        return to_svg(figure, name, text, [model.title])


def drift(models: Sequence[ModelRecord], name: str) -> str | None:
    """Median norm of the hidden state over time with the band from 10 % to 90 %."""
    frames = [(i, m.title, _medians(m, frame)) for i, m, frame in _framed(models, "norms")]
    lengths = {m.documents.get("drift", {}).get("trained_length") for m in models} - {None}
    return drift_of_frames(frames, lengths, name) if frames else None


def _medians(model: ModelRecord, frame: pd.DataFrame) -> pd.DataFrame:
    """A table of norms; of several trainings with the mean of their medians and its interval."""
    over = model.trainings.curve("norms")
    if over is None:
        return frame
    last = select(frame, layer=frame["layer"].max()).drop(columns=["q10", "q50", "q90"])
    means = over.rename(columns={"at": "t", "low": "q10", "mean": "q50", "high": "q90"})
    return last.merge(means[["t", "q10", "q50", "q90"]], on="t")


def drift_of_frames(frames: Sequence[tuple[int, str, pd.DataFrame]], lengths: set[Any], name: str) -> str:
    """The same from tables: columns layer, t, q10, q50, q90, and where known expected and envelope.

    Of a stack its last layer. A dotted line is the bound that a proof gives, a dash-dotted one the expected root mean
    square.

    Args:
        frames: index (it decides the colour), title and table of each model.
        lengths: lengths of the sequences that came first, marked by a line.
        name: identifier in the page.
    """
    theory: dict[str, str] = {}
    with panel("Norm of the hidden state over time") as (figure, axes):
        for i, title, frame in frames:
            frame = select(frame, layer=frame["layer"].max())
            keep = frame.iloc[:: _thin(frame, 160)]
            _band(axes, keep["t"], keep["q10"], keep["q90"], i)
            every = (4 * i % len(keep), _thin(keep, 8))
            axes.plot(keep["t"], keep["q50"], label=label(title), markevery=every, **look(i))
            for column, style, words in (("envelope", ":", "proved bound"), ("expected", "-.", "expected")):
                known = keep[keep[column].notna()] if column in keep else keep.iloc[:0]
                if len(known):
                    said = f"{label(title)}: {words}" if len(frames) <= FEW // 2 else None
                    theory |= {words: style} if said is None else {}
                    line: dict[str, Any] = {"color": series_color(i), "linestyle": style, "linewidth": 1.1}
                    axes.plot(known["t"], known[column], label=said, **line)
        for words, style in theory.items():  # of many, the colour says whose it is
            axes.plot([], [], color=MUTED, linestyle=style, linewidth=1.1, label=words)
        for k, length in enumerate(sorted(lengths)):
            named = "end of the sequence" if k == 0 else None
            axes.axvline(length, color=MUTED, linewidth=0.9, linestyle=(0, (2, 2)), label=named)
        axes.set(yscale="log", xlabel="time step", ylabel="‖h‖")
        axes.yaxis.set_minor_locator(NullLocator())
        _plain_ticks(axes)
        legend_below(axes)
        text = "Norm of the hidden state over time for each model, logarithmic vertical axis"
        return to_svg(figure, name, text, [title for _, title, _ in frames])


def exponents(models: Sequence[ModelRecord], name: str) -> str | None:
    """Lyapunov exponents in falling order."""
    found = _framed(models, "lyapunov")
    if not found:
        return None
    with panel("Lyapunov exponents along test sequences") as (figure, axes):
        for i, m, frame in found:
            frame = frame[np.isfinite(frame["per_step"])]
            over = m.trainings.curve("lyapunov")
            if over is not None:
                _band(axes, over["at"], over["low"], over["high"], i)
                frame = over.rename(columns={"at": "index", "mean": "per_step"})
            axes.plot(frame["index"], frame["per_step"], label=label(m.title), markevery=_thin(frame, 8), **look(i))
        axes.axhline(0, color=INK, linewidth=1)
        axes.set(xlabel="index", ylabel="exponent per step")
        if axes.get_ylim()[0] < LOWEST_EXPONENT:
            axes.set_ylim(bottom=LOWEST_EXPONENT)
            axes.set_ylabel(f"exponent per step, cut at {number(LOWEST_EXPONENT)}")
        _plain_ticks(axes)
        legend_below(axes)
        text = "Finite-time Lyapunov exponents of each model in falling order, along a few test sequences"
        return to_svg(figure, name, text, titles(models))


def curves(
    model: ModelRecord, series: Sequence[tuple[str, pd.DataFrame]], title: str, axis: str, name: str
) -> str | None:
    """Quantities of one model over training steps, each a ``(legend, frame with step and value)``."""
    series = [(legend, frame) for legend, frame in series if not frame.empty]
    if not series:
        return None
    with panel(f"{label(model.title, 36)}: {title}") as (figure, axes):
        for i, (legend, frame) in enumerate(series):
            axes.plot(frame["step"], frame["value"], label=legend, markevery=_thin(frame, 8), **look(i))
        axes.axhline(0, color=INK, linewidth=1)
        axes.set(xlabel="training step", ylabel=axis)
        _plain_ticks(axes)
        legend_below(axes)
        return to_svg(figure, name, f"{title} of {model.title} along training", [model.title])
