"""Pages of studies: ``study.html`` for one, and ``index.html`` over all of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from stability.storage.folder import claim_folder
from stability.storage.writing import write_text

from ..figures.described import described
from ..formatting import MISSING, count, duration, number
from ..names import cut, printable
from ..stored.limits import LETTERS
from .html import environment, policy
from .layout import Cell, Column, Section, Table, draw, tabulate, text

if TYPE_CHECKING:
    from ...analysis.studies.result import StudyResult

PAGE, INDEX_PAGE = "study.html", "index.html"
NO_PAPER = "the paper gives no number"
MOST = 200
"""Largest number of rows of a study's table on its page; the file has all."""


def render_study(result: StudyResult, folder: str | Path, *, overwrite: bool = False, index: str = "") -> Path:
    """Draw the page of a study.

    Args:
        result: the study.
        folder: folder of the page, beside ``table.csv`` and ``curves.csv``.
        overwrite: whether a ``study.html`` may be replaced that no study made.
        index: page over several studies that this one links to, relative to the folder.

    Returns:
        Path of ``study.html``.

    Raises:
        ConfigurationError: a file that no study made is in the way.
        FileFormatError: a folder that cannot be written to.
        FolderInUseError: another process writes there.
    """
    drawn = [(described(f, result), f.caption) for f in result.figures]
    sections = (
        Section("shown", "Results", "", (), draw(*drawn), (), small=False).kept,
        _compared(result),
        Section("numbers", "The numbers", _repeats(result), _numbers(result)).kept,
        Section("differences", "Differences from the paper", "", (), (), result.differences).kept,
        _settings(result),
    )
    page = _page(
        cut(result.title, LETTERS),
        f"stability {version('rnn-stability')} · study {printable(result.study)}{_quick(result)}",
        result.conclusion,
        [s for s in sections if s is not None],
        [("All studies", index)] if index else [],
    )
    with claim_folder(folder, "study") as own:
        own.reserve([PAGE], "study", overwrite=overwrite)
        return write_text(own.path / PAGE, page)


def render_index(
    folder: str | Path, done: Mapping[str, StudyResult], failed: Mapping[str, str], *, overwrite: bool = False
) -> Path:
    """Draw ``index.html`` over the studies in the folders below one, each with its conclusion and a link to its page.

    Args:
        folder: with a folder for each study.
        done: results by name.
        failed: reasons of the others, by name.
        overwrite: whether an ``index.html`` may be replaced that no study made.

    Returns:
        Path of ``index.html``.

    Raises:
        ConfigurationError: a file that no study made is in the way.
        FileFormatError: a folder that cannot be written to.
        FolderInUseError: another process writes there.
    """
    columns = (
        text("study", lambda item: Cell(item[0], href=f"{quote(item[0])}/{PAGE}")),
        text("table or figure", lambda item: f"{item[1].title}{_quick(item[1])}"),
        text("result", lambda item: item[1].conclusion or MISSING),
        Column("time", lambda item: duration(item[1].seconds)),
    )
    reasons = (text("study", lambda item: item[0]), text("reason", lambda item: cut(printable(item[1]), LETTERS)))
    tables = tabulate("The studies", columns, done.items()) + tabulate("Without a result", reasons, failed.items())
    section = Section("studies", "Studies", "Tables and figures of the papers, rerun here.", tables).kept
    page = _page(
        "Tables and figures of the papers, rerun",
        f"stability {version('rnn-stability')}",
        f"{len(done)} studies with a result" + (f", {len(failed)} without." if failed else "."),
        [] if section is None else [section],
        [],
    )
    with claim_folder(folder, "study --all") as own:
        own.reserve([INDEX_PAGE], "study", overwrite=overwrite)
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


def _quick(result: StudyResult) -> str:
    return " (quick version)" if result.quick else ""


def _compared(result: StudyResult) -> Section | None:
    columns = (
        text("quantity", lambda row: row.what),
        Column("ours", lambda row: _cell(row.ours)),
        Column("the paper's", lambda row: _cell(row.paper)),
        text("where", lambda row: row.where),
    )
    tables = tabulate("Ours beside the paper's", columns, result.compared, NO_PAPER)
    return Section("compared", "Ours beside the paper's", result.paper, tables).kept


def _repeats(result: StudyResult) -> str:
    if len(result.seeds) < 2 or not result.keys:
        return ""
    return f"Means over {len(result.seeds)} trainings; table.csv has each of them."


def _numbers(result: StudyResult) -> tuple[Table, ...]:
    frame = result.summary()
    caption = "Table" + (f", the first {MOST} of {len(frame)} rows" if len(frame) > MOST else "")
    names = [str(c) for c in frame.columns]
    columns = [
        Column(c.replace("_", " "), lambda row, c=c: _cell(row[c]), frame[c].dtype.kind in "iufb") for c in names
    ]
    rows = frame.head(MOST).itertuples(index=False, name=None)
    return tabulate(caption, columns, [dict(zip(names, row)) for row in rows], "does not apply")


def _cell(value: Any) -> str:
    """Format a value for a table."""
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, float, np.number)):
        value = float(value)
        return MISSING if math.isnan(value) else count(int(value)) if value.is_integer() else number(value, 4)
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_cell(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(v) for v in value)
    return MISSING if value is None or value == "" else printable(value)


def _settings(result: StudyResult) -> Section:
    """Settings, seeds, time and machine."""
    made = result.environment
    rows = [
        ("command", f"stability study {printable(result.study)}{' --quick' if result.quick else ''}"),
        ("seeds", ", ".join(map(str, result.seeds))),
        ("time", duration(result.seconds)),
        ("begun and finished", f"{made.get('started') or MISSING}, {made.get('finished') or MISSING}"),
        ("device", _cell(made.get("device"))),
        *((k, _cell(v)) for part in ("machine", "versions") for k, v in (made.get(part) or {}).items()),
    ]
    words = (text("name", lambda row: printable(row[0])), text("value", lambda row: printable(row[1])))
    settings = [(k, _cell(v)) for k, v in result.settings.items()]
    tables = tabulate("Programs and machine", words, rows) + tabulate("Settings", words, settings)
    return Section("made", "Settings", "Every number stands in table.csv and curves.csv beside this page.", tables)
