"""How a report was made: versions, seeds, data, times, and the commands that check it again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from .collect import Report
from .formatting import count, duration
from .page import Cell, Table

__all__ = ["Made", "lead", "made"]

STEPS = {
    "training": "training",
    "certificate": "certificate",
    "hessian": "Hessian",
    "noise": "noise",
    "attacks": "attacks",
    "robustness": "certified radius",
    "norms": "norm drift",
    "lyapunov": "Lyapunov exponents",
}


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
    """The last section's text, tables and commands."""

    text: str
    tables: tuple[Table, ...]
    commands: tuple[str, ...]


def lead(report: Report) -> str:
    """The report in one or two sentences."""
    names = {
        "certified": "certified stable",
        "refuted": "refuted",
        "inconclusive": "inconclusive",
        None: "not examined",
    }
    counts = {w: [m.title for m in report.models if m.verdict == v] for v, w in names.items()}
    parts = [f"{len(who)} {word} ({', '.join(who)})" for word, who in counts.items() if who]
    total = len(report.models)
    noun = "recurrent network" if total == 1 else "recurrent networks"
    return f"{total} {noun}, examined for global stability and robustness: {'; '.join(parts)}."


def _seconds(report: Report) -> Table:
    steps = [s for s in STEPS if any(_time(m, s) is not None for m in report.models)]
    rows = tuple((Cell(m.title), *(Cell(duration(_time(m, s))) for s in steps)) for m in report.models)
    return Table("Time spent, by step", ("model", *(STEPS[s] for s in steps)), rows, tuple(range(1, len(steps) + 1)))


def _time(model: Any, step: str) -> float | None:
    if step == "training":
        return model.run.get("result", {}).get("seconds")
    return model.step(step).get("seconds")


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
            rows.append((Cell(m.title), Cell(str(m.analysis.get("source", "given as a file"))), Cell(""), Cell("")))
    return Table("Models, data and training", ("model", "layer", "task", "training"), tuple(rows)) if rows else None


def made(report: Report) -> Made:
    """The section on how the report came to be.

    Args:
        report: what ``collect`` read.

    Returns:
        Text, tables and commands.
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
    tables = [t for t in (_models(report), _seconds(report)) if t is not None]
    if rows:
        tables.append(Table("Programs and machine", ("what", "version or value"), tuple(rows)))
    commands = [
        f"stability verify {shlex.quote(f'models/{m.name}/certificate.json')}" for m in report.models if m.certificate
    ]
    if settings.get("command"):
        commands.append(str(settings["command"]))
    return Made(" ".join(sentences), tuple(tables), tuple(commands))
