"""Tables of a sweep: a row a training, everything of a store in one frame, and groups over the seeds."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from stability.errors import StabilityError
from stability.storage.index import Index
from stability.storage.results import FAILED
from stability.storage.store import ResultStore

from ...intervals import over_seeds
from ..analyses import DEFAULTS, merged
from ..rows import Description, Row

LEFT = ("seed", "statement", "job", "code", "seconds")
"""Columns that mean nothing over several trainings."""
SHARES = ("accuracy", "train_metric", "test_metric")


def table_of(sweep: Description, index: Index) -> Iterator[dict[str, Any]]:
    """The table of a sweep, in the order of its description: results only, no times and no names of machines.

    Args:
        sweep: what was computed.
        index: of the store.

    Yields:
        A row a training that has a result (``error`` where it failed); an analysis has its columns, with its name
        before them, once all its parts are done.
    """
    for row in sweep.rows():
        found = index.values(row.job.id)
        if found is not None:
            yield {**row.head, **found, **_analyses(row, index)}
        elif (error := index.error(row.job.id)) is not None:
            yield {**row.head, "error": f"{error.get('type')}: {error.get('text')}"}


def _analyses(row: Row, index: Index) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, (options, jobs) in row.analyses.items():
        parts = [index.values(job.id) for job in jobs]
        if all(part is not None for part in parts):
            answer = merged(name, options, [part for part in parts if part is not None])
            out |= {f"{name}.{column}": value for column, value in answer.items()}
        else:
            why = next((error for job in jobs if (error := index.error(job.id)) is not None), None)
            if why is not None:
                out[f"{name}.error"] = f"{why.get('type')}: {why.get('text')}"
    return out


@dataclass(frozen=True)
class Stored:
    """Everything that was found in a store.

    Attributes:
        rows: one a training (or certificate, or job of a kind of one's own).
        asked: columns of what was asked: model, task, options.
        failed: jobs without a result.
    """

    rows: tuple[Mapping[str, Any], ...]
    asked: tuple[str, ...]
    failed: int

    @property
    def varied(self) -> list[str]:
        """What tells groups of trainings apart that differ in their seeds alone."""
        told = [name for name in (*self.asked, "code") if name not in ("seed", "job", "kind")]
        fixed = ("model", "task")
        return [c for c in told if c in fixed or len({str(row.get(c)) for row in self.rows}) > 1]

    def groups(self) -> list[dict[str, Any]]:
        """The rows over their seeds, see ``over_trainings``; what was asked alike of all is left out."""
        alike = {name for name in self.asked if name not in self.varied}
        rows = [{k: v for k, v in row.items() if k not in alike} for row in self.rows]
        return over_trainings(rows, self.varied)


def read_store(location: str | Path) -> Stored:
    """Everything in a store; results of every sweep that used it, and of every version of the code (column ``code``).

    Args:
        location: of the store.

    Returns:
        The rows, in the order of what was asked.

    Raises:
        FileFormatError: no store.
    """
    rows: dict[str, dict[str, Any]] = {}
    asked: dict[str, None] = {}
    parts: dict[tuple[str, str], list[tuple[int, Mapping[str, Any], Mapping[str, Any]]]] = {}
    with Index(ResultStore.found(location)) as index:
        if index.refresh():
            with contextlib.suppress(StabilityError):  # a store that may only be read
                index.publish()
        for job, spec, found, seconds in index.rows():
            options = spec["options"]
            if spec["kind"] in DEFAULTS and "training" in options:
                own = {k: v for k, v in options.items() if k not in ("training", "start", "stop")}
                parts.setdefault((spec["parent"], spec["kind"]), []).append((options["start"], own, found))
            else:
                head = {"kind": spec["kind"], **asked_of(options)}
                asked |= dict.fromkeys(head)
                rows[job] = {**head, **found, "seconds": seconds, "code": spec["code"], "job": job}
        failed = sum(1 for _ in index.rows(FAILED))
    for (parent, kind), found_parts in parts.items():
        if parent in rows:
            rows[parent] |= _put_together(kind, found_parts)
    order = [c for c in (*asked, "job") if c != "seed"]
    ordered = sorted(rows.values(), key=lambda row: [str(row.get(c)) for c in order[:-1]] + [row.get("seed") or 0])
    return Stored(tuple(ordered), tuple(asked), failed)


def store_frame(location: str | Path) -> pd.DataFrame:
    """Everything in a store as one pandas frame, a row a training (or certificate, or job of a kind of one's own).

    Args:
        location: of the store.

    Returns:
        Columns of what was asked (``model``, ``task``, ``seed``, ``hidden``, options with ``set.``, ``train.`` and
        ``task.`` before them), of what was found, and ``seconds``, ``code``, ``job``.

    Raises:
        FileFormatError: no store.
    """
    return pd.DataFrame([dict(row) for row in read_store(location).rows])


def _put_together(kind: str, parts: list[tuple[int, Mapping[str, Any], Mapping[str, Any]]]) -> dict[str, Any]:
    """An analysis from the parts that are there, where they are all of one question and complete."""
    asked = parts[-1][1]
    own = sorted([(start, found) for start, other, found in parts if other == asked], key=lambda part: part[0])
    samples = int(asked["samples"])
    whole = len(own) == -(-samples // int(asked.get("part", samples)))
    found = merged(kind, asked, [part for _, part in own]) if whole else {}
    return {f"{kind}.{column}": value for column, value in found.items()}


def asked_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a training as columns.

    Example:
        >>> asked_of({"model": "elman", "task": ["adding", {"steps": 5}], "set": {"beta": 1}, "train": {"lr": 0.1}})
        {'model': 'elman', 'task': 'adding', 'task.steps': 5, 'set.beta': 1, 'train.lr': 0.1}
    """
    out: dict[str, Any] = {}
    for name, value in options.items():
        if name == "task" and isinstance(value, list):
            out["task"] = value[0]
            out |= {f"task.{k}": v for k, v in value[1].items()}
        elif name in ("set", "train") and isinstance(value, Mapping):
            out |= {f"{name}.{k}": v for k, v in value.items()}
        elif not isinstance(value, (list, Mapping)):
            out[name] = value
    return out


def over_trainings(rows: Sequence[Mapping[str, Any]], by: Sequence[str]) -> list[dict[str, Any]]:
    """Rows grouped over the seeds: of every number its mean with Student's interval, of verdicts how many are which.

    Args:
        rows: of a table.
        by: columns that tell the groups apart; ``seed`` is not among them.

    Returns:
        A row a group, in the order of their first rows: the columns of ``by``, ``trainings``, then of each column of
        numbers ``NAME``, with ``NAME.low`` and ``NAME.high`` where trainings differ, of each column of texts the shares
        such as ``certified 2 of 3``.

    Example:
        >>> rows = [{"model": "a", "seed": k, "x": float(k), "verdict": "certified"} for k in (0, 1, 2)]
        >>> [(g["model"], g["trainings"], g["x"], round(g["x.high"], 2), g["verdict"]) for g in
        ...     over_trainings(rows, ["model"])]
        [('a', 3, 1.0, 3.48, 'certified 3 of 3')]
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(str(row.get(name)) for name in by), []).append(row)
    out = []
    for members in groups.values():
        told: dict[str, Any] = {name: members[0].get(name) for name in by} | {"trainings": len(members)}
        for column in dict.fromkeys(name for row in members for name in row):
            if column not in by and column not in LEFT and ".low_at" not in column and ".high_at" not in column:
                told |= _summed(column, [row[column] for row in members if row.get(column) is not None])
        out.append(told)
    return out


def _summed(column: str, values: list[Any]) -> dict[str, Any]:
    numbers = [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)]
    if numbers and len(numbers) == len(values):
        share = column.endswith(SHARES) or ".accuracy" in column
        within = (0.0, 1.0) if share and all(0 <= v <= 1 for v in numbers) else (-math.inf, math.inf)
        spread = over_seeds(numbers, within=within)
        if spread.least == spread.largest:  # not off by a rounding
            return {column: values[0]}
        return {column: spread.mean, f"{column}.low": spread.low, f"{column}.high": spread.high}
    texts = [str(v) for v in values]
    counted = {text: texts.count(text) for text in sorted(set(texts))}
    return {column: ", ".join(f"{text} {n} of {len(texts)}" for text, n in counted.items())} if texts else {}
