"""Folded method of a report: protocol, commands that make and check it again, and a glossary."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, cast

from stability.storage.artifacts import STEPS

from ..boxes import interval
from ..formatting import count, duration, metric, number
from ..stored.collect import Report
from ..stored.facts import is_real
from ..stored.reasons import missing
from ..stored.records import ModelRecord
from .parts import Columns, Command, Fold, Part, Table, named, plural, tabulate, value

CHANGED = "changed or removed after the analysis wrote it"
ENOUGH = 20
"""Steps of PGD below which benchmarks of robustness call an attack weak."""
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
    return Fold("method-words", "Words", plural(len(words), "term"), tables)


def _protocol(report: Report) -> Fold:
    models = report.models
    measured = [(name, protocol(models, step)) for step, name in STEPS.items() if step in _LINES]
    columns: Columns = {
        "result": lambda row: row[0],
        "how it was measured": lambda row: row[1],
    }
    parts: list[Part] = [*dict.fromkeys(filter(None, map(_data, models))), _environment(report)]
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
    where = interval(model.analysis.get("input_range"))
    seen = f"entries in {where}{' (stated)' * (data.get('bounds') == 'stated')}" if where else ""
    sizes = f"{count(task.get('steps'))} steps of {count(task.get('input_size'))} features"
    parts = f"{count(task.get('train'))} sequences to train, {count(task.get('test'))} to test"
    held_out = f" Held out: {data['held_out']}." if data.get("held_out") else ""
    digest = f" SHA-256 of the file: {data['digest']}." if data.get("digest") else ""
    name = str(data.get("what") or data.get("folder") or task.get("name", ""))
    return f"Data: {_list(name, parts, sizes, seen)}.{held_out}{digest}"


def _environment(report: Report) -> str:
    settings = report.settings
    environment = settings.get("environment") or {}
    versions = [f"{name} {known}" for name, known in (environment.get("versions") or {}).items()]
    machine = environment.get("machine")
    machine = _options(machine) if isinstance(machine, Mapping) else str(machine or "")
    commit = environment.get("commit")
    spent = f"{duration(settings['seconds'])} in all" if settings.get("seconds") is not None else ""
    told = (
        *versions,
        f"commit {str(commit)[:12]}" if commit else "",
        machine,
        f"seed {settings.get('seed', 0)}",
        spent,
    )
    return f"Made with {_list(*told)}."


def _training(models: Sequence[ModelRecord]) -> tuple[Table, ...]:
    def result(name: str) -> Callable[[ModelRecord], str]:
        return lambda m: value("run", f"result.{name}", lambda v: metric(v, m.metric))(m)

    columns: Columns = {
        "network": named,
        "parameters": value("analysis", "parameters", count),
        "epochs": value("run", "result.epochs", count),
        "training data": result("train_metric"),
        "held-out data": result("test_metric"),
        "best guess": result("chance"),
        "layer": lambda m: _options((m.run.get("model") or {}).get("config")),
        "training": lambda m: _options({k: (m.run.get("training") or {}).get(k) or None for k in TRAINED}),
    }
    trained = [m for m in models if m.run.get("result")]
    here = any(str(m.analysis.get("source", "")).startswith("trained here") for m in trained)
    note = "Short demonstration trainings, not tuned for accuracy." * here
    return tabulate("Networks and training", columns, trained, words=("layer", "training"), note=note)


def _options(options: Any) -> str:
    known = options.items() if isinstance(options, Mapping) else ()
    shown = [(str(k).replace("_", " "), v) for k, v in known if v is not None and v is not False]
    return ", ".join(f"{name} {number(v, 4) if isinstance(v, float) else v}" for name, v in shown)


def left_out(report: Report) -> str:
    """Name in one sentence every analysis without a result, grouped by the reason."""
    found: dict[tuple[str, str], list[str]] = {}
    for m in report.models:
        for item in missing(m):
            found.setdefault((", ".join(item.steps), item.reason), []).append(m.title)
        if m.changed:
            found.setdefault((", ".join(m.changed), CHANGED), []).append(m.title)
    said = [f"{what} of {', '.join(who)} ({why})" for (what, why), who in found.items()]
    said += [f"all of {name} ({why})" for name, why in report.failed.items()]
    return f"Left out: {'; '.join(said)}." if said else ""


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
            "Check all proofs without a solver, in the folder of this page:",
            Command("stability verify models/*/certificate.json"),
        ]
    parts += [
        "Draw page, figures and tables again from the stored results:",
        Command("stability report --redraw ."),
        "report.json holds every number of the page. tables/ holds the long tables, figures/ every figure as SVG, PDF, "
        "PNG and CSV. models/NAME/ holds the weights, the certificate and the results of one network; analysis.json "
        "there lists the SHA-256 of each file.",
    ]
    links = (("report.json", "report.json"), ("report-settings.json", "report-settings.json"))
    return Fold("method-again", "Make it again, check it again", "commands and files", tuple(parts), links)


def protocol(models: Sequence[ModelRecord], step: str) -> str:
    """Return how a step of the analysis measured, where models differ one after the other; empty for none.

    Args:
        models: the records.
        step: a key of ``stability.storage.artifacts.STEPS``.
    """
    return "; or ".join(dict.fromkeys(filter(None, (_LINES[step](m) for m in models))))


def _list(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))


def _some(label: str, known: Any, unit: str = "") -> str:
    """Return ``label known unit``; nothing where there is no number."""
    return f"{label}{count(known)}{unit}" if is_real(known) else ""


def _budget(model: ModelRecord, name: str) -> Any:
    budget = model.analysis.get("budget")
    return budget.get(name) if isinstance(budget, Mapping) else None


def _n(model: ModelRecord, *frames: str) -> str:
    known = (model.frames[name]["n"] for name in frames if name in model.frames and "n" in model.frames[name])
    return next((_first(float(cast(Any, n.max())), model) for n in known), "")


def _first(n: Any, model: ModelRecord) -> str:
    whole = (model.analysis.get("task") or {}).get("test")
    part = is_real(whole) and is_real(n) and n < whole
    return _some("", n, " test sequences") + (f" (the first of {count(whole)})" if part else "")


def _noise(model: ModelRecord) -> str:
    n, where = _n(model, "noise", "noise_scores"), interval(model.analysis.get("input_range"))
    ends = f"salt and pepper set entries to the ends of {where}, white noise is not clipped" if where else ""
    return n and _list(n, _some("", _budget(model, "draws"), " draws of each noise"), ends)


def _attacks(model: ModelRecord) -> str:
    n, where, steps = (
        _n(model, "attacks", "attack_scores"),
        interval(model.analysis.get("input_range")),
        _budget(model, "steps"),
    )
    if "attacks" in model.frames:
        starts = _some(" from ", _budget(model, "starts"), " starting points")
        how = f"the stronger of DeepFool and {_some('', steps, ' steps of ')}APGD{starts}"
    else:
        weak = " (a weak attack: stronger ones find more)" * (is_real(steps) and steps < ENOUGH)
        how = f"PGD{_some(', ', steps, ' steps from one random start')}{weak}"
    return n and _list(n, how, f"inputs stay in {where}" if where else "")


def _local(model: ModelRecord) -> str:
    found = model.documents.get("local")
    return _list(_first(found.get("samples"), model), *_single(model, found)) if found else ""


def _single(model: ModelRecord, found: Mapping[str, Any]) -> Iterator[str]:
    yield _some("attacks with random restarts: ", _budget(model, "restarts"))
    if found.get("longest") is not None:
        yield f"packed sequences of {count(found.get('shortest'))} to {count(found['longest'])} steps"
    if found.get("unread"):
        yield f"{count(found['unread'])} left out because the model answers differently on their own steps alone"


def _norms(model: ModelRecord) -> str:
    found, frame = model.documents.get("drift"), model.frames.get("norms")
    if not found:
        return ""
    last = None if frame is None else float(cast(Any, frame["t"]).max())
    way = ", sequences repeated beyond it" * (found.get("extension") == "repeat")
    trained = _some("trained on ", found.get("trained_length"), f" steps{way}")
    return _list(_some("", found.get("sequences"), " test sequences"), _some("", last, " steps"), trained)


def _document(stem: str, *parts: tuple[str, str, str], more: str = "") -> Callable[[ModelRecord], str]:
    """Return what describes a measurement by the numbers of its document: words before, field, words after."""

    def line(model: ModelRecord) -> str:
        found = model.documents.get(stem)
        return _list(*(_some(before, found.get(name), after) for before, name, after in parts), more) if found else ""

    return line


def _hessian(model: ModelRecord) -> str:
    found = model.documents.get("hessian") or {}
    lanczos, probes = _some("", _budget(model, "iterations"), " Lanczos steps"), _budget(model, "probes")
    vectors = _some("", probes, " random vectors for trace and density")
    return _list(_some("", found.get("samples"), " training sequences"), lanczos, vectors) if found else ""


def _score(model: ModelRecord) -> str:
    task = model.analysis.get("task") or {}
    n = model.performance.get("sequences") or (task.get("test") if model.run.get("result") else None)
    return _some("", n, " sequences, 95 % intervals by Wilson")


def _margin(model: ModelRecord) -> str:
    tol = model.documents.get("margin", {}).get("tol")
    return f"factors to a relative tolerance of {number(tol)}" if model.margins else ""


_LINES: dict[str, Callable[[ModelRecord], str]] = {
    "performance": _score,
    "hessian": _hessian,
    "noise": _noise,
    "attacks": _attacks,
    "robustness": _document("radius", ("", "samples", " test sequences"), more="one gain, in double precision"),
    "local": _local,
    "norms": _norms,
    "lyapunov": _document(
        "exponents", ("", "trajectories", " test sequences"), ("", "steps", " steps"),
        ("the first ", "skipped", " left out"),
    ),
    "growth": _document(
        "growth", ("", "sequences", " test sequences"), ("", "steps", " steps"),
        more="from the layer's initial state, in double precision",
    ),
    "recovery": _document("recovery", ("", "runs", " runs"), ("followed for at most ", "limit", " steps")),
    "pairs": _document(
        "pairs", ("", "pairs", " pairs"), ("", "steps", " steps"),
        more="two states that test sequences lead to, then the same test sequence for both",
    ),
    "margin": _margin,
}  # fmt: skip
