"""Output folders: one writer at a time, and the list of files that belong to it.

``.stability.json`` lists every file before it is written, with the work that writes it. Other files in the folder
belong to the user: they are replaced on request only, and never removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from stability.errors import ConfigurationError, FileFormatError, FolderInUseError
from stability.storage.documents import read_json
from stability.storage.locking import LOCK_FILE, OWNER_FILE, Lock, acquire_lock
from stability.storage.writing import LOCKED, is_partial, make_folder, refuse_moved, write_text

LIST = ".stability.json"
FORMAT, VERSION = "stability-files", 1

_held: dict[tuple[int, int], Folder] = {}


class Folder:
    """Folder in which this process and its children write, made by ``claim_folder``.

    Attributes:
        path: the folder.
        files: writers of its own files, by name.
    """

    def __init__(self, path: Path, lock: Lock, key: tuple[int, int]) -> None:
        self.path, self.files = path, listed_files(path)
        self._lock, self._key, self._depth = lock, key, 1
        self._absolute_path = path.absolute()
        LOCKED[self._absolute_path] = key
        self._owner = (os.getpid(), threading.get_ident())
        self._unlisted = not is_listed(path)
        if lock.inherited:
            _remove_partial_files(path)

    def files_made_by(self, by: str) -> list[str]:
        """Return the names of the files that a kind of work made, or was about to make."""
        return [name for name, who in self.files.items() if who == by]

    def reserve(self, names: Iterable[str], by: str, *, overwrite: bool = False, adopt: bool = False) -> None:
        """Register files before they are written.

        Args:
            names: relative to the folder, with ``/``.
            by: the work that writes them.
            overwrite: whether files of the same names that are not its own may be replaced.
            adopt: in a folder without a file list, treat existing files of these names as written by ``by``.

        Raises:
            ConfigurationError: an existing file may not be replaced; nothing was changed.
        """
        names = [_checked(name) for name in names]
        known = {**dict.fromkeys(names, by), **self.files} if adopt and self._unlisted else self.files
        refuse_existing_files(self.path, names, by, overwrite, known)
        for name in names:
            file = self.path / name
            if file.is_symlink():  # replace the link and keep its target, which belongs to the user
                file.unlink()
            if self._lock.inherited and "/" in name:
                _remove_partial_files(file.parent)
        changed = {**self.files, **dict.fromkeys(names, by)}
        if changed != self.files or self._unlisted:
            self.files = changed
            self._write()

    def take(self, names: Iterable[str], by: str) -> None:
        """Register existing files with a known writer."""
        self.files = {**self.files, **dict.fromkeys((_checked(n) for n in names), by)}
        self._write()

    def remove(self, names: Iterable[str]) -> None:
        """Remove registered files, and folders that are empty then; other files stay."""
        refuse_moved(self.path / LIST)
        listed_names = [_checked(name) for name in names if name in self.files]
        for name in listed_names:
            file = self.path / name
            if _real_parents(self.path, name) and (file.is_file() or file.is_symlink()):
                file.unlink()
            with contextlib.suppress(OSError):
                if "/" in name:
                    file.parent.rmdir()
        if listed_names:
            self.files = {k: v for k, v in self.files.items() if k not in listed_names}
            self._write()
        if not self.files:
            (self.path / LIST).unlink(missing_ok=True)
            self._unlisted = True

    def _write(self) -> None:
        document = {"format": FORMAT, "version": VERSION, "files": self.files}
        write_text(self.path / LIST, json.dumps(document, indent=1) + "\n")
        self._unlisted = False

    def _release(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        _held.pop(self._key, None)
        moved = True
        with contextlib.suppress(FileFormatError):
            refuse_moved(self._absolute_path / LIST)
            moved = False
        LOCKED.pop(self._absolute_path, None)
        if not moved and not self._unlisted and not any(os.path.lexists(self.path / name) for name in self.files):
            with contextlib.suppress(OSError):  # no file was written
                (self.path / LIST).unlink()
        self._lock.release()


def is_internal_file(name: str) -> bool:
    """Return True for names used by this module; a folder with no others counts as empty."""
    return name in (LIST, LOCK_FILE, OWNER_FILE) or is_partial(name)


def is_listed(path: Path) -> bool:
    """Return True if a folder has a list of the files that were made in it."""
    return (path / LIST).is_file() and not (path / LIST).is_symlink()


def listed_files(path: Path) -> dict[str, str]:
    """Return the registered files of a folder with their writers; empty if there is no list.

    Raises:
        FileFormatError: a list that cannot be read.
    """
    if not is_listed(path):
        return {}
    document = read_json(path / LIST)
    files = document.get("files") if isinstance(document, dict) and document.get("format") == FORMAT else None
    if not isinstance(files, dict) or not all(isinstance(by, str) for by in files.values()):
        raise FileFormatError(f"{path / LIST} is not a file list of this toolkit: delete it and run the command again")
    return {_checked(name): by for name, by in files.items()}


def blocking_files(
    path: Path, names: Iterable[str], by: str, files: Mapping[str, str] | None = None
) -> tuple[list[str], ...]:
    """List the existing files at names that are to be written.

    Args:
        path: the folder; it need not exist.
        names: names of the files.
        by: the work that would write them.
        files: the folder's list, read when it is not given.

    Returns:
        Names of files of other writers, and names that are not regular files and so cannot be replaced.
    """
    files = listed_files(path) if files is None else files
    foreign, irreplaceable = [], []
    for name in names:
        if not _real_parents(path, name):
            irreplaceable.append(name)
            continue
        try:
            mode = os.lstat(path / name).st_mode
        except OSError:
            continue
        if stat.S_ISLNK(mode) or (stat.S_ISREG(mode) and files.get(name) != by):
            foreign.append(name)
        elif not stat.S_ISREG(mode):
            irreplaceable.append(name)
    return foreign, irreplaceable


def refuse_existing_files(
    path: Path, names: Iterable[str], by: str, overwrite: bool, files: Mapping[str, str] | None = None
) -> None:
    """Raise an error if existing files may not be replaced; see ``blocking_files``.

    Raises:
        ConfigurationError: naming it.
    """
    foreign, irreplaceable = blocking_files(path, names, by, files)
    if irreplaceable:
        raise ConfigurationError(
            f"{path} holds {_short_list(irreplaceable)}, which is not a regular file: choose another folder"
        )
    if foreign and not overwrite:
        raise ConfigurationError(
            f"{path} holds {_short_list(foreign)}, not made by this command: choose another folder, or replace the "
            "files with --overwrite"
        )


@contextlib.contextmanager
def claim_folder(path: str | Path, work: str) -> Iterator[Folder]:
    """Lock a folder for the duration of a block, so that no other process writes there.

    The thread that owns a folder may claim it again inside the block.

    Args:
        path: the folder; created if missing, and removed again if nothing was written.
        work: description of the work, for other processes.

    Yields:
        The folder.

    Raises:
        FolderInUseError: another process or another thread writes there.
        FileFormatError: the folder cannot be created or written to.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     with claim_folder(place, "example") as folder:
        ...         folder.reserve(["table.csv"], "example")
        ...         _ = write_text(folder.path / "table.csv", "a,b")
        ...     listed_files(Path(place))
        {'table.csv': 'example'}
    """
    path = Path(path)
    try:
        created = make_folder(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileFormatError(f"cannot create the folder {path} ({why})") from error
    try:
        folder = _enter(path, work)
        try:
            yield folder
        finally:
            folder._release()
    finally:
        for place in created:  # empty ones only
            with contextlib.suppress(OSError):
                place.rmdir()


def _enter(path: Path, work: str) -> Folder:
    status = os.stat(path)
    key = (status.st_dev, status.st_ino)
    holder = _held.get(key)
    if holder is not None and holder._owner[0] == os.getpid():
        if holder._owner[1] != threading.get_ident():
            raise FolderInUseError(f"{path} is being written by another thread of this process")
        holder._depth += 1
        return holder
    try:
        lock = acquire_lock(path, work)
    except OSError as error:
        raise FileFormatError(f"cannot write to {path}: {error.strerror or error}") from error
    try:
        _held[key] = Folder(path, lock, key)
    except BaseException:
        lock.release()
        raise
    return _held[key]


def _checked(name: str) -> str:
    """Return a name that stays in its folder.

    Raises:
        FileFormatError: for any other name.
    """
    parts = PurePosixPath(name).parts
    if (
        not parts
        or parts[0] in ("/", LIST, LOCK_FILE, OWNER_FILE)
        or ".." in parts
        or str(PurePosixPath(*parts)) != name
        or "\0" in name
    ):
        raise FileFormatError(f"the file list holds {name[:80]!r}, which is not a file name inside the folder")
    return name


def _real_parents(path: Path, name: str) -> bool:
    """Return True if the existing parents of a file are folders and not links."""
    for part in list(PurePosixPath(name).parents)[:-1]:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(path / part).st_mode):
                return False
    return True


def _remove_partial_files(folder: Path) -> None:
    """Remove the unfinished files of a killed writer."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if is_partial(entry.name) and entry.is_file(follow_symlinks=False):
                os.unlink(entry.path)


def _short_list(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
