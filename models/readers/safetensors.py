"""Safetensors files, their header read strictly before any tensor is: no name twice, no field unknown, sizes that fit.

Eight bytes give the length of a JSON header, ``{name: {"dtype", "shape", "data_offsets"}}`` and texts under
``__metadata__``; the numbers follow. The library that reads the tensors takes the last of two equal names.
"""

from __future__ import annotations

import math
import os
import stat
import struct
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from stability.errors import FileFormatError
from stability.storage.documents import parse_json
from stability.storage.read_errors import as_file_errors
from stability.storage.writing import is_utf8

from .limits import HEADER_BYTES


def read_metadata(path: Path) -> dict[str, str]:
    """What a file says about itself, texts by name; its whole header is checked, and no tensor is read.

    Raises:
        FileFormatError: missing, no regular file, truncated, or a header that says anything else than a header does.
    """
    with as_file_errors(path):
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise FileFormatError(f"{path} is no regular file")
        with path.open("rb") as raw:
            head = raw.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if length + 8 > status.st_size:
                raise FileFormatError(
                    f"{path} claims a header of {length} bytes in a file of {status.st_size}: truncated or hostile"
                )
            if length > HEADER_BYTES:
                raise FileFormatError(f"{path} has a header of {length} bytes; at most {HEADER_BYTES} are read")
            text = raw.read(length)
    document = parse_json(text, path, "not a whole safetensors file: its header is no JSON")
    if not isinstance(document, dict):
        raise FileFormatError(f"{path} is not a whole safetensors file: its header is no mapping")
    metadata = document.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise FileFormatError(f"{path} is not a whole safetensors file: its metadata are no texts")
    room = status.st_size - 8 - length
    for name, entry in document.items():
        _check_entry(entry, room, f"{path}: {name[:60]!a}")
    return metadata


def _check_entry(entry: Any, room: int, where: str) -> None:
    fields = {"dtype", "shape", "data_offsets"}
    if not isinstance(entry, dict) or set(entry) != fields:
        raise FileFormatError(f"{where} is not described by just {', '.join(sorted(fields))}")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    whole = [isinstance(v, list) and all(type(n) is int and n >= 0 for n in v) for v in (shape, offsets)]
    if not isinstance(dtype, str) or not all(whole) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= room:
        raise FileFormatError(f"{where} is described by numbers that do not fit the file: truncated or hostile")
    if len(shape) > 32 or math.prod(shape) > 8 * max(1, offsets[1] - offsets[0]):
        raise FileFormatError(f"{where} claims the shape {str(shape)[:60]}, more than its bytes hold")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, on the CPU, by name; the header is read first.

    Raises:
        FileFormatError: as ``read_metadata``, or damaged.
    """
    read_metadata(path)
    with as_file_errors(path, "is not a whole safetensors file", (Exception,)):
        if not is_utf8(path):  # the library takes no other name
            return dict(sorted(safetensors.torch.load(path.read_bytes()).items()))
        with safetensors.safe_open(str(path), framework="pt", device="cpu") as handle:
            return {name: handle.get_tensor(name) for name in sorted(handle.keys())}
