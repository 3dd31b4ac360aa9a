"""A store of results: whole files or none, several writers, an index that says what the files say."""

from __future__ import annotations

import json
import os
import pickle
import random
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from stability.errors import ConfigurationError, FileFormatError
from stability.storage.index import Index
from stability.storage.results import DONE, FAILED, Result, identity, unpacked
from stability.storage.storage_backends import Directory, place_of
from stability.storage.store import INDEX, ResultStore, is_store, name_of


def result(number: int, status: str = DONE, seconds: float = 0.5) -> Result:
    spec = {"kind": "nap", "options": {"number": number}, "parent": "", "threads": 1, "code": "1"}
    error = None if status == DONE else {"type": "UnsupportedError", "text": "no"}
    found = {"third": number / 3} if status == DONE else {}
    members = {"model.bin": bytes([number % 256]) * 200, "empty": b""} if status == DONE else {}
    return Result(identity(spec), spec, status, found, error, {"seconds": seconds}, members)


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore.made(tmp_path / "store")


def test_what_is_kept_comes_back_to_the_last_bit(store: ResultStore) -> None:
    for number in range(5):
        store.put(result(number))
        assert store.get(result(number).job) == result(number)
    assert store.get(result(9).job) is None


def test_every_cut_and_every_changed_byte_is_seen() -> None:
    raw = result(3).packed()
    name = name_of(result(3).job, DONE)
    assert unpacked(raw, name) == result(3)
    draw = random.Random(1)
    for size in {0, 1, 20, len(raw) - 1, *(draw.randrange(len(raw)) for _ in range(100))}:
        with pytest.raises(FileFormatError):
            unpacked(raw[:size], name)
    with pytest.raises(FileFormatError):
        unpacked(raw + b"x", name)
    for at in {*range(80), *(draw.randrange(len(raw)) for _ in range(300))}:
        changed = bytearray(raw)
        changed[at] ^= 1 << draw.randrange(8)
        with pytest.raises(FileFormatError):
            unpacked(bytes(changed), name)


def test_a_result_under_the_name_of_another_job_is_none(store: ResultStore) -> None:
    store.place.write(name_of(result(2).job, DONE), result(1).packed())
    assert store.get(result(2).job) is None
    forged = replace(result(1), spec={**result(1).spec, "options": {"number": 7}})  # its name no longer follows
    store.place.write(name_of(forged.job, DONE), forged.packed())
    assert store.get(forged.job) is None


def test_reading_runs_nothing(store: ResultStore, tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "was here"),)

    store.place.write(name_of(result(1).job, DONE), pickle.dumps(Hostile()))
    store.place.write(INDEX, pickle.dumps(Hostile()))
    with Index(store) as index:
        index.refresh()
        assert index.torn == [name_of(result(1).job, DONE)]
    assert not (tmp_path / "was here").exists()


def test_the_index_follows_the_files(store: ResultStore) -> None:
    for number in range(20):
        store.put(result(number))
    store.put(result(30, FAILED))
    with Index(store) as index:
        assert index.refresh() == 21
        assert index.refresh() == 0
        index.plan(((result(n).job, "nap") for n in range(40)), "digest")
        index.publish()
    (store.place.path / name_of(result(0).job, DONE)).unlink()  # type: ignore[attr-defined]
    torn = store.place.path / name_of(result(1).job, DONE)  # type: ignore[attr-defined]
    torn.write_bytes(torn.read_bytes()[:-1])
    store.put(result(21))
    with Index(store) as index:
        assert index.planned == "digest"
        assert index.refresh() == 3
        assert index.torn == [name_of(result(1).job, DONE)]
        state = index.state()
        assert (state["jobs"], state["done"], state["failed"], state["left"]) == (40, 19, 1, 20)
        assert state["seconds"] == 10.0
        assert index.values(result(7).job) == {"third": 7 / 3}
        assert index.error(result(30).job) == {"type": "UnsupportedError", "text": "no"}
        whole = dict(index.state())
    store.place.remove(INDEX)
    with Index(store) as index:  # made again from the files alone
        index.refresh()
        index.plan(((result(n).job, "nap") for n in range(40)), "digest")
        assert index.state() == whole


def test_a_result_counts_whatever_failed_before_it(store: ResultStore) -> None:
    store.put(result(1, FAILED))
    store.put(result(1))
    with Index(store) as index:
        index.refresh()
        index.plan([(result(1).job, "nap")], "")
        assert (index.state()["done"], index.state()["failed"]) == (1, 0)


@pytest.mark.parametrize("damage", ["cut", "noise", "other tables", "unsealed"])
def test_an_index_that_is_not_ours_is_made_again(store: ResultStore, tmp_path: Path, damage: str) -> None:
    store.put(result(1))
    with Index(store) as index:
        index.refresh()
        index.publish()
    path = store.place.path / INDEX  # type: ignore[attr-defined]
    raw = path.read_bytes()
    if damage == "other tables":
        other = sqlite3.connect(tmp_path / "other")
        other.execute("CREATE TABLE results (x)")
        other.commit()
        other.close()
        raw = (tmp_path / "other").read_bytes()
    path.write_bytes({"cut": raw[: len(raw) // 2], "noise": b"\0" * 5000, "unsealed": raw[:-1] + b"-"}.get(damage, raw))
    with Index(store) as index:
        assert index.refresh() == 1
        assert index.values(result(1).job) is not None


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match="not empty"):
        ResultStore.made(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt"]
    with pytest.raises(FileFormatError, match="no results"):
        ResultStore.found(tmp_path)
    (tmp_path / "sweep.json").write_text(json.dumps({"format": "stability-sweep", "version": 2, "token": "x"}))
    with pytest.raises(FileFormatError, match="version 1"):
        ResultStore.found(tmp_path)


def test_object_storage_holds_the_same(tmp_path: Path) -> None:
    address = f"memory://{tmp_path.name}"
    store = ResultStore.made(address)
    assert is_store(address)
    assert not store.place.shared
    for number in range(3):
        store.put(result(number))
    assert ResultStore.found(address).get(result(2).job) == result(2)
    with Index(store) as index:
        assert index.refresh() == 3
        index.publish()
    with Index(ResultStore.found(address)) as index:
        assert index.refresh() == 0
        assert index.has(result(1).job)
    assert isinstance(place_of(f"file://{tmp_path}"), Directory)
    with pytest.raises(ConfigurationError, match="cannot be used"):
        place_of("nosuchprotocol://x")


def test_what_a_killed_writer_left_is_no_result(store: ResultStore) -> None:
    store.put(result(1))
    folder = (store.place.path / name_of(result(1).job, DONE)).parent  # type: ignore[attr-defined]
    fresh, old = folder / f".{'0' * 24}.partial", folder / f".{'1' * 24}.partial"
    for path in (fresh, old):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    with Index(store) as index:
        assert index.refresh() == 1
        assert not index.torn
    assert fresh.exists()
    assert not old.exists()
