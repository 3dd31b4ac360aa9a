"""A store of results as a study: its table over the seeds, with intervals, and the files that a page is drawn from."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from stability.errors import UnsupportedError
from stability.storage.folder import claim_folder, refuse_existing_files
from stability.storage.store import ResultStore
from stability.storage.writing import make_folder, write_bytes, write_text

from ...environment import environment
from ...studies.base import FILES, write_table
from ...studies.parts import STUDY
from ...studies.result import Figure, StudyResult
from .table import Stored, read_store

CURVED = 200
"""Trainings whose curves are read from their files and drawn."""
RUN = ("model.safetensors", "run.json", "metrics.csv")


def study_of(location: str | Path) -> tuple[StudyResult, list[dict[str, Any]]]:
    """What is in a store, grouped over the seeds.

    Args:
        location: of the store.

    Returns:
        The study, and its curves: the held-out metric of every training after every epoch.

    Raises:
        FileFormatError: no store.
        UnsupportedError: a store without a result.

    Example:
        >>> import tempfile
        >>> study_of(ResultStore.made(tempfile.mkdtemp()).place.location)
        Traceback (most recent call last):
        ...
        stability.errors.UnsupportedError: the store holds no result yet: run stability sweep first
    """
    stored = read_store(location)
    if not stored.rows:
        raise UnsupportedError("the store holds no result yet: run stability sweep first")
    groups = stored.groups()
    named = _named(stored.rows, stored.varied)
    curves = _curves(location, stored, named) if len(stored.rows) <= CURVED else []
    seeds = sorted({row["seed"] for row in stored.rows if isinstance(row.get("seed"), int)})
    started = datetime.now(UTC).isoformat(timespec="seconds")
    result = StudyResult(
        study=str(location),
        title="A sweep of trainings",
        quick=False,
        settings={name: stored.rows[0].get(name) for name in stored.asked if name not in (*stored.varied, "seed")},
        rows=tuple(_plain(group) for group in groups),
        notes=_notes(stored, groups),
        environment=environment(seeds[0] if seeds else 0, torch.device("cpu"), started),
        seconds=float(sum(row["seconds"] for row in stored.rows)),
        conclusion=_conclusion(groups, stored),
        figures=_figures(curves),
        seeds=tuple(seeds),
    )
    return result, curves


def write_study(location: str | Path, out: str | Path, *, overwrite: bool = False) -> StudyResult:
    """Write the files of a study, ``study.json``, ``table.csv`` and ``curves.csv``, about a store.

    Args:
        location: of the store.
        out: the folder.
        overwrite: whether files of these names that no study made may be replaced.

    Returns:
        The study.

    Raises:
        StabilityError: as ``study_of``; a folder that cannot be written to, or is in use.
    """
    out = Path(out)
    result, curves = study_of(location)
    if out.is_dir():
        refuse_existing_files(out, FILES, STUDY, overwrite)
    with claim_folder(out, "study of a sweep") as own:
        own.reserve(FILES, STUDY, overwrite=overwrite)
        write_text(out / "study.json", json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n")
        write_table(out / "table.csv", result.rows)
        write_table(out / "curves.csv", curves)
    return result


def export_run(location: str | Path, job: str, out: str | Path) -> Path:
    """A training of a store as a run directory, which every command takes for a model.

    Args:
        location: of the store.
        job: identity of the training, the column ``job`` of ``store_frame``.
        out: the folder, made where it is missing; nothing in it is replaced.

    Returns:
        The folder.

    Raises:
        UnsupportedError: there is no such training, or the folder holds a run.
        FileFormatError: it cannot be written to.
    """
    found, out = ResultStore.found(location).get(job), Path(out)
    if found is None or "run.json" not in found.members:
        raise UnsupportedError(f"{location} holds no training {job}")
    if any((out / name).exists() for name in found.members):
        raise UnsupportedError(f"{out} holds a run already: choose another folder")
    make_folder(out)
    for name in RUN:
        write_bytes(out / name, found.members[name])
    return out


def _named(rows: Sequence[Mapping[str, Any]], by: Sequence[str]) -> list[str]:
    """What a training is called in figures: what tells its group apart."""
    return [", ".join(str(row.get(name)) for name in by if row.get(name) is not None) for row in rows]


def _curves(location: str | Path, stored: Stored, named: Sequence[str]) -> list[dict[str, Any]]:
    store, curves = ResultStore.found(location), []
    for name, row in zip(named, stored.rows):
        found = store.get(str(row["job"]))
        if found is not None and "metrics.csv" in found.members:
            frame = pd.read_csv(io.BytesIO(found.members["metrics.csv"]))
            for epoch, loss, metric in frame[["epoch", "test_loss", "test_metric"]].itertuples(index=False, name=None):
                head = {"training": name, "metric": row.get("metric"), "seed": row.get("seed")}
                curves.append({**head, "epoch": epoch, "test_loss": loss, "test_metric": metric})
    return curves


def _figures(curves: Sequence[Mapping[str, Any]]) -> tuple[Figure, ...]:
    said = "Means over the seeds; bands go from the least to the largest."
    return tuple(
        Figure(
            "lines", f"Held-out {kind} while training", "epoch", "test_metric", "training", where={"metric": kind},
            ylabel=kind, percent=kind == "accuracy", caption=said,
        )
        for kind in sorted({str(point["metric"]) for point in curves})
    )  # fmt: skip


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, (list, dict)) else value for name, value in group.items()}


def _notes(stored: Stored, groups: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    notes = []
    if any(group["trainings"] > 1 for group in groups):
        notes.append(
            "Numbers are means over the seeds; .low and .high are the ends of Student's 95 % interval of the mean."
        )
    if any(group["trainings"] == 1 for group in groups):
        notes.append("One training says nothing about others: such a group has no interval.")
    if stored.failed:
        notes.append(
            f"{stored.failed} jobs failed and are not in the table; stability sweep --retry-failed does them again."
        )
    return tuple(notes)


def _conclusion(groups: Sequence[Mapping[str, Any]], stored: Stored) -> str:
    said = f"{len(stored.rows)} results in {len(groups)} groups"
    best = [g for g in groups if g.get("metric", "").startswith("accuracy") and g.get("test_metric") is not None]
    if not best:
        return f"{said}."
    top = max(best, key=lambda g: g["test_metric"])
    name = _named([top], stored.varied)[0]
    return f"{said}; the highest mean held-out accuracy is {top['test_metric']:.3g} ({name}, {top['verdict']})."
