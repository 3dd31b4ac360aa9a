"""Where a store of results lies: a folder, or object storage; both hold named files that are whole or not there.

A folder may be one of a network file system: nothing here takes a lock, files are written aside and renamed. Object
storage (``s3://bucket/sweep`` and whatever else fsspec knows) puts an object as a whole by itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.limits import DOCUMENT_BYTES
from stability.storage.writing import is_partial, make_folder, write_bytes

STALE = 24 * 3600.0
"""Seconds after which a file that was being written aside is nobody's: its writer was killed."""


class Entry(NamedTuple):
    """A file of a place.

    Attributes:
        name: the last part of its name.
        size: in bytes.
        stamp: changes when the file is replaced: the time of its last change, or an object's tag.
    """

    name: str
    size: int
    stamp: str


class Place(Protocol):
    """Named files below one location; names have ``/`` between their parts."""

    @property
    def location(self) -> str:
        """By which it is found again."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other processes can see it."""
        ...

    def read(self, name: str) -> bytes | None:
        """A whole file; ``None`` where there is none."""
        ...

    def write(self, name: str, *pieces: bytes, durable: bool = True) -> Entry:
        """Replace a file as a whole."""
        ...

    def entry(self, name: str) -> Entry | None:
        """Size and stamp of a file; ``None`` where there is none."""
        ...

    def entries(self, folder: str) -> Iterator[Entry]:
        """The files right below a folder; none where the folder is missing."""
        ...

    def remove(self, name: str) -> None:
        """Take a file away, where it is there."""
        ...


def place_of(location: str | Path) -> Place:
    """The place that a path or an address means.

    Args:
        location: a folder, or an address that fsspec knows.

    Returns:
        The place; nothing is made there.

    Raises:
        ConfigurationError: an address without fsspec, or one that it does not know.

    Example:
        >>> import tempfile
        >>> place = place_of(tempfile.mkdtemp())
        >>> place.write("a/b", b"content").size, place.read("a/b"), [e.name for e in place.entries("a")]
        (7, b'content', ['b'])
    """
    text = str(location)
    if "://" not in text:
        return Directory(Path(location))
    if text.startswith("file://"):
        return Directory(Path(text.removeprefix("file://")))
    return Objects(text)


def _entry(name: str, status: os.stat_result) -> Entry:
    return Entry(name, status.st_size, str(status.st_mtime_ns))


class Directory:
    """A folder.

    Args:
        path: of the folder, which need not be there yet.
    """

    shared = True

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.location: str = str(self.path)
        self._made: set[Path] = set()

    def read(self, name: str) -> bytes | None:
        """A whole file; ``None`` where there is none.

        Raises:
            FileFormatError: it cannot be read, or is larger than a document may be.
        """
        path = self.path / name
        try:
            with path.open("rb") as handle:
                if os.fstat(handle.fileno()).st_size > DOCUMENT_BYTES:
                    raise FileFormatError(f"{path} has more than {DOCUMENT_BYTES} bytes")
                return handle.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error

    def write(self, name: str, *pieces: bytes, durable: bool = True) -> Entry:
        """Write aside and rename into place.

        Raises:
            FileFormatError: it cannot be written.
        """
        path = self.path / name
        if path.parent not in self._made:
            try:
                make_folder(path.parent) if durable else path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise FileFormatError(f"cannot write to {path.parent}: {error.strerror or error}") from error
            self._made.add(path.parent)
        write_bytes(path, *pieces, durable=durable)
        return _entry(path.name, path.stat())

    def entry(self, name: str) -> Entry | None:
        """Size and stamp of a file."""
        try:
            return _entry(name.rpartition("/")[2], os.stat(self.path / name))
        except OSError:
            return None

    def entries(self, folder: str) -> Iterator[Entry]:
        """The files right below a folder, in no order; what a killed writer left aside long ago is taken away.

        Yields:
            Each, as it was when it was looked at.

        Raises:
            FileFormatError: the folder cannot be read.
        """
        path = self.path / folder
        try:
            with _looked_through(path) as found:
                for item in found:
                    name = item.name
                    try:
                        if name[0] == "." and is_partial(name):
                            _drop_stale(item, path / name)
                        elif item.is_file(follow_symlinks=False):
                            yield _entry(name, item.stat())
                    except FileNotFoundError:  # renamed or taken away meanwhile
                        continue
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise FileFormatError(f"cannot read {self.path / folder}: {error.strerror or error}") from error

    def remove(self, name: str) -> None:
        """Take a file away, where it is there.

        Raises:
            FileFormatError: it cannot be.
        """
        try:
            (self.path / name).unlink(missing_ok=True)
        except OSError as error:
            raise FileFormatError(f"cannot remove {self.path / name}: {error.strerror or error}") from error


@contextlib.contextmanager
def _looked_through(path: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """What is in a folder; by its descriptor where that can be, so that no look at a file walks its whole path."""
    if os.scandir not in os.supports_fd:
        with os.scandir(path) as found:
            yield found
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as found:
            yield found
    finally:
        os.close(descriptor)


def _drop_stale(item: os.DirEntry[str], path: Path) -> None:
    if time.time() - item.stat().st_mtime > STALE:
        with contextlib.suppress(OSError):
            path.unlink()


class Objects:
    """Object storage, through fsspec.

    Args:
        address: such as ``s3://bucket/sweep``; access is whatever fsspec finds in its own settings.

    Raises:
        ConfigurationError: no fsspec, or an address that it does not know.
    """

    def __init__(self, address: str) -> None:
        self.location = address.rstrip("/")
        self.shared = not address.startswith("memory://")
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise ConfigurationError(f"{address} needs fsspec: pip install fsspec, or name a folder") from error
        try:
            self._system, self._root = url_to_fs(self.location)
        except (ValueError, ImportError) as error:
            raise ConfigurationError(f"{address} cannot be used as a store: {error}") from error

    def _told(self, error: Exception, name: str) -> FileFormatError:
        return FileFormatError(f"{self.location}/{name}: {type(error).__name__}: {str(error)[:200]}")

    def _described(self, name: str, info: dict[str, Any]) -> Entry:
        stamp = next((str(info[k]) for k in ("ETag", "etag", "LastModified", "mtime", "created") if info.get(k)), "")
        return Entry(name, int(info.get("size") or 0), stamp)

    def read(self, name: str) -> bytes | None:
        """A whole object; ``None`` where there is none.

        Raises:
            FileFormatError: it cannot be read, or is larger than a document may be.
        """
        try:
            size = int(self._system.info(f"{self._root}/{name}").get("size") or 0)
            if size > DOCUMENT_BYTES:
                raise FileFormatError(f"{self.location}/{name} has more than {DOCUMENT_BYTES} bytes")
            return self._system.cat_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return None
        except FileFormatError:
            raise
        except Exception as error:
            raise self._told(error, name) from error

    def write(self, name: str, *pieces: bytes, durable: bool = True) -> Entry:
        """Put an object as a whole; what is put is kept, ``durable`` or not.

        Raises:
            FileFormatError: it cannot be written.
        """
        try:
            self._system.pipe_file(f"{self._root}/{name}", b"".join(pieces))
        except Exception as error:
            raise self._told(error, name) from error
        return self.entry(name) or Entry(name.rpartition("/")[2], sum(map(len, pieces)), "")

    def entry(self, name: str) -> Entry | None:
        """Size and stamp of an object."""
        try:
            return self._described(name.rpartition("/")[2], self._system.info(f"{self._root}/{name}"))
        except FileNotFoundError:
            return None

    def entries(self, folder: str) -> Iterator[Entry]:
        """The objects right below a prefix.

        Yields:
            Each, as the storage lists it.
        """
        try:
            found = self._system.ls(f"{self._root}/{folder}", detail=True, refresh=True)
        except FileNotFoundError:
            return
        for info in found:
            if info.get("type") == "file":
                yield self._described(info["name"].rpartition("/")[2], info)

    def remove(self, name: str) -> None:
        """Take an object away, where it is there."""
        with contextlib.suppress(FileNotFoundError):
            self._system.rm_file(f"{self._root}/{name}")
