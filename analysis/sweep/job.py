"""Jobs and rows of a sweep; a job's name is a hash of everything that determines its result."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stability.errors import FileFormatError
from stability.storage.documents import file_digest

Tell = Callable[[str], Any]
Found = tuple[Mapping[str, Any], Mapping[str, bytes]]
"""Result of a job: JSON values for the table, and files by name."""
LIBRARIES = ("torch", "numpy", "scipy", "cvxpy", "scs", "clarabel")


def identity(document: Mapping[str, Any]) -> str:
    """Return 160 bits of the SHA-256 of a JSON document, as 40 hexadecimal digits.

    Args:
        document: JSON values; the order of keys does not matter.

    Raises:
        ValueError: a number that is not finite.

    Example:
        >>> identity({"a": 1, "b": 2.0}) == identity({"b": 2.0, "a": 1})
        True
    """
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:40]


@functools.cache
def code_version() -> str:
    """Return the release, a digest of the sources that compute, and the versions of the numerical libraries.

    Example:
        >>> code_version().split()[0].count("+")
        1
    """
    sources: dict[str, Path] = {}
    for package in ("stability", "stability.models", "stability.analysis"):
        spec = find_spec(package)
        for root in map(Path, (spec.submodule_search_locations or ()) if spec is not None else ()):
            for path in root.rglob("*.py"):
                sources[".".join((package, *path.relative_to(root).with_suffix("").parts))] = path
    digest = hashlib.sha256()
    for name in sorted(name for name in sources if not name.startswith("stability.reports")):
        digest.update(name.encode() + sources[name].read_bytes())
    versions = [f"{name}-{_version(name)}" for name in LIBRARIES]
    return " ".join([f"{_version('rnn-stability')}+{digest.hexdigest()[:12]}", *versions])


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"


@dataclass(frozen=True)
class Job:
    """Piece of work whose result depends on its options, its parent's result and the code alone.

    Attributes:
        kind: ``training``, ``certificate`` or the name of an analysis.
        options: JSON values.
        parent: ``id`` of the training whose network is analyzed; empty for none.

    Example:
        >>> job = Job("training", {"model": "elman", "seed": 0})
        >>> len(job.id), job.id == Job("training", {"seed": 0, "model": "elman"}).id
        (40, True)
    """

    kind: str
    options: Mapping[str, Any]
    parent: str = ""

    @functools.cached_property
    def spec(self) -> dict[str, Any]:
        """Everything that determines the result, as JSON values."""
        return {"kind": self.kind, "options": dict(self.options), "parent": self.parent, "code": code_version()}

    @functools.cached_property
    def id(self) -> str:
        """Name of the job: ``identity(spec)``."""
        return identity(self.spec)


@dataclass(frozen=True)
class Row:
    """Row of the table with its jobs.

    Attributes:
        head: first columns: model, task, seed and the values of the grid.
        job: the training, or the certificate of a model file.
        analyses: options and jobs of every analysis of the trained network.
    """

    head: Mapping[str, Any]
    job: Job
    analyses: Mapping[str, tuple[Mapping[str, Any], tuple[Job, ...]]] = field(default_factory=dict)

    @property
    def children(self) -> list[Job]:
        """Jobs that need the result of ``job``."""
        return [job for _, parts in self.analyses.values() for job in parts]


@dataclass(frozen=True)
class Inputs:
    """Files and functions that a job uses beside its options.

    Attributes:
        paths: paths of files by their SHA-256, and the folder of data by the name ``data_dir``.
        network: content of the parent's ``model.safetensors``.
        tell: reports progress.
    """

    paths: Mapping[str, str] = field(default_factory=dict)
    network: bytes = b""
    tell: Tell = lambda text: None

    def file(self, digest: str) -> Path:
        """Return the path of a file.

        Args:
            digest: its SHA-256.

        Raises:
            FileFormatError: the file is missing on this machine, or has changed.
        """
        path = Path(self.paths[digest])
        if not path.is_file():
            raise FileFormatError(f"{path} is not on this machine: put it where all workers can read it")
        if file_digest(path) != digest:
            raise FileFormatError(f"{path} has changed since the sweep began")
        return path
