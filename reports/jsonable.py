"""Conversion of values to JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stability.storage.writing import write_text


def jsonable(value: Any) -> Any:
    """Convert to JSON values: numbers that are not finite become ``None``, paths become text.

    Example:
        >>> jsonable({"a": (1.0, float("nan"))})
        {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(k): jsonable(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document as standard JSON.

    Args:
        path: path of the file.
        document: values as ``jsonable`` takes them.

    Raises:
        FileFormatError: it cannot be written.
    """
    write_text(path, json.dumps(jsonable(document), indent=1, allow_nan=False) + "\n")
