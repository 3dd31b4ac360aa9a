"""How well models do on their data: the number on the card, and the section where it is all there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..formatting import count, metric, metric_word, percent
from ..stored.collect import ModelRecord, Report
from ..stored.reasons import missing, told
from .layout import Cell, Section, Table

__all__ = ["Score", "performances", "score"]


@dataclass(frozen=True)
class Score:
    """The one number that says how well a model does, and on what."""

    label: str
    metric: str | None
    value: Any
    chance: Any


def score(model: ModelRecord) -> Score | None:
    """What training measured on held-out data; for a model that came without, what was measured here.

    Args:
        model: the record.
    """
    result = model.run.get("result")
    if isinstance(result, Mapping) and result:
        word = metric_word(model.metric)
        return Score(f"held-out {word}", model.metric, result.get("test_metric"), result.get("chance"))
    found = model.performance
    if not found:
        return None
    name = str(found.get("metric"))
    return Score(f"{metric_word(name)} on {_data(model)}", name, found.get("value"), found.get("chance"))


def _data(model: ModelRecord) -> str:
    """What the data are called."""
    task = model.analysis.get("task")
    task = task if isinstance(task, Mapping) else {}
    data = task.get("data")
    own = isinstance(data, Mapping) and data.get("source") == "arrays"
    return str(data.get("what", "arrays")) if own and isinstance(data, Mapping) else f"task {task.get('name', '')}"


def performances(report: Report) -> Section | None:
    """Models that came without a record of training, on the data that they were examined on.

    Args:
        report: what ``collect`` read.
    """
    given = [m for m in report.models if not m.run.get("result")]
    models = [m for m in given if m.performance]
    notes = tuple(f"{m.title}: {told(item)}" for m in given for item in missing(m, ("performance",)))
    if not models and not notes:
        return None
    rows = []
    for m in models:
        found = m.performance
        name = str(found.get("metric"))
        shown = [metric(found.get(key), name) for key in ("value", "chance")]
        rows.append(
            (
                Cell(m.title),
                Cell(_data(m)),
                Cell(metric_word(name)),
                *map(Cell, shown),
                Cell(count(found.get("sequences"))),
            )
        )
    header = ("model", "data", "measured by", "on the data", "guessing", "sequences")
    tables = [Table("Performance on the data", header, tuple(rows), (3, 4, 5))] if rows else []
    classes = tuple(
        (
            Cell(m.title),
            Cell(str(c.get("name"))),
            Cell(percent(c.get("accuracy"))),
            Cell(count(c.get("sequences"))),
            Cell(str(c.get("taken_for") or "never mistaken")),
        )
        for m in models
        for c in m.performance.get("by_class") or ()
        if isinstance(c, Mapping)
    )
    if classes:
        header = ("model", "class", "accuracy", "sequences", "most often taken for")
        tables.append(Table("Accuracy by class", header, classes, (2, 3)))
    return Section(
        "performance",
        "Performance on the data",
        "How well the models do on the sequences that they were examined on, undisturbed. Guessing is the best answer "
        "that ignores the input. Which of the sequences a model was trained on is not known here.",
        tuple(tables),
        notes=notes,
    )
