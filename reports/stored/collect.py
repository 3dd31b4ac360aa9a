"""Contents of a report, read from the files of its runs; nothing here computes a result.

A report directory holds ``report-settings.json`` and one run directory for each model under ``models/``.
Everything that the page, ``report.json`` and ``tables/`` show stands in those files: see ``ModelRecord`` for
their names. None is taken at its word: certificates are proved again, files that are not those that the analysis wrote
are left out and named, results about other weights than those beside them are not shown, and every text is made
printable here, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from stability.errors import FileFormatError
from stability.storage.artifacts import ANALYSIS_FILE, WEIGHTS
from stability.storage.documents import file_digest
from stability.storage.writing import as_path

from .certificates import check_file
from .frames import read_table
from .limits import MODELS
from .margins import read_margins
from .reasons import as_values
from .records import DOCUMENTS, FRAMES, ModelRecord
from .shapes import read_shaped
from .trainings import Trainings, read_trainings

SETTINGS = "report-settings.json"
ABOUT = (WEIGHTS, "run.json")
"""Files that say which model it is: where one is another than the analysis saw, its results are about other weights."""


@dataclass(frozen=True, eq=False)
class Report:
    """All models of a report and how it was made."""

    folder: Path
    settings: Mapping[str, Any]
    models: tuple[ModelRecord, ...]
    failed: Mapping[str, str] = field(default_factory=dict)
    """Models that there is nothing to show of, and why."""
    not_compared: str = ""
    """Reason that intervals over several trainings are not shown; empty where nothing is wrong."""

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return one long table for each kind of measurement, with the model's name in the first column."""
        tables: dict[str, pd.DataFrame] = {}
        for stem in FRAMES:
            parts = [m.frames[stem].assign(model=m.name) for m in self.models if stem in m.frames]
            if parts:
                joined = pd.concat(parts, ignore_index=True)
                tables[stem] = joined.reindex(columns=["model", *(c for c in joined.columns if c != "model")])
        parts = {
            "margins": ("findings", ("criterion", "holds", "margin", "rate", "detail")),
            "claims": ("claims", ("name", "verdict", "evidence", "value", "statement")),
        }
        for name, (part, fields) in parts.items():
            entries = [(m.name, entry) for m in self.models for entry in (m.certificate or {}).get(part, ())]
            if entries:
                tables[name] = pd.DataFrame([{"model": model, **_some(entry, fields)} for model, entry in entries])
        several = [m.trainings.table for m in self.models if not m.trainings.table.empty]
        if several:
            tables["trainings"] = pd.concat(several, ignore_index=True)
        tables["models"] = pd.DataFrame([_row(m) for m in self.models])
        return tables

    def to_dict(self) -> dict[str, Any]:
        """Return the report's numbers as JSON values (long tables are in ``tables/``)."""
        return {
            "format": "stability-report",
            "version": 2,
            "settings": dict(self.settings),
            "failed": dict(self.failed),
            "models": [
                {
                    "name": m.name,
                    "title": m.title,
                    "verdict": m.verdict,
                    "evidence": None if m.certificate is None else m.certificate.get("evidence"),
                    "state": m.state,
                    "checked": m.checked,
                    "refused": m.refused,
                    "changed": list(m.changed),
                    "not_shown": as_values(m),
                    "subject": m.subject,
                    "margins": dict(m.margins),
                    "certificate": None if m.certificate is None else dict(m.certificate),
                    **({"trainings": _told(m.trainings)} if m.trainings.several else {}),
                    **{stem: dict(m.documents[stem]) for stem in DOCUMENTS if stem in m.documents},
                }
                for m in self.models
            ],
        }


def _some(values: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: values.get(name) for name in names}


def _told(trainings: Trainings) -> list[dict[str, str | None]]:
    return [{"run": run, "state": verdict} for run, verdict in zip(trainings.runs, trainings.states)]


def _row(m: ModelRecord) -> dict[str, Any]:
    certificate, result = m.certificate or {}, m.run.get("result", {})
    return {
        "model": m.name,
        "title": m.title,
        "verdict": m.verdict,
        "evidence": certificate.get("evidence"),
        "state": m.state,
        **_some(certificate, ("criterion", "rate", "overshoot")),
        **_some(result, ("metric", "test_metric", "train_metric", "chance", "epochs", "seconds")),
    }


def _changed(folder: Path, recorded: Mapping[str, Any]) -> list[str]:
    """Return the files without their recorded digest, or that are gone (weights may be left out)."""
    names = [*(f"{s}.csv" for s in FRAMES), *(f"{s}.json" for s in DOCUMENTS), "certificate.json", WEIGHTS]
    names.remove(ANALYSIS_FILE)
    present = [n for n in names if (folder / n).is_file()]
    removed = [n for n in names if n in recorded and n not in present and n not in ABOUT]
    return [n for n in present if recorded.get(n) != file_digest(folder / n)] + removed


def read_model(folder: Path) -> ModelRecord:
    """Read one model's run directory.

    Args:
        folder: the directory.

    Returns:
        What its files say, as far as they are those that the analysis wrote and the certificate verifies.

    Raises:
        FileFormatError: when a file is there and cannot be read.
    """
    analysis = read_shaped(folder / ANALYSIS_FILE)
    recorded = analysis.get("files")
    sealed = isinstance(recorded, dict)
    changed = _changed(folder, recorded if isinstance(recorded, dict) else {})
    present = [f"{s}.json" for s in DOCUMENTS if (folder / f"{s}.json").is_file()]
    if not sealed or any(n in changed for n in ABOUT):
        why = "the weights beside these results are not the ones that they are about: run the report again"
        why = why if sealed else "analysis.json has no digests of these results: run the report again"
        labels = {k: analysis[k] for k in ("title", "source") if k in analysis}
        return ModelRecord(folder.name, folder, None, {"analysis": labels}, {}, refused=why, stale=True)
    documents = {n.removesuffix(".json"): read_shaped(folder / n) for n in present if n not in changed}
    stems = [s for s in FRAMES if (folder / f"{s}.csv").is_file() and f"{s}.csv" not in changed]
    frames = {s: f for s in stems if (f := read_table(folder / f"{s}.csv")) is not None}
    path = folder / "certificate.json"
    others = tuple(n for n in changed if n != path.name)
    if not path.is_file():
        return ModelRecord(folder.name, folder, None, documents, frames, changed=others)
    checked = check_file(path)
    refused = "" if checked.valid else checked.reason
    if checked.valid and path.name in changed:
        refused = "it is valid, but not the certificate that the analysis of this model wrote"
    return ModelRecord(
        folder.name,
        folder,
        None if refused else checked.view,
        documents,
        frames,
        checked=checked.reason,
        refused=refused,
        changed=others,
        subject=checked.subject,
        margins={} if refused else read_margins(folder, documents.get("margin", {}), changed),
    )


def check_folder(folder: str | Path) -> None:
    """Refuse a directory that no report wrote.

    Raises:
        FileFormatError: it has no settings.
        ConfigurationError: no path.
    """
    if not (as_path(folder) / SETTINGS).is_file():
        raise FileFormatError(f"{folder} is no report directory: it has no {SETTINGS}; `stability report` writes one")


def collect(folder: str | Path) -> Report:
    """Read a report directory.

    Args:
        folder: a directory that ``stability report`` wrote.

    Returns:
        Its models in the order of the settings.

    Raises:
        FileFormatError: when it is none, or a file in it cannot be read.
    """
    folder = Path(folder)
    check_folder(folder)
    settings = read_shaped(folder / SETTINGS)
    listed_names = settings.get("models", ())
    if not isinstance(listed_names, list) or not all(isinstance(n, str) and Path(n).name == n for n in listed_names):
        raise FileFormatError(f"{folder / SETTINGS} does not list the names of folders below models")
    if len(set(listed_names)) > MODELS:
        raise FileFormatError(f"{folder / SETTINGS} lists {len(set(listed_names))} models; at most {MODELS} are drawn")
    names = [n for n in dict.fromkeys(listed_names) if n not in ("", ".", "..")]
    models = tuple(
        read_model(folder / "models" / n) for n in names if (folder / "models" / n / ANALYSIS_FILE).is_file()
    )
    if not models:
        raise FileFormatError(f"{folder} holds no finished model: run `stability report --out {folder}` to go on")
    reasons = settings.get("failed")
    reasons = reasons if isinstance(reasons, dict) else {}
    read_names = {m.name for m in models}
    failed = {n: str(reasons.get(n, "not finished: the same command goes on")) for n in names if n not in read_names}
    described = settings.get("trainings") or {}
    trainings, refused = read_trainings(folder, described)
    repeated = {run for each in trainings.values() for run in each.runs}
    failed |= {n: str(why) for n, why in reasons.items() if n not in {*read_names, *names, *repeated}}
    command = str(settings.get("command") or "")
    models = tuple(
        replace(m, trainings=trainings.get(m.name, m.trainings), place=k, command=command)
        for k, m in enumerate(models, start=1)
    )
    return Report(folder, settings, models, failed, refused)
