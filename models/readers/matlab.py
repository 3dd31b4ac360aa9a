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
_HEADER_BYTES, _COMPRESSED = 128, 15  # bytes of the file header; data type of a compressed element
_BYTES = 8 * NUMBERS
"""Most bytes of all variables of a file."""
_VECTORS = ("slope", "dt", "b", "bias", "leak", "activation", "equation")
"""Entries that are no matrices: MATLAB stores them with two axes."""


def read_mat(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a ``.mat`` file by name; sparse matrices become dense ones.

    Raises:
        FileFormatError: damaged, more than ``NUMBERS`` entries, or entries that are no numbers and no text.
    """
    with as_file_errors(path, "is damaged or no .mat file of arrays", (Exception,)):
        if path.stat().st_size > _BYTES or _unpacked_bytes(path.read_bytes()) > _BYTES:
            raise FileFormatError(f"{path} unpacks to more than {_BYTES} bytes")
        shapes = {name: shape for name, shape, _ in io.whosmat(path)}
        if sum(map(math.prod, shapes.values())) > NUMBERS:
            raise FileFormatError(f"{path} claims more than {NUMBERS} numbers")
        content = io.loadmat(path)
    arrays = {k: v.toarray() if hasattr(v, "toarray") else v for k, v in content.items() if k in shapes}
    invalid = next((name for name, value in arrays.items() if value.dtype.kind not in "biufcU"), None)
    if invalid is not None:
        how = f"save('FILE.mat', '-struct', {invalid[:60]!a}) writes the fields of a structure as arrays"
        raise FileFormatError(f"{path}: {invalid[:60]!a} is a structure or a cell, not an array ({how})")
    if "Ts" in arrays:  # MATLAB's sample time, zero for a system in continuous time
        arrays["dt"] = np.where(arrays["Ts"] == 0, np.nan, arrays.pop("Ts"))
    return {k: v.reshape(-1) if (k in _VECTORS or "bias_" in k) and 1 in v.shape else v for k, v in arrays.items()}


def _unpacked_bytes(raw: bytes) -> int:
    """Return the bytes of all variables unpacked; of each no more than just above the limit are unpacked."""
    at, total = _HEADER_BYTES, 0
    while at + 8 <= len(raw) and total <= _BYTES:
        kind, size = struct.unpack_from(("<" if raw[126:128] == b"IM" else ">") + "II", raw, at)
        part, at = raw[at + 8 : at + 8 + size], at + 8 + size
        total += len(zlib.decompressobj().decompress(part, _BYTES + 1)) if kind == _COMPRESSED else len(part)
    return total
