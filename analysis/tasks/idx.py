"""Strict reader of the IDX format of MNIST and related data sets.

A file consists of two zero bytes, a type byte, a byte with the number of axes, each axis as a big-endian
32-bit integer, and the entries. Only unsigned bytes (type 8) are read, which all of these data sets use.
"""

from __future__ import annotations

import gzip
import math
import stat
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from stability.errors import FileFormatError

MAX_ENTRIES = 2**27  # nearly three times MNIST, 512 MiB as float32; a header with more counts as damaged


def read_idx(path: str | Path, axes: int | None = None) -> np.ndarray:
    """Read an IDX file of unsigned bytes, gzipped or not (recognized by its first bytes, not by its name).

    Args:
        path: the file.
        axes: the number of axes it must have; ``None`` for any up to 4.

    Returns:
        The array, uint8.

    Raises:
        FileFormatError: missing, unreadable, not IDX, of another type or number of axes, truncated, or too
            long.
    """
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileFormatError(f"cannot read {path}: it is not a regular file")
        with path.open("rb") as plain:
            zipped = plain.read(2) == b"\x1f\x8b"
        with cast(BinaryIO, gzip.open(path, "rb") if zipped else path.open("rb")) as stream:
            return _read(stream, path, axes)
    except OSError as error:  # gzip.BadGzipFile is one of them
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    except EOFError as error:
        raise FileFormatError(f"{path} is truncated: its compressed data ends early") from error
    except zlib.error as error:
        raise FileFormatError(f"{path} is damaged: {error}") from error


def _read(stream: BinaryIO, path: Path, axes: int | None) -> np.ndarray:
    shape = _shape(stream, path, axes)
    entries = math.prod(shape)
    if entries == 0:
        raise FileFormatError(f"{path} is empty: its header says {shape}")
    if entries > MAX_ENTRIES:
        raise FileFormatError(f"{path} claims {entries} entries {shape}; at most {MAX_ENTRIES} are read")
    body = bytearray()  # read in pieces: a false header must not cause a large allocation
    while len(body) <= entries and (piece := stream.read(min(entries + 1 - len(body), 1 << 22))):
        body += piece
    if len(body) < entries:
        raise FileFormatError(f"{path} is truncated: its header {shape} needs {entries} bytes, it has {len(body)}")
    if len(body) > entries:
        raise FileFormatError(f"{path} has more bytes than the {entries} of its header {shape}")
    return np.frombuffer(body, dtype=np.uint8).reshape(shape)


def _shape(stream: BinaryIO, path: Path, axes: int | None) -> tuple[int, ...]:
    """Read the header: type byte, number of axes, sizes."""
    head = stream.read(4)
    if len(head) < 4 or head[:2] != b"\0\0":
        raise FileFormatError(f"{path} is no IDX file: it must begin with two zero bytes, a type and a number of axes")
    kind, count = head[2], head[3]
    if kind != 8:
        raise FileFormatError(f"{path} holds entries of IDX type 0x{kind:02x}; only unsigned bytes (0x08) are read")
    if not 1 <= count <= 4 or (axes is not None and count != axes):
        raise FileFormatError(f"{path} has {count} axes, expected {axes if axes is not None else '1 to 4'}")
    sizes = stream.read(4 * count)
    if len(sizes) < 4 * count:
        raise FileFormatError(f"{path} is truncated inside its header")
    return struct.unpack(f">{count}I", sizes)


def find_idx(folder: Path, stem: str, axes: int) -> Path:
    """Find the file with a standard name, such as ``train-images-idx3-ubyte.gz``, in its usual spellings.

    Raises:
        FileFormatError: the folder has no such file.
    """
    names = [f"{stem}{dash}idx{axes}-ubyte{end}" for dash in "-." for end in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileFormatError(
        f"{folder} has no {names[0]} (nor {names[1]}); the four IDX files of the data set must lie there"
    )


def read_labelled_images(folder: Path, part: str, classes: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Read one part (``train`` or ``t10k``) of an MNIST-like data set.

    Returns:
        Images ``(n, height, width)`` and labels ``(n,)``, both uint8.

    Raises:
        FileFormatError: as ``read_idx``, or counts that differ, or a label that is no class.
    """
    images = read_idx(find_idx(folder, f"{part}-images", 3), axes=3)
    labels = read_idx(find_idx(folder, f"{part}-labels", 1), axes=1)
    if len(images) != len(labels):
        raise FileFormatError(f"{folder}: {len(images)} {part} images but {len(labels)} labels")
    if labels.max() >= classes:
        raise FileFormatError(f"{folder}: a {part} label is {labels.max()}, the classes are 0 to {classes - 1}")
    return images, labels
