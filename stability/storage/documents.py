"""Strict reading of JSON documents, and digests of files."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

from stability.errors import FileFormatError
from stability.storage.limits import DEPTH, DIGITS, DOCUMENT_BYTES, DOCUMENT_VALUES


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal.

    Raises:
        FileFormatError: when it cannot be read.
    """
    try:
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise FileFormatError(f"cannot read {path}: {error.strerror or error}") from error


def _no_constant(name: str) -> Any:
    raise FileFormatError(f"the file holds {name}, which is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a mapping of a file; raise an error for repeated keys, which readers treat differently."""
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        twice = next(k for k, _ in pairs if k in seen or seen.add(k))
        raise FileFormatError(f"the key {twice[:60]!r} stands twice in one mapping")
    return out


def _integer(text: str) -> int:
    if len(text) > DIGITS:
        raise FileFormatError(f"the file holds an integer of {len(text)} characters; the limit is {DIGITS}")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise FileFormatError(f"the file holds the number {text[:40]}, beyond the range of float64")
    return value


def _check_tree(document: Any, path: str | Path) -> None:
    """Raise an error for nesting beyond ``DEPTH`` and strings that are no text, without recursion."""
    level, depth = [document], 0
    while level:
        if depth > DEPTH:
            raise FileFormatError(f"{path} is nested more than {DEPTH} deep")
        children: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                children += value.keys()
                children += value.values()
            elif isinstance(value, list):
                children += value
            elif isinstance(value, str) and not value.isascii():
                try:
                    value.encode("utf-8")
                except UnicodeEncodeError as error:
                    raise FileFormatError(f"{path} holds a string that is no Unicode text") from error
        level, depth = children, depth + 1


def parse_json(raw: bytes, path: str | Path, wrong: str = "not a JSON document") -> Any:
    """Parse one JSON text strictly, so that every reader sees the same content.

    Args:
        raw: UTF-8.
        path: path in error messages.
        wrong: message for a text that is no JSON.

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
    """Read one JSON document; return it with its text.

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
