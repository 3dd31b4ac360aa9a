"""Printable names: invisible and terminal-control characters escaped, long names shortened; names of claims."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

from markupsafe import Markup, escape

SEGMENT = 24
"""Most characters of a name without a possible line break."""
_JOINERS = "\u200c\u200d"  # invisible, but parts of words and of emoji: not escaped
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of invisible characters: controls, formats, surrogates, line and paragraph separators."""
_SUSPECT = re.compile("[^\x20-\x7e\u00a1-\u00ac\u00ae-\u05ff\u3000-\ud7ff]")  # fast test before the exact one


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def _hidden(character: str) -> bool:
    if character in _JOINERS:
        return False
    return unicodedata.category(character) in _HIDDEN or ord(character) & 0xFFFE == 0xFFFE


def printable(text: Any, keep: str = "") -> str:
    r"""Escape every invisible character of a text (controls, direction marks, lone surrogates).

    Args:
        text: any value; it is converted to text first.
        keep: characters that are not escaped.

    Returns:
        Text that is valid in UTF-8 and XML, and that cannot control a terminal or the direction of the following text.

    Example:
        >>> print(printable("a\x1b[31mb\n\u202ec"), printable("\udcff"), printable("模型 α"))
        a\x1b[31mb\x0a\u202ec \udcff 模型 α
    """
    return _SUSPECT.sub(lambda m: _escaped(m[0]) if m[0] not in keep and _hidden(m[0]) else m[0], str(text))


def terminal_safe(text: str) -> str:
    r"""Make a text of several lines printable; line breaks and tabs stay.

    Example:
        >>> print(terminal_safe("one\ntwo\x1b]0;title\x07"))
        one
        two\x1b]0;title\x07
    """
    return printable(text, keep="\n\t")


def clean(value: Any) -> Any:
    r"""Make every text in JSON values printable (names of fields, too); line breaks stay.

    Example:
        >>> clean({"a\x00": ["b\x1b", 1]})
        {'a\\x00': ['b\\x1b', 1]}
    """
    if isinstance(value, str):
        return terminal_safe(value)
    if isinstance(value, Mapping):
        return {terminal_safe(str(k)): clean(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(v) for v in value]
    return value


def breakable(text: str) -> Markup:
    """Return a name as HTML with possible line breaks after separators of words and every ``SEGMENT`` characters.

    Example:
        >>> breakable("nets:my_lstm<1>"), breakable("x" * 25)[20:]
        (Markup('nets:<wbr>my_<wbr>lstm&lt;1&gt;'), Markup('xxxx<wbr>x'))
    """
    parts = re.findall(rf"[^\s_./:,=-]{{0,{SEGMENT - 1}}}[\s\S]", str(text))
    return Markup("").join(
        escape(p) + Markup("" if k == len(parts) - 1 or p[-1].isspace() else "<wbr>") for k, p in enumerate(parts)
    )


def columns(text: str) -> int:
    r"""Return the width of a text on a terminal: East Asian letters count twice, combining marks not at all.

    Example:
        >>> columns("abc"), columns("模型"), columns("e\u0301")
        (3, 4, 1)
    """
    return sum(
        0 if unicodedata.combining(c) or c in _JOINERS else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut(text: str, letters: int) -> str:
    """Shorten a text to a number of characters by leaving out its middle.

    Example:
        >>> cut("a message of a file", 10)
        'a mess…ile'
    """
    if len(text) <= letters:
        return text
    tail = letters // 3
    return f"{text[: letters - tail - 1]}…{text[len(text) - tail :]}"


def shorten(text: str, room: int) -> str:
    """Shorten a text to a number of terminal columns by leaving out its middle.

    Args:
        text: a printable text.
        room: number of columns, at least 3.

    Returns:
        The text itself if it fits, else its beginning, an ellipsis and its end.

    Example:
        >>> shorten("runs-of-the-second-week-17", 12), shorten("short", 12)
        ('runs-o…ek-17', 'short')
    """
    if columns(text) <= room:
        return text
    head, tail = "", ""
    front, back = iter(text), iter(reversed(text))
    for turn in range(len(text)):
        side = next(front) if turn % 2 == 0 else next(back)
        if columns(head) + columns(tail) + columns(side) > room - 1:
            break
        head, tail = (head + side, tail) if turn % 2 == 0 else (head, side + tail)
    return f"{head}…{tail}"


def claim_name(name: str, claims: Collection[str]) -> str:
    """Return a claim's name in words; two contraction claims in one certificate are told apart by their inputs.

    Args:
        name: name of the claim.
        claims: names of all claims of the certificate.

    Example:
        >>> claim_name("equilibrium_in_box", ()), claim_name("contraction", {"bounded"})
        ('equilibrium in box', 'contraction')
        >>> claim_name("contraction", {"driven_contraction"}), claim_name("driven_contraction", ())
        ('contraction under every input', 'contraction under inputs in a box')
    """
    if name == "driven_contraction":
        return "contraction under inputs in a box"
    if name == "contraction" and "driven_contraction" in claims:
        return "contraction under every input"
    return name.replace("_", " ")


_ONE = re.compile(r"entries in \[(\S+), \1\]")


def single_value(sentence: Any) -> str:
    """Replace ranges with equal ends by one value in a certificate's sentence, for display.

    The certificate keeps its sentence, which the checker compares literally.

    Example:
        >>> single_value("under the constant input of the proof (entries in [0.5, 0.5])")
        'under the constant input of the proof (entries 0.5)'
    """
    return _ONE.sub(r"entries \1", str(sentence))
