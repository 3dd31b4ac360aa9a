"""Archives of arrays that mean harm, and things that are no files: refused in one line, in bounded memory and time."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from .hostile import Cases, Maker, archive, is_refused, npy

CASES = Cases()


@CASES.slow
def npz_bomb(folder: Path) -> Path:
    """Two megabytes that unpack to two gigabytes, honestly declared."""
    path = folder / "m.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out, out.open("A.npy", "w", force_zip64=True) as member:
        member.write(npy((16384, 16384)))
        for _ in range(2048):
            member.write(bytes(2**20))
    return path


def headed(version: int, length: bytes, text: bytes) -> dict[str, bytes]:
    return {"A.npy": b"\x93NUMPY" + bytes([version, 0]) + length + text}


NESTED = b"(" * 5000 + b")" * 5000 + b"\n"
CASES.table(
    lambda folder, members: archive(folder / "m.npz", members),
    {
        "claims more than it has": lambda: {"A.npy": npy((1 << 20, 1 << 20))},
        "negative shape": lambda: {"A.npy": npy((-1, 4), bytes(32))},
        "wide strings": lambda: {"A.npy": npy((1,), bytes(40), dtype="<U500000000")},
        "structured": lambda: {"A.npy": npy((1,), bytes(16), dtype="V16")},
        "long_header": lambda: headed(2, struct.pack("<L", 2**28), b" " * 2**28),
        "nested header": lambda: headed(1, struct.pack("<H", len(NESTED)), NESTED),
        "name that steers": lambda: {"A.npy": npy((1, 1), bytes(8)), "\x1b]0;owned\x07.npy": npy((1,), bytes(8))},
    },
    slow="long_header",
)


@CASES.case
def npz_members_share_bytes(folder: Path) -> Path:
    """A hundred names for one megabyte: the directory points at the same place again and again."""
    path = archive(folder / "m.npz", {"A.npy": npy((2**17,), bytes(2**20))}, zipfile.ZIP_STORED)
    raw = path.read_bytes()
    end = raw.rfind(b"PK\x05\x06")
    (size, at) = struct.unpack_from("<LL", raw, end + 12)
    entry = raw[at : at + size]
    more = b"".join(entry.replace(b"A.npy", b"%05d" % k) for k in range(100))
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 101, 101, size + len(more), at, 0)
    path.write_bytes(raw[:at] + entry + more + tail)
    return path


@CASES.slow
def npz_a_million_members(folder: Path) -> Path:
    path = folder / "m.npz"
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 3, 20, 0, 0, 0, 0, 33, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"A"
    size = len(entry) * 2**20
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 2**16 - 1, 2**16 - 1, size, 0, 0)
    path.write_bytes(b"PK" + entry[2:] + entry * (2**20 - 1) + tail)
    return path


@CASES.case
def npz_lzma(folder: Path) -> Path:
    return archive(folder / "m.npz", {"A.npy": npy((4, 4), bytes(128))}, zipfile.ZIP_LZMA)


@CASES.case
def npz_twice(folder: Path) -> Path:
    path = archive(folder / "m.npz", {"A.npy": npy((1, 1), struct.pack("<d", 2.0))})
    with pytest.warns(UserWarning, match="Duplicate name"), zipfile.ZipFile(path, "a") as out:
        out.writestr("A.npy", npy((1, 1), struct.pack("<d", -2.0)))
    return path


def system(path: Path, **more: Any) -> Path:
    np.savez(path, **{"A": -2 * np.eye(3), "W": 0.5 * np.eye(3), **more})  # type: ignore[arg-type]
    return path


INPUT = {"U": np.ones((3, 1))}
CASES.table(
    lambda folder, more: system(folder / "m.npz", **more),
    {
        "activation without inputs": lambda: {"activation": "sinh"},
        "three activations": lambda: {**INPUT, "activation": ["exp"] * 3},
        "bias of another length": lambda: {**INPUT, "b": np.ones(77)},
        "feedthrough of another shape": lambda: {**INPUT, "F": np.ones((5, 5))},
        "slope of another length": lambda: {"slope": np.ones(7)},
        "unknown name": lambda: {"gain": np.ones(3)},
    },
)


@CASES.case
def pipe(folder: Path) -> Path:
    os.mkfifo(folder / "m.npz")
    return folder / "m.npz"


@CASES.case
def three_sparse_gigabytes(folder: Path) -> Path:
    with (folder / "m.onnx").open("wb") as handle:
        handle.truncate(3 * 2**30)
    return folder / "m.onnx"


@CASES.case
def compressed_text(folder: Path) -> Path:
    (folder / "m.npz").write_bytes(zlib.compress(io.BytesIO(b"A" * 10**6).getvalue()))
    return folder / "m.npz"


@pytest.mark.parametrize("maker", CASES.parameters())
def test_one_line_in_bounded_memory_and_time(maker: Maker, tmp_path: Path) -> None:
    assert is_refused(maker(tmp_path))
