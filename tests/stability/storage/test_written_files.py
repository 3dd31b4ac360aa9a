"""Files written aside: permissions of the process, nothing left behind, no moment in which the umask is another one."""

from __future__ import annotations

import os
import stat

import pytest

from stability import FileFormatError
from stability.storage.writing import write_bytes, write_text


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o000])
def test_a_file_has_what_the_umask_leaves(tmp_path, mask, monkeypatch):
    before = os.umask(mask)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", lambda _: pytest.fail("the umask belongs to the whole process"))
            path = write_text(tmp_path / "c.json", "ä\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert path.read_bytes() == "ä\n".encode()


def test_pieces_replace_what_was_there(tmp_path):
    path = tmp_path / ("n" * 250)
    assert write_bytes(path, b"a", memoryview(b"bc")).read_bytes() == b"abc"
    assert write_bytes(path, b"d").read_bytes() == b"d"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("kept")
    for place in ("folder", "file/below", "missing/below", "n" * 300):
        with pytest.raises(FileFormatError, match="cannot write"):
            write_text(tmp_path / place, "text")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == "kept"
