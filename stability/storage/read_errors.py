"""Conversion of errors while reading a file to one error that names the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from stability.errors import FileFormatError, StabilityError


def first_sentence(error: BaseException) -> str:
    """Return the first sentence of an error's text, or its type if it has none."""
    lines = (line.strip() for line in str(error).splitlines())
    return next(filter(None, lines), type(error).__name__).split(". ")[0][:160]


@contextlib.contextmanager
def as_file_errors(path: str | Path, wrong: str = "", damaged: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Convert all errors while reading a file to ``StabilityError``; those that already are pass.

    Args:
        path: the file.
        wrong: description of the file in errors of ``damaged``.
        damaged: errors that a damaged file causes.

    Raises:
        FileFormatError: a file that cannot be read, or is damaged.
        StabilityError: an error of the toolkit while reading.
    """
    try:
        yield
    except StabilityError:
        raise
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    except damaged as error:
        raise FileFormatError(f"{path} {wrong} ({first_sentence(error)})") from error
