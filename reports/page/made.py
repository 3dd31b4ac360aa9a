"""From a number to what made it: the files of every step, the command and the code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from stability.storage.artifacts import ARTIFACTS, STEPS

from ..boxes import box_option
from ..stored.collect import Report
from ..stored.reasons import data_words, named
from ..stored.records import FRAMES, ModelRecord, select

SHOWN = 3  # models whose files are linked in a line; the files of all stand with the models


@dataclass(frozen=True)
class Made:
    """What made the numbers of a step.

    Attributes:
        anchor: of the entry in the page.
        name: of the step, for readers.
        files: text and address of each file, relative to the page.
        code: the module that made them.
        command: one that does this step alone, as the report did it; empty where none does.
    """

    anchor: str
    name: str
    files: tuple[tuple[str, str], ...]
    code: str
    command: str


def anchor(step: str) -> str:
    """The identifier of a step's entry."""
    return f"made-{step.replace('_', '-')}"


def made(report: Report) -> tuple[Made, ...]:
    """An entry for every step that gave something.

    Args:
        report: what ``collect`` read.
    """
    found = (_entry(report, step) for step in STEPS)
    return tuple(entry for entry in found if entry is not None)


def _entry(report: Report, step: str) -> Made | None:
    parts = [a for a in ARTIFACTS if a.step == step]
    with_any = [m for m in report.models if any((m.folder / a.name).is_file() for a in parts)]
    if not with_any:
        return None
    joined = [f"tables/{a.stem}.csv" for a in parts if a.stem in FRAMES and any(a.stem in m.frames for m in with_any)]
    files = [(name, name) for name in joined]
    for m in with_any[:SHOWN]:
        there = [a.name for a in parts if (m.folder / a.name).is_file()]
        files += [(f"models/{m.name}/{n}", f"models/{quote(m.name)}/{quote(n)}") for n in there]
    return Made(anchor(step), STEPS[step], tuple(files), _code(with_any, step), alone(with_any, step))


def _code(models: list[ModelRecord], step: str) -> str:
    if step == "training":
        return "stability.analysis.training.trainer"
    said = dict.fromkeys(str(m.step(step).get("code") or "") for m in models)
    return ", ".join(filter(None, said)) or "not recorded"


def alone(models: list[ModelRecord], step: str) -> str:
    """The command that does one step alone of the first model with it, with the report's sizes and seed.

    Args:
        models: those with results of the step.
        step: a key of ``stability.storage.artifacts.STEPS``.

    Returns:
        The command, for the page's folder or, of a model that was given, that of the report's command; empty where no
        command does the step: the one about norms compares two models.
    """
    m = models[0]
    given = m.analysis.get("budget")
    budget: dict[str, Any] = given if isinstance(given, dict) else {}
    pairs: dict[str, dict[str, Any]] = {
        "certificate": {},
        "noise": {
            "--levels": _sizes(m, "noise", "level", noise="white"), "--draws": budget.get("draws"),
            "--samples": budget.get("samples"),
        },
        "attacks": {
            "--epsilons": _sizes(m, "attacks", "epsilon", attack="strong", norm="linf"),
            "--steps": budget.get("steps"), "--samples": budget.get("attacked"),
        },
        "hessian": {"--samples": budget.get("curved")},
        "norms": {"--factor": budget.get("stretch"), "--samples": m.documents.get("drift", {}).get("sequences")},
        "local": {"--samples": m.documents.get("local", {}).get("samples")},
    }  # fmt: skip
    words = {
        "certificate": "certify", "noise": "noise", "attacks": "attack", "hessian": "hessian", "norms": "compare",
        "local": "radius",
    }  # fmt: skip
    if step not in words or (step == "norms" and len(models) < 2):
        return ""
    both = models[: 2 if step == "norms" else 1]
    seed = m.analysis.get("seed")
    options = {**pairs[step], "--seed": seed if seed else None}
    said = [
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in options.items()
        if value
    ]
    boxed = box_option(m.analysis) if step == "certificate" else ""
    data = "" if step == "certificate" or m.run.get("task") else data_words(m.command, m.analysis.get("task") or {})
    return " ".join(filter(None, ["stability", words[step], *(named(each) for each in both), boxed, data, *said]))


def _sizes(model: ModelRecord, frame: str, column: str, **keys: str) -> str:
    """The sizes of a perturbation as an option takes them; empty where it was not measured."""
    table = model.frames.get(frame)
    rows = None if table is None else select(table, **keys)
    return "" if rows is None else ",".join(f"{v:g}" for v in sorted(set(rows[column])))


def sources(steps: tuple[str, ...], there: tuple[Made, ...]) -> list[tuple[str, str]]:
    """Name and anchor of the entries of these steps, as far as they exist.

    Args:
        steps: of the analysis.
        there: what ``made`` gave.
    """
    return [(entry.name, entry.anchor) for step in steps for entry in there if entry.anchor == anchor(step)]
