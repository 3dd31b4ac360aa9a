"""MATLAB files of format 5: arrays by name, whose sizes are checked before they are read."""

from __future__ import annotations

import math
import struct
import zlib
from pathlib import Path

import numpy as np
from scipy import io

from stability.errors import FileFormatError
from stability.storage.limits import NUMBERS
from stability.storage.read_errors import as_file_errors

HEADER = b"MATLAB 5.0"
_HEADER_BYTES, _COMPRESSED = 128, 15
_PIECE = 2**20
_NUMBERS = ("slope", "dt", "b", "bias", "leak", "activation", "equation")
"""Entries that are no matrices: MATLAB stores them with two axes."""


def read_mat(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a ``.mat`` file by name; sparse matrices are made dense.

    Raises:
        FileFormatError: damaged, more than ``NUMBERS`` entries, or entries that are no numbers and no text.
    """
    with as_file_errors(path, "is damaged or no .mat file of arrays", (Exception,)):
        shapes = {name: shape for name, shape, _ in io.whosmat(path)}
        if _unpacked_bytes(path.read_bytes()) > 8 * NUMBERS or sum(map(math.prod, shapes.values())) > NUMBERS:
            raise FileFormatError(f"{path} unpacks to more than {NUMBERS} numbers")
        found = io.loadmat(path)
    arrays = {k: v.toarray() if hasattr(v, "toarray") else v for k, v in found.items() if k in shapes}
    odd = [name for name, value in arrays.items() if value.dtype.kind not in "biufcU"]
    if odd:
        raise FileFormatError(f"{path}: {odd[0][:60]!a} is a structure or a cell; arrays of numbers are read")
    return {k: v.reshape(-1) if k in _NUMBERS and 1 in v.shape else v for k, v in arrays.items()}


def _unpacked_bytes(raw: bytes) -> int:
    """Return the bytes of all variables unpacked, counted no further than just above the limit."""
    order = "<" if raw[126:128] == b"IM" else ">"
    at, total = _HEADER_BYTES, 0
    while at + 8 <= len(raw) and total <= 8 * NUMBERS:
        kind, size = struct.unpack_from(order + "II", raw, at)
        at += 8
        if kind == _COMPRESSED:
            packed, rest = zlib.decompressobj(), raw[at : at + size]
            while rest and total <= 8 * NUMBERS:
                total += len(packed.decompress(rest, _PIECE))
                rest = packed.unconsumed_tail
        else:
            total += size
        at += size
    return total
