"""Checks of the directory of zip archives (``.npz``, ``.pt``), before any member is read."""

from __future__ import annotations

import struct
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from stability.errors import FileFormatError
from stability.storage.limits import MEMBERS
from stability.storage.read_errors import as_file_errors

_END, _ZIP64 = b"PK\x05\x06", b"PK\x06\x06"
_DAMAGED = (ValueError, NotImplementedError, struct.error, zipfile.BadZipFile, zipfile.LargeZipFile)
_ENTRY = 46 + 2**10
"""Most bytes of an entry in the directory: its fixed part, its name and its extra fields."""


def archive_members(path: str | Path) -> list[zipfile.ZipInfo]:
    """Return the members of an archive, after checks of their number, names, compression and positions.

    Args:
        path: the file.

    Returns:
        One entry per member, in the order of the directory.

    Raises:
        FileFormatError: a missing or damaged file, too many members, or members that overlap, share a name, are
            encrypted, or have an unsupported compression.
    """
    with as_file_errors(path, "is a damaged or truncated archive", _DAMAGED):
        if Path(path).exists() and not Path(path).is_file():  # reading a pipe would wait forever
            raise FileFormatError(f"{path} is no regular file")
        with Path(path).open("rb") as handle:
            size = _directory_size(handle)
            if size > MEMBERS * _ENTRY:
                raise FileFormatError(f"{path} has a directory of {size} bytes; the limit is {MEMBERS} members")
            with zipfile.ZipFile(handle) as archive:
                members = archive.infolist()
    if len(members) > MEMBERS:
        raise FileFormatError(f"{path} has {len(members)} members; at most {MEMBERS} are read")
    _check_members(members, path)
    return members


def _check_members(members: list[zipfile.ZipInfo], path: str | Path) -> None:
    """Raise an error for repeated names, unsupported compression, and overlapping members."""
    seen: set[str] = set()
    for member in members:
        if member.filename in seen:
            raise FileFormatError(f"{path} holds two members with the name {member.filename[:60]!a}")
        seen.add(member.filename)
        if member.flag_bits & 0x1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise FileFormatError(f"{path}: {member.filename[:60]!a} is encrypted or has an unsupported compression")
    for first, second in pairwise(sorted(members, key=lambda m: m.header_offset)):
        if first.header_offset + 30 + len(first.filename) + first.compress_size > second.header_offset:
            raise FileFormatError(f"{path}: the members {first.filename[:60]!a} and {second.filename[:60]!a} overlap")


def _directory_size(handle: BinaryIO) -> int:
    """Return the bytes of the directory stated at the end of the archive, or else the length of the file."""
    length = handle.seek(0, 2)
    handle.seek(max(0, length - 2**16 - 128))
    tail = handle.read()
    at = tail.rfind(_END)
    size = struct.unpack_from("<L", tail, at + 12)[0] if 0 <= at <= len(tail) - 16 else length
    wide = tail.rfind(_ZIP64)
    if size == 0xFFFFFFFF or wide >= 0:
        stated = struct.unpack_from("<Q", tail, wide + 40)[0] if wide >= 0 else length
        size = stated if size == 0xFFFFFFFF else max(size, stated)
    return size
