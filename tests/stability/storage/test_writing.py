"""The one writer: what is a file is replaced whole, what is none is written through or refused, never replaced."""

from __future__ import annotations

import os
import socket
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


@root
def test_block_devices_are_refused(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 200))
    except OSError as error:
        pytest.skip(f"no devices here ({error})")
    for ask in (reserve, lambda p: write_text(p, "x")):
        with pytest.raises(FileFormatError, match="it is a block device"):
            ask(tmp_path / "disk")


def test_folders_and_sockets_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        Path("d").mkdir()
        for name, what in (("s", "a socket"), ("d", "a directory")):
            for ask in (reserve, lambda p: write_text(p, "x")):
                with pytest.raises(FileFormatError, match=f"cannot write {name}: it is {what}"):
                    ask(name)
        assert stat.S_ISSOCK(os.stat("s").st_mode)


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


@pytest.mark.parametrize("form", ["/dev/fd/{}", "/proc/self/fd/{}"])
def test_descriptors_are_written_to_where_they_are(tmp_path: Path, form: str) -> None:
    """Process substitution is a pipe of such a name; a file behind one keeps what was written before."""
    read, write = os.pipe()
    write_text(form.format(write), "through the pipe")
    os.close(write)
    assert os.read(read, 100) == b"through the pipe"
    os.close(read)
    with (tmp_path / "log").open("wb", buffering=0) as file:
        file.write(b"first ")
        write_text(form.format(file.fileno()), "second ")
        file.write(b"third")
    assert (tmp_path / "log").read_bytes() == b"first second third"


def test_descriptors_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="Bad file descriptor"):
        reserve("/dev/fd/977")
    folder = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(FileFormatError, match="directory"):
        reserve(f"/dev/fd/{folder}")
    os.close(folder)


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


def test_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "good").symlink_to("new")
    write_text(reserve(tmp_path / "good"), "x")
    assert (tmp_path / "good").is_symlink()
    assert (tmp_path / "new").read_text() == "x"
    (tmp_path / "bad").symlink_to("gone/new")
    (tmp_path / "round").symlink_to("round")
    for ask in (reserve, lambda p: write_text(p, "x")):
        with pytest.raises(FileFormatError, match="there is no directory"):
            ask(tmp_path / "bad")
        with pytest.raises(FileFormatError, match="cannot write"):
            ask(tmp_path / "round")


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

    @root
    def test_null(self, model: Path, null: Path) -> None:
        done = stability("certify", str(model), "-o", str(null), "-q")
        assert (done.returncode, done.stderr) == (0, "")
        assert stat.S_ISCHR(null.lstat().st_mode)

    def test_standard_output_in_a_file(self, model: Path, tmp_path: Path) -> None:
        """The file that the shell opened, not one put in its place; what is printed afterwards comes after."""
        with (tmp_path / "out").open("w") as out:
            command = [sys.executable, "-m", "stability", "certify", str(model), "-o", "/dev/stdout"]
            assert subprocess.run(command, stdout=out, timeout=120).returncode == 0
        text = (tmp_path / "out").read_text()
        assert text.startswith("{")
        assert '"digest"' in text
        assert "certified" in text[text.rindex("}") :].lower()

    def test_a_folder_is_refused_before_the_work(self, model: Path, tmp_path: Path) -> None:
        model.write_bytes(b"no model")  # which only a reader of it finds out
        done = stability("certify", str(model), "-o", str(tmp_path))
        assert done.returncode == 2
        assert "it is a directory" in done.stderr
        assert done.stderr.count("\n") == 1
