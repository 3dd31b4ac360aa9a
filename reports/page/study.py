"""Pages of studies: ``study.html`` from the three files of one, and ``index.html`` over a folder of them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from stability.errors import FileFormatError
from stability.storage.folder import claim_folder
from stability.storage.writing import write_text

from ..figures.described import DRAWN, described
from ..formatting import MISSING, count, duration, number
from ..names import cut, printable
from ..stored.limits import LETTERS
from ..stored.studies import INDEX, PAGE, StudyRecord, index_text, read_studies, read_study, selected
from .html import environment, policy
from .layout import Column, Section, Table, draw, tabulate, text
from .studies import study_sections

INDEX_PAGE = "index.html"
NO_PAPER = "the paper gives no number"
MOST = 200
"""Rows of a study's table that the page shows; the file has all."""


def render_study(folder: str | Path, *, overwrite: bool = False, index: str = "") -> Path:
    """Draw the page of a study again from ``study.json``, ``table.csv`` and ``curves.csv``; nothing is computed.

    Args:
        folder: that ``stability study`` wrote.
        overwrite: whether a ``study.html`` may be replaced that no study made.
        index: page over several studies that this one links to, relative to the folder.

    Returns:
        Path of ``study.html``.

    Raises:
        FileFormatError: the folder holds no study, or a file of another shape, or cannot be written to.
        ConfigurationError: a file that no study made is in the way.
        FolderInUseError: another process writes there.

    Example:
        >>> render_study("no-such-folder")
        Traceback (most recent call last):
        ...
        stability.errors.FileFormatError: no-such-folder holds no study: it has no study.json
    """
    record = read_study(folder)
    quick = " · quick version" * bool(record.get("quick", False))
    page = _page(
        cut(str(record.get("title", "Study")), LETTERS),
        f"stability {version('rnn-stability')} · study {record.get('study')}{quick}",
        str(record.get("conclusion")),
        [s for s in (_figures(record), _compared(record), _numbers(record), _differences(record), _made(record)) if s],
        [("All studies", index)] if index else [],
    )
    with claim_folder(folder, "study --redraw") as own:
        own.reserve([PAGE], "study", overwrite=overwrite, adopt=True)
        return write_text(own.path / PAGE, page)


def render_index(folder: str | Path, done: Mapping[str, str | None] | None = None, *, overwrite: bool = False) -> Path:
    """Draw ``index.html`` over the studies in the folders below one: what each came to, and a link to its page.

    Args:
        folder: with a folder for each study.
        done: what was run here: name to the reason of its failure, ``None`` for a study that finished; it is kept in
            ``studies.json``. Without it, the index says what lies there.
        overwrite: whether an ``index.html`` may be replaced that no study made.

    Returns:
        Path of ``index.html``.

    Raises:
        FileFormatError: nothing to show, or a folder that cannot be written to.
        ConfigurationError: a file that no study made is in the way.
        FolderInUseError: another process writes there.
    """
    with claim_folder(folder, "study --all") as own:
        own.reserve([INDEX_PAGE, *([INDEX] if done is not None else [])], "study", overwrite=overwrite, adopt=True)
        if done is not None:
            write_text(own.path / INDEX, index_text(done))
        found, missing = read_studies(folder)
        if not found and not missing:
            raise FileFormatError(f"{folder} holds no study: no folder in it has a study.json")
        finished = f"{len(found)} studies with a result" + (f", {len(missing)} without" if missing else "")
        page = _page(
            "Tables and figures of the papers, rerun",
            f"stability {version('rnn-stability')}",
            f"{finished}. Each has a page of its own: figures, our numbers beside the paper's, and what differs.",
            list(study_sections(found, missing)),
            [],
        )
        return write_text(own.path / INDEX_PAGE, page)


def _page(title: str, kicker: str, lead: str, sections: list[Section], links: list[tuple[str, str]]) -> str:
    env = environment()
    css = str((env.loader.get_source(env, "report.css"))[0])  # type: ignore[union-attr]
    return env.get_template("study.html.j2").render(
        made=(),
        title=title,
        kicker=kicker,
        lead=lead,
        sections=sections,
        links=links,
        css=Markup(css),
        policy=policy(css),
        version=version("rnn-stability"),
    )


def _figures(record: StudyRecord) -> Section | None:
    drawn = []
    for k, figure in enumerate(record.get("figures", ())):
        if figure.get("kind") not in DRAWN or not (figure.get("x") and figure.get("y")):
            kind = f"is of kind {figure.get('kind')!r} or names no columns"
            raise FileFormatError(f"{record.folder / 'study.json'}: figure {k + 1} {kind}; known: {', '.join(DRAWN)}")
        rows = selected(record, figure)
        if rows is not None:
            drawn.append((described(figure, rows, f"figure-{k}"), str(figure.get("caption") or "")))
    notes = tuple(record.get("notes", ()))
    return Section("shown", "What it shows", "", (), draw(*drawn), notes).kept


def _compared(record: StudyRecord) -> Section | None:
    columns = (
        text("quantity", lambda row: row.get("what") or ""),
        Column("ours", lambda row: _cell(row.get("ours"))),
        Column("the paper's", lambda row: _cell(row.get("paper"))),
        text("where", lambda row: row.get("where") or ""),
    )
    tables = tabulate("Ours beside the paper's", columns, record.get("compared", ()), NO_PAPER)
    return Section("compared", "Ours beside the paper's", str(record.get("paper")), tables).kept


def _cell(value: Any) -> str:
    """A value of a table as a reader wants it."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return count(value)
    if isinstance(value, (float, np.floating)):
        return (
            MISSING
            if np.isnan(value)
            else count(value)
            if value == round(value) and abs(value) < 1e9
            else number(value, 4)
        )
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_cell(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(v) for v in value)
    return MISSING if value is None or value is pd.NaT or value == "" else str(value)


def _numbers(record: StudyRecord) -> Section | None:
    """The table; where it has a column ``what``, a table for each of its values, of the columns that it fills."""
    frame = record.frames.get("table")
    if frame is None:
        return None
    shown = frame.head(MOST)
    left = f"; the first {MOST} of {len(frame)} rows" if len(frame) > MOST else ""
    parts: list[tuple[str, pd.DataFrame]] = [("table.csv", shown)]
    if "what" in shown.columns:
        named: Any = shown
        kinds = [(_cell(kind), named[named["what"] == kind]) for kind in named["what"].dropna().unique()]
        parts = [(f"table.csv: {kind}", own.drop(columns="what").dropna(axis=1, how="all")) for kind, own in kinds]
    tables = [t for caption, part in parts for t in _table(caption + left, part)]
    return Section("numbers", "The numbers", "", tuple(tables)).kept


def _table(caption: str, frame: pd.DataFrame) -> tuple[Table, ...]:
    names = [str(c) for c in frame.columns]
    numeric = {c: frame[c].dtype.kind in "iufb" for c in names}
    columns = [Column(c.replace("_", " "), lambda row, c=c: _cell(row[c]), numeric[c]) for c in names]
    records = [dict(zip(names, row)) for row in frame.itertuples(index=False, name=None)]
    return tabulate(caption, columns, records, "does not apply")


def _differences(record: StudyRecord) -> Section | None:
    notes = tuple(record.get("differences", ()))
    return Section("differences", "What differs from the paper, and why", "", (), (), notes) if notes else None


def _time(record: StudyRecord) -> str:
    """Of all sessions, where the files say what the earlier ones took."""
    took, earlier = duration(record.get("seconds", None)), record.get("earlier_seconds", None)
    if earlier is None:
        return f"{took}; parts kept from before are not counted"
    return f"{took}, of which {duration(earlier)} in earlier sessions" if earlier else took


def _made(record: StudyRecord) -> Section:
    """Settings, seeds, time and machine."""
    made = record.get("environment", {})
    versions, machine = made.get("versions") or {}, made.get("machine") or {}
    seeds = ", ".join(map(_cell, record.get("seeds", ())))
    rows = [
        ("command", f"stability study {record.get('study')}{' --quick' * bool(record.get('quick', False))}"),
        ("seeds", seeds or _cell(made.get("seed"))),
        ("time", _time(record)),
        ("begun and finished", f"{made.get('started') or MISSING}, {made.get('finished') or MISSING}"),
        ("device", _cell(made.get("device"))),
        *((k, _cell(v)) for k, v in machine.items()),
        *((k, _cell(v)) for k, v in versions.items()),
    ]
    settings = [(k, _cell(v)) for k, v in record.get("settings", {}).items()]
    words = (text("what", lambda row: row[0]), text("value", lambda row: printable(row[1])))
    tables = tabulate("Programs and machine", words, rows) + tabulate("Settings", words, settings)
    said = "Every number stands in table.csv and curves.csv beside this page; stability study --redraw draws it again."
    return Section("made", "How it was made", said, tables)
