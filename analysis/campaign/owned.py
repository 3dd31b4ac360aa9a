"""Ownership of the files of an analysis: one writer per folder, and reuse of completed steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stability.errors import FileFormatError
from stability.storage.artifacts import ANALYSIS_FILE, STEPS, files_of_steps
from stability.storage.documents import read_json
from stability.storage.folder import claim_folder

from ..results import plain_value
from ..training.runs import ANALYSIS, CHECKPOINT
from .digests import file_digests

INPUTS = tuple(name for name in files_of_steps("training") if name != CHECKPOINT)
"""Files of a run directory that training wrote."""
RESULTS = files_of_steps(*(step for step in STEPS if step != "training"))
"""Files that the steps write."""


@contextmanager
def owned(folder: Path, overwrite: bool) -> Iterator[None]:
    """Lock the folder of an analysis for the time of a block and record its files."""
    if not folder.is_dir():
        raise FileFormatError(f"cannot write to {folder}: there is no such directory")
    with claim_folder(folder, "report") as folder_lock:
        folder_lock.reserve((*RESULTS, ANALYSIS_FILE), ANALYSIS, overwrite=overwrite)
        yield


def recorded(folder: Path) -> dict[str, Any]:
    """Return a model's ``analysis.json``; empty if it is missing or unreadable."""
    try:
        document = read_json(folder / ANALYSIS_FILE) if (folder / ANALYSIS_FILE).is_file() else {}
    except FileFormatError:
        return {}
    known = document if isinstance(document, dict) else {}
    return {k: v for k, v in known.items() if k not in ("files", "environment", "steps") or isinstance(v, dict)}


def begin_analysis(folder: Path, same: Mapping[str, Any], *, keep: bool) -> dict[str, dict[str, Any]]:
    """Remove the files of an earlier analysis, except those of steps that are kept.

    Args:
        folder: owned already.
        same: fields that the earlier ``analysis.json`` must contain.
        keep: whether steps are kept at all.

    Returns:
        The record of every step that was done and whose files are as it left them, by name.
    """
    stored_steps = _kept_steps(folder, same) if keep else {}
    held = {name for step in stored_steps.values() for name in step["files"]}
    with claim_folder(folder, "report") as folder_lock:
        folder_lock.remove([name for name in RESULTS if name not in held])
        folder_lock.reserve(RESULTS, ANALYSIS)
    return stored_steps


def _kept_steps(folder: Path, same: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the steps of an earlier analysis that need no repetition.

    Args:
        folder: with that analysis's ``analysis.json``, if there is one.
        same: fields that the earlier ``analysis.json`` must contain.

    Returns:
        The record of every step that was done and whose files are as it left them, by name.
    """
    document = recorded(folder)
    files, steps = document.get("files"), document.get("steps")
    if files is None or steps is None or any(document.get(k) != plain_value(v) for k, v in same.items()):
        return {}
    out = {}
    for name, step in steps.items():
        made = step.get("files") if isinstance(step, dict) and step.get("status") == "done" else None
        if isinstance(made, list) and made and all(isinstance(n, str) and Path(n).name == n for n in made):
            wanted = {n: files.get(n) for n in made}
            if file_digests(folder, made) == wanted:
                out[name] = step
    return out
