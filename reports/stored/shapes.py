"""Shapes of the JSON documents of a run; a document of another shape is refused as a whole.

Code that reads the documents may rely on these types, so that a damaged folder cannot break the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stability.errors import FileFormatError
from stability.storage.artifacts import ANY, ARTIFACTS, FLAG, NUMBER, SECONDS, TEXT, ValuesOf, artifact
from stability.storage.documents import read_json

from ..names import clean

SHAPES: dict[str, Mapping[str, Any]] = {
    "report-settings": {
        "title": TEXT, "models": ValuesOf(list, TEXT), "seconds": SECONDS, "processes": NUMBER,
        "environment": artifact("analysis.json").fields["environment"],
        "trainings": {"runs": ValuesOf(dict, ValuesOf(list, TEXT)), "digests": ValuesOf(dict, TEXT)},
    },
    **{a.stem: a.fields for a in ARTIFACTS if a.fields},
    "meta": {
        "cut": ValuesOf(list, TEXT), "witness": {"input_in_data_range": FLAG, "states_reachable": FLAG},
        "model": TEXT, "asked_rate": NUMBER, "asked_rate_reached": FLAG, "part": TEXT,
        "like_data": {"low": ValuesOf(list, NUMBER), "high": ValuesOf(list, NUMBER), "margin": NUMBER, "why": TEXT,
                      "stated": FLAG, "inside": FLAG},
        "as_it_runs": TEXT, "decisions": {"margin": NUMBER, "share": NUMBER},
        "rounding": {"largest": NUMBER, "relative": NUMBER, "size": NUMBER, "steps": NUMBER, "sequences": NUMBER,
                     "dtype": TEXT},
    },
}  # fmt: skip
"""Fields that the page reads, by document. Other fields are not checked, and every field may be missing or null."""


def misfit(value: Any, shape: Any) -> str | None:
    """Describe where a JSON value has another shape; ``None`` if it fits.

    Example:
        >>> misfit({"seconds": "x"}, {"seconds": "a number"}), misfit({"steps": {}}, {"steps": "anything"})
        ("seconds is 'x', not a number", None)
    """
    if value is None or shape == ANY:
        return None
    if isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            return f"is {str(value)[:40]!r}, not a mapping"
        return _first((name, misfit(value.get(name), inner)) for name, inner in shape.items())
    if isinstance(shape, ValuesOf):
        if not isinstance(value, shape.kind):
            return f"is {str(value)[:40]!r}, not a {'list' if shape.kind is list else 'mapping'}"
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        return _first((name, misfit(inner, shape.shape)) for name, inner in items)
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {
        TEXT: isinstance(value, str),
        FLAG: isinstance(value, bool),
        NUMBER: real,
        SECONDS: real and 0 <= value < 1e12,
    }
    return None if fits[shape] else f"is {str(value)[:40]!r}, not {shape}"


def _first(problems: Any) -> str | None:
    name, words = next(((n, w) for n, w in problems if w is not None), ("", None))
    return None if words is None else f"{str(name)[:40]}{' ' if words.startswith('is ') else '.'}{words}"


def read_shaped(path: Path) -> dict[str, Any]:
    """Read a JSON document of a run, every text in it printable.

    Raises:
        FileFormatError: unreadable, no mapping, or a field that the page reads is of another type.
    """
    value = read_json(path)
    words = misfit(value, SHAPES.get(path.stem, {})) if isinstance(value, dict) else "does not hold a JSON object"
    if words is not None:
        raise FileFormatError(f"{path}: {words}" if isinstance(value, dict) else f"{path} {words}")
    if path.stem == "analysis":  # every step must have a status
        value["steps"] = {k: {"status": "", "reason": "", **s} for k, s in (value.get("steps") or {}).items() if s}
    return {k: v for k, v in clean(value).items() if v is not None}
