"""What is other than in the report that stood in the folder before this one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stability.errors import FileFormatError
from stability.storage.documents import read_json

from ..formatting import metric, rate, verdict_word
from ..jsonable import jsonable
from ..names import clean, cut, printable
from ..stored.limits import LETTERS
from .layout import Table, tabulate, text

PREVIOUS, CURRENT = "report-previous.json", "report.json"
"""The last report of the folder that said something else, in a few values a model; and this one."""
FORMAT = "stability-previous"


def essence(document: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a ``report.json`` that are compared: what was found of each model, and when.

    Args:
        document: the report as JSON values.
    """
    settings = document.get("settings")
    models = document.get("models")
    return {
        "format": FORMAT,
        "finished": settings.get("finished") if isinstance(settings, Mapping) else None,
        "models": {
            str(m.get("name")): _values(m)
            for m in (models if isinstance(models, list) else ())
            if isinstance(m, Mapping)
        },
    }


def _values(model: Mapping[str, Any]) -> dict[str, Any]:
    def part(name: str) -> Mapping[str, Any]:
        found = model.get(name)
        return found if isinstance(found, Mapping) else {}

    result, files = part("run").get("result"), part("analysis").get("files")
    result, files = (found if isinstance(found, Mapping) else {} for found in (result, files))
    return {
        "title": model.get("title"),
        "state": model.get("state"),
        "rate": part("certificate").get("rate"),
        "discrete": part("analysis").get("discrete", True),
        "metric": result.get("metric"),
        "value": result.get("test_metric"),
        "weights": files.get("model.safetensors"),
    }


def earlier(folder: Path, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the report before this one said, in a few values a model.

    Where the folder's ``report.json`` says something else than this one it is the one before; where it says the same,
    this is the same report drawn again, and the one before is the one that was noted then.

    Args:
        folder: of the report.
        document: what its ``report.json`` will be.

    Returns:
        As ``essence`` gives it; ``None`` where there is none.
    """
    now = _plain(essence(document))
    for name in (CURRENT, PREVIOUS):
        try:
            found = read_json(folder / name) if (folder / name).is_file() else None
        except FileFormatError:
            found = None
        if not isinstance(found, dict):
            continue
        known = _plain(essence(found)) if name == CURRENT else found
        if known.get("format") == FORMAT and isinstance(known.get("models"), dict) and known["models"] != now["models"]:
            return known
    return None


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(jsonable(value)))


def changes(document: Mapping[str, Any], before: Mapping[str, Any] | None) -> tuple[Table, ...]:
    """A row for everything that is other than before.

    Args:
        document: this report as JSON values.
        before: what ``earlier`` found.
    """
    if before is None:
        return ()
    now, then = _plain(essence(document))["models"], clean(before["models"])
    rows: list[tuple[str, str, str, str]] = []
    for name in dict.fromkeys([*now, *then]):
        new, old = now.get(name), then.get(name)
        title = cut(printable((new or old or {}).get("title") or name), LETTERS)
        if not isinstance(new, dict) or not isinstance(old, dict):
            rows.append((title, "model", _there(old), _there(new)))
            continue
        rows += [(title, what, show(old), show(new)) for what, keys, show in _SHOWN if _of(old, keys) != _of(new, keys)]
    when = cut(printable(before.get("finished") or "an unknown time"), LETTERS)
    header = ("model", "what", "before", "now")
    columns = [text(title, lambda row, k=k: row[k]) for k, title in enumerate(header)]
    return tabulate(f"What changed since the report of {when}", columns, rows)


def _there(model: Any) -> str:
    return "not in the report" if model is None else "in the report"


def _of(model: Mapping[str, Any], keys: tuple[str, ...]) -> list[Any]:
    return [model.get(k) for k in keys]


def _value(model: Mapping[str, Any]) -> str:
    value = model.get("value")
    return metric(value if isinstance(value, (int, float)) else None, str(model.get("metric")))


def _rate(model: Mapping[str, Any]) -> str:
    value = model.get("rate")
    return rate(value if isinstance(value, (int, float)) else None, bool(model.get("discrete", True)))


_SHOWN = (
    ("verdict", ("state",), lambda m: verdict_word(m.get("state"))),
    ("certified rate", ("rate",), _rate),
    ("on held-out data", ("value", "metric"), _value),
    ("weights, SHA-256", ("weights",), lambda m: str(m.get("weights") or "not recorded")),
)
