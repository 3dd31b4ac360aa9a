"""The one writer: what is a file is replaced whole, what is none is written through or refused, never replaced."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from stability import FileFormatError, LureSystem, certify
from stability.storage.writing import reserve, write_text

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")


@pytest.fixture
def null(tmp_path: Path) -> Path:
    """A null device of one's own: the real one is not put at stake."""
    path = tmp_path / "null"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.open("wb").close()
    except OSError as error:
        pytest.skip(f"no devices here ({error})")
    return path


def small_certificate():
    return certify(LureSystem.recurrent(-2 * np.eye(2), 0.5 * np.eye(2)))


def stability(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "stability", *arguments], capture_output=True, text=True, timeout=120, **options
    )


@root
def test_a_device_is_written_through_and_stays_a_device(null: Path) -> None:
    small_certificate().save(reserve(null))
    status = null.lstat()
    assert stat.S_ISCHR(status.st_mode)
    assert status.st_rdev == os.makedev(1, 3)
    assert [p.name for p in null.parent.iterdir()] == ["null"]


@root
def test_a_full_device_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "full"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        path.open("wb").close()
    except OSError as error:
        pytest.skip(f"no devices here ({error})")
    with pytest.raises(FileFormatError, match="cannot write .*full: No space left"):
        write_text(path, "x" * 10_000)
    assert stat.S_ISCHR(path.lstat().st_mode)


def test_a_pipe_that_nobody_reads_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    with pytest.raises(FileFormatError, match="nobody reads"):
        write_text(tmp_path / "p", "x")
    assert stat.S_ISFIFO(os.stat(tmp_path / "p").st_mode)


def test_the_reader_of_a_pipe_gets_all_of_it(tmp_path: Path) -> None:
    """Reserved before the work and written after it: the reader must not see an end between the two."""
    os.mkfifo(tmp_path / "p")
    text, got = "0123456789" * 50_000, []
    reader = threading.Thread(target=lambda: got.append((tmp_path / "p").read_text()), daemon=True)
    reader.start()
    reserve(tmp_path / "p")
    while True:
        try:
            write_text(tmp_path / "p", text)
            break
        except FileFormatError:  # the reader has not opened it yet
            pass
    reader.join(30)
    assert got == [text]


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "real").write_text("old")
    (tmp_path / "one").symlink_to("there/real")
    (tmp_path / "two").symlink_to("one")
    write_text(reserve(tmp_path / "two"), "new")
    assert os.readlink(tmp_path / "two") == "one"
    assert os.readlink(tmp_path / "one") == "there/real"
    assert (tmp_path / "there" / "real").read_text() == "new"
    assert not (tmp_path / "there" / "real").is_symlink()


@pytest.mark.parametrize("name", ["a" * 300, "a\0b", "\ud800"])
def test_names_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(FileFormatError, match="cannot write"):
        reserve(tmp_path / name)


def test_reserving_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("mine")
    before = (tmp_path / "f").stat()
    reserve(tmp_path / "f")
    reserve(tmp_path / "new")
    assert (tmp_path / "f").stat() == before
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


class TestCommand:
    """``-o`` of the command line, before the work and after it."""

    @pytest.fixture
    def model(self, tmp_path: Path) -> Path:
        np.savez(tmp_path / "m.npz", A=-2 * np.eye(2), W=0.5 * np.eye(2))
        return tmp_path / "m.npz"
