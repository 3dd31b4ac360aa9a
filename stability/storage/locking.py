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
import secrets
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

LOCK_FILE, RECORD_FILE = ".stability.lock", ".stability.owner"
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
    if fcntl is None or _locks_stay_here(folder):
        return _by_record(folder, owner)
    waited = time.monotonic()
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _same(handle, path):
                return Lock(path, owner, handle, _sign(handle, folder, owner))
            os.close(handle)  # its owner was just about to take it away: once more
        except OSError as error:
            os.close(handle)
            if error.errno in WITHOUT:
                with contextlib.suppress(OSError):
                    path.unlink()
                return _by_record(folder, owner)
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
    """Write the record into a lock that was just taken; tells whether an earlier owner had left its own there.

    Raises:
        FolderInUseError: a process that does without locks writes there.
    """
    without = _read(folder / RECORD_FILE)
    if without is not None and not without.is_dead:
        raise FolderInUseError(_in_use(folder, without, folder / RECORD_FILE))
    before = without or Owner.read(os.pread(handle, 10_000, 0).decode("utf-8", errors="replace"))
    if (
        before is not None and before.is_here and not before.is_dead and before.process != owner.process
    ):  # locks that hold nobody off
        raise FolderInUseError(_in_use(folder, before, folder / LOCK_FILE))
    os.ftruncate(handle, 0)
    os.pwrite(handle, owner.to_text().encode(), 0)
    (folder / RECORD_FILE).unlink(missing_ok=True)
    if before is not None:
        log.warning("stability: %s was left by %s, which has ended: taken over", folder, before)
    return before is not None


def _locks_stay_here(folder: Path) -> bool:
    """Return True on a network file system that is mounted with locks of this machine alone."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
            fields = line.split()
            if len(fields) > 5 and fields[2] == number:
                options = {o for f in fields[5:] for o in f.split(",")}
                return bool(options & {"nolock", "local_lock=all", "local_lock=flock", "localflock", "nobrl"})
    return False


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


def _by_record(folder: Path, owner: Owner) -> Lock:
    """The record as the lock: whoever can make the file owns the folder."""
    path = folder / RECORD_FILE
    log.warning(
        "stability: the file system of %s has no locks: its owner is known by the record in %s alone", folder, path
    )
    inherited = False
    for _ in range(100):
        if _create(path, owner.to_text()):
            return Lock(path, owner, None, inherited)
        other = _read(path)
        if other is not None and other.is_dead:
            _take_away(path, other)
            log.warning("stability: %s was left by %s, which has ended: taken over", folder, other)
            inherited = True
        elif other is not None or path.exists():
            raise FolderInUseError(_in_use(folder, other, path))
    raise FolderInUseError(_in_use(folder, None))


def _create(path: Path, text: str) -> bool:
    """Make a file with its content in one step; false where there is one."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    aside.write_text(text)
    try:
        os.link(aside, path)
        return True
    except FileExistsError:
        return False
    except OSError:  # no hard links either
        try:
            with open(path, "x", encoding="utf-8") as handle:
                handle.write(text)
            return True
        except FileExistsError:
            return False
    finally:
        aside.unlink(missing_ok=True)


def _take_away(path: Path, dead: Owner) -> None:
    """Remove a dead owner's record, unless somebody was faster and it is another one by now."""
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, aside)
        if _read(aside) != dead:
            with contextlib.suppress(OSError):
                os.link(aside, path)
        aside.unlink(missing_ok=True)
