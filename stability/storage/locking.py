"""Lock of a folder, released when its process ends, with a record of its owner.

The lock is ``flock`` on ``.stability.lock``. The kernel frees it when the last process that holds it, its owner or a
fork of it, is gone, killed or not. The record in that file names the owner for the message that a second writer gets.
Where the file system knows no locks, the record is the lock: it is taken over only from a process of this machine that
is provably gone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import socket
import stat
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from stability.errors import FolderInUseError

try:
    import fcntl
except ImportError:  # not POSIX: the record is the lock
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".stability.lock"
PATIENCE = 20.0
"""Seconds to wait for the processes of an owner that is gone: they end with it, but not in the same moment, and one
that was just starting does so when it has started, which takes seconds on a busy machine."""
BUSY = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
WITHOUT = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)

log = logging.getLogger("stability")


@dataclass(frozen=True)
class Owner:
    """Process that writes in a folder.

    Attributes:
        host: the machine's name.
        boot: which start of which kernel it is, empty where the system does not say.
        space: the process's namespace: numbers of processes mean nothing outside it.
        process: its number.
        started: when the process began, in the kernel's own units; numbers are used again, pairs are not.
        since: when it began to write, ISO 8601.
        work: what it does.
    """

    host: str
    boot: str
    space: str
    process: int
    started: str
    since: str
    work: str

    @classmethod
    def here(cls, work: str) -> Owner:
        """This process."""
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        return cls(socket.gethostname(), _boot(), _space(), os.getpid(), _started(os.getpid()), since, work)

    @classmethod
    def read(cls, text: str) -> Owner | None:
        """Parse a record; ``None`` for anything else."""
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            values = json.loads(text)
            if isinstance(values, dict) and type(values.get("process")) is int and values["process"] > 0:
                words = {k: str(v)[:200] for k, v in values.items() if k != "process"}
                return cls(process=values["process"], **words)
        return None

    def to_text(self) -> str:
        """The record."""
        return json.dumps(asdict(self)) + "\n"

    @property
    def is_here(self) -> bool:
        """True if this process can tell whether the owner lives: same machine, boot and process numbers."""
        return (self.host, self.boot, self.space) == (socket.gethostname(), _boot(), _space())

    @property
    def is_dead(self) -> bool:
        """True if the owner is certainly gone: no process of this machine has its number and start time."""
        return self.is_here and not self._runs()

    def _runs(self) -> bool:
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return False
        except (PermissionError, OverflowError):
            pass
        now = _started(self.process)
        return not (now and self.started and now != self.started)

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} ({self.work}), since {self.since}"


def _boot() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _space() -> str:
    with contextlib.suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def _started(process: int) -> str:
    """Field 22 of ``/proc/N/stat``; empty for a process that is gone or a zombie, and where there is no such file."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return "gone" if fields[0] in "ZX" else fields[19]
    return ""


@dataclass(eq=False)
class Lock:
    """A folder's lock that this process holds.

    Attributes:
        path: the lock's file.
        owner: this process.
        descriptor: of the lock's file; ``None`` where the record is the lock.
        inherited: whether an earlier owner ended without giving it back, so that it may have left things half done.
    """

    path: Path
    owner: Owner
    descriptor: int | None
    inherited: bool = False

    def release(self) -> None:
        """Give the folder back. In a process forked from the owner only its own copy of the descriptor is closed."""
        if self.owner.process == os.getpid():
            with contextlib.suppress(OSError):
                record = self.descriptor is None and self.path.read_text() == self.owner.to_text()
                if record or (self.descriptor is not None and _same(self.descriptor, self.path)):
                    self.path.unlink()  # while it is still held: who opens it now finds another file, and looks again
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


def acquire_lock(folder: Path, work: str) -> Lock:
    """Take the lock of a folder.

    Args:
        folder: the folder, which exists.
        work: what is going to be done, for the record.

    Returns:
        The lock.

    Raises:
        FolderInUseError: another process holds it; the text names it.
        OSError: the folder cannot be written to.
    """
    path, owner = folder / LOCK_FILE, Owner.here(work)
    if fcntl is None:
        return _by_record(folder, path, owner)
    waited = time.monotonic()
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same(handle, path):
                return Lock(path, owner, handle, _sign(handle, folder, owner))
            os.close(handle)  # its owner was just about to take it away: once more
        except OSError as error:
            made = not os.fstat(handle).st_size
            os.close(handle)
            if error.errno in WITHOUT:
                if made:
                    path.unlink(missing_ok=True)
                return _by_record(folder, path, owner)
            if error.errno not in BUSY:
                raise
            other = _read(path)
            patient = other is None or other.is_dead  # between two owners, or the last words of its processes
            if not patient or time.monotonic() - waited > PATIENCE:
                raise FolderInUseError(_in_use(folder, other)) from None
            time.sleep(0.05)
        except BaseException:
            os.close(handle)
            raise


def _sign(handle: int, folder: Path, owner: Owner) -> bool:
    """Write the record into a lock that was just taken; return True if an earlier owner left its own there.

    Raises:
        FolderInUseError: the process of that record still runs.
    """
    before = Owner.read(os.pread(handle, 10_000, 0).decode("utf-8", errors="replace"))
    if before is not None and before.is_here and not before.is_dead and before.process != owner.process:
        raise FolderInUseError(_in_use(folder, before, folder / LOCK_FILE))  # the file system only pretends to lock
    os.ftruncate(handle, 0)
    os.pwrite(handle, owner.to_text().encode(), 0)
    if before is not None:
        log.warning("stability: %s was left by %s, which has ended: taken over", folder, before)
    return before is not None


def _same(handle: int, path: Path) -> bool:
    """Return True if the name still leads to the locked file, not to one in a replaced folder."""
    try:
        here, there = os.fstat(handle), os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


def _read(path: Path) -> Owner | None:
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            with path.open("rb") as handle:
                return Owner.read(handle.read(10_000).decode("utf-8", errors="replace"))
    return None


def _in_use(folder: Path, other: Owner | None, record: Path | None = None) -> str:
    if record is not None:
        who = "by a process that cannot be told" if other is None else f"by {other}"
        return (
            f"{folder} is being written {who}, as far as {record} says; its file system has no locks: wait for that "
            "process, or delete this file if it has certainly ended"
        )
    if other is None:
        return f"{folder} is being written by another process: wait for it, or choose another folder"
    if other.is_dead:
        return (
            f"{folder} was being written by {other}; it has ended, but a process that it started still holds the folder"
        )
    return f"{folder} is being written by {other}: wait for it, or choose another folder"


def _by_record(folder: Path, path: Path, owner: Owner) -> Lock:
    """Take the lock on a file system without locks: the process that creates the file owns the folder."""
    log.warning("stability: the file system of %s has no locks: its owner is known by %s alone", folder, path)
    inherited = False
    while True:
        try:
            with open(path, "x", encoding="utf-8") as handle:
                handle.write(owner.to_text())
            return Lock(path, owner, None, inherited)
        except FileExistsError:
            other = _read(path)
            if other is None or not other.is_dead:
                raise FolderInUseError(_in_use(folder, other, path)) from None
            path.unlink(missing_ok=True)
            log.warning("stability: %s was left by %s, which has ended: taken over", folder, other)
            inherited = True
