"""Safetensors files: metadata and tensors, read by the library of that name."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors
from torch import Tensor

from stability.errors import FileFormatError
from stability.storage.read_errors import as_file_errors
from stability.storage.writing import is_utf8


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with as_file_errors(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileFormatError(f"{path} is not a regular file")
        with path.open("rb") as raw, as_file_errors(path, "is not a whole safetensors file", (Exception,)):
            name = str(path) if is_utf8(path) else f"/dev/fd/{raw.fileno()}"  # the library takes UTF-8 names only
            with safetensors.safe_open(name, framework="pt", device="cpu") as handle:
                yield handle


def read_metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a file, strings by name, without reading a tensor.

    Raises:
        FileFormatError: missing, no regular file, truncated or damaged.
    """
    with _opened(path) as handle:
        return handle.metadata() or {}


def tensor_names(path: Path) -> list[str]:
    """Return the names of all tensors of a file, without reading a tensor.

    Raises:
        FileFormatError: see ``read_metadata``.
    """
    with _opened(path) as handle:
        return sorted(handle.keys())


def read_tensors(path: Path, names: Iterable[str] | None = None) -> dict[str, Tensor]:
    """Return tensors of a file, on the CPU, by name.

    Args:
        path: the file.
        names: names of the tensors; all by default.

    Raises:
        FileFormatError: see ``read_metadata``, or a name that the file does not hold.
    """
    with _opened(path) as handle:
        return {name: handle.get_tensor(name) for name in sorted(handle.keys() if names is None else names)}
