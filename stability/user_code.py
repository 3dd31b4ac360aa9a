"""Names, exceptions and permissions of user-supplied code (``package.module:factory`` or ``FILE.py:factory``)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import traceback
from pathlib import Path

ALLOW = "STABILITY_RUN_CODE"
"""Environment variable; its value 1 permits all code that a file names."""
_NAMED: set[Path] = set()
"""Paths of ``_record_path`` for the code that was named in this process."""


def names_code(name: str) -> bool:
    """Return True for a name of the form ``package.module:factory`` or ``FILE.py:factory``.

    Example:
        >>> [names_code(name) for name in ("nets:load", "../nets.py:load", "./nets:load", "nets.npz")]
        [True, True, False, False]
    """
    source = split_factory_name(name)[0]
    return bool(source) and (is_python_file(source) or not name.startswith((".", "/")))


def split_factory_name(name: str) -> tuple[str, str]:
    """Split a name at its last colon, since folders may have colons in their names.

    Example:
        >>> split_factory_name("a:b/nets.py:load")
        ('a:b/nets.py', 'load')
    """
    source, _, attribute = name.rpartition(":")
    return source, attribute


def is_python_file(source: str) -> bool:
    """Return True if the part before the colon is the path of a Python file."""
    return source.lower().endswith(".py")


def error_text(error: BaseException) -> str:
    r"""Return type and text of an exception in one line.

    Args:
        error: any exception.

    Returns:
        ``"KeyError: 'weights'"``; the first line of the text, at most 160 characters.

    Example:
        >>> error_text(KeyError("weights")), error_text(ValueError("no.\nSecond line"))
        ("KeyError: 'weights'", 'ValueError: no.')
    """
    line = next((part.strip() for part in str(error).splitlines() if part.strip()), "")
    return f"{type(error).__name__}: {line.split('. ')[0][:160]}".removesuffix(": ")


def raise_location(error: BaseException) -> str:
    """Return file and line where an exception was raised, in the innermost frame outside of installed libraries.

    Args:
        error: an exception that was caught.

    Returns:
        ``"model.py:12"``; empty if it has no such frame.
    """
    libraries = ("<", os.path.dirname(os.__file__))
    frames = [
        f"{frame.filename}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(libraries) and "-packages" not in frame.filename
    ]
    return frames[-1] if frames else ""


def may_run(name: str) -> bool:
    """Return True if code that a file names may run: this user named it before, with the same path and content.

    A folder from another person may contain code beside its runs. Such code runs only if the environment variable
    ``STABILITY_RUN_CODE`` is 1.

    Args:
        name: as for ``from_factory``; the code must lie in or below the working directory.
    """
    record = _record_path(name)
    return os.environ.get(ALLOW) == "1" or (record is not None and (record in _NAMED or record.is_file()))


def remember_code(name: str) -> None:
    """Record in ``$XDG_STATE_HOME/stability`` that this user runs code, by the path and the content of its file."""
    if (record := _record_path(name)) is not None:
        _NAMED.add(record)
        with contextlib.suppress(OSError):  # if the file cannot be written, the record lasts for this process
            record.parent.mkdir(parents=True, exist_ok=True)
            record.touch()


def _record_path(name: str) -> Path | None:
    """Return the path of the record of code in or below the working directory; ``None`` for code elsewhere."""
    source = split_factory_name(name)[0]
    stem = Path(os.path.abspath(source if is_python_file(source) else source.replace(".", "/")))
    file = next((p for p in (stem, stem / "__init__.py", stem.with_suffix(".py")) if p.is_file()), None)
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    if file is None or not file.is_relative_to(os.getcwd()) or not os.path.isabs(state):
        return None
    digest = hashlib.sha256(os.fsencode(file) + b"\0" + file.read_bytes()).hexdigest()
    return Path(state, "stability", "code", digest)
