"""Lock of a folder, released when its process ends, with a record of its owner."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

from stability.errors import FolderInUseError

LOCK_FILE, OWNER_FILE = ".stability.lock", ".stability.owner"
PATIENCE = 1.0
"""Seconds to wait for processes that a killed owner had started."""

log = logging.getLogger("stability")


@dataclass(eq=False)
class Lock:
    """Lock of a folder held by this process.

    Attributes:
        folder: the folder.
        process: number of the process that acquired the lock.
        inherited: whether an earlier owner ended without releasing it, so that its work may be incomplete.
    """

    folder: Path
    process: int
    inherited: bool
    _lock: BaseFileLock

    def release(self) -> None:
        """Release the folder, unless this process is a fork of the owner or another folder took its place."""
        if self.process == os.getpid():
            with contextlib.suppress(OSError):
                if (self.folder / OWNER_FILE).read_text(encoding="utf-8").startswith(f"process {self.process} "):
                    (self.folder / OWNER_FILE).unlink()
                    (self.folder / LOCK_FILE).unlink()
            self._lock.release()


def acquire_lock(folder: Path, work: str) -> Lock:
    """Acquire the lock of a folder.

    Args:
        folder: the folder, which exists.
        work: description of the work, for the record.

    Returns:
        The lock.

    Raises:
        FolderInUseError: another process holds the lock; the message names the process.
        OSError: the folder cannot be written to.
    """
    lock, record = FileLock(folder / LOCK_FILE, timeout=PATIENCE, thread_local=False), folder / OWNER_FILE
    before = ""
    with contextlib.suppress(OSError, ValueError):
        before = record.read_text(encoding="utf-8")[:500]
    try:
        lock.acquire(poll_interval=0.05)
    except Timeout:
        owner = before or "another process"
        raise FolderInUseError(f"{folder} is being written by {owner}: wait for it, or choose another folder") from None
    if inherited := os.path.lexists(record):
        log.warning("stability: the folder %s is taken over, since its last writer has ended: %s", folder, before)
        record.unlink()
    since = datetime.now().astimezone().isoformat(timespec="seconds")
    record.write_text(f"process {os.getpid()} on {socket.gethostname()} ({work}), since {since}", encoding="utf-8")
    return Lock(folder, os.getpid(), inherited, lock)
