"""The page: stored results in, ``report.html`` with ``report.json`` and ``tables/`` out.

Redrawing needs neither torch nor a solver, and gives the same page for the same files.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stability.errors import FileFormatError
from stability.wire import write_text

from .collect import Report, collect
from .formatting import FILTERS
from .made import lead, made
from .sections import sections
from .words import CRITERIA, GLOSSARY, meaning, reason, sentence, weaker

__all__ = ["environment", "render"]


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


def _page(report: Report) -> str:
    env = environment()
    models = [
        {
            "record": m,
            "index": i,
            "sentence": sentence(m.certificate, m.is_discrete),
            "reason": reason(m.certificate),
            "facts": meaning(m.certificate, m.is_discrete),
            "weaker": weaker(m.certificate),
        }
        for i, m in enumerate(report.models)
    ]
    css = Markup((env.loader.get_source(env, "report.css"))[0])  # type: ignore[union-attr]
    return env.get_template("report.html.j2").render(
        report=report,
        models=models,
        sections=sections(report),
        lead=lead(report),
        made=made(report),
        criteria=CRITERIA,
        glossary=GLOSSARY,
        css=css,
        version=version("rnn-stability"),
    )


def plain(value: Any) -> Any:
    """JSON values only: numbers that are not finite become ``None``.

    Example:
        >>> plain({"a": (1.0, float("nan"))})
        {'a': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


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
