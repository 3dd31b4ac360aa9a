"""What a job is: everything that determines a result, and a name made of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError, FileFormatError
from stability.kernel.format.lazy_table import Table
from stability.storage.documents import file_digest
from stability.storage.results import identity
from stability.storage.sources import code_version, module_version

from ..running.needs import PROCESS

Found = tuple[Mapping[str, Any], Mapping[str, bytes]]
"""What a job gives: values for the table, and files."""
Tell = Callable[[str], Any]


@dataclass(frozen=True)
class Given:
    """What a job is given beside its options.

    Attributes:
        members: the files of the job that it builds on.
        places: where files lie on this machine, by their digests; and, under ``data_dir``, the folder of data.
        tell: reports progress.
    """

    members: Mapping[str, bytes] = field(default_factory=dict)
    places: Mapping[str, str] = field(default_factory=dict)
    tell: Tell = lambda text: None

    def file(self, digest: str) -> Path:
        """A file that the sweep named.

        Args:
            digest: its SHA-256.

        Raises:
            FileFormatError: it is not on this machine, or it is another one now.
        """
        place = self.places.get(digest)
        if place is None or not Path(place).is_file():
            raise FileFormatError(f"{place or 'a file of the sweep'} is not on this machine: put it where all can read")
        if file_digest(Path(place)) != digest:
            raise FileFormatError(f"{place} has changed since the sweep began")
        return Path(place)


Work = Callable[[Mapping[str, Any], Given], Found]


@dataclass(frozen=True)
class Kind:
    """A kind of job.

    Attributes:
        work: computes the result from options and what it is given; equal input, equal result.
        memory: bytes that it takes beside its process, estimated from the options.
    """

    work: Work
    memory: Callable[[Mapping[str, Any]], int] = lambda options: 0


KINDS: Table[Kind] = Table(
    {
        "training": f"{__package__}.training",
        "certificate": f"{__package__}.certificates",
        **dict.fromkeys(("attacks", "radius", "noise", "norms", "lyapunov", "hessian"), f"{__package__}.analyses"),
    }
)


def register_kind(name: str, memory: Callable[[Mapping[str, Any]], int] = lambda options: 0) -> Callable[[Work], Work]:
    """Function decorator: the function is the work of the jobs of this kind.

    Args:
        name: of the kind.
        memory: see ``Kind``.
    """

    def register(work: Work) -> Work:
        KINDS[name] = Kind(work, memory)
        return work

    return register


def kind_of(name: str) -> Kind:
    """A kind by its name, or by where a function of one's own stands: ``package.module:function``.

    Raises:
        ConfigurationError: there is none.

    Example:
        >>> kind_of("training").work.__name__
        'train_and_certify'
    """
    if ":" not in name:
        if name not in KINDS.homes:
            raise ConfigurationError(f"there is no kind of job {name!r}; the known ones are {', '.join(KINDS.homes)}")
        return KINDS[name]
    module, _, function = name.partition(":")
    try:
        return Kind(getattr(import_module(module), function))
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"{name} is no function that can be imported here: {error}") from error


@functools.cache
def code_of(kind: str) -> str:
    """The version of the code that decides the result of a kind of job, as it is on this machine."""
    return f"{code_version()} {kind}={module_version(kind.partition(':')[0])}" if ":" in kind else code_version()


@dataclass(frozen=True)
class Job:
    """One piece of work, whose result depends on nothing else.

    Attributes:
        kind: a kind's name, or ``package.module:function``.
        options: JSON values.
        parent: identity of the job on whose files it builds; empty for none.
        threads: that it computes with; other numbers may differ in the last bit.
        memory: bytes that it takes in all, estimated.
        gpus: that it needs.

    Example:
        >>> job = Job("training", {"model": "elman", "seed": 0})
        >>> len(job.id), job.id == Job("training", {"seed": 0, "model": "elman"}, memory=1).id
        (40, True)
    """

    kind: str
    options: Mapping[str, Any]
    parent: str = ""
    threads: int = 1
    memory: int = field(default=PROCESS, compare=False)
    gpus: int = field(default=0, compare=False)

    @functools.cached_property
    def spec(self) -> dict[str, Any]:
        """All that determines the result, JSON values."""
        return {
            "kind": self.kind,
            "options": dict(self.options),
            "parent": self.parent,
            "threads": self.threads,
            "code": code_of(self.kind),
        }

    @functools.cached_property
    def id(self) -> str:
        """The job's name: a hash of ``spec``."""
        return identity(self.spec)
