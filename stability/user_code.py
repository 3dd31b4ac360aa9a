"""User-supplied code: who is told when it runs, and its exceptions in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WATCHERS: list[Callable[[str], Any]] = []
"""Called with the name of what begins to run, and with ``""`` when it has ended."""


def names_code(name: str) -> bool:
    """Return True if a name has the form ``package.module:factory`` or ``FILE.py:factory``.

    Example:
        >>> [names_code(name) for name in ("nets:load", "../nets.py:load", "./nets:load", "nets.npz")]
        [True, True, False, False]
    """
    place = split_factory_name(name)[0]
    return bool(place) and (is_python_file(place) or not name.startswith((".", "/")))


def split_factory_name(name: str) -> tuple[str, str]:
    """A name at its last colon: folders may have colons in theirs.

    Example:
        >>> split_factory_name("a:b/nets.py:load")
        ('a:b/nets.py', 'load')
    """
    place, _, attribute = name.rpartition(":")
    return place, attribute


def is_python_file(place: str) -> bool:
    """Return True if the part before the colon names a Python file, in upper or lower case."""
    return place.lower().endswith(".py")


def error_text(error: BaseException) -> str:
    r"""Type and text of anything that was raised, in one line of bounded length; nothing in it can fail.

    Args:
        error: from code that is not ours, or a fault of ours.

    Returns:
        ``"KeyError: 'weights'"``; the text up to its first full stop, at most 160 characters of it.

    Example:
        >>> error_text(KeyError("weights")), in_words(ValueError("no.\nSecond line"))
        ("KeyError: 'weights'", 'ValueError: no.')
    """
    kind = type(error).__name__[:80]
    try:
        text = str(error)[:10_000]
    except BaseException:  # noqa: BLE001 - a text that raises
        return f"{kind} (whose text cannot be shown)"
    line = next((part.strip() for part in text.splitlines() if part.strip()), "")
    return f"{kind}: {line.split('. ')[0][:160]}" if line else kind


def raise_location(error: BaseException) -> str:
    """The file and line that raised it, the innermost ones.

    Args:
        error: as it was caught.

    Returns:
        ``"model.py:12"``, or nothing where it was never raised.
    """
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
