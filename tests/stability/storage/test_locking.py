"""One owner a folder: whoever comes second is told, whoever died is succeeded, nobody is taken for dead by guessing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stability import FileFormatError
from stability.errors import FolderInUseError
from stability.storage.folder import claim_folder
from stability.storage.locking import LOCK_FILE

HOLD = """
import sys
from stability.storage.folder import claim_folder
with claim_folder(sys.argv[1], "holding") as folder:
    folder.reserve(["mine"], "test")
    print("held", flush=True)
    sys.stdin.readline()
"""


class Holder:
    """Another process that owns a folder."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "held\n"

    def __enter__(self) -> subprocess.Popen[str]:
        return self.process

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def test_the_second_writer_is_told_who_the_first_is(tmp_path: Path) -> None:
    with Holder(tmp_path) as process:
        with pytest.raises(FolderInUseError) as error, claim_folder(tmp_path, "second"):
            pass
        said = str(error.value)
        for word in (f"process {process.pid} on {os.uname().nodename}", "(holding)", "since 20", str(tmp_path)):
            assert word in said
        process.communicate("done\n", timeout=60)
        with claim_folder(tmp_path, "third"):
            pass
    assert not list(tmp_path.iterdir())  # nothing came of either


def test_killed_it_is_succeeded_at_once_and_that_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        (tmp_path / ".0123456789abcdef01234567.partial").write_text("half")
        (tmp_path / "notes.partial").write_text("mine")
        assert (tmp_path / LOCK_FILE).exists()
        with claim_folder(tmp_path, "next"):
            assert f"process {process.pid}" in caplog.text
            assert "taken over" in caplog.text
    assert {p.name for p in tmp_path.iterdir()} == {"notes.partial"}


def test_a_forked_child_does_not_give_back_what_its_parent_holds(tmp_path: Path) -> None:
    with claim_folder(tmp_path, "parent") as folder:
        child = os.fork()
        if not child:
            try:
                folder._release()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert (tmp_path / LOCK_FILE).exists()
        done = subprocess.run([sys.executable, "-c", HOLD, str(tmp_path)], capture_output=True, text=True, timeout=60)
        assert "FolderInUseError" in done.stderr


def test_places_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in ("file", "file/below", "a\0b", "n" * 300):
        with pytest.raises(FileFormatError, match="cannot create the folder"), claim_folder(tmp_path / place, "x"):
            pass
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / LOCK_FILE).symlink_to(tmp_path / "file")
    with pytest.raises(FileFormatError, match="cannot write to"), claim_folder(tmp_path / "d", "x"):
        pass
    assert (tmp_path / "file").read_text() == ""
