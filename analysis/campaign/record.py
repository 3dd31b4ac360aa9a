"""Record of a campaign on disk: settings, sessions, machine, and the progress of each model.

The settings are written when the directory is made, at the beginning of every session, and after every model, so that
they exist however a session ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from stability.errors import FileFormatError
from stability.storage.artifacts import ANALYSIS_FILE
from stability.storage.documents import read_json
from stability.storage.folder import claim_folder, refuse_existing_files
from stability.storage.writing import write_bytes, write_text

from ..environment import environment
from ..jobs import Outcome
from ..results import plain_value
from ..training.runs import ANALYSIS, RUN_FILE, RUN_FILES, TRAINING, read_checkpoint, read_run
from .digests import file_digests
from .owned import INPUTS, RESULTS, recorded
from .plan import Campaign

SETTINGS_FILE = "report-settings.json"
REPORT = "report"
TITLE = "Stability of trained recurrent networks"


class Session:
    """One session of work on a campaign, in the record.

    Args:
        campaign: models, data and settings.
        processes: models at a time.
        command: the command line.
        works: whether anything is left to do; a session without work only completes an unfinished record.
    """

    def __init__(self, campaign: Campaign, processes: int, command: str | None, works: bool) -> None:
        self._campaign, self._clock = campaign, time.perf_counter()
        before = _settings(campaign.folder)
        self._quiet = not works and "finished" in before
        started = _now()
        sessions = _earlier(campaign, before)
        if works:
            sessions = [*sessions, {"started": started, "seconds": 0.0}]
        kept, compared = before.get("environment"), before.get("trainings")
        self._live = works
        self._record = {
            "started": before.get("started", started),
            "command": command if works or before.get("command") is None else before["command"],
            "processes": max(1, processes),
            "seconds": None,
            "sessions": sessions,
            "failed": {},
            "environment": kept
            if isinstance(kept, dict) and not works
            else environment(campaign.seed, torch.device(campaign.device), str(before.get("started", started))),
        }
        if isinstance(compared, dict) and not works:
            self._record["trainings"] = compared
        self.write()

    def note(self, outcome: Outcome) -> None:
        """Record a model that finished or failed."""
        if outcome.error is not None:
            self._record["failed"][outcome.name] = outcome.error
        self.write()

    def compare(self, trainings: Mapping[str, Any]) -> None:
        """Record the comparison of several trainings of each model in ``trainings.csv``."""
        self._record["trainings"] = dict(trainings)

    def close(self) -> None:
        """Record the end of the session."""
        if not self._quiet:
            self._record["finished"] = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")

    def write(self) -> None:
        """Write the settings with the present state."""
        if self._quiet:
            return
        record = self._record
        if self._live:
            record["sessions"][-1]["seconds"] = time.perf_counter() - self._clock
            record["environment"]["finished"] = _now()
        record["seconds"] = sum(s["seconds"] for s in record["sessions"]) if record["sessions"] else None
        write_settings(self._campaign, record)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _settings(folder: Path) -> dict[str, Any]:
    path = folder / SETTINGS_FILE
    document = read_json(path) if path.is_file() else {}
    return document if isinstance(document, dict) else {}


def _earlier(campaign: Campaign, before: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the earlier sessions; a killed one ends with the last model that it finished."""
    listed = before.get("sessions")
    if not isinstance(listed, list):
        return []
    sessions = [
        {"started": str(s.get("started", "")), "seconds": float(s["seconds"])}
        for s in listed
        if isinstance(s, dict) and _is_number(s.get("seconds"))
    ]
    if sessions:
        environments = [recorded(campaign.folder / "models" / n).get("environment", {}) for n in campaign.runs]
        for end in environments:
            try:
                until = datetime.fromisoformat(end["finished"]) - datetime.fromisoformat(sessions[-1]["started"])
                sessions[-1]["seconds"] = max(sessions[-1]["seconds"], until.total_seconds())
            except (KeyError, TypeError, ValueError):
                continue
    return sessions


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


def planned(folder: Path) -> Any:
    """Return the plan of a report directory, ``None`` if there is none."""
    return _settings(folder).get("plan")


def write_settings(campaign: Campaign, more: Mapping[str, Any]) -> None:
    """Write ``report-settings.json``."""
    document = {
        "format": "stability-report-settings",
        "version": 1,
        "title": TITLE,
        "models": list(campaign.models),
        "seed": campaign.seed,
        "quick": campaign.quick,
        "plan": campaign.plan(),
        **more,
    }
    write_text(campaign.folder / SETTINGS_FILE, json.dumps(plain_value(document), indent=1, allow_nan=False) + "\n")


def _are_as_recorded(folder: Path, names: tuple[str, ...]) -> bool:
    files = recorded(folder).get("files", {})
    wanted = {n: d for n, d in files.items() if n in names}
    return file_digests(folder, wanted) == wanted


def is_complete(folder: Path) -> bool:
    """Return True if a model's analysis is done and all files are as it left them."""
    return "files" in recorded(folder) and _are_as_recorded(folder, (*INPUTS, *RESULTS))


def is_whole(folder: Path) -> bool:
    """Return True if a model's training is complete and unchanged, so that only analyses are missing."""
    known = recorded(folder).get("files", {})
    return RUN_FILE in known and "model.safetensors" in known and _are_as_recorded(folder, INPUTS)


def can_go_on(folder: Path, tell: Callable[[str], Any]) -> bool:
    """Return True if training can resume in a folder; report and remove a run that is damaged beyond that."""
    if not (folder / RUN_FILE).exists():
        return False
    try:
        read_run(folder)
        read_checkpoint(folder)
    except FileFormatError as error:
        tell(f"training again: {error}")
        clear(folder)
        return False
    return True


def clear(folder: Path, *names: str) -> None:
    """Remove the files of training and analysis (or the named ones among them) from a model's folder."""
    if folder.is_symlink() or not folder.is_dir():
        return
    with claim_folder(folder, "report") as folder_lock:
        folder_lock.remove(names or [*folder_lock.files_made_by(TRAINING), *folder_lock.files_made_by(ANALYSIS)])
    if not any(folder.iterdir()):
        folder.rmdir()


def refuse_model(folder: Path, overwrite: bool) -> None:
    """Raise an error if other files have the names that a model's own files need.

    Raises:
        ConfigurationError: naming them.
    """
    if folder.is_dir():
        refuse_existing_files(folder, RUN_FILES, TRAINING, overwrite)
        refuse_existing_files(folder, (*RESULTS, ANALYSIS_FILE), ANALYSIS, overwrite)


def take_over(source: Path, folder: Path, overwrite: bool) -> None:
    """Copy the files of training from a run directory."""
    with claim_folder(folder, "report") as folder_lock:
        folder_lock.reserve(INPUTS, TRAINING, overwrite=overwrite)
        folder_lock.remove(INPUTS)
        folder_lock.reserve(INPUTS, TRAINING)
        for name in INPUTS:
            if (source / name).is_file():
                write_bytes(folder / name, (source / name).read_bytes())
