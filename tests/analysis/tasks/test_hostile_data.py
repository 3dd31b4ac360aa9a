"""Data that are no files, or unfold without end: refused before they are waited for or unpacked."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import pytest

from benchmarks.fuzz.jail import jailed
from stability.analysis.tasks import make_task
from stability.analysis.tasks.idx import MAX_ENTRIES, read_idx


@pytest.mark.parametrize(
    ("task", "name", "options"),
    [("characters", "a.txt", {"file": "a.txt"}), ("spoken", "0_a_1.wav", {}), ("spoken", "a.npz", {})],
)
def test_pipes_are_refused(task: str, name: str, options: dict, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    outcome = jailed(lambda: make_task(task, data_dir=tmp_path, **options), seconds=10)
    assert (outcome.kind, outcome.typed) == ("error", True), outcome


def test_a_pipe_is_no_idx_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    outcome = jailed(lambda: read_idx(tmp_path / "pipe"), seconds=10)
    assert (outcome.kind, outcome.error) == ("error", "FileFormatError"), outcome


def test_an_idx_bomb_is_refused_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 1]) + struct.pack(">I", MAX_ENTRIES + 1)))
    outcome = jailed(lambda: read_idx(path), memory=64)
    assert outcome.typed, outcome
    assert "at most" in outcome.text
