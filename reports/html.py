"""The page: stored results in, ``report.html`` with ``report.json`` and ``tables/`` out.

Redrawing needs neither torch nor a solver, checks every certificate again, and gives the same page for the same files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stability.errors import FileFormatError
from stability.wire import write_text

from .collect import ModelRecord, Report, collect
from .formatting import FILTERS
from .made import lead, made, not_run
from .plain import plain
from .sections import sections
from .words import GLOSSARY, meaning, notes, reason, sentence, weaker

__all__ = ["environment", "policy", "render"]


def environment() -> Environment:
    """The template environment: autoescape on, undefined names are errors, the named filters."""
    env = Environment(
        loader=PackageLoader("stability.reports", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(FILTERS)
    return env


def render(run_dir: str | Path) -> Path:
    """Draw the report of a directory again from its stored files.

    Args:
        run_dir: a report directory (``stability report`` wrote it).

    Returns:
        Path of ``report.html``; ``report.json`` and ``tables/*.csv`` are written beside it.

    Raises:
        FileFormatError: when the directory is none, a file in it cannot be read, or nothing can be written
        there.

    Example:
        >>> render("no-such-directory")
        Traceback (most recent call last):
        ...
        stability.errors.FileFormatError: no-such-directory is no report directory: it has no ...
    """
    report = collect(run_dir)
    page = _page(report)
    write_text(report.folder / "report.json", json.dumps(plain(report.to_dict()), indent=1, allow_nan=False) + "\n")
    _write_tables(report)
    return write_text(report.folder / "report.html", page)


def _card(m: ModelRecord) -> dict[str, Any]:
    """Everything that stands on one model's card."""
    box = m.analysis.get("input_box")
    return {
        "record": m,
        "sentence": m.refused or sentence(m.certificate, m.is_discrete),
        "statement": None if m.certificate is None else m.certificate["statement"],
        "reason": reason(m.certificate) if m.state in ("certified", "inconclusive") else "",
        "notes": notes(m.certificate, box if isinstance(box, list) and len(box) == 2 else None),
        "facts": meaning(m.certificate, m.is_discrete, m.length),
        "weaker": weaker(m.certificate),
        "missing": not_run(m),
    }


def _page(report: Report) -> str:
    env = environment()
    css = str((env.loader.get_source(env, "report.css"))[0])  # type: ignore[union-attr]
    return env.get_template("report.html.j2").render(
        report=report,
        title=str(report.settings.get("title", "Stability report")),
        models=[_card(m) for m in report.models],
        sections=sections(report),
        lead=lead(report),
        made=made(report),
        glossary=GLOSSARY,
        css=Markup(css),
        policy=policy(css),
        version=version("rnn-stability"),
    )


def policy(css: str) -> str:
    """The page's content security policy: nothing is loaded, run or sent; this one style sheet is used.

    Args:
        css: the content of the page's ``<style>`` element, to the letter.

    Returns:
        The policy.

    Example:
        >>> policy("p {}")[:34]
        "default-src 'none'; style-src 'sha"
    """
    digest = base64.b64encode(hashlib.sha256(css.encode("utf-8")).digest()).decode("ascii")
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


@contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """A folder that takes the place of ``target`` when the block ends well, and leaves no trace otherwise."""
    try:
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            yield aside
            os.chmod(aside, 0o755)
            if target.exists():
                shutil.rmtree(target)
            os.replace(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise FileFormatError(f"cannot write {target}: {error.strerror or error}") from error


def _write_tables(report: Report) -> None:
    with _aside(report.folder / "tables") as folder:
        for name, frame in report.tables().items():
            frame.to_csv(folder / f"{name}.csv", index=False)
