"""Durability: content is on the disk before its name, names before the call returns, tables before their marks."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from stability import FileFormatError
from stability.storage.folder import claim_folder
from stability.storage.writing import make_folder, write_bytes, write_text


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """Return the system calls in order: ``sync`` of a file with its content then, of a folder with its names."""
    seen: list[tuple[str, object]] = []
    sync, replace = os.fsync, os.replace

    def fsync(handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        seen.append(("names", (path, sorted(os.listdir(path)))) if folder else ("content", Path(path).read_bytes()))
        sync(handle)

    def move(source: str, target: str) -> None:
        seen.append(("rename", Path(target).name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", move)
    return seen


def test_the_content_is_on_the_disk_before_its_name_and_the_name_before_the_end(tmp_path: Path, calls: list) -> None:
    write_bytes(tmp_path / "a", b"x" * 100_000, b"y")
    folder = ("names", (str(tmp_path), ["a"]))
    assert calls == [("content", b"x" * 100_000 + b"y"), ("rename", "a"), folder]


def test_folders_that_are_made_are_in_the_folders_above(tmp_path: Path, calls: list) -> None:
    assert make_folder(tmp_path / "a" / "b") == [tmp_path / "a" / "b", tmp_path / "a"]
    assert sorted(path for _, (path, _) in calls) == [str(tmp_path), str(tmp_path / "a")]
    assert all(names for _, (_, names) in calls)  # the new one is in it by then
    calls.clear()
    with claim_folder(tmp_path / "c", "test") as own:
        assert ("names", (str(tmp_path), ["a", "c"])) in calls
        own.reserve(["x"], "test")
        write_text(own.path / "x", "")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_what_does_not_get_to_the_disk_replaces_nothing(tmp_path: Path, number: int, monkeypatch) -> None:
    path = write_text(tmp_path / "a", "kept")

    def fails(handle: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(FileFormatError, match=f"cannot write .*: {os.strerror(number)}"):
        write_text(path, "new")
    assert path.read_text() == "kept"
    assert os.listdir(tmp_path) == ["a"]


def test_a_device_is_not_waited_for(calls: list) -> None:
    write_text(os.devnull, "text")
    assert calls == []


def test_texts_that_are_no_unicode_are_written_as_escapes(tmp_path: Path) -> None:
    assert write_text(tmp_path / "a", "ä \udcff").read_bytes() == "ä \\udcff".encode()
