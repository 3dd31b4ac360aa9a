"""The HTML page of a report, drawn from stored results, with its JSON files, tables and figures.

Redrawing needs neither torch nor a solver, checks every certificate again, and gives the same page for the same files.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stability.errors import FileFormatError
from stability.storage.documents import file_digest
from stability.storage.folder import Folder, claim_folder
from stability.storage.writing import make_folder, write_bytes, write_text

from ..figures import figures
from ..figures.figure import FORMATS, Figure
from ..formatting import FILTERS
from ..jsonable import jsonable
from ..names import breakable, cut
from ..stored.collect import SETTINGS, Report, check_folder, collect
from ..stored.facts import attack_size, ranked, recheck, recommended
from ..stored.limits import LETTERS
from ..stored.records import FRAMES
from . import verdict_table, verdicts
from .cards import card, files
from .claims import covered, not_covered
from .method import method
from .parts import Fold
from .results import more_results

QUICK_FORMATS = ("svg", "csv")
"""Files of each figure of a quick report: PDF and PNG take longer than the rest of the page."""
ZIP = "figures-and-tables.zip"
SHORT_LIST = 30
"""Most models that are listed beside the page without being folded."""


def environment() -> Environment:
    """Return the template environment: autoescape on, undefined names are errors, the named filters."""
    env = Environment(
        loader=PackageLoader("stability.reports.page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(FILTERS, breakable=breakable)
    return env


def render(
    run_dir: str | Path, *, overwrite: bool = False, full: bool = False, formats: Sequence[str] | None = None
) -> Path:
    """Draw the report of a directory again from its stored files.

    Args:
        run_dir: a report directory (``stability report`` wrote it).
        overwrite: whether files of the names that are written here may be replaced where no report made them. All other
            files stay as they are.
        full: show everything unfolded, as for a print that is to be audited.
        formats: files of each figure, of ``figures.figure.FORMATS``; all by default.

    Returns:
        Path of ``report.html``; ``report.json``, ``files.json``, ``tables/*.csv`` and ``figures/*`` are written beside
        it.

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
    with claim_folder(run_dir, "report --redraw") as folder:
        folder.reserve(page_files(), "report", overwrite=overwrite, adopt=True)
        report, formats = collect(run_dir), formats or FORMATS
        text = json.dumps(jsonable(report.to_dict()), indent=1, allow_nan=False) + "\n"
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
        ordered = replace(report, models=tuple(ranked(report.models)))
        main_figures, folds = figures(ordered), (more_results(ordered), method(ordered))
        parts = [part for fold in (*folds[0], *folds[1]) for part in fold.parts]
        every = [*main_figures, *(part for part in parts if isinstance(part, Figure))]
        pictures = [f"figures/{figure.name}.{kind}" for figure in every for kind in formats]
        folder.reserve(pictures, "report", overwrite=overwrite, adopt=True)
        stale = [n for n in folder.files_made_by("report") if n.startswith("figures/") and n not in pictures]
        folder.remove(stale)
        write_text(folder.path / "report.json", text)
        tables = _write_tables(folder, report)
        for figure in every:
            figure.write(folder.path / "figures", formats)
        _write_zip(folder, [*tables, *pictures])
        paths = [path for m in report.models for path in files(m)]
        digests = {n: file_digest(folder.path / n) for n in ("report.json", SETTINGS, *paths, *tables, *pictures)}
        write_text(folder.path / "files.json", json.dumps(digests, indent=1) + "\n")
        page = _page(ordered, digest, main_figures, folds, digests, formats)
        if full:
            page = re.sub("<details(?! open)", "<details open", page)
        return write_text(folder.path / "report.html", page)


def _page(
    report: Report,
    digest: str,
    main_figures: Sequence[Figure],
    folds: tuple[Sequence[Fold], Sequence[Fold]],
    digests: Mapping[str, str],
    formats: Sequence[str],
) -> str:
    """Return the page of a report whose models are in the order of its table."""
    env, models = environment(), report.models
    source: Any = env.loader
    css = "".join(source.get_source(env, name)[0] for name in ("report.css", "fold.css")) + footer(digest)
    script = str(source.get_source(env, "report.js")[0])
    size, best = attack_size(models), recommended(models)
    return env.get_template("report.html.j2").render(
        report=report,
        kicker=cut(verdicts.kicker(report), LETTERS),
        headline=verdicts.headline(report),
        summary=verdicts.summary(report),
        table=verdict_table.table(report),
        best=best,
        recheck=recheck(best) if best else "",
        covered=covered(best) if best else "",
        not_covered=not_covered(best) if best else "",
        figures=main_figures,
        formats=formats,
        cards=[card(m, size, digests, len(models) == 1) for m in models],
        results=folds[0],
        method=folds[1],
        zip=ZIP,
        folded=len(models) > SHORT_LIST,
        digest=digest,
        css=Markup(css),
        script=Markup(script),
        policy=policy(css, script),
        version=version("rnn-stability"),
    )


def policy(css: str, script: str = "") -> str:
    """Return the page's content security policy: nothing is loaded or sent; its own style and script are used.

    Args:
        css: the content of the page's ``<style>`` element, to the letter.
        script: the content of its ``<script>`` element; empty for a page without one.

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
    """Return the rules for the foot of every printed page: which report it is, and which of how many pages.

    Args:
        digest: SHA-256 of ``report.json``.

    Example:
        >>> footer("ab" * 32)[:32]
        '@page { @bottom-left { content: '
    """
    # spaced letters have no ligatures: a digest is copied letter by letter
    look = "font: 8pt sans-serif; letter-spacing: 0.01px; color: #444;"
    digest_box = f'@bottom-left {{ content: "report.json, SHA-256 {digest}"; {look} }}'
    return f'@page {{ {digest_box} @bottom-right {{ content: counter(page) " / " counter(pages); {look} }} }}\n'


def page_files() -> tuple[str, ...]:
    """Return the names of all files but figures that drawing a report may write."""
    stems = (*FRAMES, "margins", "claims", "trainings", "models")
    return ("report.html", "report.json", "files.json", ZIP, *(f"tables/{stem}.csv" for stem in stems))


def _write_tables(folder: Folder, report: Report) -> list[str]:
    """Write the long tables, remove those of an earlier page, and return their names."""
    tables = {f"tables/{name}.csv": frame for name, frame in report.tables().items()}
    folder.remove([name for name in page_files() if name.startswith("tables/") and name not in tables])
    try:
        make_folder(folder.path / "tables")
    except OSError as error:
        raise FileFormatError(f"cannot write to {folder.path}: {error.strerror or error}") from error
    for name, frame in tables.items():
        write_text(folder.path / name, frame.to_csv(index=False))
    return list(tables)


def _write_zip(folder: Folder, names: Sequence[str]) -> None:
    """Write one archive of these files; equal files give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, (folder.path / name).read_bytes())
    write_bytes(folder.path / ZIP, buffer.getvalue())
