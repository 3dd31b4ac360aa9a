"""Command ``stability study``: rerun tables and figures of the papers, each with its page."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError, StabilityError

from ..formatting import duration, table
from .console import Interrupted, status
from .options import Compute, Output, no_default


def study(
    name: Annotated[str | None, typer.Argument(help="Name of the study.", metavar="[NAME]", show_default=False)] = None,
    listing: Annotated[bool, typer.Option("--list", help="List of the studies.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Every study, each in its folder, and an index.")] = False,
    quick: Annotated[bool, typer.Option(help="Small version, about one minute.")] = False,
    out: Annotated[Path | None, no_default("Folder for the results.", "--out", "-o", metavar="FOLDER")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Permission to replace other files of the same names.")
    ] = False,
    *,
    compute: Compute,
    output: Output,
) -> None:
    """Rerun a table or figure of a paper.

    Write the page study.html. Exit code 2 if a training diverged or, with --all, if one study failed; the others
    still run.
    """
    from ...analysis.studies import STUDIES

    if every and name is not None:
        raise ConfigurationError(f"NAME and --all exclude each other, got {name!r}")
    if listing:
        known = {name: s.summary for name, s in STUDIES.items()}
        output.show({"studies": known}, table(("study", "reruns"), list(known.items())))
    elif every:
        _every(out or Path("runs") / "studies", quick, overwrite, compute, output)
    elif name is None:
        raise ConfigurationError(
            f"name a study ({', '.join(STUDIES)}) or use --all; `stability study --list` describes them"
        )
    else:
        folder = out or Path("runs") / f"study-{name}"
        result, page = _one(name, folder, quick, overwrite, compute, output)
        status("", output.quiet)
        document = {"study": name, "out": folder, "page": page, **result.to_dict()}
        output.show(document, f"{result.text()}\n\nPage: {page}")


def _one(
    name: str, folder: Path, quick: bool, overwrite: bool, compute: Compute, output: Output, index: str = ""
) -> tuple[Any, Path]:
    """Run a study and draw its page.

    Raises:
        Interrupted: the user stopped it.
    """
    from ...analysis.studies import run_study
    from ..page.study import render_study

    def progress(text: str) -> None:
        status(f"{name}: {text}", output.quiet)

    try:
        result = run_study(name, out=folder, quick=quick, **asdict(compute), overwrite=overwrite, progress=progress)
    except KeyboardInterrupt as stop:
        raise Interrupted(f"finished parts are kept in {folder}; the same command continues") from stop
    return result, render_study(result, folder, overwrite=overwrite, index=index)


def _every(folder: Path, quick: bool, overwrite: bool, compute: Compute, output: Output) -> None:
    """Run all studies, one after the other; the index is drawn after each.

    Raises:
        StabilityError: some have no result.
    """
    from ...analysis.studies import STUDIES
    from ..page.study import render_index

    done: dict[str, Any] = {}
    failed: dict[str, str] = {}
    entries: dict[str, dict[str, Any]] = {}
    index = folder / "index.html"
    for name in STUDIES:
        try:
            done[name], page = _one(name, folder / name, quick, overwrite, compute, output, "../index.html")
            entries[name] = {"page": page, "seconds": done[name].seconds, "conclusion": done[name].conclusion}
        except StabilityError as error:
            failed[name] = str(error)
            entries[name] = {"failed": str(error)}
        index = render_index(folder, done, failed, overwrite=overwrite)
    status("", output.quiet)
    lines = [f"{name} ({duration(result.seconds)}): {result.conclusion}" for name, result in done.items()]
    output.show({"out": folder, "index": index, "studies": entries}, "\n".join([*lines, "", f"Index: {index}"]))
    if failed:
        why = "; ".join(f"{name}: {text}" for name, text in failed.items())
        raise StabilityError(f"{len(failed)} of {len(STUDIES)} studies failed: {why}; the index shows the others")
