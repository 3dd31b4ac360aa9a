"""Hostile model files are made by functions that are called by their name; what every test of them does."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.jail import command, fault, jailed, warm

MEMORY = 2048
SECONDS = 20
Maker = Callable[[Path], Path]


class Cases:
    """Makers by name; those that are dear are tried among the slow tests."""

    def __init__(self) -> None:
        self.makers: dict[str, Maker] = {}
        self.dear: set[str] = set()

    def case(self, maker: Maker) -> Maker:
        self.makers[maker.__name__] = maker
        return maker

    def slow(self, maker: Maker) -> Maker:
        self.dear.add(maker.__name__)
        return self.case(maker)

    def parameters(self) -> list[object]:
        marks = {name: [pytest.mark.slow] if name in self.dear else [] for name in self.makers}
        return [pytest.param(maker, id=name, marks=marks[name]) for name, maker in self.makers.items()]


def refused(path: Path) -> str:
    """What is wrong with how ``certify`` refuses a file: exit code 2 and one line, within bounds; empty for nothing."""
    warm()
    call = command("certify", str(path), "--time-limit", "5")
    return fault(jailed(call, memory=MEMORY, seconds=SECONDS), (2,))


def archive(path: Path, members: dict[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packed) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return path


def npy(shape: tuple[int, ...], data: bytes = b"", dtype: str = "<f8") -> bytes:
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data
