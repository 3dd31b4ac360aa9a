"""How well models do on their data: the number on the card, and the section where it is all there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..formatting import count, metric, metric_word, percent
from ..stored.collect import Report
from ..stored.reasons import missing
from ..stored.records import ModelRecord
from .layout import NAMED, Column, Section, field, named, tabulate, text
from .marks import MEASURED
from .protocol import protocol


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
        word += ", first training" * model.trainings.several
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


def _metric(title: str, name: str) -> Column:
    """A column of ``performance.json`` in the metric that it names."""
    return Column(title, lambda m: metric(m.performance.get(name), str(m.performance.get("metric"))), mark=MEASURED)


def performances(report: Report) -> Section | None:
    """Models that came without a record of training, on the data that they were examined on.

    Args:
        report: what ``collect`` read.
    """
    given = [m for m in report.models if not m.run.get("result")]
    models = [m for m in given if m.performance]
    notes = tuple(f"{m.title}: {item.text}" for m in given for item in missing(m, ("performance",)))
    if not models and not notes:
        return None
    tables = tabulate(
        "Performance on the data",
        (
            NAMED,
            text("data", _data),
            text("measured by", lambda m: metric_word(m.performance.get("metric"))),
            _metric("on the data", "value"),
            _metric("guessing", "chance"),
            field("sequences", "performance", "sequences", count),
        ),
        models,
        protocol=protocol(models, "performance"),
        made=("performance",),
    ) + tabulate(
        "Accuracy by class",
        (
            text("model", lambda row: named(row[0])),
            text("class", lambda row: row[1].get("name")),
            Column("accuracy", lambda row: percent(row[1].get("accuracy")), mark=MEASURED),
            Column("sequences", lambda row: count(row[1].get("sequences"))),
            text("most often taken for", lambda row: row[1].get("taken_for") or "never mistaken"),
        ),
        [(m, c) for m in models for c in m.performance.get("by_class") or () if isinstance(c, Mapping)],
        protocol=protocol(models, "performance"),
        made=("performance",),
    )
    return Section(
        "performance",
        "Performance on the data",
        "How well the models do on the sequences that they were examined on, undisturbed. Guessing is the best answer "
        "that ignores the input. Which of the sequences a model was trained on is not known here.",
        tables,
        notes=notes,
    )
