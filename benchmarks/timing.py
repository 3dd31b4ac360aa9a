"""Measure processor time and store rows of results."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"


def processor(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor seconds of a call and its value."""
    start = time.process_time()
    value = call()
    return time.process_time() - start, value


def in_turns(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the processor seconds of each call in each round, after one warm-up round.

    The calls take turns, so that other load on the machine slows all of them alike.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            times[name].append(processor(call)[0])
    return {name: seconds[1:] for name, seconds in times.items()}


def machine() -> dict[str, Any]:
    """Return the processor, the number of cores and the versions of Python and numpy."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    name = next(named, platform.processor() or platform.machine())
    return {"processor": name, "cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}


def rounded(value: Any) -> Any:
    """Round numbers to five digits, also inside lists and dictionaries."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, Mapping):
        return {key: rounded(own) for key, own in value.items()}
    return [rounded(own) for own in value] if isinstance(value, (list, tuple)) else value


def arguments(doc: str | None, name: str, parts: Iterable[str] = ()) -> argparse.ArgumentParser:
    """Return a parser with ``--out`` (``results/NAME.json`` by default) and, for several parts, ``--only``."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json")
    if parts := list(parts):
        parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    return parser


def stored(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of results; none if there is no file."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []


def keep(path: Path, row: Mapping[str, Any], *key: str) -> None:
    """Print a row and write it in place of the stored one with the same values of the columns ``key``."""
    row = rounded(row)
    print(json.dumps(row, ensure_ascii=False), flush=True)
    others = [old for old in stored(path) if any(old.get(k) != row.get(k) for k in key)]
    write(path, [*others, row])


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON, a row a line, beside the description of this machine."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'{{"machine": {json.dumps(machine())},\n"rows": [\n{lines}\n]}}\n', encoding="utf-8")
