"""Systems in ``.npz`` files: read to the last bit, and nothing in the file is passed over in silence."""

from __future__ import annotations

import struct
import zipfile

import numpy as np
import pytest

from stability.errors import FileFormatError, StabilityError
from stability.models.sources import load_subject
from stability.storage import arrays as rooms
from stability.storage.arrays import npz_subject, read_npz
from stability.systems import DrivenSystem


@pytest.fixture
def m(rng):
    return {
        "A": rng.normal(size=(3, 3)) - 4 * np.eye(3),
        "B": rng.normal(size=(3, 2)),
        "W": rng.normal(size=(2, 3)),
        "D": np.array([[0.0, 0.0], [0.5, 0.0]]),
        "U": rng.normal(size=(2, 4)),
        "b": rng.normal(size=2),
        "F": rng.normal(size=(3, 4)),
    }


def test_everything_is_where_it_belongs(m, tmp_path):
    np.savez(tmp_path / "all.npz", **m, slope=[-0.5, 1.5], dt=0.25, activation="relu")
    network = load_subject(tmp_path / "all.npz").subject
    assert isinstance(network, DrivenSystem)
    for name in ("A", "B", "D"):
        np.testing.assert_array_equal(getattr(network.system, name), m[name])
    np.testing.assert_array_equal(network.system.C, m["W"])
    np.testing.assert_array_equal(network.E, m["U"])
    np.testing.assert_array_equal(network.b, m["b"])
    np.testing.assert_array_equal(network.F, m["F"])
    assert (network.activation, network.system.dt, network.system.slope) == ("relu", 0.25, (-0.5, 1.5))
    assert network.name == str(tmp_path / "all.npz")


@pytest.mark.parametrize(
    "change",
    [
        {"A": np.ones(3)},
        {"A": np.ones((0, 0))},
        {"A": np.ones((2, 3))},
        {"A": np.ones((3, 3, 1))},
        {"B": np.ones(3)},
        {"B": np.ones((2, 2))},
        {"W": np.ones(3)},
    ],
)
def test_arrays_that_are_no_matrices_that_fit_are_refused(change):
    square = {"A": -np.eye(3), "W": np.ones((3, 3))}
    with pytest.raises(StabilityError):
        npz_subject(square | change)
    if "A" in change:
        with pytest.raises(StabilityError):
            npz_subject({**square, **change, "B": np.eye(3)})


def save(path, *members, compress=zipfile.ZIP_STORED, version=None):
    """An archive whose members may repeat."""
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, array in members:
            with archive.open(name, "w") as handle:
                np.lib.format.write_array(handle, np.asarray(array), version, allow_pickle=False)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice_is_refused(tmp_path):
    path = tmp_path / "twice.npz"
    save(path, ("A.npy", -np.eye(2)), ("W.npy", np.eye(2)), ("A.npy", np.eye(2)))
    with pytest.raises(FileFormatError, match=r"two members with the name 'A\.npy'"):
        read_npz(path)
    with pytest.raises(FileFormatError, match="twice"):
        load_subject(path)


def test_a_member_that_is_no_array_is_refused(tmp_path):
    path = tmp_path / "odd.npz"
    save(path, ("A.npy", -np.eye(2)))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes\x07.txt", "hello")
    with pytest.raises(FileFormatError, match=r"holds 'notes\\x07\.txt', which is not a"):
        read_npz(path)


def header(shape, dtype="<f8", version=(1, 0), wide=119):
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(wide - 1) + "\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (header((10**9, 10**9)) + bytes(8), "truncated"),
        (header((2,)) + bytes(8), "truncated"),
        (header((16,)) + bytes(8), "truncated"),
        (header((18,)) + bytes(8), "truncated"),
        (header((1,)) + bytes(9), r"more bytes than its shape \(1,\) needs"),
        (header((-1,)) + bytes(8), "negative size|no whole"),
        (header((1,), "|O") + bytes(8), "pickled objects"),
        (header((1,), version=(3, 0)) + bytes(8), r"version \(3, 0\)"),
        (b"\x93NUMPY", "no whole"),
        (b"nothing like it", "no whole"),
    ],
)
def test_hostile_headers(raw, text, tmp_path):
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("A.npy", raw)
    with pytest.raises(FileFormatError, match=text):
        read_npz(tmp_path / "m.npz")


def test_the_room_of_an_archive_is_that_of_all_its_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "NUMBERS", 64)
    for sizes, kind, good in (
        ((64,), float, True),
        ((65,), float, False),
        ((40, 24), float, True),
        ((40, 25), float, False),
        ((32,), complex, True),
        ((33,), complex, False),
        ((64,), bool, True),
        ((65,), bool, False),
    ):
        save(tmp_path / "m.npz", *((f"A{k}.npy", np.zeros(size, dtype=kind)) for k, size in enumerate(sizes)))
        if good:
            assert [a.size for a in read_npz(tmp_path / "m.npz").values()] == list(sizes)
        else:
            with pytest.raises(FileFormatError, match=r"\d+ numbers; the arrays of an archive may hold 64"):
                read_npz(tmp_path / "m.npz")


def test_a_bomb_is_refused_before_it_unfolds(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "NUMBERS", 2**17 - 1)
    save(tmp_path / "m.npz", ("A.npy", np.zeros(2**17)), compress=zipfile.ZIP_DEFLATED)
    with pytest.raises(FileFormatError, match="has 131072 numbers"):
        read_npz(tmp_path / "m.npz")
    save(tmp_path / "m.npz", ("A.npy", np.zeros(2**16)), compress=zipfile.ZIP_DEFLATED)
    assert read_npz(tmp_path / "m.npz")["A"].size == 2**16


def test_missing_and_damaged_archives(tmp_path):
    with pytest.raises(FileFormatError, match="cannot read .*No such file"):
        read_npz(tmp_path / "absent.npz")
    np.savez(tmp_path / "m.npz", A=np.eye(3))
    raw = (tmp_path / "m.npz").read_bytes()
    (tmp_path / "m.npz").write_bytes(raw[:-30])
    with pytest.raises(FileFormatError, match="damaged or truncated archive"):
        read_npz(tmp_path / "m.npz")
