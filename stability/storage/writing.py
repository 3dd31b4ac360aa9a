"""Atomic writing of files.

A regular or missing file is written under a temporary name and renamed. A symbolic link is kept, and its target is
written. A character device, a descriptor of this process (``/dev/stdout``, ``/dev/fd/N``, process substitution) and a
named pipe with a reader are written directly. A folder, a socket, a block device and a pipe without a reader are
refused.

Replacement is durable: the content is on the disk before the file is renamed, and the new name before the call returns.
After a power failure the path holds either the old file or the new one.
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
PARTIAL = re.compile(r"\.[0-9a-f]{24}\.partial")  # temporary names
DESCRIPTORS = re.compile(r"/dev/fd|/proc/(self|thread-self|\d+)(/task/\d+)?/fd")
UNSYNCED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""Errors of file systems that do not support waiting for the disk."""
REFUSED = ((stat.S_ISDIR, "a directory"), (stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a block device"))

LOCKED: dict[Path, tuple[int, int]] = {}
"""Folders locked by this process, with device and inode: the name may later refer to another folder."""
CLOSED: set[int] = set()
"""Descriptors that were closed when the process started, so that the caller expects no output there."""


def as_path(value: object) -> Path:
    """Return a path given as text or path object.

    Raises:
        ConfigurationError: another type; numbers, for example, would mean open descriptors.

    Example:
        >>> as_path("c.json").name
        'c.json'
    """
    if not isinstance(value, (str, os.PathLike)):
        raise ConfigurationError(f"a path must be a string or a Path, got {type(value).__name__}")
    return Path(os.fsdecode(value))


def is_partial(name: str) -> bool:
    """Return True for the temporary name of a file that is being written.

    Example:
        >>> is_partial(".0123456789abcdef01234567.partial"), is_partial("notes.partial")
        (True, False)
    """
    return PARTIAL.fullmatch(name) is not None


def refuse_moved(path: Path) -> None:
    """Raise an error for writing below a locked folder whose name now refers to another one.

    Raises:
        FileFormatError: the folder was moved, removed or replaced meanwhile.
    """
    for folder in path.absolute().parents if LOCKED else ():
        if folder in LOCKED:
            with contextlib.suppress(OSError):
                status = os.stat(folder)
                if (status.st_dev, status.st_ino) == LOCKED[folder]:
                    continue
            raise FileFormatError(f"cannot write {path}: the folder {folder} was moved, removed or replaced meanwhile")


def reserve(path: str | Path) -> Path:
    """Check that a file can be written later, so that an error comes before the work.

    Args:
        path: path of the future file; it is not changed.

    Returns:
        The path.

    Raises:
        FileFormatError: the file cannot be written; the text names the reason.
    """
    path = Path(path)
    with _resolved(path) as (descriptor, target, status):
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
        elif not stat.S_ISFIFO(status.st_mode):  # opening and closing a pipe would end it for its reader
            os.close(_open_device(target))
    return path


def existing_target(path: str | Path) -> os.stat_result | None:
    """Return the status of the file to be replaced, after resolving all links.

    Args:
        path: path of the file.

    Returns:
        Its status; ``None`` if it does not exist, and for open descriptors, which are appended to.

    Raises:
        FileFormatError: the file cannot be written.
    """
    with _resolved(Path(path)) as (descriptor, _, status):
        return status if descriptor is None else None


def write_text(path: str | Path, text: str) -> Path:
    """Write a text in UTF-8; characters that UTF-8 cannot encode become escapes."""
    return write_bytes(path, text.encode("utf-8", errors="backslashreplace"))


def write_bytes(path: str | Path, *pieces: bytes | memoryview) -> Path:
    """Write a regular file atomically; write directly to other kinds of files.

    Args:
        path: path of the file; see this module's description for devices, links and pipes.
        *pieces: the content, one piece after the other.

    Returns:
        The path.

    Raises:
        FileFormatError: the file cannot be written.
    """
    path = Path(path)
    with _resolved(path) as (descriptor, target, status):
        if descriptor is not None:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError, AttributeError):
                    stream.flush()  # keep the order of earlier output
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
        The created folders, the innermost first.

    Raises:
        OSError: a folder cannot be created.
    """
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in created:
        _sync_folder(folder.parent)
    return created


def sync_to_disk(handle: int) -> None:
    """Wait until the content of an open file is on its disk.

    Raises:
        OSError: the disk is full or faulty.
    """
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise


@contextlib.contextmanager
def _resolved(path: Path) -> Iterator[tuple[int | None, Path, os.stat_result | None]]:
    """Resolve a path to an open descriptor of this process, or to a target and its status.

    Yields:
        A descriptor or ``None``, the path of the target, and its status.

    Raises:
        FileFormatError: the target is not writable, or an ``OSError`` within the block, with the path in its text.
    """  # noqa: DOC501 - the ValueError that is raised again is a FileFormatError
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
    """Return the descriptor behind ``/dev/stdout``, ``/dev/fd/N`` and similar names.

    It must be written directly: a file opened by such a name would be overwritten from its start, or replaced.
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
    """Write a temporary file, wait for the disk, and rename it, so that the name never refers to missing content."""
    refuse_moved(path)
    temporary = path.parent / f".{secrets.token_hex(12)}.partial"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with open(os.open(temporary, flags, 0o666), "wb") as handle:  # the process's umask applies
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

    File names are bytes on this system. Names that are not UTF-8 (or not ASCII, in a process without a locale) contain
    lone surrogates in Python, and only Python can open them.

    Example:
        >>> is_utf8("model-α.npz"), is_utf8("model-\udcff.npz")
        (True, False)
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
