"""Systems in ``.npz`` files: read to the last bit, and nothing in the file is passed over in silence."""

from __future__ import annotations

import struct
import zipfile

import numpy as np
import pytest

from stability.errors import ConfigurationError, DimensionError, FileFormatError, StabilityError
from stability.models.sources import load_subject
from stability.storage import arrays as rooms
from stability.storage.arrays import npz_subject, read_npz
from stability.systems import DrivenSystem, LureSystem


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


def test_defaults(m):
    square = {"A": m["A"], "W": np.ones((3, 3))}
    system = npz_subject(square)
    assert isinstance(system, LureSystem)
    assert (system.dt, system.slope) == (None, (0.0, 1.0))
    np.testing.assert_array_equal(system.B, np.eye(3))
    assert not system.D.any()
    network = npz_subject(square | {"U": np.ones((3, 1))})
    assert (network.activation, network.system.slope, network.b.tolist()) == ("tanh", (0.0, 1.0), [0.0] * 3)
    assert not network.F.any()
    assert network.name == "the archive"
    sigmoid = npz_subject(square | {"U": np.ones((3, 1)), "activation": np.array("sigmoid")})
    assert (sigmoid.activation, sigmoid.system.slope) == ("sigmoid", (0.0, 0.25))
    linear = npz_subject({"A": m["A"], "dt": np.array(0.5)})
    assert (linear.channels, linear.dt) == (0, 0.5)
    for dt, read in ((np.nan, None), (2, 2.0), ([0.5], 0.5)):
        assert npz_subject(square | {"dt": np.array(dt)}).dt == read


def test_other_names_for_the_same(m):
    one = npz_subject({**m, "activation": np.array([b"tanh"])})
    other = npz_subject({**{k: v for k, v in m.items() if k not in "WU"}, "C": m["W"], "E": m["U"]})
    np.testing.assert_array_equal(one.system.C, other.system.C)
    np.testing.assert_array_equal(one.E, other.E)
    assert one.activation == other.activation == "tanh"


@pytest.mark.parametrize("name", ["b", "F", "activation"])
def test_what_has_no_effect_without_an_input_is_refused(name, m):
    given = {"A": m["A"], "B": m["B"], "W": m["W"], "activation": np.array("sinh"), "b": m["b"], "F": m["F"]}
    kept = {k: v for k, v in given.items() if k in ("A", "B", "W", name)}
    with pytest.raises(FileFormatError, match=rf"without U there is no effect of {name}: add U or leave that out"):
        npz_subject(kept)
    with pytest.raises(FileFormatError, match="no effect of b, F, activation"):
        npz_subject(given)


@pytest.mark.parametrize("name", ["B", "D", "slope", "U", "E", "b", "F", "activation"])
def test_what_has_no_effect_without_channels_is_refused(name, m):
    given = {**m, "E": m["U"], "slope": np.array([0.0, 1.0]), "activation": np.array("tanh")}
    with pytest.raises(FileFormatError, match=rf"without W there is no effect of {name}"):
        npz_subject({"A": m["A"], name: given[name]})


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"activation": np.array(["tanh"] * 3)}, FileFormatError, r"one name.*shape \(3,\)"),
        ({"activation": np.array(["exp", "exp"])}, FileFormatError, "one name"),
        ({"activation": np.array(3.0)}, FileFormatError, "dtype float64"),
        ({"activation": np.array([], dtype="U4")}, FileFormatError, "one name"),
        ({"activation": np.array("sinh")}, ConfigurationError, "sinh"),
        ({"activation": np.array(b"\xff")}, ConfigurationError, "activation"),
        ({"b": np.ones(77)}, DimensionError, "77"),
        ({"F": np.ones((5, 5))}, DimensionError, "F"),
        ({"U": np.ones((3, 4))}, DimensionError, "E"),
        ({"W": np.ones((3, 3))}, DimensionError, "W must have shape .*column of B"),
        ({"D": np.ones((3, 3))}, DimensionError, "D"),
        ({"dt": np.array([1.0, 2.0])}, FileFormatError, r"dt must be one number.*\(2,\)"),
        ({"dt": np.array(True)}, FileFormatError, "dtype bool"),
        ({"dt": np.array(-1.0)}, ConfigurationError, "dt"),
        ({"dt": np.array(np.inf)}, ConfigurationError, "dt"),
        ({"slope": np.array([1.0, 0.0])}, ConfigurationError, "slope"),
        ({"slope": np.array([0.2, 1.0])}, ConfigurationError, "do not contain"),
        ({"C": np.ones((2, 3))}, FileFormatError, "must hold"),
        ({"E": np.ones((2, 4))}, FileFormatError, "must hold"),
        ({"weights": np.ones(2)}, FileFormatError, "must hold.*weights"),
        ({"\x1b[31m": np.ones(2)}, FileFormatError, r"\\x1b"),
        ({"A": np.ones((3, 2))}, DimensionError, "A"),
        ({"A": np.full((3, 3), np.nan)}, StabilityError, "NaN"),
    ],
)
def test_every_misplaced_entry_is_named(change, error, text, m):
    with pytest.raises(error, match=text):
        npz_subject(m | change)


def test_without_b_the_rows_of_w_are_those_of_a(m):
    with pytest.raises(DimensionError, match=r"C must have shape \(3, 3\).*row of A, for there is no B"):
        npz_subject({"A": m["A"], "C": np.ones((2, 3))})
    with pytest.raises(FileFormatError, match="it holds W"):
        npz_subject({"W": m["W"]})
    with pytest.raises(FileFormatError, match="it holds nothing"):
        npz_subject({})


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


@pytest.mark.parametrize("kind", ["f4", "i2", "u1"])
def test_a_time_step_is_any_real_number(kind):
    assert npz_subject({"A": np.eye(2) / 2, "dt": np.array(2, dtype=kind)}).dt == 2.0
    for other in (np.array(2, dtype=complex), np.array("2"), np.array([])):
        with pytest.raises(FileFormatError, match="dt must be one number"):
            npz_subject({"A": np.eye(2) / 2, "dt": other})


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
    with pytest.raises(FileFormatError, match=r"holds 'A\.npy', twice"):
        read_npz(path)
    with pytest.raises(FileFormatError, match="twice"):
        load_subject(path)


def test_a_member_that_is_no_array_is_refused(tmp_path):
    path = tmp_path / "odd.npz"
    save(path, ("A.npy", -np.eye(2)))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes\x07.txt", "hello")
    with pytest.raises(FileFormatError, match=r"holds 'notes\\x07\.txt', which is no array"):
        read_npz(path)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i2"])
def test_arrays_to_the_last_bit(order, dtype, tmp_path, rng):
    A = np.asarray(rng.integers(-9, 9, size=(3, 4)), dtype=dtype, order=order)
    np.savez_compressed(tmp_path / "m.npz", A=A, s=np.array(2.5), e=np.zeros((0, 3)))
    out = read_npz(tmp_path / "m.npz")
    np.testing.assert_array_equal(out["A"], A)
    assert out["A"].dtype == np.dtype(dtype)
    assert (out["s"].shape, float(out["s"]), out["e"].shape) == ((), 2.5, (0, 3))


def header(shape, dtype="<f8", version=(1, 0), wide=119):
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(wide - 1) + "\n"
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(text)) + text.encode()


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (header((10**9, 10**9)) + bytes(8), "claims the shape"),
        (header((2,)) + bytes(8), "truncated"),
        (header((16,)) + bytes(8), "claims the shape|truncated"),
        (header((18,)) + bytes(8), "claims the shape"),
        (header((1,)) + bytes(9), r"more bytes than its shape \(1,\) needs"),
        (header((-1,)) + bytes(8), "claims the shape|not a whole"),
        (header((1,), "|O") + bytes(8), "pickled objects"),
        (header((1,), version=(3, 0)) + bytes(8), r"version \(3, 0\)"),
        (b"\x93NUMPY", "not a whole"),
        (b"nothing like it", "not a whole"),
    ],
)
def test_hostile_headers(raw, text, tmp_path):
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("A.npy", raw)
    with pytest.raises(FileFormatError, match=text):
        read_npz(tmp_path / "m.npz")


def test_arrays_of_both_versions_and_in_pieces(tmp_path, monkeypatch, rng):
    monkeypatch.setattr(rooms, "_PIECE", 16)
    A = rng.normal(size=(3, 5))
    for version in ((1, 0), (2, 0)):
        save(tmp_path / "m.npz", ("A.npy", A), ("W.npy", np.asfortranarray(A)), version=version)
        for out in read_npz(tmp_path / "m.npz").values():
            np.testing.assert_array_equal(out, A)
            assert not out.flags.writeable


@pytest.mark.parametrize("dtype", ["?", "<i8", "<u4", "<f2", "<c16", "S3", "<U4", "<U10000", "S40000"])
def test_numbers_and_names_of_every_kind_are_read(dtype, tmp_path):
    array = np.zeros((2, 1), dtype=dtype)
    save(tmp_path / "m.npz", ("A.npy", array))
    np.testing.assert_array_equal(read_npz(tmp_path / "m.npz")["A"], array)


@pytest.mark.parametrize("dtype", ["<M8[s]", "<m8[s]", "V8", "<U10001", "S40001", "f8,f8"])
def test_neither_numbers_nor_names(dtype, tmp_path):
    save(tmp_path / "m.npz", ("A.npy", np.zeros((2, 1), dtype=dtype)))
    with pytest.raises(FileFormatError, match="A in .* neither numbers nor names"):
        read_npz(tmp_path / "m.npz")


@pytest.mark.parametrize(("wide", "good"), [(10_000, True), (10_001, False)])
def test_the_longest_header(wide, good, tmp_path):
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("A.npy", header((1,), wide=wide) + bytes(8))
    if good:
        assert read_npz(tmp_path / "m.npz")["A"].tolist() == [0.0]
    else:
        with pytest.raises(FileFormatError, match="header of 10001 bytes; at most 10000 are read"):
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
            with pytest.raises(FileFormatError, match=r"claims \d+ numbers; an archive may hold 64 in all"):
                read_npz(tmp_path / "m.npz")


def test_a_bomb_is_refused_before_it_unfolds(tmp_path, monkeypatch):
    monkeypatch.setattr(rooms, "NUMBERS", 2**17 - 1)
    save(tmp_path / "m.npz", ("A.npy", np.zeros(2**17)), compress=zipfile.ZIP_DEFLATED)
    with pytest.raises(FileFormatError, match="claims 131072 numbers"):
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
