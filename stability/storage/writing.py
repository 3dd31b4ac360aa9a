"""Atomic writing of files.

The type of the path decides. A regular or missing file is written to a temporary name and renamed. A symbolic link
stays; its target is written. A character device, a descriptor of this process (``/dev/stdout``, ``/dev/fd/N``, process
substitution) and a named pipe with a reader are written directly. A folder, a socket, a block device and a pipe without
a reader are refused.

Replacement is durable: the content is on the disk before the renaming, and the name before the call returns. After a
power failure the path holds the old file or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from stability.errors import ConfigurationError, FileFormatError

LINKS = 40  # most symbolic links in a chain, as in Linux
PARTIAL = re.compile(r"\.[0-9a-f]{24}\.partial")
DESCRIPTORS = re.compile(r"/dev/fd|/proc/(self|thread-self|\d+)(/task/\d+)?/fd")
UNSYNCED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Errors of file systems that do not support waiting for the disk."""
REFUSED = ((stat.S_ISDIR, "a directory"), (stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a block device"))

HOMES: dict[Path, tuple[int, int]] = {}
"""Folders locked by this process, with device and inode: the name may later refer to another folder."""
CLOSED: set[int] = set()
"""Descriptors that were closed when the process began, so that they are no output of the caller."""


def as_path(value: object) -> Path:
    """Return a path given as text or path object.

    Raises:
        ConfigurationError: no text and no path: numbers would be open descriptors.

    Example:
        >>> as_path("c.json").name
        'c.json'
    """
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigurationError(f"a path must be a string or a Path, got {type(value).__name__}")
    return Path(os.fsdecode(value))


def is_partial(name: str) -> bool:
    """Return True for the name of a file that was being written aside.

    Example:
        >>> is_partial(".0123456789abcdef01234567.partial"), is_partial("notes.partial")
        (True, False)
    """
    return PARTIAL.fullmatch(name) is not None


def refuse_moved(path: Path) -> None:
    """Raise an error for writing below a locked folder whose name now refers to another one.

    Raises:
        FileFormatError: it was moved, removed or replaced meanwhile.
    """
    for place in path.absolute().parents if HOMES else ():
        if place in HOMES:
            with contextlib.suppress(OSError):
                status = os.stat(place)
                if (status.st_dev, status.st_ino) == HOMES[place]:
                    continue
            raise FileFormatError(f"cannot write {path}: the folder {place} was moved, removed or replaced meanwhile")


def reserve(path: str | Path) -> Path:
    """Raise an error for an unwritable place before the work, not after it.

    Args:
        path: path of a future file; nothing is changed there.

    Returns:
        The path.

    Raises:
        FileFormatError: an unwritable place; the text names the reason.
    """
    path = Path(path)
    with _place(path) as (descriptor, target, status):
        if descriptor is not None:
            return path
        if status is None or stat.S_ISREG(status.st_mode):
            folder = target.parent
            if not folder.is_dir():
                raise FileFormatError(f"cannot write {path}: there is no directory {folder}")
            if not os.access(folder, os.W_OK | os.X_OK):
                raise FileFormatError(f"cannot write {path}: no permission in {folder}")
            if status is not None and not os.access(target, os.W_OK):
                raise FileFormatError(f"cannot write {path}: it is write-protected")
        elif not stat.S_ISFIFO(status.st_mode):  # the reader of a pipe would see its end where it is closed
            os.close(_open_device(target))
    return path


def existing_target(path: str | Path) -> os.stat_result | None:
    """Return the status of the file to be replaced, after resolving all links.

    Args:
        path: path of the file.

    Returns:
        Its status; ``None`` where nothing stands there, and for open descriptors, which are written on.

    Raises:
        FileFormatError: a place that cannot be written to.
    """
    with _place(Path(path)) as (descriptor, _, status):
        return status if descriptor is None else None


def write_text(path: str | Path, text: str) -> Path:
    """Write a text in UTF-8; undecodable characters of names become escapes."""
    return write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def write_bytes(path: str | Path, *pieces: bytes | memoryview) -> Path:
    """Write a file atomically if it is a regular one; write through anything else.

    Args:
        path: path of the file; see this module's description for devices, links and pipes.
        *pieces: the content, one piece after the other.

    Returns:
        The path.

    Raises:
        FileFormatError: when the place cannot be written to.
    """
    path = Path(path)
    with _place(path) as (descriptor, target, status):
        if descriptor is not None:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()  # what was printed before comes before
            with open(descriptor, "wb", closefd=False) as handle:
                handle.writelines(pieces)
            return path
        if status is None or stat.S_ISREG(status.st_mode):
            _replace(target, pieces)
            return path
        with open(_open_device(target), "wb") as handle:
            handle.writelines(pieces)
    return path


def make_folder(path: Path) -> list[Path]:
    """Create a folder and its missing parents durably.

    Returns:
        Those that were made, the innermost first.

    Raises:
        OSError: it cannot be made.
    """
    created = [place for place in (path, *path.parents) if not place.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for place in created:
        _sync_folder(place.parent)
    return created


def sync_to_disk(handle: int) -> None:
    """Wait until the content of an open file is on its disk.

    Raises:
        OSError: it did not get there, for want of space or by a fault of the disk.
    """
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise


@contextlib.contextmanager
def _place(path: Path) -> Iterator[tuple[int | None, Path, os.stat_result | None]]:
    """Resolve a path to an open descriptor of this process, or to a target and its status.

    Yields:
        A descriptor or ``None``, the path of the target, and what stands there.

    Raises:
        FileFormatError: nothing that is written to; or what goes wrong within the block, told of the path.
    """  # noqa: DOC501 - the ValueError that goes on is a FileFormatError
    try:
        descriptor = _own_descriptor(path)
        if descriptor is not None:
            if descriptor in CLOSED:
                raise FileFormatError(f"cannot write {path}: this process has no open file {descriptor}")
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
            yield descriptor, path, None
        else:
            yield None, *_target(path)
    except OSError as error:
        raise FileFormatError(f"cannot write {path}: {error.strerror or error}") from error
    except ValueError as error:  # a NUL or a lone surrogate in the name
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"cannot write {str(path)!r}: {error}") from error


def _own_descriptor(path: Path) -> int | None:
    """Return the number behind ``/dev/stdout``, ``/dev/fd/N`` and similar names.

    To be written to as it is: opened by its name, a file would be written from its start again, or be replaced.
    """
    for _ in range(LINKS):
        if path.name.isdecimal():
            folder = os.path.realpath(path.parent)
            match = DESCRIPTORS.fullmatch(folder) or DESCRIPTORS.fullmatch(str(path.parent))
            if match is not None:
                ours = match[1] in (None, "self", "thread-self", str(os.getpid()))
                return int(path.name) if ours else None
        if not path.is_symlink():
            return None
        path = path.parent / os.readlink(path)
    return None


def _target(path: Path) -> tuple[Path, os.stat_result | None]:
    """Resolve the links of a path; return the target and its status, ``None`` if it does not exist.

    Raises:
        FileFormatError: a folder, a socket, a block device, a link whose folder is missing.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        if not path.is_symlink():
            return path, None
        target = Path(os.path.realpath(path))
        if not target.parent.is_dir():
            raise FileFormatError(
                f"cannot write {path}: it is a link to {target}, and there is no directory {target.parent}"
            ) from None
        return target, None
    for kind, name in REFUSED:
        if kind(status.st_mode):
            raise FileFormatError(f"cannot write {path}: it is {name}")
    linked = stat.S_ISREG(status.st_mode) and path.is_symlink()
    return (Path(os.path.realpath(path)) if linked else path), status


def _open_device(target: Path) -> int:
    """Open a device or a named pipe for writing; raise an error for one without a reader."""
    try:
        handle = os.open(target, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise FileFormatError(f"cannot write {target}: it is a pipe or device that nobody reads") from error
        raise
    os.set_blocking(handle, True)
    return handle


def _replace(path: Path, pieces: Sequence[bytes | memoryview]) -> None:
    """Write a temporary file, wait for the disk, and rename it: renamed first, a name could outlive its content."""
    refuse_moved(path)
    temporary = path.parent / f".{secrets.token_hex(12)}.partial"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with open(os.open(temporary, flags, 0o666), "wb") as handle:  # less what the umask of the process takes away
            handle.writelines(pieces)
            handle.flush()
            sync_to_disk(handle.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk; failures are ignored, since the files are complete."""
    with contextlib.suppress(OSError):  # not readable, or a system that opens no folders
        handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def is_utf8(path: str | Path) -> bool:
    r"""Return True if a name is UTF-8, as libraries not written in Python require.

    File names of this system are bytes; those that are no UTF-8 (or no ASCII, in a process without a locale) hold lone
    surrogates in Python, and Python alone opens them.

    Example:
        >>> is_utf8("model-α.npz"), is_utf8("model-\udcff.npz")
        (True, False)
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
