"""Folders of data sets as they are distributed: found, weighed before they are read, chosen from."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stability.errors import ConfigurationError, FileFormatError

from .base import MAX_NUMBERS, Pair, check_size
from .scores import IGNORED, padded, read_out

MAX_BYTES = 64 * 2**20
MAX_FILES = 200_000


def data_folder(data_dir: str | Path | None, task: str, what: str, *subfolders: str) -> Path:
    """The folder of a data set, or the subfolder of one of its usual names.

    Args:
        data_dir: as the user names it.
        task: whose data they are, for the error.
        what: lies there, for the error.
        *subfolders: the usual names of its own folder.

    Returns:
        The folder.

    Raises:
        ConfigurationError: none is named.
        FileFormatError: it is no folder.
    """
    if data_dir is None:
        raise ConfigurationError(f"task {task!r} needs data_dir, a folder with {what}")
    place = Path(data_dir)
    if not place.is_dir():
        raise FileFormatError(f"data_dir {place} is no folder")
    return next((place / name for name in subfolders if (place / name).is_dir()), place)


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """A regular file as a whole; its size is looked at first.

    Args:
        path: the file.
        most: bytes that it may have.

    Returns:
        Its bytes.

    Raises:
        FileFormatError: missing, unreadable, no regular file, or too large.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise FileFormatError(f"{path} is no regular file")
        if found.st_size > most:
            raise FileFormatError(f"{path} has {found.st_size} bytes; at most {most} are read")
        with path.open("rb") as handle:
            body = handle.read(most + 1)
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    if len(body) > most:
        raise FileFormatError(f"{path} grew while it was read")
    return body


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """A regular file as UTF-8.

    Args:
        path: the file.
        most: bytes that it may have.

    Returns:
        The text.

    Raises:
        FileFormatError: as ``read_bytes``, or no UTF-8.
    """
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileFormatError(f"{path} is no UTF-8 text: {error.reason} at byte {error.start}") from error


def chosen(count: int, limit: int | None, name: str, rng: np.random.Generator) -> np.ndarray:
    """Row numbers: all, or ``limit`` of them drawn at random.

    Args:
        count: how many there are.
        limit: at most so many.
        name: of the option.
        rng: draws.

    Returns:
        Row numbers in random order.
    """
    rows = rng.permutation(count)
    return rows if limit is None else rows[: check_size(name, limit)]


def check_numbers(where: Any, sequences: int, steps: int, features: int) -> None:
    """Refuse a part that is no float32 array of at most 4 GiB.

    Raises:
        ConfigurationError: saying which options make it smaller.
    """
    if sequences * steps * features > MAX_NUMBERS:
        raise ConfigurationError(
            f"{where}: {sequences} sequences of {steps} steps with {features} features are more than 4 GiB; take fewer "
            "with limit= and test_limit="
        )


def labelled(where: Any, sequences: Sequence[np.ndarray], labels: np.ndarray, length: int) -> Pair:
    """Sequences ``(own length, features)`` with a class each, as a part of a task.

    Args:
        where: the data lie, for the error.
        sequences: at most ``length`` long.
        labels: ``(n,)`` classes.
        length: of the batch.

    Returns:
        ``(x, y)``, see ``scores.padded`` and ``scores.read_out``.
    """
    check_numbers(where, len(sequences), length, sequences[0].shape[1])
    return padded(sequences, length), read_out(labels, [len(s) for s in sequences], length)


def one_form(train: Pair, test: Pair) -> tuple[Pair, Pair]:
    """Both parts with targets of one form: where one part has sequences of unequal length, both are read out alike.

    Args:
        train: a part.
        test: the other, of the same length.

    Returns:
        Both.
    """
    if train[1].dim() == test[1].dim():
        return train, test

    def spread(pair: Pair) -> Pair:
        x, y = pair
        return pair if y.dim() > 1 else (x, _at_the_end(y, x.shape[1]))

    return spread(train), spread(test)


def _at_the_end(y: torch.Tensor, length: int) -> torch.Tensor:
    out = torch.full((len(y), length), IGNORED)
    out[:, -1] = y
    return out
