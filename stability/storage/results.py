"""One result, one file: a document with a digest, and the files that belong to it, in one piece of bytes.

The first line has the digest of the document, its length and that of the whole file; the document has size and digest
of each file behind it. What was cut off or changed is seen, whatever wrote it. Reading it runs no code: the document is
JSON, read strictly, the files are bytes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stability.errors import FileFormatError
from stability.storage.documents import parse_json

MAGIC = "stability-result 1"
FIRST = re.compile(rb"stability-result 1 ([0-9a-f]{64}) (\d{1,12}) (\d{1,15})\n")
LONGEST = 120
"""Bytes of the first line, at most."""
DIGITS = 40
"""Hexadecimal digits of a job's identity: 160 bits."""
DONE, FAILED = "done", "failed"


def identity(spec: Mapping[str, Any]) -> str:
    """The name of a job: SHA-256, cut to 160 bits, of all that determines its result, as canonical JSON.

    Args:
        spec: JSON values; the order of keys does not matter.

    Returns:
        40 hexadecimal digits.

    Raises:
        ValueError: a number that is not finite.

    Example:
        >>> identity({"kind": "nap", "options": {"a": 1, "b": 2.0}}) == identity({"options": {"b": 2.0, "a": 1}, "kind":
        ...     "nap"})
        True
    """
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


_IDENTITY = re.compile(r"[0-9a-f]{40}").fullmatch


def is_identity(text: str) -> bool:
    """Whether a text is the name of a job.

    Example:
        >>> is_identity("0" * 40), is_identity("results")
        (True, False)
    """
    return _IDENTITY(text) is not None


@dataclass(frozen=True)
class Result:
    """What came of a job.

    Attributes:
        job: its identity.
        spec: all that determines it.
        status: ``done`` or ``failed``.
        values: what it found, JSON values; equal wherever the job ran.
        error: of a failure: type and text.
        about: where, when and how long; no part of the result.
        members: files that belong to it, by name.
    """

    job: str
    spec: Mapping[str, Any]
    status: str
    values: Mapping[str, Any] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)
    members: Mapping[str, bytes] = field(default_factory=dict)

    def packed(self) -> bytes:
        """The file.

        Raises:
            ValueError: values that JSON has no place for.
        """
        document = {
            "job": self.job,
            "spec": dict(self.spec),
            "status": self.status,
            "values": dict(self.values),
            "error": None if self.error is None else dict(self.error),
            "about": dict(self.about),
            "members": [[name, len(raw), _digest(raw)] for name, raw in self.members.items()],
        }
        head = json.dumps(document, allow_nan=False).encode() + b"\n"
        whole = len(head) + sum(map(len, self.members.values()))
        first = f"{MAGIC} {_digest(head)} {len(head)} {whole}\n".encode()
        return b"".join([first, head, *self.members.values()])


def _digest(raw: bytes | memoryview) -> str:
    return hashlib.sha256(raw).hexdigest()


def unpacked(raw: bytes, name: str) -> Result:
    """Read one file, all of it checked.

    Args:
        raw: its content.
        name: what errors call it; its last part is the job's identity.

    Returns:
        The result.

    Raises:
        FileFormatError: torn, changed, or another job's.

    Example:
        >>> spec = {"kind": "nap", "options": {}}
        >>> made = Result(identity(spec), spec, "done", {"x": 0.1}, members={"a.txt": b"text"})
        >>> again = unpacked(made.packed(), f"results/{made.job}")
        >>> again == made, dict(again.members)
        (True, {'a.txt': b'text'})
    """
    found = FIRST.match(raw[:LONGEST])
    if found is None:
        raise FileFormatError(f"{name} is torn, or no result of this toolkit")
    digest, head, whole = found[1].decode(), int(found[2]), int(found[3])
    body = memoryview(raw)[found.end() :]
    if len(body) != whole or head > whole or _digest(body[:head]) != digest:
        raise FileFormatError(f"{name} is torn: it has {len(body)} bytes of {whole}, or others than were written")
    document = parse_json(bytes(body[:head]), name)
    try:
        result = _read(document, body[head:], name)
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{name} is not as a result is written ({error})") from error
    if result.job != name.rpartition("/")[2]:
        raise FileFormatError(f"{name} holds the result of another job")
    return result


def _read(document: Any, rest: memoryview, name: str) -> Result:
    members, at = {}, 0
    for key, size, digest in document["members"]:
        piece = rest[at : at + size]
        if len(piece) != size or _digest(piece) != digest:
            raise FileFormatError(f"{name} is torn: {str(key)[:60]!r} in it is not as it was written")
        members[str(key)] = bytes(piece)
        at += size
    if document["status"] not in (DONE, FAILED) or identity(document["spec"]) != document["job"]:
        raise FileFormatError(f"{name} is not as a result is written")
    values, error, about = document["values"], document["error"], document["about"]
    if not (isinstance(values, dict) and isinstance(about, dict) and isinstance(error, dict | None)):
        raise FileFormatError(f"{name} is not as a result is written")
    return Result(document["job"], document["spec"], document["status"], values, error, about, members)
