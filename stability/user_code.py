"""Names and exceptions of user-supplied code: ``package.module:factory`` and ``FILE.py:factory``."""

from __future__ import annotations

import os
import traceback


def names_code(name: str) -> bool:
    """Return True for a name of the form ``package.module:factory`` or ``FILE.py:factory``.

    Example:
        >>> [names_code(name) for name in ("nets:load", "../nets.py:load", "./nets:load", "nets.npz")]
        [True, True, False, False]
    """
    place = split_factory_name(name)[0]
    return bool(place) and (is_python_file(place) or not name.startswith((".", "/")))


def split_factory_name(name: str) -> tuple[str, str]:
    """Split a name at its last colon, since folders may have colons in their names.

    Example:
        >>> split_factory_name("a:b/nets.py:load")
        ('a:b/nets.py', 'load')
    """
    place, _, attribute = name.rpartition(":")
    return place, attribute


def is_python_file(place: str) -> bool:
    """Return True if the part before the colon is the path of a Python file."""
    return place.lower().endswith(".py")


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
