"""Parts of a study: each is computed once for its settings and kept as a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stability.errors import FileFormatError
from stability.kernel.format.serialization import digest_of
from stability.storage.documents import read_json
from stability.storage.folder import claim
from stability.storage.writing import make_folder, write_text

from ..results import plain_value

STUDY = "study"
EARLIER: ContextVar[list[float | None] | None] = ContextVar("seconds of the parts that a study found", default=None)


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
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> keep_part(folder, "one", {"seed": 0}, lambda: [1.0]), keep_part(folder, "one", {"seed": 0}, list)
        ([1.0], [1.0])
    """
    part = Part(key, settings, compute)
    with claim(out, "study") as own:
        own.reserve([_name(key)], STUDY)
        found = _found(out, part)
        if found is not None:
            if (earlier := EARLIER.get()) is not None:
                earlier.append(_seconds(found))
            return found["outcome"]
        made = _made(part)
        _write(out, key, made)
    return made["outcome"]


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
