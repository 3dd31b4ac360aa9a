"""Results of a sweep on disk: one JSON document a job, and the files of trained networks and certificates.

::

    sweep.json              marks the folder
    results/ID.json         result or error of the job ID
    runs/ID/                files of the job: a run directory that every command takes as a model, or a certificate

Names are hashes of everything that determines the content, and files are renamed into place: several runs of a sweep
may share a folder without a lock. The document is written last.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.documents import read_json
from stability.storage.writing import make_folder, write_bytes, write_text

from .job import Job, identity

MARK = "sweep.json"
NETWORK = "model.safetensors"
MARKED = {"format": "stability-sweep", "version": 1}


@dataclass(frozen=True)
class Result:
    """Result of a job.

    Attributes:
        values: JSON values; empty for a failure.
        error: type and text of the error; ``None`` for a success.
        files: SHA-256 of the files in the job's folder, by name.
    """

    values: Mapping[str, Any]
    error: str | None
    files: Mapping[str, str]


class Results:
    """Folder of results.

    Args:
        folder: a folder that holds results already.
        create: make the folder if it is missing.

    Raises:
        ConfigurationError: a folder with other files.
        FileFormatError: no results, or a folder that cannot be written to.

    Example:
        >>> import tempfile
        >>> store, job = Results(Path(tempfile.mkdtemp()), create=True), Job("training", {"seed": 0})
        >>> store.put(job, {"loss": 0.5}, None, 1.0, {NETWORK: b"weights"}).values, store.network(job.id)
        ({'loss': 0.5}, b'weights')
    """

    def __init__(self, folder: Path, *, create: bool = False) -> None:
        self.folder = folder
        if not (folder / MARK).is_file():
            if not create:
                raise FileFormatError(f"{folder} holds no results of a sweep: there is no {MARK}")
            make_folder(folder)
            if any(not path.name.startswith(".") for path in folder.iterdir()):
                raise ConfigurationError(f"{folder} is not empty and holds no sweep: choose another --out")
            write_text(folder / MARK, json.dumps(MARKED) + "\n")
        if read_json(folder / MARK) != MARKED:
            raise FileFormatError(f"{folder / MARK} has another sweep version than {MARKED['version']}")

    def get(self, job: str) -> Result | None:
        """Return the result of a job; ``None`` if it is missing, damaged, or lacks one of its files.

        Args:
            job: ``id`` of the job.
        """
        path = self.folder / "results" / f"{job}.json"
        if not path.is_file():
            return None
        try:
            document = read_json(path)
            result = Result(document["values"], document["error"], document["files"])
            whole = identity(document["spec"]) == job and all((self._run(job) / n).is_file() for n in result.files)
        except (FileFormatError, LookupError, TypeError, ValueError):
            return None
        return result if whole else None

    def put(
        self, job: Job, values: Mapping[str, Any], error: str | None, seconds: float, members: Mapping[str, bytes]
    ) -> Result:
        """Write the result of a job; an earlier one is replaced.

        Args:
            job: the job.
            values: JSON values.
            error: type and text of the error; ``None`` for a success.
            seconds: duration of the job.
            members: files by name.

        Raises:
            FileFormatError: the folder cannot be written to.
        """
        result = Result(values, error, {name: hashlib.sha256(raw).hexdigest() for name, raw in members.items()})
        for name, raw in members.items():
            make_folder(self._run(job.id))
            write_bytes(self._run(job.id) / name, raw)
        make_folder(self.folder / "results")
        document = {"spec": job.spec, **vars(result), "seconds": seconds}
        write_text(self.folder / "results" / f"{job.id}.json", json.dumps(document, allow_nan=False) + "\n")
        return result

    def network(self, job: str) -> bytes:
        """Return the content of the file with the trained network.

        Args:
            job: ``id`` of a training that has a result.

        Raises:
            FileFormatError: the file has changed.
        """
        result, path = self.get(job), self._run(job) / NETWORK
        raw = path.read_bytes() if result is not None and NETWORK in result.files else b""
        if result is None or hashlib.sha256(raw).hexdigest() != result.files.get(NETWORK):
            raise FileFormatError(f"{path} has changed: delete it and run the sweep again")
        return raw

    def _run(self, job: str) -> Path:
        return self.folder / "runs" / job
