"""Input boxes of claims, in words and as a command-line option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .formatting import number

SHOWN = 4
"""Most features whose intervals are listed in a sentence; with more, one interval that contains all is given."""
Ends = tuple[list[float], list[float]]


def box_limits(value: Any) -> Ends | None:
    """Return low and high ends from a file, one for each feature (or one for all); ``None`` for anything else.

    Example:
        >>> box_limits([0, [1, 2]]), box_limits([0]), box_limits([0, "1"])
        (([0.0, 0.0], [1.0, 2.0]), None, None)
    """
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        return None
    lists = [list(end) if isinstance(end, (list, tuple)) else [end] for end in value]
    size = max(map(len, lists))
    lists = [end * size if len(end) == 1 else end for end in lists]
    if size == 0 or any(len(end) != size or not all(map(_is_number, end)) for end in lists):
        return None
    low, high = ([float(v) for v in end] for end in lists)
    return low, high


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def interval(value: Any) -> str:
    """Return a range in words; empty for anything else.

    Example:
        >>> interval([0, 1]), interval([[0, 0], [1, 2]]), interval([[0.0] * 9, [1.0] * 8 + [3.0]])
        ('[0, 1]', '[0, 1] × [0, 2]', 'an interval for each of 9 features, together [0, 3]')
    """
    limits = box_limits(value)
    if limits is None:
        return ""
    pairs = list(zip(*limits))
    if len(set(pairs)) == 1:
        pairs = pairs[:1]
    if len(pairs) > SHOWN:
        whole = f"[{number(min(limits[0]))}, {number(max(limits[1]))}]"
        return f"an interval for each of {len(pairs)} features, together {whole}"
    return " × ".join(f"[{number(low)}, {number(high)}]" for low, high in pairs)


def box_note(analysis: Mapping[str, Any]) -> str:
    """Return the range of inputs that claims about a model cover, and its origin; empty for every input.

    Args:
        analysis: ``analysis.json``.

    Example:
        >>> box_note({"input_box": [0, 1]}), box_note({"input_box": [-2, 2], "input_of": "rnn"})[:25]
        ('Inputs in [0, 1], the range of the data.', 'Inputs of rnn in [−2, 2],')
        >>> box_note({"input_box": [0, 1], "input_from": "stated", "input_seen": [-3, 3]})
        'Inputs in [0, 1], as stated with --input-box; on the data they lie in [−3, 3] and leave it.'
    """
    box, part, origin = interval(analysis.get("input_box")), str(analysis.get("input_of") or ""), "data"
    if not box:
        return ""
    source = "the range of what it gets on the data" if part else "the range of the data"
    origin = analysis.get("input_from")
    if origin == "bounds":
        source = "the bounds stated with the data"
    elif origin == "stated":
        source = "as stated with --input-box"
        claimed, observed = box_limits(analysis.get("input_box")), box_limits(analysis.get("input_seen"))
        if claimed and observed and (min(observed[0]) < max(claimed[0]) or max(observed[1]) > min(claimed[1])):
            source += f"; on the data they lie in {interval(analysis['input_seen'])} and leave it"
    return f"Inputs{f' of {part}' if part else ''} in {box}, {source}."


def box_option(analysis: Mapping[str, Any]) -> str:
    """Return the input box of a model as a command-line option, wide enough for every feature; empty without a box.

    Example:
        >>> box_option({"input_box": [[0, -0.1], [1, 2]]}), box_option({})
        ('--input-box -0.1 2', '')
    """
    limits = box_limits(analysis.get("input_box"))
    if limits is None:
        return ""
    return "--input-box " + " ".join(repr(v).removesuffix(".0") for v in (min(limits[0]), max(limits[1])))


def in_box(verdict: Mapping[str, Any]) -> str:
    """Return the range of inputs of the second verdict in a few words.

    Example:
        >>> in_box({}), in_box({"stated": True})
        ('for inputs like the data', 'for inputs in the stated box')
    """
    return "for inputs in the stated box" if verdict.get("stated") else "for inputs like the data"
