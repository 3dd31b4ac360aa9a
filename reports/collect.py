"""What a report is made of, read from the files of a run; nothing here computes a result.

A report directory holds ``report-settings.json`` and one run directory for each model under ``models/``.
Everything that the page, ``report.json`` and ``tables/`` show stands in those files: see ``ModelRecord`` for
their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pandas as pd

from stability.errors import FileFormatError
from stability.wire import read_json

__all__ = ["FRAMES", "ModelRecord", "Report", "collect", "read_model", "select"]

SETTINGS = "report-settings.json"
FRAMES = (
    "metrics",
    "spectra",
    "eigenvalues",
    "density",
    "attacks",
    "noise",
    "norms",
    "lyapunov",
    "robustness",
)
DOCUMENTS = ("run", "analysis", "hessian", "drift", "exponents", "radius")


@dataclass(frozen=True, eq=False)
class ModelRecord:
    """One model as its run directory tells it.

    Attributes:
        name: the directory's name, unique in the report.
        folder: the run directory.
        certificate: ``certificate.json`` without matrices, or ``None``.
        documents: ``run.json``, ``analysis.json``, ``hessian.json`` ... by stem, as far as they exist.
        frames: ``metrics.csv``, ``spectra.csv`` ... by stem, as far as they exist and hold a row.
    """

    name: str
    folder: Path
    certificate: Mapping[str, Any] | None
    documents: Mapping[str, Mapping[str, Any]]
    frames: Mapping[str, pd.DataFrame]

    @property
    def title(self) -> str:
        """The name for readers."""
        return str(self.analysis.get("title") or self.name)

    @property
    def analysis(self) -> Mapping[str, Any]:
        """``analysis.json``: what was run on the model, and what could not be."""
        return self.documents.get("analysis", {})

    @property
    def run(self) -> Mapping[str, Any]:
        """``run.json``: how the model was trained, empty for a model that came without."""
        return self.documents.get("run", {})

    @property
    def verdict(self) -> str | None:
        """Main verdict, or ``None`` where no claim was examined."""
        return None if self.certificate is None else str(self.certificate["verdict"])

    @property
    def is_discrete(self) -> bool:
        """Whether the certified system advances in steps."""
        return bool(self.analysis.get("discrete", True))

    def step(self, name: str) -> Mapping[str, Any]:
        """Status, reason and seconds of one analysis step."""
        steps = self.analysis.get("steps", {})
        return steps.get(name, {"status": "missing", "reason": "not run"})


@dataclass(frozen=True, eq=False)
class Report:
    """All models of a report and how it was made."""

    folder: Path
    settings: Mapping[str, Any]
    models: tuple[ModelRecord, ...]
    unreadable: tuple[str, ...] = field(default=())

    def tables(self) -> dict[str, pd.DataFrame]:
        """One long table for each kind of measurement, with the model's name in the first column."""
        out: dict[str, pd.DataFrame] = {}
        for stem in FRAMES:
            parts = [m.frames[stem].assign(model=m.name) for m in self.models if stem in m.frames]
            if parts:
                joined = pd.concat(parts, ignore_index=True)
                out[stem] = joined.reindex(columns=["model", *(c for c in joined.columns if c != "model")])
        rows = [
            {"model": m.name, **{k: f.get(k) for k in ("criterion", "holds", "margin", "rate", "detail")}}
            for m in self.models
            for f in (m.certificate or {}).get("findings", ())
        ]
        if rows:
            out["margins"] = pd.DataFrame(rows)
        claims = [
            {"model": m.name, **{k: c.get(k) for k in ("name", "verdict", "value", "statement")}}
            for m in self.models
            for c in (m.certificate or {}).get("claims", ())
        ]
        if claims:
            out["claims"] = pd.DataFrame(claims)
        out["models"] = pd.DataFrame([_row(m) for m in self.models])
        return out

    def to_dict(self) -> dict[str, Any]:
        """The report's numbers as JSON values (the long tables stand in ``tables/``)."""
        return {
            "format": "stability-report",
            "version": 1,
            "settings": dict(self.settings),
            "models": [
                {
                    "name": m.name,
                    "title": m.title,
                    "verdict": m.verdict,
                    "certificate": None if m.certificate is None else dict(m.certificate),
                    **{stem: dict(m.documents[stem]) for stem in DOCUMENTS if stem in m.documents},
                }
                for m in self.models
            ],
        }


def select(frame: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """The rows in which the named columns have these values.

    Example:
        >>> select(pd.DataFrame({"a": [1, 2], "b": [3, 4]}), a=2)["b"].tolist()
        [4]
    """
    for column, value in values.items():
        frame = cast(pd.DataFrame, frame[frame[column] == value])
    return frame


def _row(m: ModelRecord) -> dict[str, Any]:
    result = m.run.get("result", {})
    certificate = m.certificate or {}
    return {
        "model": m.name,
        "verdict": m.verdict,
        "criterion": certificate.get("criterion"),
        "rate": certificate.get("rate"),
        "overshoot": certificate.get("overshoot"),
        "metric": result.get("metric"),
        "test_metric": result.get("test_metric"),
        "train_metric": result.get("train_metric"),
        "chance": result.get("chance"),
        "epochs": result.get("epochs"),
        "seconds": result.get("seconds"),
    }


def _document(path: Path) -> dict[str, Any]:
    value = read_json(path)
    if not isinstance(value, dict):
        raise FileFormatError(f"{path} does not hold a JSON object")
    return value


def _frame(path: Path) -> pd.DataFrame | None:
    try:
        frame = pd.read_csv(path)
    except pd.errors.EmptyDataError:
        return None
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path} is not a readable table ({error})") from error
    return None if frame.empty else frame


def _certificate(path: Path) -> dict[str, Any]:
    """The readable part of a certificate: everything but matrices."""
    document = _document(path)
    try:
        claim = document["claim"]
        return {
            "verdict": str(claim["verdict"]),
            "statement": str(claim["statement"]),
            "proof": claim["proof"]["kind"] if claim["proof"] else None,
            "criterion": document["criterion"],
            "rate": document["rate"],
            "overshoot": document["overshoot"],
            "findings": [dict(f) for f in document["findings"]],
            "claims": [
                {
                    "name": c["name"],
                    "statement": c["statement"],
                    "verdict": c["verdict"],
                    "value": c["value"],
                    "proof": c["proof"]["kind"] if c["proof"] else None,
                }
                for c in document["claims"]
            ],
            "digest": document["digest"],
        }
    except (KeyError, TypeError) as error:
        raise FileFormatError(f"{path} is not a stability certificate ({error})") from error


def read_model(folder: Path) -> ModelRecord:
    """Read one model's run directory.

    Args:
        folder: the directory.

    Returns:
        What its files say.

    Raises:
        FileFormatError: when a file is there and cannot be read.
    """
    documents = {s: _document(folder / f"{s}.json") for s in DOCUMENTS if (folder / f"{s}.json").is_file()}
    frames = {s: _frame(folder / f"{s}.csv") for s in FRAMES if (folder / f"{s}.csv").is_file()}
    certificate = folder / "certificate.json"
    return ModelRecord(
        name=folder.name,
        folder=folder,
        certificate=_certificate(certificate) if certificate.is_file() else None,
        documents=documents,
        frames={s: f for s, f in frames.items() if f is not None},
    )


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
    if not (folder / SETTINGS).is_file():
        raise FileFormatError(f"{folder} is no report directory: it has no {SETTINGS}; `stability report` writes one")
    settings = _document(folder / SETTINGS)
    names = [str(n) for n in settings.get("models", ())]
    models = tuple(
        read_model(folder / "models" / n) for n in names if (folder / "models" / n / "analysis.json").is_file()
    )
    if not models:
        raise FileFormatError(f"{folder} holds no finished model: run `stability report --out {folder}` to go on")
    return Report(folder, settings, models)
