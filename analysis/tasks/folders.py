"""Read files of data sets: their place, their size before they are read, their text."""

from __future__ import annotations

import stat
from importlib import resources
from pathlib import Path

from stability.errors import ConfigurationError, FileFormatError

MAX_BYTES = 64 * 2**20  # default size limit of a data file in bytes


def embedded_data(name: str = "") -> Path:
    """Return the folder or file of this name among the data that ship with the package."""
    return Path(str(resources.files("stability.analysis.data") / name))


def data_folder(data_dir: str | Path, subfolder: str) -> Path:
    """Return the folder of a data set: ``data_dir``, or its subfolder of the usual name.

    Args:
        data_dir: folder named by the user.
        subfolder: usual name of the data set's own folder.

    Raises:
        FileFormatError: it is no folder.
    """
    place = Path(data_dir)
    if not place.is_dir():
        raise FileFormatError(f"data_dir {place} is no folder")
    return place / subfolder if (place / subfolder).is_dir() else place


def single_file(place: Path, pattern: str, name: str | None, option: str) -> Path:
    """Return the file that the user names in a folder, or the only one that matches a pattern.

    Args:
        place: folder, or the file itself.
        pattern: glob of the files to choose from.
        name: name of the file, without the pattern's ending where it has one; ``None``: the only one.
        option: option that names a file, for the error.

    Raises:
        FileFormatError: neither a folder nor a file, or no file of this kind.
        ConfigurationError: several files to choose from.
    """
    if place.is_file():
        return place
    if not place.is_dir():
        raise FileFormatError(f"data_dir {place} is neither a folder nor a file")
    if name is not None:
        ending = pattern.lstrip("*")
        return place / (name if name.endswith(ending) else name + ending)
    matches = sorted(place.glob(pattern))
    if not matches:
        raise FileFormatError(f"{place} has no {pattern.lstrip('*')} file")
    if len(matches) > 1:
        raise ConfigurationError(
            f"{place} has several such files; choose one with {option}=: {', '.join(p.name for p in matches[:8])}"
        )
    return matches[0]


def read_bytes(path: Path, limit: int = MAX_BYTES) -> bytes:
    """Read a regular file as a whole; its size is checked first.

    Args:
        path: the file.
        limit: largest number of bytes that it may have.

    Raises:
        FileFormatError: missing, unreadable, no regular file, or too large.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileFormatError(f"{path} is no regular file")
        if status.st_size > limit:
            raise FileFormatError(f"{path} has {status.st_size} bytes; at most {limit} are read")
        return path.read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """Read a regular file as UTF-8.

    Args:
        path: the file.
        limit: largest number of bytes that it may have.

    Raises:
        FileFormatError: as ``read_bytes``, or no UTF-8.
    """
    try:
        return read_bytes(path, limit).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is no UTF-8 text: {error.reason} at byte {error.start}") from error
