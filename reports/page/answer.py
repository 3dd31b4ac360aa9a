"""The answer: a ranked line a model, the steadiest first, with what it costs in accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard, cast
from urllib.parse import quote

import pandas as pd

from stability.statistics import student_half_width, wilson

from ..boxes import in_box
from ..formatting import (
    bound,
    bound_at,
    count,
    metric,
    number,
    percent,
    rate,
    signed,
    time_to,
    time_unit,
    verdict_sign,
    verdict_word,
)
from ..stored.collect import Report
from ..stored.records import ModelRecord, select
from .layout import NAMED, Cell, Column, Table, tabulate, text
from .marks import HEURISTIC, MEASURED, PROVED
from .performance import score
from .protocol import protocol

ORDER = ("certified", "inconclusive", "uncovered", "refuted", "invalid", "stale")
_ROUNDING = 1e-9  # relative; of exponents
TONES = {"certified": "good", "refuted": "bad", "invalid": "bad", "stale": "bad"}


def halved(model: ModelRecord) -> float | None:
    """The steps (a time, of a flow) after which the distance of two trajectories is proved to be at most half."""
    summary = model.certificate or {}
    return time_to(0.5, summary.get("pairs", ()), model.is_discrete) if model.state == "certified" else None


def ranked(models: Sequence[ModelRecord]) -> list[ModelRecord]:
    """Certified first, the faster the earlier; then what is open, then what is refuted; as they came where alike."""

    def key(m: ModelRecord) -> tuple[int, float]:
        when = halved(m)
        return ORDER.index(m.state) if m.state in ORDER else len(ORDER), math.inf if when is None else when

    return sorted(models, key=key)


def accuracy(model: ModelRecord) -> tuple[float, float, float] | None:
    """The one accuracy of a model on its data, undisturbed, with its 95 % interval; ``None`` for another metric."""
    found, task = score(model), model.analysis.get("task")
    n = model.performance.get("sequences") or (task.get("test") if isinstance(task, Mapping) else None)
    if found is None or found.metric != "accuracy" or not _real(found.value) or not _real(n):
        return None
    if not 0 <= found.value <= 1 or not n >= 1:
        return None
    return (float(found.value), *wilson(float(found.value), int(n)))


def within(value: float, low: float, high: float) -> str:
    """A share with its interval.

    Example:
        >>> within(0.5, 0.42, 0.58)
        '50.0 % (42.0 to 58.0 %)'
    """
    return f"{percent(value)} ({percent(low).removesuffix(' %')} to {percent(high)})"


def _real(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _accuracy(model: ModelRecord) -> str:
    found, known = score(model), accuracy(model)
    if known is None:
        return metric(found.value, found.metric) if found else "–"
    return within(*known)


def _answer(model: ModelRecord) -> Cell:
    mark = PROVED if model.state in ("certified", "refuted") else ""
    inside = (model.certificate or {}).get("like_data") or {}
    proved = model.state == "refuted" and inside.get("answer") == "certified"
    both = f"; {in_box(inside)}: proved" if proved else ""
    return Cell(
        f"{verdict_sign(model.state)} {verdict_word(model.state)}{both}",
        TONES.get(str(model.state), "quiet"),
        mark=mark,
    )


def _rate(model: ModelRecord) -> str:
    summary = model.certificate or {}
    return rate(summary.get("rate"), model.is_discrete) if model.state == "certified" else "–"


def _halved(model: ModelRecord) -> str:
    when = halved(model)
    if when is None:
        return "–"
    return f"{number(when, 4)} {time_unit(model.is_discrete)}"


def _bound(model: ModelRecord) -> str:
    summary = model.certificate or {}
    known = model.state == "certified" and model.is_discrete and model.length is not None and not summary.get("driven")
    found = bound_at(model.length, summary.get("pairs", ()), True) if known and model.length is not None else None
    return "–" if found is None else f"× {bound(found, 3, up=True)}"


def _exponent(model: ModelRecord) -> str:
    """The mean over the sequences, or over the trainings where there are several, with half its 95 % interval."""
    told, frame = model.documents.get("exponents", {}), model.frames.get("lyapunov")
    largest, n = told.get("largest"), told.get("trajectories")
    over = model.trainings.curve("lyapunov") if model.trainings.several else None
    if over is not None:
        mean, low, high = (float(over[name].iloc[0]) for name in ("mean", "low", "high"))
        return f"{signed(mean)} ± {_half(mean, 0.5 * (high - low))}"
    error = frame["standard_error"].iloc[0] if frame is not None and "standard_error" in frame else math.nan
    if not (_real(largest) and _real(n) and n >= 2 and pd.notna(error)):
        return signed(largest)
    return f"{signed(largest)} ± {_half(largest, student_half_width(float(error), int(n)))}"


def _half(value: float, half: float) -> str:
    """Half an interval; what rounding leaves of none is none: the steps of a linear network do not depend on data."""
    return number(half if half > _ROUNDING * (1.0 + abs(value)) else 0.0, 2)


def _radius(models: Sequence[ModelRecord]) -> float | None:
    """The one size of perturbations at which models are compared: the second smallest that all were attacked with."""
    frames = [m.frames["attacks"] for m in models if "attacks" in m.frames]
    sizes = [set(select(frame, attack="strong", norm="l2")["epsilon"]) for frame in frames]
    common = sorted(e for e in set.intersection(*sizes) if e > 0) if sizes else []
    return float(common[min(1, len(common) - 1)]) if common else None


def _attacked(model: ModelRecord, size: float) -> str:
    frame = model.frames.get("attacks")
    if frame is None:
        return "–"
    rows = select(frame, attack="strong", norm="l2", epsilon=size)
    return "–" if rows.empty else within(*(float(rows[name].iloc[0]) for name in ("accuracy", "ci_low", "ci_high")))


def _certified(model: ModelRecord, size: float) -> str:
    """The certified accuracy at the next radius that is stored: a lower bound, for it falls with the radius."""
    frame = model.frames.get("robustness")
    if frame is None:
        return "–"
    above = cast(pd.DataFrame, frame[frame["radius"] >= size * (1 - 1e-12)])
    return percent(0.0 if above.empty else float(above.sort_values("radius")["certified_accuracy"].iloc[0]))


def _file(model: ModelRecord) -> Cell:
    there = (model.folder / "certificate.json").is_file()
    return Cell("file", href=f"models/{quote(model.name)}/certificate.json") if there else Cell("–", "quiet")


def answer(report: Report) -> tuple[Table, ...]:
    """Return one table with a row for each model, in the order of the report's models.

    Args:
        report: what ``collect`` read.
    """
    models, size = report.models, _radius(report.models)
    lengths = {m.length for m in models if m.state == "certified" and m.length is not None}
    steps = f"{count(min(lengths))} steps, the trained length" if len(lengths) == 1 else "the trained length"
    labels = dict.fromkeys(s.label for m in models if (s := score(m)) is not None)
    columns: list[Column] = [
        NAMED,
        text("answer", _answer),
        text("certified rate", _rate, PROVED),
        Column("distance at most half after", _halved, mark=PROVED),
        Column(f"bound after {steps}", _bound, mark=PROVED),
        Column("mean exponent along the data (95 %)", _exponent, mark=MEASURED),
        Column(f"{' or '.join(labels) or 'accuracy'} (95 %)", _accuracy, mark=MEASURED),
    ]
    if size is not None:
        columns += [
            Column(f"attacked, ‖δ‖₂ ≤ {number(size)} (95 %)", lambda m: _attacked(m, size), mark=MEASURED),
            Column("certified there by a gain", lambda m: _certified(m, size), mark=HEURISTIC),
        ]
    columns.append(text("proof", _file))
    lines = {"held-out": "training", "on data": "performance", "exponents": "lyapunov", "attacks": "attacks"}
    said = [f"{name}: {line}" for name, step in lines.items() if (line := protocol(models, step))]
    return tabulate(
        "The answer: the steadiest first, then what is open, then what is refuted",
        [c for c in columns if c.title == "model" or any(_text(c.show(m)) != "–" for m in models)],
        models,
        "nothing proved, or not measured; why stands with the model",
        protocol="; ".join(said),
        made=("certificate", "lyapunov", "attacks", "training"),
    )


def _text(cell: Any) -> str:
    return cell.text if isinstance(cell, Cell) else str(cell)
