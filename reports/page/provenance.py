"""How a report was made: versions, seeds, data, times, and the commands that check it again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from stability.storage.artifacts import STEPS

from ..boxes import interval
from ..formatting import WORDS, count, duration, verdict_word
from ..stored.collect import Report
from ..stored.reasons import missing, model_advice
from ..stored.records import ModelRecord
from .layout import NAMED, Cell, Column, Table, tabulate, text
from .trainings import trainings_note

NO_COMMAND = "no command gives it"
UNKNOWN = "not recorded"
NOTHING = "gave nothing; why stands under what is not shown"
WHERE = (
    ". Commands are for the folder in which the report's own was given; those with models/ for the folder of this page"
)
CHANGED = "changed after the analysis wrote it, or removed: the command that made the report does that step again"

SETTINGS = (
    "epochs",
    "fresh",
    "lr",
    "schedule",
    "warm_up",
    "milestones",
    "decay",
    "batch_size",
    "optimizer",
    "momentum",
    "clip",
    "weight_decay",
    "patience",
    "margin_penalty",
    "margin_target",
    "lyapunov_target",
    "lyapunov_weight",
    "seed",
)


@dataclass(frozen=True)
class Provenance:
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
    return " ".join(part for part in (what, trainings_note(report), _rechecked(report)) if part)


def _rechecked(report: Report) -> str:
    """What the checker said when the page was drawn."""
    files = [m for m in report.models if m.checked]
    if not files:
        return ""
    bad = sum(bool(m.refused) for m in files)
    what = "The certificate was" if len(files) == 1 else f"All {len(files)} certificates were"
    return f"{what} checked again when this page was drawn{f': {bad} did not verify' if bad else ''}."


def _not_run(report: Report) -> tuple[Table, ...]:
    """What is not shown: the model, what of it, the reason, and the command that would give it."""
    again = str(report.settings.get("command") or NO_COMMAND)
    rows = [
        (m.title, ", ".join(item.steps), item.reason, item.command or NO_COMMAND)
        for m in report.models
        for item in missing(m)
    ]
    rows += [(m.title, "more than this", why, how) for m in report.models for why, how in model_advice(m)]
    rows += [(m.title, ", ".join(m.changed), CHANGED, again) for m in report.models if m.changed]
    titles = [m.title for m in report.models]
    rows.sort(key=lambda row: titles.index(row[0]))
    rows += [(name, "everything", why, again) for name, why in report.failed.items()]
    header = ("model", "what", "reason", "command that would give it")
    return tabulate(f"What is not shown, and why{WHERE}", _words(*header), rows)


def _words(*header: str) -> list[Column]:
    """Columns of rows that are tuples of words."""
    return [text(title, itemgetter(k)) for k, title in enumerate(header)]


def _data(report: Report) -> tuple[Table, ...]:
    """Files of one's own that models were examined or trained on."""
    rows = []
    for m in report.models:
        task = m.analysis.get("task")
        data = task.get("data") if isinstance(task, dict) else None
        if not isinstance(task, dict) or not isinstance(data, dict) or data.get("source") != "arrays":
            continue
        span = interval(m.analysis.get("input_range"))
        span += ", stated" if span and data.get("bounds") == "stated" else ""
        parts = f"{count(task.get('test'))} to test, {count(task.get('train'))} to train; {data.get('held_out', '')}"
        size = f"{count(task.get('steps'))} steps of {count(task.get('input_size'))} features"
        rows.append((m.title, data.get("what", "arrays"), parts, size, span, data.get("digest", "")))
    header = ("model", "file", "sequences", "each", "inputs in", "SHA-256 of the file")
    return tabulate("Data of one's own", _words(*header), rows)


def _weights(report: Report) -> tuple[Table, ...]:
    """What ties the page to a file of weights and to its certificate: their digests."""

    def digest(model: ModelRecord, name: str) -> str:
        files = model.analysis.get("files")
        return str((files if isinstance(files, dict) else {}).get(name) or UNKNOWN)

    columns = (
        text("weights, SHA-256 of the file", lambda m: digest(m, "model.safetensors")),
        text("certificate, SHA-256 of the file", lambda m: digest(m, "certificate.json")),
        text("checked again when this page was drawn", _said),
    )
    known = [m for m in report.models if m.checked or isinstance(m.analysis.get("files"), dict)]
    return tabulate("Weights and certificates", (NAMED, *columns), known)


def _said(model: ModelRecord) -> Cell:
    if not model.checked:
        return Cell("no certificate", "quiet")
    return Cell("does not verify", "bad") if model.refused else Cell("valid", "good")


def _seconds(report: Report) -> tuple[Table, ...]:
    """How long each step took, of the steps that took any."""
    steps = [s for s in STEPS if any(_time(m, s) is not None for m in report.models)]
    columns = [Column(STEPS[s], lambda m, step=s: duration(_time(m, step))) for s in steps]
    return tabulate("Time spent, by step", (NAMED, *columns), report.models if steps else (), NOTHING)


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


def effective(training: dict[str, Any]) -> dict[str, Any]:
    """The settings of a training that had an effect, in the order of ``SETTINGS``.

    Example:
        >>> effective({"momentum": 0.5, "optimizer": "sgd", "schedule": "steps", "decay": 0.1, "milestones": []})
        {'optimizer': 'sgd', 'momentum': 0.5}
        >>> effective({"momentum": 0.5, "optimizer": "adam", "decay": 0.1, "milestones": [3]})
        {'milestones': [3], 'decay': 0.1, 'optimizer': 'adam'}
    """
    idle = {"momentum"} if training.get("optimizer") != "sgd" else set()
    idle |= set() if training.get("milestones") else {"decay"}
    idle |= {"schedule"} if training.get("schedule") == "steps" else set()
    shown = {k: training[k] for k in SETTINGS if training.get(k) or (k == "lyapunov_target" and k in training)}
    return {k: v for k, v in shown.items() if k not in idle}


def _models(report: Report) -> tuple[Table, ...]:
    """How each model was made, as far as that was recorded."""
    rows: list[tuple[Any, ...]] = []
    for m in report.models:
        model, task, training = (m.run.get(k, {}) for k in ("model", "task", "training"))
        unknown = Cell(UNKNOWN, "quiet")
        if not m.run:
            rows.append((m.title, m.analysis.get("source", "given as a file"), unknown, unknown))
            continue
        layer = f"{model.get('layer', '')}: {_options(model.get('config'))}"
        data = f"{task.get('name', '')}: {_options(task.get('options'))}"
        rows.append((m.title, layer, data, _options(effective(training))))
    return tabulate("Models, data and training", _words("model", "layer", "task", "training"), rows)


def provenance(report: Report) -> Provenance:
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
    machine = {k: _options(v) if isinstance(v, dict) else v for k, v in environment.items()}
    rows = [*versions.items(), *((k, v) for k, v in machine.items() if k not in ("versions", "seed"))]
    tables = (
        *_not_run(report), *_data(report), *_models(report), *_weights(report), *_seconds(report),
        *tabulate("Programs and machine", _words("what", "version or value"), rows),
    )  # fmt: skip
    commands = [
        f"stability verify {shlex.quote(f'models/{m.name}/certificate.json')}" for m in report.models if m.checked
    ]
    return Provenance(" ".join(sentences), tables, tuple(commands), str(settings.get("command") or ""))
