"""Verdicts in colour, on a terminal that shows any."""

from __future__ import annotations

import os
import re
from typing import TextIO

from ..formatting import WORDS

GREEN, RED, YELLOW = "32", "31", "33"
_COLOURS = {"certified": GREEN, "refuted": RED, "inconclusive": YELLOW, "invalid": RED}
_TINTS = {
    word: color
    for state, color in _COLOURS.items()
    for word in (WORDS[state].lower(), WORDS[state], WORDS[state].upper())
} | {
    "INVALID": RED,
    "invalid": RED,
    "valid": GREEN,
    "error": RED,
}
_TINTED = "|".join(sorted(map(re.escape, _TINTS), key=len, reverse=True))
_AT_THE_END = re.compile(rf"(: )({_TINTED})(?= \(|,|$)", re.M)
_AFTER_A_SIGN = re.compile(rf"^([✓✗] )({_TINTED})\b", re.M)


def are_shown(stream: TextIO | None) -> bool:
    """Return True if a stream takes colors: a terminal that is not dumb, and no NO_COLOR (https://no-color.org).

    Example:
        >>> import io
        >>> are_shown(io.StringIO())
        False
    """
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def tinted(text: str) -> str:
    """Color the verdict words of a result: after the name of a model, or after the sign of a line.

    Example:
        >>> tinted("net.pt: PROVEN NOT STABLE").replace(chr(27), "ESC")
        'net.pt: ESC[1;31mPROVEN NOT STABLEESC[0m'
        >>> tinted("  claim: the certified rate")
        '  claim: the certified rate'
    """
    for pattern in (_AT_THE_END, _AFTER_A_SIGN):
        text = pattern.sub(lambda m: f"{m[1]}\x1b[1;{_TINTS[m[2]]}m{m[2]}\x1b[0m", text)
    return text
