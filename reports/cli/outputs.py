"""Output paths of certificates: never a file that the command reads, nor one that holds anything else."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError
from stability.storage.writing import existing_target, reserve
from stability.user_code import is_python_file, split_factory_name

_BEGINNING = re.compile(rb'\s*\{\s*"format"\s*:\s*"stability-(checkpoint-)?certificate"')
"""Leading bytes of a certificate that are searched: other files may speak of the format further on."""


def reads(models: Sequence[str], data: Any = None, box: str | None = None) -> list[Path]:
    """Return the files and folders named on the command line that a command reads.

    Args:
        models: in any of their forms.
        data: ``DataOptions``.
        box: the word of ``--input-box-from``.

    Returns:
        Paths that exist. A run folder stands for all that lies in it, ``FILE.py:factory`` for its file.
    """
    data_file = getattr(data, "file", None)
    names = [*models, *(name.rpartition("#")[0] for name in models), box, None if data_file is None else str(data_file)]
    names += [split_factory_name(name)[0] for name in names if name and is_python_file(split_factory_name(name)[0])]
    return [Path(name) for name in names if name and "\0" not in name and os.path.exists(name)]


def writable(out: Path | None, read: Iterable[Path], *, overwrite: bool = False) -> None:
    """Refuse a place for a certificate, before the work, where something would be lost.

    Args:
        out: where it is to go, if anywhere; a certificate of this toolkit and an empty file there are replaced.
        read: files that the command reads, see ``reads``; no link to them is written to.
        overwrite: whether any other file may be replaced.

    Raises:
        ConfigurationError: it would replace what is read, or a file that is no certificate.
        FileFormatError: nothing can be written there.
    """
    if out is None:
        return
    reserve(out)
    status, is_replaceable = existing_target(out), False
    if status is None or not stat.S_ISREG(status.st_mode):
        return
    with contextlib.suppress(OSError):
        is_replaceable = is_certificate(out)
    for place in read:
        if place.is_dir():
            if is_replaceable or not _within(place, status):
                continue
        elif not os.path.samestat(place.stat(), status):
            continue
        raise ConfigurationError(f"-o {out} would replace an input of this command, {place}: choose another file")
    if not (is_replaceable or overwrite or status.st_size == 0):
        raise ConfigurationError(
            f"-o {out} would replace a file that is no certificate: choose another file, or add --overwrite"
        )


def is_certificate(path: Path) -> bool:
    """Return True if a regular file begins like a certificate of this toolkit, of any version.

    Raises:
        OSError: it cannot be read.
    """
    if not path.is_file():
        return False
    with path.open("rb") as handle:
        return _BEGINNING.match(handle.read(200)) is not None


def _within(folder: Path, status: os.stat_result) -> bool:
    """Return True if one of the files of a folder is this file, under any name."""
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                if os.path.samestat(os.stat(os.path.join(place, name)), status):
                    return True
            except OSError:  # a link to nowhere
                continue
    return False
