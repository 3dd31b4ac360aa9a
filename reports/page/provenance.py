"""How a report was made: versions, seeds, data, times, and the commands that check it again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from stability.storage.artifacts import STEPS

from ..boxes import interval
from ..formatting import WORDS, count, duration, verdict_word
from ..stored.collect import ModelRecord, Report
from ..stored.reasons import missing, model_advice
from .layout import Cell, Table

__all__ = ["Made", "lead", "made"]

NO_COMMAND = "no command gives it"
UNKNOWN = "not recorded"
NOTHING = "gave nothing; why stands under what is not shown"
WHERE = (
    ". Commands are for the folder in which the report's own was given; those with models/ for the folder of this page"
)
CHANGED = "changed after the analysis wrote it, or removed: the command that made the report does that step again"

TOLD = (
    "epochs",
    "lr",
    "milestones",
    "batch_size",
    "optimizer",
    "clip",
    "weight_decay",
    "patience",
    "margin_penalty",
    "margin_target",
    "seed",
)


@dataclass(frozen=True)
class Made:
    """The last section's text and tables, the commands that check it, and the one that made it."""

    text: str
    tables: tuple[Table, ...]
    commands: tuple[str, ...]
    command: str


def lead(report: Report) -> str:
    """The report in a few sentences."""
    states = list(dict.fromkeys([*WORDS, None, *(m.state for m in report.models)]))
    groups = {s: [m.title for m in report.models if m.state == s] for s in states}
    parts = [f"{len(who)} {verdict_word(s)} ({', '.join(who)})" for s, who in groups.items() if who]
    total = len(report.models)
    noun = "recurrent network" if total == 1 else "recurrent networks"
    what = f"{total} {noun}, examined for global stability and robustness: {'; '.join(parts)}."
    if report.failed:
        what += f" Not examined: {', '.join(report.failed)}; the reasons stand at the end."
    return f"{what} {_rechecked(report)}".strip()


def _rechecked(report: Report) -> str:
    """What the checker said when the page was drawn."""
    files = [m for m in report.models if m.checked]
    if not files:
        return ""
    bad = sum(bool(m.refused) for m in files)
    what = "The certificate was" if len(files) == 1 else f"All {len(files)} certificates were"
    return f"{what} checked again when this page was drawn{f': {bad} did not verify' if bad else ''}."


def _not_run(report: Report) -> Table | None:
    rows = [
        (Cell(m.title), Cell(", ".join(item.steps)), Cell(item.reason), Cell(item.command or NO_COMMAND))
        for m in report.models
        for item in missing(m)
    ]
    rows += [
        (Cell(m.title), Cell("more than this"), Cell(why), Cell(how))
        for m in report.models
        for why, how in model_advice(m)
    ]
    rows += [
        (
            Cell(m.title),
            Cell(", ".join(m.changed)),
            Cell(CHANGED),
            Cell(str(report.settings.get("command") or NO_COMMAND)),
        )
        for m in report.models
        if m.changed
    ]
    rows += [
        (Cell(name), Cell("everything"), Cell(why), Cell(str(report.settings.get("command") or NO_COMMAND)))
        for name, why in report.failed.items()
    ]
    header = ("model", "what", "reason", "command that would give it")
    return Table(f"What is not shown, and why{WHERE}", header, tuple(rows)) if rows else None


def _data(report: Report) -> Table | None:
    """Files of one's own that models were examined or trained on."""
    rows = []
    for m in report.models:
        task = m.analysis.get("task")
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(task, dict) or not isinstance(data, dict) or data.get("source") != "arrays":
            continue
        span = interval(m.analysis.get("input_range"))
        span += ", stated" if span and data.get("bounds") == "stated" else ""
        parts = f"{count(task.get('test'))} to test, {count(task.get('train'))} to train"
        size = f"{count(task.get('steps'))} steps of {count(task.get('input_size'))} features"
        rows.append(
            (
                Cell(m.title),
                Cell(str(data.get("what", "arrays"))),
                Cell(f"{parts}; {data.get('held_out', '')}"),
                Cell(size),
                Cell(span),
                Cell(str(data.get("digest", ""))),
            )
        )
    header = ("model", "file", "sequences", "each", "inputs in", "SHA-256 of the file")
    return Table("Data of one's own", header, tuple(rows)) if rows else None


def _seconds(report: Report) -> Table | None:
    steps = [s for s in STEPS if any(_time(m, s) is not None for m in report.models)]
    rows = tuple((Cell(m.title), *(Cell(duration(_time(m, s))) for s in steps)) for m in report.models)
    if not steps:
        return None
    return Table(
        "Time spent, by step", ("model", *(STEPS[s] for s in steps)), rows, tuple(range(1, len(steps) + 1)), NOTHING
    )


def _time(model: ModelRecord, step: str) -> float | None:
    if step == "training":
        return model.run.get("result", {}).get("seconds")
    return model.step(step).get("seconds") if model.step(step)["status"] == "done" else None


def _options(options: Any) -> str:
    return (
        ", ".join(f"{k} {v}" for k, v in options.items() if v is not None and v is not False)
        if isinstance(options, dict)
        else ""
    )


def _models(report: Report) -> Table | None:
    rows = []
    for m in report.models:
        model, task, training = (m.run.get(k, {}) for k in ("model", "task", "training"))
        if m.run:
            rows.append(
                (
                    Cell(m.title),
                    Cell(f"{model.get('layer', '')}: {_options(model.get('config'))}"),
                    Cell(f"{task.get('name', '')}: {_options(task.get('options'))}"),
                    Cell(_options({k: training[k] for k in TOLD if training.get(k)})),
                )
            )
        else:
            rows.append(
                (Cell(m.title), Cell(str(m.analysis.get("source", "given as a file"))), *[Cell(UNKNOWN, "quiet")] * 2)
            )
    return Table("Models, data and training", ("model", "layer", "task", "training"), tuple(rows)) if rows else None


def made(report: Report) -> Made:
    """The section on how the report came to be.

    Args:
        report: what ``collect`` read.

    Returns:
        Text, tables, commands.
    """
    settings = report.settings
    environment = settings.get("environment", {})
    sentences = [f"Seed {settings.get('seed', 0)}."]
    if settings.get("seconds") is not None:
        processes = settings.get("processes", 1)
        unit = "process" if processes == 1 else "processes"
        sentences.append(f"{duration(settings['seconds'])} in all, {count(processes)} {unit}.")
    data = {
        str(d.get("what") or d.get("folder") or d.get("source"))
        for m in report.models
        if (d := m.run.get("task", {}).get("data"))
    }
    if data:
        sentences.append("Data: " + "; ".join(sorted(data)) + ".")
    versions = environment.get("versions", {})
    rows = [(Cell(str(k)), Cell(str(v))) for k, v in versions.items()]
    rows += [
        (Cell(k), Cell(_options(v) if isinstance(v, dict) else str(v)))
        for k, v in environment.items()
        if k not in ("versions", "seed")
    ]
    tables = [t for t in (_not_run(report), _data(report), _models(report), _seconds(report)) if t is not None]
    if rows:
        tables.append(Table("Programs and machine", ("what", "version or value"), tuple(rows)))
    commands = [
        f"stability verify {shlex.quote(f'models/{m.name}/certificate.json')}" for m in report.models if m.checked
    ]
    return Made(" ".join(sentences), tuple(tables), tuple(commands), str(settings.get("command") or ""))
