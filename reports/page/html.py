"""The page: stored results in, ``report.html`` with ``report.json`` and ``tables/`` out.

Redrawing needs neither torch nor a solver, checks every certificate again, and gives the same page for the same files.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stability.errors import FileFormatError
from stability.storage.folder import Folder, claim_folder
from stability.storage.writing import make_folder, write_text

from ..formatting import FILTERS
from ..jsonable import jsonable
from ..names import breakable, cut
from ..stored.collect import Report, check_folder, collect
from ..stored.limits import LETTERS
from ..stored.records import FRAMES
from .answer import answer, ranked
from .blocks import block
from .made import made, sources
from .marks import MARKS
from .overview import overview
from .provenance import lead, provenance
from .sections import sections


def environment() -> Environment:
    """The template environment: autoescape on, undefined names are errors, the named filters."""
    env = Environment(
        loader=PackageLoader("stability.reports.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(FILTERS, breakable=breakable, sources=sources)
    return env


def render(run_dir: str | Path, *, overwrite: bool = False) -> Path:
    """Draw the report of a directory again from its stored files.

    Args:
        run_dir: a report directory (``stability report`` wrote it).
        overwrite: whether files of the names that are written here may be replaced where no report made them. All other
            files stay as they are.

    Returns:
        Path of ``report.html``; ``report.json`` and ``tables/*.csv`` are written beside it.

    Raises:
        ConfigurationError: files that no report made are in the way.
        FileFormatError: when the directory is none, a file in it cannot be read, or nothing can be written
            there.
        FolderInUseError: another process writes there.

    Example:
        >>> render("no-such-directory")
        Traceback (most recent call last):
        ...
        stability.errors.FileFormatError: no-such-directory is no report directory: it has no ...
    """
    check_folder(run_dir)
    with claim_folder(run_dir, "report --redraw") as own:
        own.reserve(page_files(), "report", overwrite=overwrite, adopt=True)
        report = collect(run_dir)
        text = json.dumps(jsonable(report.to_dict()), indent=1, allow_nan=False) + "\n"
        page = _page(report, hashlib.sha256(text.encode("utf-8")).hexdigest())
        write_text(own.path / "report.json", text)
        _write_tables(own, report)
        return write_text(own.path / "report.html", page)


def _page(report: Report, digest: str) -> str:
    env, report = environment(), replace(report, models=tuple(ranked(report.models)))
    built = sections(report)
    css = str((env.loader.get_source(env, "report.css"))[0]) + footer(digest)  # type: ignore[union-attr]
    script = str((env.loader.get_source(env, "report.js"))[0])  # type: ignore[union-attr]
    return env.get_template("report.html.j2").render(
        report=report,
        title=cut(str(report.settings.get("title", "Stability report")), LETTERS),
        answer=answer(report),
        first=[s for s in overview(report) if s.shows],
        models=[block(m, len(report.models)) for m in report.models],
        sections=[s for s in built if s.shows],
        left_out=[s.title for s in built if not s.shows],
        lead=lead(report),
        provenance=provenance(report),
        made=made(report),
        marks=MARKS,
        digest=digest,
        css=Markup(css),
        script=Markup(script),
        policy=policy(css, script),
        version=version("rnn-stability"),
    )


def policy(css: str, script: str = "") -> str:
    """The page's content security policy: nothing is loaded or sent; this style sheet is used, this script runs.

    Args:
        css: the content of the page's ``<style>`` element, to the letter.
        script: the content of its ``<script>`` element; empty for a page without one.

    Returns:
        The policy.

    Example:
        >>> policy("p {}")[:34]
        "default-src 'none'; style-src 'sha"
        >>> "script-src" in policy("p {}"), "script-src 'sha256-" in policy("p {}", "let x;")
        (False, True)
    """
    runs = f"; script-src {_hash(script)}" if script else ""
    return f"default-src 'none'; style-src {_hash(css)}{runs}; img-src data:; base-uri 'none'; form-action 'none'"


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode("utf-8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def footer(digest: str) -> str:
    """What stands at the foot of every printed page: which report it is, and which of how many pages.

    Args:
        digest: of ``report.json``.

    Returns:
        Rules for the page's style sheet.

    Example:
        >>> footer("ab" * 32)[:32]
        '@page { @bottom-left { content: '
    """
    # a digest is copied letter by letter: margins have ligatures, whatever is said of them, but in text that is spaced
    look = "font: 8pt sans-serif; letter-spacing: 0.01px; color: #444;"
    left = f'@bottom-left {{ content: "report.json, SHA-256 {digest}"; {look} }}'
    return f'@page {{ {left} @bottom-right {{ content: counter(page) " / " counter(pages); {look} }} }}\n'


def page_files() -> tuple[str, ...]:
    """Names of all files that drawing a report may write."""
    stems = (*FRAMES, "margins", "claims", "trainings", "models")
    return ("report.html", "report.json", *(f"tables/{stem}.csv" for stem in stems))


def _write_tables(own: Folder, report: Report) -> None:
    tables = {f"tables/{name}.csv": frame for name, frame in report.tables().items()}
    own.remove([name for name in page_files() if name.startswith("tables/") and name not in tables])
    try:
        make_folder(own.path / "tables")
    except OSError as error:
        raise FileFormatError(f"cannot write to {own.path}: {error.strerror or error}") from error
    for name, frame in tables.items():
        write_text(own.path / name, frame.to_csv(index=False))
