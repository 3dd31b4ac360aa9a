"""Ownership of files: those on a folder's list are its own; others are never replaced without leave nor removed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.folder import LIST, blocking_files, claim_folder, listed_files
from stability.storage.locking import LOCK_FILE
from stability.storage.writing import write_text


def write(folder: Path, names: list[str], by: str = "work", **options: bool) -> None:
    with claim_folder(folder, by) as own:
        own.reserve(names, by, **options)
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            write_text(folder / name, f"{by}\n")


def test_a_file_is_on_the_list_before_it_is_written(tmp_path: Path) -> None:
    with claim_folder(tmp_path, "work") as own:
        own.reserve(["a", "t/b"], "work")
        assert json.loads((tmp_path / LIST).read_text())["files"] == {"a": "work", "t/b": "work"}
        assert not (tmp_path / "a").exists()


def test_own_files_are_replaced_and_others_refused(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("mine")
    with pytest.raises(ConfigurationError, match="holds b, not made by this command"):
        write(tmp_path, ["a", "b"])
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == {"b": "mine"}
    write(tmp_path, ["a"])
    write(tmp_path, ["a"])
    with pytest.raises(ConfigurationError, match="holds a, not made"):
        write(tmp_path, ["a"], by="other work")
    write(tmp_path, ["b"], overwrite=True)
    assert (tmp_path / "b").read_text() == "work\n"
    assert listed_files(tmp_path) == {"a": "work", "b": "work"}


def test_removing_takes_listed_files_alone(tmp_path: Path) -> None:
    write(tmp_path, ["a", "t/b", "u/c"])
    (tmp_path / "mine").write_text("")
    (tmp_path / "u" / "mine").write_text("")
    with claim_folder(tmp_path, "work") as own:
        own.remove(["a", "t/b", "u/c", "mine"])
        assert own.files == {}
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == ["mine", "u", "u/mine"]


def test_links_in_a_folder_lead_nowhere(tmp_path: Path) -> None:
    """A directory from elsewhere must not make a command write to, or remove, what its links lead to."""
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "a").write_text("precious")
    run = tmp_path / "run"
    write(run, ["a", "t/a"])
    (run / "a").unlink()
    (run / "a").symlink_to(tmp_path / "victim" / "a")
    (run / "t" / "a").unlink()
    (run / "t").rmdir()
    (run / "t").symlink_to(tmp_path / "victim")
    assert blocking_files(run, ["a", "t/a"], "work") == (["a"], ["t/a"])
    for names in (["a"], ["t/a"]):
        with pytest.raises(ConfigurationError, match=f"holds {names[0]}"):
            write(run, names)
    with pytest.raises(ConfigurationError, match="holds t/a"):
        write(run, ["t/a"], overwrite=True)
    write(run, ["a"], overwrite=True)
    assert not (run / "a").is_symlink()
    with claim_folder(run, "work") as own:
        own.remove(["t/a"])
    assert (tmp_path / "victim" / "a").read_text() == "precious"


def test_what_is_no_file_cannot_be_overwritten(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    os.mkfifo(tmp_path / "b")
    for name in ("a", "b"):
        with pytest.raises(ConfigurationError, match="not a regular file"):
            write(tmp_path, [name], overwrite=True)


def test_a_folder_without_a_list_may_be_adopted_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("old")
    write(tmp_path, ["a"], adopt=True)
    assert listed_files(tmp_path) == {"a": "work"}
    with pytest.raises(ConfigurationError, match="holds b"):
        write(tmp_path, ["b"], adopt=True)


@pytest.mark.parametrize(
    "files",
    [
        None,
        3,
        {"a": 1},
        {"../a": "work"},
        {"/etc/a": "work"},
        {"": "work"},
        {"a/../../b": "w"},
        {LIST: "w"},
        {"./a": "w"},
    ],
)
def test_lists_that_cannot_be(tmp_path: Path, files: object) -> None:
    (tmp_path / LIST).write_text(json.dumps({"format": "stability-files", "version": 1, "files": files}))
    with pytest.raises(FileFormatError), claim_folder(tmp_path, "x"):
        pass
    assert [p.name for p in tmp_path.iterdir()] == [LIST]


@pytest.mark.parametrize("relative", [False, True])
def test_a_folder_that_took_the_place_of_the_claimed_one_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relative: bool
) -> None:
    """Moved away during the work, and somebody else's folder, with an owner of its own, stands under the name."""
    monkeypatch.chdir(tmp_path)
    home = Path("run") if relative else tmp_path / "run"
    with claim_folder(home, "work") as own:
        own.reserve(["table", "gone"], "work")
        write_text(home / "gone", "ours")
        os.rename(home, tmp_path / "moved")
        with pytest.raises(FileFormatError, match="run was moved, removed or replaced"):
            write_text(home / "table", "ours")
        theirs = {"table": "theirs", LIST: '{"format": "stability-files", "version": 1, "files": {}}', LOCK_FILE: "{}"}
        os.mkdir(home)
        for name, text in theirs.items():
            (home / name).write_text(text)
        for harm in (
            lambda: write_text(home / "table", "ours"),
            lambda: write_text(home / "sub" / "table", "ours"),
            lambda: own.reserve(["more"], "work"),
            lambda: own.remove(["table", "gone"]),
        ):
            with pytest.raises(FileFormatError, match="run was moved, removed or replaced"):
                harm()
        write_text(tmp_path / "moved" / "table", "elsewhere")
    assert {p.name: p.read_text() for p in home.iterdir()} == theirs
    assert (tmp_path / "moved" / "gone").read_text() == "ours"
    write_text(home / "table", "free again")
