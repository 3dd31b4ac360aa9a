"""Record of one model of a report, read from its run directory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pandas as pd

from stability.kernel.systems.parts import ALL_LAYERS
from stability.storage.artifacts import ARTIFACTS, STEPS

from ..names import cut, printable
from ..vocabulary import state
from .limits import LETTERS
from .trainings import Trainings

NOT_MEASURED = ("training", "certificate", "cross_check", "margin")
"""Steps of the analysis that measure nothing on data."""
_STEPS = ["training", "analysis", "performance", "hessian", "attacks", "noise", "norms", "lyapunov", "robustness"]
_FILES = sorted(ARTIFACTS, key=lambda a: _STEPS.index(a.step) if a.step in _STEPS else len(_STEPS))
FRAMES = tuple(a.stem for a in _FILES if a.columns)
DOCUMENTS = tuple(a.stem for a in _FILES if a.fields)
"""Tables and documents of a run, in the order of ``report.json``."""


@dataclass(frozen=True, eq=False)
class ModelRecord:
    """One model of a report.

    Attributes:
        name: the directory's name, unique in the report.
        folder: the run directory.
        certificate: ``certificates.view`` of a ``certificate.json`` that verifies, else ``None``.
        documents: existing JSON files by stem: ``run.json``, ``analysis.json``, ``hessian.json`` and others.
        frames: existing tables with rows by stem: ``metrics.csv``, ``spectra.csv`` and others.
        checked: the checker's result for the certificate file; empty without a file.
        refused: reason why the certificate, or no result at all, is shown; empty if all is shown.
        stale: whether the results are about other weights than those in the folder.
        changed: names of files that were changed after the analysis wrote them; they are not shown.
        subject: name, size and digest of the certificate's subject, as the checker read them.
        trainings: trainings of the same model with other seeds, this one first; without runs for a single training.
        place: rank among the models of the report, from 1.
        margins: factors of the loop's slopes and step with a proof and with a counterexample, proved again.
        command: command that made the report.
    """

    name: str
    folder: Path
    certificate: Mapping[str, Any] | None
    documents: Mapping[str, Mapping[str, Any]]
    frames: Mapping[str, pd.DataFrame]
    checked: str = ""
    refused: str = ""
    stale: bool = False
    changed: tuple[str, ...] = ()
    subject: str = ""
    trainings: Trainings = field(default_factory=Trainings)
    place: int = 1
    margins: Mapping[str, float] = field(default_factory=dict)
    command: str = ""

    @property
    def title(self) -> str:
        """The name for readers, with the part of the model that the claims are about."""
        path = ((self.certificate or {}).get("meta") or {}).get("part", "").partition(" of ")[0]
        name = str(self.analysis.get("title") or self.name)
        whole = path in ("", ALL_LAYERS) or path in name
        return cut(printable(name if whole else f"{path} of {name}"), LETTERS)

    @property
    def analysis(self) -> Mapping[str, Any]:
        """Content of ``analysis.json``: the analyses of the model and their outcomes."""
        return self.documents.get("analysis", {})

    @property
    def run(self) -> Mapping[str, Any]:
        """Content of ``run.json``: the training of the model, empty without a training record."""
        return self.documents.get("run", {})

    @property
    def metric(self) -> str | None:
        """Metric of the task, such as ``accuracy`` or ``mse``; ``None`` for a model without a training record."""
        name = self.run.get("result", {}).get("metric")
        return None if name is None else str(name)

    @property
    def verdict(self) -> str | None:
        """Main verdict; ``None`` without a certificate that verifies."""
        return None if self.certificate is None else str(self.certificate["verdict"])

    @property
    def state(self) -> str | None:
        """The verdict, ``stale``, ``invalid``, ``uncovered`` or ``None``; see ``formatting.verdict_word``."""
        if self.stale or self.refused:
            return "stale" if self.stale else "invalid"
        uncovered = self.certificate is None and self.step("certificate")["status"] == "unavailable"
        return "uncovered" if uncovered else state(self.certificate)

    @property
    def is_discrete(self) -> bool:
        """Return True if the certified system is discrete in time."""
        return bool(self.analysis.get("discrete", True))

    @property
    def length(self) -> int | None:
        """Steps of the task's sequences, if known."""
        steps = self.documents.get("drift", {}).get("trained_length") or self.analysis.get("sequence_length")
        return int(steps) if isinstance(steps, (int, float)) else None

    @property
    def performance(self) -> Mapping[str, Any]:
        """Content of ``performance.json``: accuracy or error on the data that the model was examined on."""
        return self.documents.get("performance", {})

    @property
    def idle(self) -> bool:
        """Return True if the model has data but no measurement, and its certificate is inconclusive."""
        measured = any(self.step(s)["status"] == "done" for s in STEPS if s not in NOT_MEASURED)
        return bool(self.analysis.get("task")) and not measured and self.state not in ("certified", "refuted")

    def step(self, name: str) -> Mapping[str, Any]:
        """Return status, reason and seconds of one analysis step."""
        steps = self.analysis.get("steps", {})
        return steps.get(name, {"status": "missing", "reason": "not run"})


def select(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Return the rows in which the named columns have these values.

    Example:
        >>> select(pd.DataFrame({"a": [1, 2], "b": [3, 4]}), a=2)["b"].tolist()
        [4]
    """
    for column, value in values.items():
        frame = cast(pd.DataFrame, frame[frame[column] == value])
    return frame
