"""Data that are no files, or unfold without end: refused before they are waited for or unpacked."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import pytest

from stability.analysis.tasks import make_task
from stability.analysis.tasks.idx import MAX_ENTRIES, read_idx
from stability.errors import FileFormatError, StabilityError


@pytest.mark.parametrize(
    ("task", "name", "options"),
    [("characters", "a.txt", {"file": "a.txt"}), ("spoken", "0_a_1.wav", {}), ("spoken", "a.npz", {})],
)
def test_pipes_are_refused(task: str, name: str, options: dict, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)  # to read from it would wait forever
    with pytest.raises(StabilityError):
        make_task(task, data_dir=tmp_path, **options)
    with pytest.raises(FileFormatError):
        read_idx(tmp_path / name)


def test_an_idx_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", MAX_ENTRIES + 1)))
    with pytest.raises(FileFormatError):
        read_idx(path)
