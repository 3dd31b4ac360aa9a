"""Plan of a campaign as plain data: models, task, seeds and folder."""

from __future__ import annotations

import functools
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from stability.storage.documents import file_digest

from ..results import plain_value
from ..tasks import identity
from ..training.runs import RUN_FILE
from .budgets import BUDGETS, AnalysisSettings
from .digests import model_digest

FEW = 3
"""Trainings of a report up to which LSTM and GRU get as many radii as other networks: 32 cost about half a minute."""


@dataclass(frozen=True)
class Given:
    """Existing model that is analyzed without training.

    Attributes:
        name: unique, for its directory: see ``names_for``.
        path: run directory or file, or the origin of the system.
        subject: a module or a system, loaded.
        task: name and options of the task to examine it on; ``None`` for the run's own, if it has one.
        title: display name; empty for ``name``.
    """

    name: str
    path: str
    subject: Any
    task: tuple[str, dict[str, Any]] | None = None
    title: str = ""

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the model and, for a run directory, of its training record."""
        run = Path(self.path) / RUN_FILE
        return model_digest(self.subject) + (f" {file_digest(run)}" if run.is_file() else "")


@dataclass(frozen=True)
class Campaign:
    """Models of a report, their data, seeds and folder.

    Attributes:
        folder: the report directory.
        models: names of the models, in the report's order.
        given: models that exist; the others are presets to be trained.
        quick: use the small budgets.
        seed: first random seed.
        data_dir: folder with the full data, ``None`` for the embedded ones.
        task: the task that presets are trained on.
        train_seconds: time limit of each training.
        device: torch device; not part of ``plan()``.
        input_box: lower and upper bound of all inputs; ``None`` for the range of the data.
        seeds: number of trainings of each preset, with seeds ``seed``, ``seed + 1`` ...; the first is shown in detail.
    """

    folder: Path
    models: tuple[str, ...]
    given: tuple[Given, ...] = ()
    quick: bool = False
    seed: int = 0
    data_dir: str | None = None
    task: tuple[str, dict[str, Any]] = ("digits", {})
    train_seconds: float | None = None
    device: str = "cpu"
    input_box: tuple[float, float] | None = None
    seeds: int = 1

    @property
    def trainings(self) -> dict[str, dict[str, int]]:
        """Run directories below ``models`` with their seeds, by model; the first has the name of the model."""
        return {
            name: {name if k == 0 else f"{name}-seed-{self.seed + k}": self.seed + k for k in range(self.seeds)}
            for name in self.models
        }

    @property
    def runs(self) -> dict[str, tuple[str, int]]:
        """Model and seed of every run directory, the first training of each model before any second one."""
        numbered = [
            (k, run, (name, seed))
            for name, runs in self.trainings.items()
            for k, (run, seed) in enumerate(runs.items())
        ]
        return {run: what for _, run, what in sorted(numbered, key=lambda item: item[0])}

    def plan(self) -> dict[str, Any]:
        """Return the JSON values that determine the results: campaigns with the same plan may share a directory."""
        return plain_value(
            {
                "models": self.models,
                "sources": {g.name: g.path for g in self.given},
                "quick": self.quick,
                "seed": self.seed,
                "data_dir": self.data_dir,
                "task": identity(self.task),
                "tasks": {g.name: identity(g.task) for g in self.given if g.task is not None},
                "budget": asdict(self.settings.budget),
                **({} if self.input_box is None else {"input_box": self.input_box}),
                **({} if self.seeds == 1 else {"seeds": self.seeds}),
            }
        )

    @property
    def settings(self) -> AnalysisSettings:
        """Settings of every analysis: completed steps of an earlier analysis are kept."""
        budget = BUDGETS["quick" if self.quick else "full"]
        if len(self.runs) <= FEW:
            budget = replace(budget, gated=budget.certified)
        return AnalysisSettings(budget, self.seed, self.input_box, keep=True)
