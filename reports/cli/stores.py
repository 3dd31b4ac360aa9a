"""Stores of sweeps where commands take models: their results are there already, grouped over the seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stability.errors import ConfigurationError
from stability.storage.store import is_store

from ..formatting import number, table
from .options import Output

SHOWN = ("test_metric", "verdict", "rate", "overshoot")
MOST = 200
"""Groups that are printed; the JSON has all."""


def stores_among(names: Sequence[str]) -> bool:
    """Whether what is named are stores of sweeps.

    Args:
        names: of the command line.

    Raises:
        ConfigurationError: stores and models side by side.
    """
    found = [name for name in names if is_store(name)]
    if found and len(found) < len(names):
        raise ConfigurationError(
            f"{found[0]} is a store of a sweep, whose results are there already: name stores alone, or models alone"
        )
    return bool(found)


def refuse_beside_stores(given: Mapping[str, Any]) -> None:
    """Nothing is computed about a store: what says how to compute has no effect.

    Args:
        given: options, with what was said.

    Raises:
        ConfigurationError: naming those that were said.
    """
    said = [name for name, value in given.items() if value]
    if said:
        raise ConfigurationError(f"the results of a sweep are there already: leave out {', '.join(said)}")


def show_groups(names: Sequence[str], output: Output) -> dict[str, Any]:
    """Print what is in stores, grouped over the seeds, with intervals.

    Args:
        names: of the stores.
        output: how it is printed.

    Returns:
        The JSON that was, or would have been, printed.
    """
    from ...analysis.sweep.running.table import read_store

    stores, lines = {}, []
    for name in names:
        stored = read_store(name)
        groups = stored.groups()
        stores[name] = {"results": len(stored.rows), "failed": stored.failed, "by": stored.varied, "groups": groups}
        lines += [
            f"{name}: {len(stored.rows)} results, {stored.failed} failed",
            "",
            group_table(groups, stored.varied),
            "",
        ]
    document = {"stores": stores}
    output.show(document, "\n".join([*lines, "Means over the seeds, with the 95 % interval of the mean behind them."]))
    return document


def group_table(groups: Sequence[Any], by: Sequence[str], more: Sequence[str] = ()) -> str:
    """A table for the terminal.

    Args:
        groups: as ``over_trainings`` gives them.
        by: columns that tell them apart.
        more: columns of numbers to show besides.
    """
    columns = [c for c in (*SHOWN, *more) if any(g.get(c) is not None for g in groups)]
    cells = [[*(str(g.get(c)) for c in by), str(g["trainings"]), *(_cell(g, c) for c in columns)] for g in groups]
    right = range(len(by), len(by) + 1 + len(columns))
    lines = [table((*by, "trainings", *columns), cells[:MOST], right=right)]
    return "\n".join(lines + ([f"and {len(groups) - MOST} more: --json has all"] if len(groups) > MOST else []))


def _cell(group: Any, column: str) -> str:
    value = group.get(column)
    if value is None or isinstance(value, str):
        return value or "none"
    low, high = group.get(f"{column}.low"), group.get(f"{column}.high")
    return number(value) if low is None or low == high else f"{number(value)} ({number(low)} to {number(high)})"


def draw_store(names: Sequence[str], out: Path | None, overwrite: bool, output: Output) -> None:
    """Write the page of a store: its groups with intervals, and the curves of its trainings.

    Args:
        names: of the one store.
        out: the folder of the page; by default beside the store, ``STORE-study``.
        overwrite: whether files in the way may be replaced.
        output: how the answer is printed.

    Raises:
        ConfigurationError: several stores; a store in object storage without a folder for its page.
    """
    if len(names) > 1:
        raise ConfigurationError("a page is about one store: name one of them")
    if out is None and "://" in names[0]:
        raise ConfigurationError("name a folder for the page with --out")
    from ...analysis.sweep.running.study import write_study
    from ..page.study import render_study

    folder = out or Path(f"{names[0].rstrip('/')}-study")
    result = write_study(names[0], folder, overwrite=overwrite)
    page = render_study(folder, overwrite=overwrite)
    output.show({"out": folder, "page": page, **result.to_dict()}, f"{result.conclusion}\n\nPage: {page}")
