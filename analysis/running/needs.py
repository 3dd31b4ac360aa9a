"""What a job needs of the place where it runs: a name, threads, memory, a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

PROCESS = 500 * 2**20
"""Bytes that a process has before it does anything: Python, torch, SciPy."""


class Needs(Protocol):
    """A job, as far as a place has to know it."""

    @property
    def id(self) -> Any:  # text; a cached property would be none of declared type
        """Its name, one of a kind."""
        ...

    @property
    def threads(self) -> int:
        """That it computes with."""
        ...

    @property
    def memory(self) -> int:
        """Bytes that it takes in all, estimated."""
        ...

    @property
    def gpus(self) -> int:
        """That it needs."""
        ...


@dataclass(frozen=True)
class Task:
    """A job without an estimate.

    Attributes:
        id: its name.
        threads: that it computes with.
        memory: bytes.
        gpus: that it needs.
    """

    id: str
    threads: int = 1
    memory: int = PROCESS
    gpus: int = 0
