"""From a number to what made it: the files of every step, the command and the code."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from stability.storage.artifacts import ARTIFACTS, STEPS

from ..stored.collect import FRAMES, ModelRecord, Report
from ..stored.reasons import named

ALONE = {
    "certificate": "certify", "noise": "noise", "attacks": "attack", "hessian": "hessian", "norms": "compare",
    "local": "radius",
}  # fmt: skip
"""Commands that do one step alone; its options are its own."""
SHOWN = 3  # models whose files are linked in a line; the files of all stand with the models


@dataclass(frozen=True)
class Made:
    """What made the numbers of a step.

    Attributes:
        anchor: of the entry in the page.
        name: of the step, for readers.
        files: text and address of each file, relative to the page.
        code: the module that made them.
        command: one that does this step alone; empty where none does.
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
    command = f"stability {ALONE[step]} {named(with_any[0])}" if step in ALONE else ""
    return Made(anchor(step), STEPS[step], tuple(files), _code(with_any, step), command)


def _code(models: list[ModelRecord], step: str) -> str:
    if step == "training":
        return "stability.analysis.training.trainer"
    said = dict.fromkeys(str(m.step(step).get("code") or "") for m in models)
    return ", ".join(filter(None, said)) or "not recorded"


def sources(steps: tuple[str, ...], there: tuple[Made, ...]) -> list[tuple[str, str]]:
    """Name and anchor of the entries of these steps, as far as they exist.

    Args:
        steps: of the analysis.
        there: what ``made`` gave.
    """
    return [(entry.name, entry.anchor) for step in steps for entry in there if entry.anchor == anchor(step)]
