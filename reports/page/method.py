"""Folded method of a report: protocol, commands to reproduce and verify it, and a glossary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from stability.storage.artifacts import STEPS

from ..boxes import box_note, interval
from ..formatting import count, duration, metric, number
from ..stored.collect import Report
from ..stored.facts import bounds, recheck
from ..stored.protocol import PROTOCOLS, SCORES, protocol
from ..stored.reasons import missing
from ..stored.records import ModelRecord
from .parts import Columns, Command, Fold, Part, Table, name_cell, plural, tabulate, value

CHANGED = "changed after the analysis wrote it, or removed"
TRAINED = ("optimizer", "lr", "batch_size", "weight_decay", "clip", "margin_penalty", "until_certified", "seed")
"""Settings of a training that the table shows; ``run.json`` holds all of them."""


def method(report: Report) -> list[Fold]:
    """Return the folds about how the report was made and how to make and check it again."""
    return [_protocol(report), _again(report), _glossary()]


def _glossary() -> Fold:
    text = files("stability.reports.page.templates").joinpath("words.txt").read_text(encoding="utf-8")
    words = [line.partition(": ")[::2] for line in text.splitlines()]
    columns: Columns = {"term": lambda row: row[0], "meaning": lambda row: row[1]}
    tables = tabulate("Glossary", columns, words, words=("meaning",))
    return Fold("method-words", "Glossary", plural(len(words), "term"), tables)


def _protocol(report: Report) -> Fold:
    models = report.models
    measured = [(STEPS[SCORES.get(step, step)], protocol(models, step)) for step in PROTOCOLS]
    columns: Columns = {"result": lambda row: row[0], "how it was measured": lambda row: row[1]}
    parts: list[Part] = [*dict.fromkeys(filter(None, map(_data, models)))]
    parts += [*dict.fromkeys(filter(None, (box_note(m.analysis) for m in models))), _environment(report)]
    parts += tabulate("Measurements", columns, [row for row in measured if row[1]], words=tuple(columns))
    parts += _training(models)
    parts += filter(None, (left_out(report),))
    return Fold("method-protocol", "Protocol", "data, sizes, seeds, versions", tuple(parts))


def _data(model: ModelRecord) -> str:
    """Describe the data that a model was examined on."""
    task = model.analysis.get("task")
    if not isinstance(task, Mapping):
        return ""
    data = task.get("data") or {}
    range_words = interval(model.analysis.get("input_range"))
    range_note = f"entries in {range_words}{' (stated)' * (data.get('bounds') == 'stated')}" if range_words else ""
    sizes = f"{count(task.get('steps'))} steps of {count(task.get('input_size'))} features"
    parts = f"{count(task.get('train'))} sequences to train, {count(task.get('test'))} to test"
    held_out = f" Held out: {data['held_out']}." if data.get("held_out") else ""
    digest = f" SHA-256 of the file: {data['digest']}." if data.get("digest") else ""
    name = str(data.get("what") or data.get("folder") or task.get("name", ""))
    return f"Data: {_list(name, parts, sizes, range_note)}.{held_out}{digest}"


def _environment(report: Report) -> str:
    settings = report.settings
    setup = settings.get("environment") or {}
    versions = [f"{name} {number}" for name, number in (setup.get("versions") or {}).items()]
    machine = (
        _options(setup["machine"]) if isinstance(setup.get("machine"), Mapping) else str(setup.get("machine") or "")
    )
    commit = f"commit {str(setup['commit'])[:12]}" if setup.get("commit") else ""
    spent = f"{duration(settings['seconds'])} in all" if settings.get("seconds") is not None else ""
    seed = f"seed {settings.get('seed', 0)}"
    return f"Made with {_list(*versions, commit, machine, seed, spent)}."


def _training(models: Sequence[ModelRecord]) -> tuple[Table, ...]:
    def result(name: str) -> Callable[[ModelRecord], str]:
        return lambda m: value("run", f"result.{name}", lambda v: metric(v, m.metric))(m)

    columns: Columns = {
        "network": name_cell,
        "parameters": value("analysis", "parameters", count),
        "epochs": value("run", "result.epochs", count),
        "training data": result("train_metric"),
        "held-out data": result("test_metric"),
        "best guess": result("chance"),
        "layer": lambda m: _options((m.run.get("model") or {}).get("config")),
        "training": lambda m: _options({k: (m.run.get("training") or {}).get(k) or None for k in TRAINED}),
    }
    trained = [m for m in models if m.run.get("result")]
    demonstration = any(str(m.analysis.get("source", "")).startswith("trained here") for m in trained)
    note = "Short demonstration trainings, not tuned for accuracy." * demonstration
    return tabulate("Networks and training", columns, trained, words=("layer", "training"), note=note)


def _options(options: Any) -> str:
    items = options.items() if isinstance(options, Mapping) else ()
    settings = [(str(k).replace("_", " "), v) for k, v in items if v is not None and v is not False]
    return ", ".join(f"{name} {number(v, 4) if isinstance(v, float) else v}" for name, v in settings)


def left_out(report: Report) -> str:
    """Name in one sentence every analysis without a result, grouped by the reason."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for m in report.models:
        for item in missing(m):
            grouped.setdefault((", ".join(item.steps), item.reason), []).append(m.title)
        if m.changed:
            grouped.setdefault((", ".join(m.changed), CHANGED), []).append(m.title)
    phrases = [f"{results} of {', '.join(titles)} ({why})" for (results, why), titles in grouped.items()]
    phrases += [f"all of {name} ({why})" for name, why in report.failed.items()]
    return f"Left out: {'; '.join(phrases)}." if phrases else ""


def _again(report: Report) -> Fold:
    command = str(report.settings.get("command") or "")
    parts: list[Part] = []
    if command:
        parts += [
            "This command made the report. It continues an unfinished one and repeats nothing that is done.",
            Command(command),
        ]
    if any(m.checked for m in report.models):
        parts += [
            "Check all proofs without a solver, in the folder of this page. An undecided network has nothing to check:",
            Command("stability verify models/*/certificate.json"),
        ]
    several = [recheck(m) for m in report.models if bounds(m).get("layers", 1) > 1]
    if several:
        parts += ["A certificate of several layers holds no weights, and its check reads them:", *map(Command, several)]
    parts += [
        "Draw page, figures and tables again from the stored results:",
        Command("stability report --redraw ."),
        "report.json holds every number of the page. tables/ holds the long tables, figures/ every figure as SVG, PDF, "
        "PNG and CSV. models/NAME/ holds the weights, the certificate and the results of one network; analysis.json "
        "there lists the SHA-256 of each file.",
    ]
    links = (("report.json", "report.json"), ("report-settings.json", "report-settings.json"))
    return Fold("method-again", "Reproduce and verify", "commands and files", tuple(parts), links)


def _list(*parts: str) -> str:
    return ", ".join(filter(None, parts))
