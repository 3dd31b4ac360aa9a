"""Tables of a sweep: one row a training, and groups of rows over the seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..intervals import over_seeds
from .analyses import merged
from .job import Row
from .results import Result

NOT_AVERAGED = ("seed", "statement")
"""Columns that are excluded from averages over seeds."""
SHARES = ("accuracy", "train_metric", "test_metric")


def table_of(rows: Sequence[Row], results: Mapping[str, Result]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table that have a result or an error, in the order of the description.

    Args:
        rows: rows of the sweep.
        results: known results by job.

    Yields:
        Columns ``head``, then those of the training and certificate, or ``error``; columns of an analysis, with its
        name as prefix, once all its parts are done. Times and host names are left out.
    """
    for row in rows:
        record = results.get(row.job.id)
        if record is None:
            continue
        if record.error is not None:
            yield {**row.head, "error": record.error}
            continue
        columns = {**row.head, **record.values}
        for name, (options, jobs) in row.analyses.items():
            parts = [results[job.id] for job in jobs if job.id in results]
            error = next((part.error for part in parts if part.error is not None), None)
            if error is not None:
                columns[f"{name}.error"] = error
            elif len(parts) == len(jobs):
                answer = merged(name, options, [part.values for part in parts])
                columns |= {f"{name}.{column}": value for column, value in answer.items()}
        yield columns


def over_trainings(rows: Sequence[Mapping[str, Any]], by: Sequence[str]) -> list[dict[str, Any]]:
    """Average rows over the seeds.

    Args:
        rows: rows of a table.
        by: columns that identify a group.

    Returns:
        A row a group, in the order of their first rows: the columns of ``by``, ``trainings``, and every other column:
        for numbers the mean, with the ends ``NAME.low`` and ``NAME.high`` of Student's 95 % interval where the
        trainings differ; for texts their counts, such as ``certified 2 of 3``.

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
        averages: dict[str, Any] = {name: members[0].get(name) for name in by} | {"trainings": len(members)}
        for column in dict.fromkeys(name for row in members for name in row):
            if column not in (*by, *NOT_AVERAGED) and ".low_at" not in column and ".high_at" not in column:
                averages |= _average(column, [row[column] for row in members if row.get(column) is not None])
        out.append(averages)
    return out


def _average(column: str, values: list[Any]) -> dict[str, Any]:
    numbers = [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)]
    if numbers and len(numbers) == len(values):
        share = column.endswith(SHARES) or ".accuracy" in column
        within = (0.0, 1.0) if share and all(0 <= v <= 1 for v in numbers) else (-math.inf, math.inf)
        spread = over_seeds(numbers, within=within)
        if spread.least == spread.largest:  # the mean of equal numbers may be rounded
            return {column: values[0]}
        return {column: spread.mean, f"{column}.low": spread.low, f"{column}.high": spread.high}
    texts = [str(v) for v in values]
    counted = [f"{text} {texts.count(text)} of {len(texts)}" for text in sorted(set(texts))]
    return {column: ", ".join(counted)} if texts else {}
