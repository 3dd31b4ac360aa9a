"""The file format underneath certificates: JSON with bit-exact matrices and a digest.

An array is ``{"array": BASE64, "shape": [...]}``: little-endian IEEE-754 binary64, row-major. A subject is
``{"type": NAME, ...}``. ``docs/certificate-format.md`` describes the format for writers of other checkers.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stability.errors import FileFormatError, StabilityError
from stability.storage.limits import DEPTH, DIGITS, DOCUMENT_BYTES, DOCUMENT_VALUES
from stability.storage.writing import write_bytes, write_text

__all__ = [
    "SUBJECTS",
    "decode",
    "digest_of",
    "encode",
    "file_digest",
    "is_sealed",
    "is_utf8",
    "parse_json",
    "read_document",
    "read_json",
    "seal",
    "subject",
    "write_bytes",
    "write_text",
]

SUBJECTS: dict[str, type] = {}
BLANK = "0" * 64


def subject(name: str) -> Any:
    """Class decorator: a subject type with ``payload() -> dict`` and ``from_payload(dict)``, known as ``name``."""

    def register(cls: type) -> type:
        SUBJECTS[name] = cls
        cls.wire_name = name  # type: ignore[attr-defined]
        return cls

    return register


def is_utf8(path: str | Path) -> bool:
    r"""Whether a name can be handed to libraries that are not written in Python: they take UTF-8 and nothing else.

    File names of this system are bytes; those that are no UTF-8 (or no ASCII, in a process without a locale) hold lone
    surrogates in Python, and Python alone opens them.

    Example:
        >>> is_utf8("model-α.npz"), is_utf8("model-\udcff.npz")
        (True, False)
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def encode(value: Any) -> Any:
    """Turn numbers, strings, arrays, mappings, sequences and subjects into JSON values.

    Raises:
        FileFormatError: for a value the format has no place for, or a number that is not finite.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        if not math.isfinite(value):
            raise FileFormatError("a certificate cannot hold NaN or infinite numbers")
        return float(value)
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value, dtype="<f8")
        if not np.isfinite(data).all():
            raise FileFormatError("a certificate cannot hold NaN or infinite entries")
        return {"array": base64.b64encode(data.tobytes()).decode("ascii"), "shape": list(value.shape)}
    if hasattr(type(value), "wire_name"):
        return {"type": type(value).wire_name, **{k: encode(v) for k, v in value.payload().items()}}
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [encode(v) for v in value]
    raise FileFormatError(f"a certificate cannot hold a {type(value).__name__}")


def _array(value: Mapping[str, Any]) -> np.ndarray:
    shape = value["shape"]
    good = isinstance(shape, list) and len(shape) <= 3 and all(type(s) is int and 0 <= s < 2**31 for s in shape)
    if not good or not isinstance(value["array"], str):
        raise FileFormatError(f"an array has the bad shape {str(shape)[:60]}")
    try:
        raw = base64.b64decode(value["array"], validate=True)
    except (binascii.Error, ValueError) as error:
        raise FileFormatError("an array is not valid base64") from error
    if len(raw) != 8 * math.prod(shape):
        raise FileFormatError(f"an array of shape {shape} needs {8 * math.prod(shape)} bytes, the file has {len(raw)}")
    if base64.b64encode(raw).decode("ascii") != value["array"]:
        raise FileFormatError("an array is not in the one base64 form of its bytes")
    out = np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(shape)
    if not np.isfinite(out).all():
        raise FileFormatError("an array holds NaN or infinite entries")
    out.setflags(write=False)
    return out


def decode(value: Any) -> Any:
    """Inverse of ``encode``.

    Raises:
        FileFormatError: for anything that ``encode`` does not write.
    """
    if isinstance(value, list):
        return tuple(decode(v) for v in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"array", "shape"}:
        return _array(value)
    if "type" in value:
        cls = SUBJECTS.get(value["type"]) if isinstance(value["type"], str) else None
        if cls is None:
            raise FileFormatError(f"unknown subject type {str(value['type'])[:60]!r}; known: {', '.join(SUBJECTS)}")
        try:
            made = cls.from_payload({k: decode(v) for k, v in value.items() if k != "type"})  # type: ignore[attr-defined]
            strange = _difference(value, encode(made))
            if strange is not None:
                raise FileFormatError(f"a subject of type {value['type']} is not as this format writes it: {strange}")
            return made
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise FileFormatError(f"a subject of type {value['type']} is incomplete: {error}") from error
        except FileFormatError:
            raise
        except StabilityError as error:
            raise FileFormatError(f"a subject of type {value['type']} is invalid: {error}") from error
    return {k: decode(v) for k, v in value.items()}


def _difference(given: Any, canonical: Any) -> str | None:
    """Where a JSON value differs from the one that ``encode`` writes for what was read from it, or ``None``.

    So nothing in a subject goes unread: no key that means nothing, no other spelling of an array, no ``true`` for one.
    """
    if isinstance(given, dict) and isinstance(canonical, dict):
        for key in (*given, *canonical):
            if key not in canonical or key not in given:
                return f"the key {str(key)[:60]!r} is {'unknown' if key not in canonical else 'missing'}"
            inner = _difference(given[key], canonical[key])
            if inner is not None:
                return inner if isinstance(given[key], dict) else f"{str(key)[:60]}: {inner}"
        return None
    if isinstance(given, list) and isinstance(canonical, list) and len(given) == len(canonical):
        return next((d for a, b in zip(given, canonical) if (d := _difference(a, b)) is not None), None)
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (given, canonical))
    if (numbers or type(given) is type(canonical)) and given == canonical:
        return None
    return f"{str(given)[:60]} stands for {str(canonical)[:60]}"


def digest_of(value: Any) -> str:
    """SHA-256 of what ``encode`` writes for a value, 64 hexadecimal digits: the identity of a subject.

    Raises:
        FileFormatError: for a value that the format has no place for.
    """
    return _hash(json.dumps(encode(value), ensure_ascii=False, allow_nan=False, sort_keys=True))


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal.

    Raises:
        FileFormatError: when it cannot be read.
    """
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error


def seal(document: Mapping[str, Any]) -> str:
    """The document as text whose ``digest`` is the SHA-256 of the text itself with that digest replaced by zeros.

    So every changed character is noticed, those in the last digit of a number that still reads as the same float too.

    Raises:
        ValueError: when the document holds NaN or infinities (``encode`` lets none through).
    """
    text = json.dumps({**document, "digest": BLANK}, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    return text.replace(f'"digest": "{BLANK}"', f'"digest": "{_hash(text)}"')


def is_sealed(text: str, document: Mapping[str, Any]) -> bool:
    """Whether a text is as ``seal`` left it."""
    claimed = document.get("digest")
    if not isinstance(claimed, str) or len(claimed) != len(BLANK) or text.count(f'"{claimed}"') != 1:
        return False
    return _hash(text.replace(f'"{claimed}"', f'"{BLANK}"')) == claimed


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def _no_constant(name: str) -> Any:
    raise FileFormatError(f"the file holds {name}, which is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping of a file; a key that stands twice is refused, since readers differ in which one they take."""
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))
        raise FileFormatError(f"the key {twice[:60]!r} stands twice in one mapping")
    return out


def _integer(text: str) -> int:
    if len(text) > DIGITS:
        raise FileFormatError(f"the file holds an integer of {len(text)} characters; at most {DIGITS} are read")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise FileFormatError(f"the file holds the number {text[:40]}, beyond the range of float64")
    return value


def _check_tree(document: Any, path: str | Path) -> None:
    """Refuse nesting beyond ``DEPTH`` and strings that are no text; no recursion."""
    level, depth = [document], 0
    while level:
        if depth > DEPTH:
            raise FileFormatError(f"{path} is nested more than {DEPTH} deep")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.keys()
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and not value.isascii():
                try:
                    value.encode("utf-8")
                except UnicodeEncodeError as error:
                    raise FileFormatError(f"{path} holds a string that is no Unicode text") from error
        level, depth = below, depth + 1


def parse_json(raw: bytes, path: str | Path, wrong: str = "not a JSON document") -> Any:
    """Read one JSON text strictly: what every reader of it reads the same.

    Args:
        raw: UTF-8.
        path: what errors call it.
        wrong: what errors call a text that is no JSON.

    Returns:
        The value.

    Raises:
        FileFormatError: no JSON, a key that stands twice, a number beyond float64, an integer of too many digits, too
            many values, or nesting beyond ``DEPTH``.
    """
    values = sum(raw.count(sign) for sign in (b",", b":", b"{", b"["))
    if values > DOCUMENT_VALUES:
        raise FileFormatError(f"{path} holds about {values} values; a document here has at most {DOCUMENT_VALUES}")
    try:
        document = json.loads(
            raw.decode("utf-8"),
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_float,
            object_pairs_hook=_unique,
        )
    except FileFormatError as error:
        raise error if str(path) in str(error) else FileFormatError(f"{path}: {error}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise FileFormatError(f"{path} is {wrong} ({str(error)[:200]})") from error
    _check_tree(document, path)
    return document


def read_document(path: str | Path) -> tuple[Any, str]:
    """Read one JSON document; returns it with its text.

    Keys that stand twice, numbers beyond float64, integers of too many digits and nesting beyond ``DEPTH`` are
    refused, so that every reader of the file reads the same.

    Raises:
        FileFormatError: missing, unreadable, no regular file, too large, or not such a document.
    """
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            raise FileFormatError(f"{path} is no regular file")
        if status.st_size > DOCUMENT_BYTES:
            raise FileFormatError(f"{path} has {status.st_size} bytes; a document here has at most {DOCUMENT_BYTES}")
        raw = Path(path).read_bytes()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error
    return parse_json(raw, path), raw.decode("utf-8")


def read_json(path: str | Path) -> Any:
    """Read one JSON document.

    Raises:
        FileFormatError: missing, unreadable, too large, or not JSON.
    """
    return read_document(path)[0]
