"""Pages of studies and comparisons: ``study.html``, ``index.html`` over all studies of a run, ``compare.html``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from stability.storage.folder import Folder, claim_folder
from stability.storage.writing import write_text

from ..figures.described import described
from ..figures.figure import FORMATS, Figure
from ..formatting import MISSING, count, duration, number
from ..names import cut, printable
from ..stored.limits import LETTERS
from .html import environment, policy

if TYPE_CHECKING:
    from ...analysis.studies.result import StudyResult

PAGE, INDEX_PAGE = "study.html", "index.html"
SHORT, MOST = 24, 200
"""Largest number of rows of a study's table that is not folded, and that is shown; the file has all."""


@dataclass(frozen=True)
class Badge:
    """Verdict in a table."""

    state: str


@dataclass(frozen=True)
class Table:
    """Rows of texts under a header.

    Attributes:
        header: titles of the columns.
        rows: cells; a pair is a text and the address that it leads to, a ``Badge`` a verdict.
        numeric: columns that are aligned to the right.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str | tuple[str, str] | Badge]]
    numeric: Sequence[int] = ()


@dataclass(frozen=True)
class Section:
    """Section of a page.

    Attributes:
        anchor: its identifier.
        title: its heading.
        text: a few sentences.
        tables: tables of the section.
        figures: figures of the section.
        notes: sentences below.
        key: terms of the tables and their meanings.
        boxes: title, text and command of boxes side by side; texts and commands may be empty.
        folded: whether only the heading is seen at first.
    """

    anchor: str
    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    key: Sequence[tuple[str, str]] = ()
    boxes: Sequence[tuple[str, str, str]] = ()
    folded: bool = field(default=False)


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
    figures = described(result)
    compared = [(c.what, _cell(c.ours), _cell(c.paper), c.where) for c in result.compared]
    frame = result.summary()
    note = f"The first {MOST} of {len(frame)} rows. " if len(frame) > MOST else ""
    note += f"Means over {len(result.seeds)} trainings. " if len(result.seeds) > 1 and result.keys else ""
    note += "All rows: table.csv and curves.csv."
    sections = (
        Section("results", "Results", figures=figures),
        Section("compared", "Comparison with the paper", result.paper, _table(COMPARED, compared)),
        Section("numbers", "Table", note, _numbers(result), folded=len(frame) > SHORT),
        Section("differences", "Differences from the paper", notes=result.differences),
        Section("made", "Versions and settings", tables=_settings(result), folded=True),
    )
    kicker = f"{printable(result.title)}{_quick(result)} · study {printable(result.study)}"
    links = [("All studies", index)] if index else []
    with claim_folder(folder, "study") as root:
        return write_page(root, PAGE, result.conclusion or result.title, kicker, sections, links, "study", overwrite)


def render_index(
    folder: str | Path, results: Mapping[str, StudyResult], failed: Mapping[str, str], *, overwrite: bool = False
) -> Path:
    """Draw ``index.html`` over the studies in the folders below one, each with its conclusion and a link to its page.

    Args:
        folder: with a folder for each study.
        results: results by name.
        failed: reasons of the others, by name.
        overwrite: whether an ``index.html`` may be replaced that no study made.

    Returns:
        Path of ``index.html``.

    Raises:
        ConfigurationError: a file that no study made is in the way.
        FileFormatError: a folder that cannot be written to.
        FolderInUseError: another process writes there.
    """
    rows = [
        ((n, f"{quote(n)}/{PAGE}"), f"{r.title}{_quick(r)}", r.conclusion or MISSING, duration(r.seconds))
        for n, r in results.items()
    ]
    reasons = [(name, cut(printable(reason), LETTERS)) for name, reason in failed.items()]
    sections = (
        Section("studies", "Studies", tables=_table(("study", "table or figure", "result", "time"), rows, (3,))),
        Section("failed", "Without a result", tables=_table(("study", "reason"), reasons)),
    )
    title = f"{len(results)} {'study has' if len(results) == 1 else 'studies have'} a result"
    title += f", {len(failed)} {'has' if len(failed) == 1 else 'have'} none." if failed else "."
    with claim_folder(folder, "study --all") as root:
        kicker = "Tables and figures of the papers, rerun here"
        return write_page(root, INDEX_PAGE, title, kicker, sections, (), "study", overwrite)


def write_page(
    root: Folder,
    name: str,
    title: str,
    kicker: str,
    sections: Iterable[Section],
    links: Sequence[tuple[str, str]],
    maker: str,
    overwrite: bool,
) -> Path:
    """Write a page, and the files of its figures into ``figures`` beside it.

    Args:
        root: folder of the page.
        name: name of the file.
        title: the finding.
        kicker: line above it.
        sections: parts of the page; empty ones are left out.
        links: texts and addresses of other pages.
        maker: command that owns the files.
        overwrite: whether files of these names that the command did not make may be replaced.
    """
    filled = [s for s in sections if s.tables or s.figures or s.notes or s.boxes]
    figures = [figure for s in filled for figure in s.figures]
    root.reserve([name, *(f"figures/{f.name}.{kind}" for f in figures for kind in FORMATS)], maker, overwrite=overwrite)
    for figure in figures:
        figure.write(root.path / "figures")
    env: Any = environment()
    css = "".join(env.loader.get_source(env, sheet)[0] for sheet in ("report.css", "study.css"))
    page = env.get_template("study.html.j2").render(
        title=cut(title, LETTERS),
        kicker=kicker,
        sections=filled,
        links=links,
        formats=FORMATS,
        css=Markup(css),
        policy=policy(css),
        version=version("rnn-stability"),
    )
    return write_text(root.path / name, page)


COMPARED = ("quantity", "this study", "paper", "source")


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]], numeric: Sequence[int] = ()) -> tuple[Table, ...]:
    return (Table(header, rows, numeric),) if rows else ()


def _quick(result: StudyResult) -> str:
    return " (quick version)" if result.quick else ""


def _numbers(result: StudyResult) -> tuple[Table, ...]:
    """Return the table without columns that are empty; columns that a figure names are called as on its axis."""
    frame = result.summary().dropna(axis="columns", how="all").head(MOST)
    words = {f.y: f.ylabel or f.title for f in result.figures if f.source == "table"}
    words |= {f.x: f.xlabel for f in result.figures if f.xlabel}
    header = [str(words.get(str(c), c)).replace("_", " ") for c in frame.columns]
    rows = [[_cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    return _table(header, rows, [k for k, kind in enumerate(frame.dtypes) if kind.kind in "iufb"])


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


def _settings(result: StudyResult) -> tuple[Table, ...]:
    """Return settings, seeds, time and machine, without what is not known."""
    environment = result.environment
    rows = [
        ("command", f"stability study {printable(result.study)}{' --quick' if result.quick else ''}"),
        ("seeds", ", ".join(map(str, result.seeds))),
        ("time", duration(result.seconds)),
        ("started", _cell(environment.get("started"))),
        ("finished", _cell(environment.get("finished"))),
        ("device", _cell(environment.get("device"))),
        *((k, _cell(v)) for part in ("machine", "versions") for k, v in (environment.get(part) or {}).items()),
    ]
    settings = [(k.replace("_", " "), _cell(v)) for k, v in result.settings.items()]
    filled = [[row for row in part if row[1] not in ("", MISSING)] for part in (settings, rows)]
    return (*_table(("setting", "value"), filled[0]), *_table(("program and machine", ""), filled[1]))
