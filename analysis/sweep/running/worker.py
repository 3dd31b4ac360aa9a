"""A job, carried out wherever it was sent: the same function in this process, in one of a pool, on a cluster.

Where the process sees the store, it keeps the result there itself and only says so; where it does not, the result goes
back with its answer, and whoever sent the job keeps it.
"""

from __future__ import annotations

import functools
import os
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from stability.errors import FileFormatError, StabilityError
from stability.storage.results import DONE, FAILED, Result, identity
from stability.storage.store import ResultStore, described
from stability.user_code import error_text, raise_location

from ...running.pool import Tell
from ...threads import ONE, with_threads
from ..job import Given, code_of, kind_of

try:
    import resource
except ImportError:  # not POSIX
    resource = None  # type: ignore[assignment]

KEPT, CARRIED, BLIND, REFUSED = "kept", "carried", "blind", "refused"
"""How a job ends: its result is in the store; it is in the answer; the worker lacks the files that the job builds on;
the worker has other code."""


@dataclass(frozen=True)
class Ticket:
    """A job on its way; plain values, so that it can be sent anywhere.

    Attributes:
        spec: all that determines the result.
        store: where the store is.
        token: by which a process knows that it sees the same store.
        places: where files lie, by their digests.
        members: the files that the job builds on, for a process that does not see the store.
        again: whether to do it though it failed before.
    """

    spec: Mapping[str, Any]
    store: str
    token: str
    places: Mapping[str, str] = field(default_factory=dict)
    members: Mapping[str, bytes] | None = None
    again: bool = False

    def plain(self) -> dict[str, Any]:
        """The ticket as a dictionary."""
        return asdict(self)


def carry_out(ticket: Mapping[str, Any], tell: Tell = lambda text: None) -> dict[str, Any]:
    """Do a job and keep its result.

    Args:
        ticket: of the job, as ``Ticket.plain`` has it.
        tell: gets one line of news now and then.

    Returns:
        ``how``, one of those above; with the result's document (without files), and ``raw`` where it is carried.

    Raises:
        FileFormatError: the store cannot be written to.
        KeyboardInterrupt: it was interrupted.
    """
    with ONE:
        return _carry_out(Ticket(**ticket), tell)


def _carry_out(ticket: Ticket, tell: Tell) -> dict[str, Any]:
    spec, job = ticket.spec, identity(ticket.spec)
    here = code_of(str(spec["kind"]))
    if here != spec["code"]:
        return {"how": REFUSED, "job": job, "why": f"this worker has {here}, and the job is for {spec['code']}"}
    store = _seen(ticket.store, ticket.token)
    known = store.get(job) if store is not None else None
    if known is not None:  # somebody else did it meanwhile
        return {"how": KEPT, "job": job, "result": described(known)}
    members = _members(ticket, store)
    if members is None:
        return {"how": BLIND, "job": job}
    result = _computed(job, spec, Given(members, ticket.places, tell))
    if store is None:
        return {"how": CARRIED, "job": job, "raw": result.packed()}
    store.put(result)
    return {"how": KEPT, "job": job, "result": described(result)}


def _seen(location: str, token: str) -> ResultStore | None:
    """The store, where this process sees it."""
    try:
        store = _opened(location)
    except (FileFormatError, OSError):
        return None
    return store if store.token == token else None


@functools.lru_cache(maxsize=8)
def _opened(location: str) -> ResultStore:
    return ResultStore.found(location)


def _members(ticket: Ticket, store: ResultStore | None) -> Mapping[str, bytes] | None:
    """The files that the job builds on; ``None`` where they cannot be had here."""
    parent = ticket.spec["parent"]
    if not parent:
        return {}
    if ticket.members is not None:
        return ticket.members
    found = None if store is None else store.get(parent)
    return None if found is None else found.members


def _computed(job: str, spec: Mapping[str, Any], given: Given) -> Result:
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    values: Mapping[str, Any] = {}
    members: Mapping[str, bytes] = {}
    error = None
    try:
        work = kind_of(str(spec["kind"])).work
        with with_threads(int(spec["threads"])):
            values, members = work(spec["options"], given)
            Result(job, spec, DONE, values).packed()  # what JSON has no place for is the job's fault
    except (StabilityError, MemoryError) as fault:
        error = {"type": type(fault).__name__, "text": str(fault)[:2000] or error_text(fault)}
    except Exception as fault:
        if os.environ.get("STABILITY_TRACEBACK") == "job":
            raise
        error = {"type": type(fault).__name__, "text": f"unexpected {error_text(fault)} (at {raise_location(fault)})"}
    about: dict[str, Any] = {
        "started": started,
        "seconds": time.perf_counter() - clock,
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "process": os.getpid(),
    }
    if resource is not None:
        about["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if error is not None:
        return Result(job, spec, FAILED, {}, error, about)
    return Result(job, spec, DONE, values, None, about, members)
