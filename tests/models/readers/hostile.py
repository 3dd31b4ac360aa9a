"""Hostile model files, and a process with little memory and time in which they are read."""

from __future__ import annotations

import os
import resource
import signal
import struct
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stability import certify
from stability.errors import StabilityError

MEMORY = 2**31
SECONDS = 20
Maker = Callable[[Path], Path]


class Cases:
    """Functions that write a hostile file, by name; expensive ones belong to the slow tests."""

    def __init__(self) -> None:
        self.makers: dict[str, Maker] = {}
        self.expensive: set[str] = set()

    def case(self, maker: Maker) -> Maker:
        self.makers[maker.__name__] = maker
        return maker

    def slow(self, maker: Maker) -> Maker:
        self.expensive.add(maker.__name__)
        return self.case(maker)

    def table(self, write: Callable[..., Path], makers: dict[str, Callable[[], object]], slow: str = "") -> None:
        """Add files by name: what a function makes is written by another; ``slow``: names of expensive ones."""
        for name, make in makers.items():
            self.makers[name] = lambda folder, make=make: write(folder, make())
        self.expensive |= set(slow.split())

    def parameters(self) -> list[object]:
        marks = {name: [pytest.mark.slow] if name in self.expensive else [] for name in self.makers}
        return [pytest.param(maker, id=name, marks=marks[name]) for name, maker in self.makers.items()]


def is_refused(path: Path) -> bool:
    """Return True if ``certify`` refuses a file by an error of one line, in a child of bounded memory and time."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    code = 1
    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        signal.alarm(SECONDS)
        certify(path, time_limit=5)
    except StabilityError as error:
        code = 0 if "\n" not in str(error) and str(error).isprintable() and len(str(error)) < 1000 else 2
    except BaseException:  # noqa: BLE001 - whatever else is raised is a fault
        traceback.print_exc()
    finally:
        os._exit(code)


def archive(path: Path, members: dict[str, bytes], packed: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packed) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return path


def npy(shape: tuple[int, ...], data: bytes = b"", dtype: str = "<f8") -> bytes:
    header = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data
