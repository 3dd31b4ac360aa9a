"""Parts of a study: each computed once, kept as a file, and done here or wherever there is room.

A part depends on its settings alone. Another process, or a machine of a cluster, runs the study up to its parts, does
the one that it was asked for, and sends it back; what decides its outcome has to be the same on both sides.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stability.errors import FileFormatError, UnsupportedError
from stability.kernel.format.serialization import digest_of
from stability.storage.documents import read_json
from stability.storage.folder import claim_folder
from stability.storage.writing import make_folder, write_text

from ..results import plain_value
from ..running.jobs import run_jobs
from ..running.places import Runner
from ..running.pool import Outcome, Tell
from ..threads import ONE, with_threads

STUDY = "study"
EARLIER: ContextVar[list[float | None] | None] = ContextVar("seconds of the parts that a study found", default=None)
IMPORTED = ("torch._dynamo", "scipy.stats")
"""What an optimizer's first step and the tables import: a worker that forks its jobs does so once."""


@dataclass(frozen=True)
class Part:
    """A part of a study.

    Attributes:
        key: its name, usable as a file name.
        settings: everything that decides the outcome; a part kept for other settings is computed again.
        compute: makes the outcome, JSON values; sets the seeds that it needs itself.
    """

    key: str
    settings: Mapping[str, Any]
    compute: Callable[[], Any]


@dataclass(frozen=True)
class Elsewhere:
    """Where parts are done that are not kept yet.

    Attributes:
        ticket: the study, and what it was asked for.
        processes: at a time, on this machine.
        place: the workers of a cluster in place of processes.
    """

    ticket: Mapping[str, Any]
    processes: int = 1
    place: Runner | None = None


class Computed(BaseException):
    """The part that was asked for is there: whatever the study does after its parts is not for this process.

    Attributes:
        part: its document.
    """

    def __init__(self, part: dict[str, Any]) -> None:
        super().__init__()
        self.part = part


def keep_part(out: Path, key: str, settings: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
    """A part of a study: computed once for these settings, then read from ``parts/<key>.json``.

    What it took is kept with it and counts in the time of the study that reads it.

    Args:
        out: folder of the study.
        key: name of the part, usable as a file name.
        settings: everything that decides the outcome; a part kept for other settings is computed again.
        compute: makes the outcome, JSON values.

    Returns:
        The outcome as JSON values.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> keep_part(folder, "one", {"seed": 0}, lambda: [1.0]), keep_part(folder, "one", {"seed": 0}, list)
        ([1.0], [1.0])
    """
    part = Part(key, settings, compute)
    with claim_folder(out, "study") as own:
        own.reserve([_name(key)], STUDY)
        found = _found(out, part)
        if found is not None:
            if (earlier := EARLIER.get()) is not None:
                earlier.append(_seconds(found))
            return found["outcome"]
        made = _made(part)
        _write(out, key, made)
    return made["outcome"]


def only(key: str, parts: Sequence[Part]) -> None:
    """Do one part.

    Raises:
        Computed: it is there.
        UnsupportedError: the study has no such part.
    """
    for part in parts:
        if part.key == key:
            raise Computed(_made(part))
    raise UnsupportedError(f"there is no part {key} of this study here: another release?")


def do_elsewhere(out: Path, parts: Sequence[Part], elsewhere: Elsewhere, tell: Tell) -> None:
    """Compute the parts that are not kept, several at a time, and keep each as soon as it is there.

    Args:
        out: folder of the study, owned already.
        parts: of the study.
        elsewhere: where to do them.
        tell: gets one line of news now and then.

    Raises:
        UnsupportedError: some have no outcome; the others are kept.
        KeyboardInterrupt: what was finished is kept.
    """
    missing = {part.key: part for part in parts if _found(out, part) is None}
    wrong: dict[str, str] = {}

    def keep(outcome: Outcome) -> None:
        error = outcome.error or _kept_of(out, missing[outcome.name], outcome.value)
        if error is not None:
            wrong[outcome.name] = error

    with claim_folder(out, "study") as own:
        own.reserve([_name(key) for key in missing], STUDY)
        tickets = {key: {**elsewhere.ticket, "key": key} for key in missing}
        run_jobs(
            compute_part, tickets, processes=elsewhere.processes, place=elsewhere.place, done=keep, alone=True,
            news=lambda key, text: tell(text), descriptor=own.descriptor, modules=(*IMPORTED, __package__ or ""),
            gpus=int(str(elsewhere.ticket["device"]).startswith("cuda")),
        )  # fmt: skip
    if wrong:
        told = "; ".join(f"{key}: {text}" for key, text in wrong.items())
        raise UnsupportedError(f"{told}; the other parts are kept")


def _kept_of(out: Path, part: Part, made: Mapping[str, Any]) -> str | None:
    """Keep what another process made; what is wrong with it where something is."""
    if made["settings"] != plain_value(dict(part.settings)):
        return "whoever did it has other data or another release, and its outcome is of something else"
    _write(out, part.key, {name: made[name] for name in ("settings", "outcome", "seconds")})
    return None


def compute_part(ticket: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """One part of a study, in a process of its own.

    Args:
        ticket: ``study``, ``module`` where it is registered, ``key``, ``seed``, ``quick``, ``data_dir``, ``device``.
        tell: gets its news.

    Returns:
        Its document: ``settings``, ``outcome``, ``seconds``.

    Raises:
        StabilityError: as the study does.
        UnsupportedError: it has no such part.
    """
    from .base import STUDIES, Job

    importlib.import_module(str(ticket["module"]))
    with ONE, with_threads(1), tempfile.TemporaryDirectory(prefix="stability-study-") as out:
        asked = {name: ticket[name] for name in ("seed", "quick", "data_dir")}
        job = Job(Path(out), **asked, device=torch.device(ticket["device"]), progress=tell, only=str(ticket["key"]))
        try:
            STUDIES[str(ticket["study"])].run(job)
        except Computed as found:
            return found.part
    raise UnsupportedError(f"study {ticket['study']} has no part {ticket['key']}")


def _name(key: str) -> str:
    return f"parts/{key}.json"


def _made(part: Part) -> dict[str, Any]:
    clock = time.perf_counter()
    made: dict[str, Any] = {"settings": plain_value(dict(part.settings)), "outcome": plain_value(part.compute())}
    return {**made, "seconds": time.perf_counter() - clock}


def _write(out: Path, key: str, part: Mapping[str, Any]) -> None:
    path = out / _name(key)
    make_folder(path.parent)
    write_text(path, json.dumps({**part, "digest": digest_of(_text(part))}, allow_nan=False) + "\n")


def _found(out: Path, part: Part) -> dict[str, Any] | None:
    """The part as it was kept, if it was for these settings."""
    path = out / _name(part.key)
    if not path.exists():
        return None
    kept = kept_part(path)
    same = kept.get("settings") == plain_value(dict(part.settings))
    return kept if same and "outcome" in kept else None


def kept_part(path: Path) -> dict[str, Any]:
    """A kept part; nothing where the file was torn or changed (earlier releases gave no digest).

    Args:
        path: of its file.
    """
    try:
        kept = read_json(path)
    except FileFormatError:
        return {}
    if not isinstance(kept, dict):
        return {}
    digest = kept.pop("digest", None)
    return kept if digest is None or digest == digest_of(_text(kept)) else {}


def _seconds(kept: Mapping[str, Any]) -> float | None:
    """What a kept part took; ``None`` for one of an earlier release, which does not say."""
    seconds = kept.get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else None


def _text(part: Mapping[str, Any]) -> str:
    return json.dumps(part, sort_keys=True, allow_nan=False)
