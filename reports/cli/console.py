"""Printing, interruption and assignments, shared by all commands."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
from collections.abc import Collection, Mapping
from typing import Any

import typer

from stability.errors import ConfigurationError, FileFormatError

from ..formatting import duration
from ..jsonable import jsonable
from ..names import printable, shorten, terminal_safe
from .colours import are_shown, tinted

ASKED = sys.argv[1:]
"""Arguments behind ``stability``, for files that say which command made them."""
PRINTED = False
"""True once the command has printed JSON: an error after it is told on standard error alone, one object is promised."""


class Interrupted(Exception):
    """The user stopped a long job; the text says what was kept and how to go on."""


def say(text: str, quiet: bool = False) -> None:
    """Print a result on standard output; nothing in it steers the terminal."""
    if not quiet:
        safe = terminal_safe(text)
        _put(tinted(safe) if are_shown(sys.stdout) else safe)


def show_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output.

    Numbers that are not finite become null; characters that are not seen are escaped, as JSON does it.
    """
    global PRINTED
    text = json.dumps(jsonable(value), indent=1, allow_nan=False, ensure_ascii=False)
    PRINTED = True
    _put("\n".join(_escaped(line) for line in text.split("\n")))


def show_json_line(value: Mapping[str, Any]) -> None:
    """Print one JSON object on one line of standard output, as ``show_json`` has it."""
    global PRINTED
    PRINTED = True
    _put(_escaped(json.dumps(jsonable(value), allow_nan=False, ensure_ascii=False)))


def _put(text: str) -> None:
    """On standard output, all of it.

    Raises:
        FileFormatError: it is full, or nobody reads it any more.
    """
    try:
        typer.echo(text)  # flushes
    except OSError as error:
        raise FileFormatError(f"cannot write the result to standard output: {error.strerror or error}") from error


def _escaped(line: str) -> str:
    """JSON text in which every character that ``printable`` would not show is written as JSON's own escape."""
    if printable(line) == line:
        return line
    return "".join(json.dumps(c)[1:-1] if printable(c) != c else c for c in line)


def status(text: str, quiet: bool = False) -> None:
    """Show progress on standard error, in place, where it is a terminal."""
    if not quiet and sys.stderr is not None and sys.stderr.isatty():
        room = max(20, shutil.get_terminal_size((100, 24)).columns - 1)
        sys.stderr.write(f"\r\x1b[2K{shorten(printable(text), room)}")
        sys.stderr.flush()


def logged(text: str, quiet: bool = False) -> None:
    """Print a line of progress on standard error unless it is a terminal, where ``status`` is shown."""
    if not quiet and sys.stderr is not None and not sys.stderr.isatty():
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(f"{printable(text)}\n")
            sys.stderr.flush()


def time_left(done: int, count: int, seconds: float) -> str:
    """Return the expected remaining time in words; empty before the first result and after the last.

    Args:
        done: parts that are done.
        count: all of them.
        seconds: that those took.

    Example:
        >>> time_left(1, 4, 20.0), time_left(0, 4, 20.0)
        (', about 60 s left', '')
    """
    if not 0 < done < count:
        return ""
    return f", about {duration(seconds / done * (count - done))} left"


def assignments(name: str, values: list[str], *, texts: Collection[str] = ()) -> dict[str, Any]:
    """Return ``name=value`` texts as a dictionary; values are JSON or numbers as Python writes them, else text.

    Args:
        name: the option that they were given with, for the message.
        values: the assignments.
        texts: names whose values are text even where they look like a number.

    Returns:
        Names with their values.

    Raises:
        ConfigurationError: for anything that is no ``name=value``, and for a name that comes twice.

    Example:
        >>> assignments("--set", ["beta=.75", "integrator=midpoint"])
        {'beta': 0.75, 'integrator': 'midpoint'}
    """
    out: dict[str, Any] = {}
    for item in values:
        key, equals, text = item.partition("=")
        if not equals or not key.isidentifier():
            raise ConfigurationError(f"{name} needs NAME=VALUE, got {item!r}")
        if key in out:
            raise ConfigurationError(f"{name} sets {key} twice: leave one of them out")
        out[key] = text
        for read in () if key in texts else (json.loads, int, float):
            with contextlib.suppress(ValueError):
                out[key] = read(text)
                break
    return out
