"""The file format at its limits: the last shape, number, depth and size that is read, and the first that is not."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from stability.errors import FileFormatError
from stability.kernel.format.serialization import decode, digest_of, encode, is_sealed, seal
from stability.storage import documents
from stability.storage.documents import parse_json, read_document, read_json
from stability.storage.limits import DEPTH, DIGITS
from stability.systems import LureSystem, PairwiseSystem


def stored(shape, count=0, **changes):
    return {"array": base64.b64encode(np.arange(float(count)).tobytes()).decode(), "shape": shape, **changes}


def test_shapes_are_lists_of_up_to_three_lengths():
    for shape, count in (([], 1), ([2], 2), ([2, 3], 6), ([1, 2, 3], 6), ([0], 0), ([0, 2**31 - 1], 0)):
        made = decode(stored(shape, count))
        assert (made.shape, made.dtype) == (tuple(shape), np.float64)
        assert made.reshape(-1).tolist() == list(range(count))
        assert not made.flags.writeable
    for shape in ([0, 2**31], [1, 1, 1, 1], [-1], [True], [1.0], ["1"], [None], [[1]], (1,), 1, None, "1", {"0": 1}):
        with pytest.raises(FileFormatError, match="bad shape"):
            decode(stored(shape, 1))
    with pytest.raises(FileFormatError, match="bad shape"):
        decode({"array": ["AAAAAAAA8D8="], "shape": [1]})


def test_bytes_are_those_of_the_shape_in_their_one_form():
    one = stored([1], 1)["array"]
    with pytest.raises(FileFormatError, match=r"shape \[3\] needs 24 bytes, the file has 16"):
        decode(stored([3], 2))
    for text in (one + "\n", one.replace("=", ""), "*" + one[1:], "é" + one[1:]):
        with pytest.raises(FileFormatError, match="base64"):
            decode({"array": text, "shape": [1]})
    other = base64.b64encode(np.ones(1).tobytes()).decode()
    assert other.endswith("8D8=")
    with pytest.raises(FileFormatError, match="one base64 form"):  # the same bytes: two bits of the last digit are idle
        decode({"array": other[:-2] + "9=", "shape": [1]})
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(FileFormatError, match="NaN or infinite entries"):
            decode({"array": base64.b64encode(np.array([bad]).tobytes()).decode(), "shape": [1]})


def test_what_is_written_comes_back_and_nothing_else_is_written():
    value = {"a": [1, -2.5, None, True, "é"], "b": {"c": np.array([[1.5, -0.0]])}, 3: (np.int64(7), np.float32(0.5))}
    written = encode(value)
    assert written["a"] == [1, -2.5, None, True, "é"]
    assert written["3"] == [7, 0.5]
    assert [type(x) for x in written["3"]] == [int, float]
    assert written["b"]["c"]["shape"] == [1, 2]
    back = decode(json.loads(json.dumps(written)))
    assert back["a"] == (1, -2.5, None, True, "é")
    assert back["b"]["c"].tobytes() == np.array([[1.5, -0.0]]).tobytes()
    for bad, word in (
        *((x, "NaN or infinite numbers") for x in (np.nan, np.inf, np.float32(np.inf))),
        (np.array([np.nan]), "NaN or infinite entries"),
        (object(), "cannot hold a object"),
        ({1, 2}, "cannot hold a set"),
        (1j, "cannot hold a complex"),
    ):
        with pytest.raises(FileFormatError, match=word):
            encode([{"x": bad}])
    for kind in ("nothing", 1, None, ["lure"]):
        with pytest.raises(FileFormatError, match="unknown subject type .*known: .*lure"):
            decode({"type": kind})


def test_a_sealed_document_is_for_readers_too():
    """One datum a line, letters as they are, the digest at the end and of the text itself."""
    text = seal({"name": "é", "list": [1, 2.5]})
    lines = text.split("\n")
    assert lines[:4] == ["{", ' "name": "é",', ' "list": [', "  1,"]
    assert lines[-1] == ""
    assert lines[-2] == "}"
    assert lines[-3].startswith(' "digest": "')
    document = json.loads(text)
    assert is_sealed(text, document)
    assert list(document) == ["name", "list", "digest"]
    digest = document["digest"]
    assert len(digest) == 64
    assert not is_sealed(text.replace("2.5", "2.50"), document)
    assert not is_sealed(text.replace("\n}", "\n }"), document)
    assert not is_sealed(text + " ", document)
    for bad in (None, 3, digest[:-1], digest[:-1] + "g", "0" * 64, ""):
        assert not is_sealed(text, {**document, "digest": bad})
    twice = text.replace('"é"', f'"{digest}"')
    assert not is_sealed(twice, json.loads(twice))
    with pytest.raises(ValueError, match="JSON"):
        seal({"a": float("nan")})


def test_numbers_and_nesting_are_read_up_to_their_limits():
    digits = "1" * DIGITS
    assert parse_json(digits.encode(), "d.json") == int(digits)
    assert parse_json(f"-{digits[1:]}".encode(), "d.json") == -int(digits[1:])
    with pytest.raises(FileFormatError, match=f"d.json: the file holds an integer of {DIGITS + 1} characters"):
        parse_json((digits + "1").encode(), "d.json")
    assert parse_json(b"1.7976931348623157e308", "d.json") == 1.7976931348623157e308
    for bad, word in ((b"1.8e308", "beyond the range"), (b"-1e999", "beyond the range"), (b"NaN", "holds NaN")):
        with pytest.raises(FileFormatError, match=word):
            parse_json(bad, "d.json")
    for open_, inner, close in (("[", "1", "]"), ('{"a":', "1", "}")):
        deep = open_ * DEPTH + inner + close * DEPTH
        parse_json(deep.encode(), "d.json")
        with pytest.raises(FileFormatError, match=f"d.json is nested more than {DEPTH} deep"):
            parse_json((open_ + deep + close).encode(), "d.json")
    with pytest.raises(FileFormatError, match="'a' stands twice"):
        parse_json(b'{"b": 1, "a": 1, "c": 2, "a": 1}', "d.json")
    for bad in (b'["\\ud800"]', b'{"\\ud800": 1}', b'{"a": {"b": ["\\udfff"]}}'):
        with pytest.raises(FileFormatError, match="d.json holds a string that is no Unicode text"):
            parse_json(bad, "d.json")
    assert parse_json('["é😀"]'.encode(), "d.json") == ["é😀"]
    for bad in (b"", b"[", b"\xff", b"{'a': 1}", b"[1] [2]"):
        with pytest.raises(FileFormatError, match=r"^d.json is odd \("):
            parse_json(bad, "d.json", "odd")


def test_documents_are_read_up_to_their_number_of_values_and_bytes(tmp_path, monkeypatch):
    path = tmp_path / "d.json"
    path.write_bytes(b'{"a": [1, {"b": 2}]}')
    monkeypatch.setattr(documents, "DOCUMENT_VALUES", 6)  # three brackets, two colons, one comma
    assert read_document(path) == ({"a": [1, {"b": 2}]}, path.read_text())
    assert read_json(path) == {"a": [1, {"b": 2}]}
    monkeypatch.setattr(documents, "DOCUMENT_VALUES", 5)
    with pytest.raises(FileFormatError, match="holds about 6 values; a document here has at most 5"):
        read_document(path)
    monkeypatch.undo()
    monkeypatch.setattr(documents, "DOCUMENT_BYTES", 20)
    assert read_json(path) == {"a": [1, {"b": 2}]}
    monkeypatch.setattr(documents, "DOCUMENT_BYTES", 19)
    with pytest.raises(FileFormatError, match="has 20 bytes; a document here has at most 19"):
        read_document(path)
    with pytest.raises(FileFormatError, match="cannot read .*missing"):
        read_document(tmp_path / "missing")
    with pytest.raises(FileFormatError, match="is no regular file"):
        read_document(tmp_path)


def test_the_identity_of_a_subject_is_that_of_its_stored_numbers(tmp_path):
    one = LureSystem.recurrent([[-2.0]], [[1.0]])
    assert digest_of(one) == digest_of(decode(json.loads(json.dumps(encode(one)))))
    assert digest_of(one) != digest_of(LureSystem.recurrent([[-2.0]], [[np.nextafter(1.0, 2.0)]]))
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    (tmp_path / "f").write_bytes(b"abc")
    assert documents.file_digest(tmp_path / "f").startswith("ba7816bf")
    with pytest.raises(FileFormatError, match="cannot read"):
        documents.file_digest(tmp_path / "g")


def test_an_optional_field_of_zeros_is_stored_and_an_empty_one_is_not():
    system = PairwiseSystem(np.eye(2), np.ones((2, 1)), np.zeros(2), "householder", angles=[0.0])
    assert decode(encode(system)).angles == [0.0]
    assert "part" not in encode(system)
    assert "angles" not in encode(PairwiseSystem(np.eye(2), np.ones((2, 1)), np.zeros(2), "oplu"))
