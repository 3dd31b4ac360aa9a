"""What the documents of a run look like: one of another shape is refused as a whole.

Everything behind this file may rely on the types written here, so that a page is drawn from whatever lies in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stability.errors import FileFormatError
from stability.storage.documents import read_json

from ..names import clean

__all__ = ["SHAPES", "misfit", "read_shaped"]


@dataclass(frozen=True)
class _Each:
    """A mapping or a list whose values are all of one shape; names of a mapping are free."""

    kind: type
    shape: Any


_TEXT, _FLAG, _NUMBER, _ANY = "a text", "true or false", "a number", "anything"
_SECONDS = "seconds"
_MAP = _Each(dict, _ANY)
_ENVIRONMENT = {"versions": _MAP}
_STEP = {"status": _TEXT, "reason": _TEXT, "seconds": _SECONDS}
_CLASS = {"name": _ANY, "accuracy": _NUMBER, "sequences": _NUMBER, "taken_for": _ANY}
_WITNESS = {"input_in_data_range": _FLAG, "states_reachable": _FLAG}
SHAPES: dict[str, Mapping[str, Any]] = {
    "report-settings": {
        "title": _TEXT, "models": _Each(list, _TEXT), "seconds": _SECONDS, "processes": _NUMBER,
        "environment": _ENVIRONMENT,
    },
    "analysis": {
        "title": _TEXT, "source": _TEXT, "discrete": _FLAG, "parameters": _NUMBER, "sequence_length": _NUMBER,
        "input_box": _Each(list, _ANY), "steps": _Each(dict, _STEP), "environment": _ENVIRONMENT,
        "files": _Each(dict, _TEXT), "budget": _MAP, "input_range": _Each(list, _ANY), "input_seen": _Each(list, _ANY),
        "input_of": _TEXT, "input_from": _TEXT,
        "task": {"name": _TEXT, "data": _MAP, **dict.fromkeys(("test", "train", "steps", "input_size"), _NUMBER)},
    },
    "run": {
        "model": {"layer": _TEXT, "config": _MAP}, "task": {"name": _TEXT, "options": _MAP, "data": _MAP},
        "training": _MAP, "environment": _ENVIRONMENT,
        "result": {
            "metric": _TEXT, "epochs": _NUMBER, "seconds": _SECONDS,
            **dict.fromkeys(("train_metric", "test_metric", "chance", "train_loss", "test_loss"), _NUMBER),
        },
    },
    "drift": {
        **dict.fromkeys(("trained_length", "slope", "drift_index", "start", "end"), _NUMBER),
        "sources": _Each(dict, _TEXT),
    },
    "exponents": dict.fromkeys(("largest", "bound", "steps", "kaplan_yorke"), _NUMBER),
    "hessian": {
        **dict.fromkeys(("lambda_max", "lambda_max_residual", "lambda_min", "lambda_min_residual", "trace"), _NUMBER),
        **dict.fromkeys(("trace_half_width", "condition_number", "gradient_norm", "n_parameters", "loss"), _NUMBER),
    },
    "performance": {
        **dict.fromkeys(("value", "chance", "sequences"), _NUMBER), "metric": _TEXT, "by_class": _Each(list, _CLASS),
    },
    "radius": dict.fromkeys(("gain", "median", "largest", "clean_accuracy", "samples"), _NUMBER),
    "meta": {
        "cut": _Each(list, _TEXT), "witness": _WITNESS, "asked_rate": _NUMBER, "asked_rate_reached": _FLAG,
        "part": _TEXT,
    },
}  # fmt: skip
"""Fields that the page reads, by document; others are handed through, and any may be missing or null."""


def misfit(value: Any, shape: Any) -> str | None:
    """Where a JSON value is of another shape, in words; ``None`` where it fits.

    Example:
        >>> misfit({"seconds": "x"}, {"seconds": "a number"}), misfit({"steps": {}}, {"steps": "anything"})
        ("seconds is 'x', not a number", None)
    """
    if value is None or shape == _ANY:
        return None
    if isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            return f"is {str(value)[:40]!r}, not a mapping"
        return _first((name, misfit(value.get(name), inner)) for name, inner in shape.items())
    if isinstance(shape, _Each):
        if not isinstance(value, shape.kind):
            return f"is {str(value)[:40]!r}, not a {'list' if shape.kind is list else 'mapping'}"
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        return _first((name, misfit(inner, shape.shape)) for name, inner in items)
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    fits = {
        _TEXT: isinstance(value, str),
        _FLAG: isinstance(value, bool),
        _NUMBER: real,
        _SECONDS: real and 0 <= value < 1e12,
    }
    return None if fits[shape] else f"is {str(value)[:40]!r}, not {shape}"


def _first(found: Any) -> str | None:
    name, words = next(((n, w) for n, w in found if w is not None), ("", None))
    return None if words is None else f"{str(name)[:40]}{' ' if words.startswith('is ') else '.'}{words}"


def read_shaped(path: Path) -> dict[str, Any]:
    """A JSON document of a run, every text in it printable.

    Raises:
        FileFormatError: unreadable, no mapping, or a field that the page reads is of another type.
    """
    value = read_json(path)
    words = misfit(value, SHAPES.get(path.stem, {})) if isinstance(value, dict) else "does not hold a JSON object"
    if words is not None:
        raise FileFormatError(f"{path}: {words}" if isinstance(value, dict) else f"{path} {words}")
    if path.stem == "analysis":  # a step says at least how it ended
        value["steps"] = {k: {"status": "", "reason": "", **s} for k, s in (value.get("steps") or {}).items() if s}
    return {k: v for k, v in clean(value).items() if v is not None}
