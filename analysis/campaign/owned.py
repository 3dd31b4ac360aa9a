"""Locks on the folder of an analysis, and reuse of the steps that an earlier analysis completed."""

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
    """Return the content of ``analysis.json`` in a folder; empty if the file is missing or unreadable."""
    try:
        document = read_json(folder / ANALYSIS_FILE) if (folder / ANALYSIS_FILE).is_file() else {}
    except FileFormatError:
        return {}
    known = document if isinstance(document, dict) else {}
    return {k: v for k, v in known.items() if k not in ("files", "environment", "steps") or isinstance(v, dict)}


def begin_analysis(folder: Path, same: Mapping[str, Any], *, keep: bool) -> dict[str, dict[str, Any]]:
    """Remove the files of an earlier analysis, except those of steps that are kept.

    Args:
        folder: folder of the analysis, already locked.
        same: fields and values that the earlier ``analysis.json`` must contain.
        keep: False to keep no step.

    Returns:
        The records of the kept steps, by name: completed steps whose files are unchanged.
    """
    stored_steps = _kept_steps(folder, same) if keep else {}
    kept_files = {name for step in stored_steps.values() for name in step["files"]}
    with claim_folder(folder, "report") as folder_lock:
        folder_lock.remove([name for name in RESULTS if name not in kept_files])
        folder_lock.reserve(RESULTS, ANALYSIS)
    return stored_steps


def _kept_steps(folder: Path, same: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the steps of an earlier analysis that need no repetition; see ``begin_analysis``."""
    document = recorded(folder)
    files, steps = document.get("files"), document.get("steps")
    if files is None or steps is None or any(document.get(k) != plain_value(v) for k, v in same.items()):
        return {}
    kept = {}
    for name, step in steps.items():
        written = step.get("files") if isinstance(step, dict) and step.get("status") == "done" else None
        if isinstance(written, list) and written and all(isinstance(n, str) and Path(n).name == n for n in written):
            recorded_digests = {n: files.get(n) for n in written}
            if file_digests(folder, written) == recorded_digests:
                kept[name] = step
    return kept
