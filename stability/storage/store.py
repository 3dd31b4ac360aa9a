"""A store of results that any number of processes and machines write in at once, without a lock.

::

    sweep.json                     what it is, and a token by which others see that they see the same place
    results/ab/abcd...             the result of the job ``abcd...`` (``stability.storage.results``)
    failures/ab/abcd...            why it failed, where it did
    index.sqlite                   derived (``stability.storage.index``), may be thrown away

A file's name is the hash of all that determines what is in it, so that two writers of one name write the same; files
come whole. A result counts whatever failed before or after it.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.documents import parse_json
from stability.storage.results import DONE, FAILED, Result, is_identity, unpacked
from stability.storage.storage_backends import Directory, Entry, Place, place_of

MARK, INDEX = "sweep.json", "index.sqlite"
FORMAT, VERSION = "stability-sweep", 1
FOLDERS = {DONE: "results", FAILED: "failures"}
WORTH = 1.0
"""Seconds: a result that took longer is on the disk before it counts as done. One that took less is done again if the
machine loses its power in that moment: its torn file is found."""


def is_store(location: str | Path) -> bool:
    """Whether a store lies there.

    Example:
        >>> is_store("nowhere/at-all")
        False
    """
    text = str(location)
    if "://" not in text or text.startswith("file://"):
        with contextlib.suppress(OSError):  # a name too long for a file, say
            return (Path(text.removeprefix("file://")) / MARK).is_file()
        return False
    return not text.startswith(("http://", "https://")) and place_of(text).entry(MARK) is not None


class ResultStore:
    """A store that is there; made by ``ResultStore.made`` and found by ``ResultStore.found``.

    Args:
        place: where it lies.
        token: what its mark says.
    """

    def __init__(self, place: Place, token: str) -> None:
        self.place, self.token = place, token

    @classmethod
    def found(cls, location: str | Path) -> ResultStore:
        """A store that is there.

        Args:
            location: a folder, or an address that fsspec knows.

        Raises:
            FileFormatError: none is there, or of another version.

        Example:
            >>> import tempfile
            >>> store = ResultStore.made(tempfile.mkdtemp())
            >>> ResultStore.found(store.place.location).token == store.token
            True
        """
        place = place_of(location)
        raw = place.read(MARK)
        if raw is None:
            raise FileFormatError(f"{location} holds no results of a sweep: there is no {MARK}")
        mark = parse_json(raw, f"{location}/{MARK}")
        token = mark.get("token") if isinstance(mark, dict) and mark.get("format") == FORMAT else None
        if not isinstance(token, str) or mark.get("version") != VERSION:
            raise FileFormatError(f"{location}/{MARK} is not that of a store of version {VERSION}")
        return cls(place, token)

    @classmethod
    def made(cls, location: str | Path) -> ResultStore:
        """A store that is there, or a new one.

        Args:
            location: as for ``found``; a folder of other files is refused.

        Raises:
            ConfigurationError: a folder that holds something else.
            FileFormatError: a place that cannot be written to.
        """
        place = place_of(location)
        if place.entry(MARK) is None:
            if isinstance(place, Directory) and place.path.exists():
                if not place.path.is_dir():
                    raise FileFormatError(f"cannot write to {location}: it is a file")
                if any(not entry.name.startswith(".") for entry in place.path.iterdir()):
                    raise ConfigurationError(f"{location} is not empty and no store of results: choose another --out")
            mark = {"format": FORMAT, "version": VERSION, "token": secrets.token_hex(16)}
            place.write(MARK, json.dumps(mark).encode() + b"\n")
        return cls.found(location)

    def put(self, result: Result) -> Entry:
        """Keep a result, whole; what is there under its name is replaced.

        Raises:
            FileFormatError: it cannot be written.
        """
        durable = float(result.about.get("seconds") or 0.0) >= WORTH
        return self.place.write(name_of(result.job, result.status), result.packed(), durable=durable)

    def get(self, job: str, status: str = DONE) -> Result | None:
        """A result; ``None`` where there is none, or its file is torn.

        Args:
            job: the identity.
            status: ``done``, or ``failed`` for why it failed.
        """
        name = name_of(job, status)
        raw = self.place.read(name)
        if raw is None:
            return None
        try:
            return unpacked(raw, name)
        except FileFormatError:
            return None

    def shard(self, status: str, first: str) -> Iterator[Entry]:
        """Results whose identity begins with two digits.

        Args:
            status: ``done`` or ``failed``.
            first: the digits.

        Yields:
            Each, by its name.
        """
        for entry in self.place.entries(f"{FOLDERS[status]}/{first}"):
            if is_identity(entry.name):
                yield entry

    def forget(self, job: str) -> None:
        """Take away why a job failed: it succeeded since."""
        self.place.remove(name_of(job, FAILED))


def name_of(job: str, status: str) -> str:
    """The name of a result's file below its store.

    Example:
        >>> name_of("abcd", "done")
        'results/ab/abcd'
    """
    return f"{FOLDERS[status]}/{job[:2]}/{job}"


def described(result: Result) -> Mapping[str, Any]:
    """A result without the files that belong to it."""
    return {name: getattr(result, name) for name in ("job", "spec", "status", "values", "error", "about")}
