"""Standard input, output and error of a process that was started without them, or with ones that take nothing."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from stability.storage import writing


def occupied() -> None:
    """Open what was closed before this process began, to nowhere.

    The next file that is opened would get its number, and with it what libraries print. To write to a stream that was
    closed by name (``/dev/stdout``) stays an error.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            with contextlib.suppress(OSError):
                if os.open(os.devnull, os.O_RDWR) == number:
                    os.set_inheritable(number, True)
                    writing.CLOSED.add(number)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                setattr(sys, name, open(os.devnull, mode, encoding="utf-8", errors="replace"))  # noqa: SIM115 - for good


def emptied(stream: TextIO | None) -> OSError | None:
    """Write out what a stream still holds; what does not take it, is left: the interpreter would try again at its end.

    Args:
        stream: standard output or error.

    Returns:
        Why it was not taken; ``None`` where it was.
    """
    if stream is None:
        return None
    try:
        stream.flush()
    except ValueError:  # closed
        return None
    except OSError as error:
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
        return error
    return None
