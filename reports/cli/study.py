"""``stability study``: tables and figures of the papers, rerun, each with its page."""

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
    name: Annotated[
        str | None,
        typer.Argument(help="Name of the study.", metavar="[NAME]", show_default=False),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies and what they rerun.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Run every study, each in its folder, and make an index.")
    ] = False,
    quick: Annotated[bool, typer.Option(help="A small version: the shape of the result in a minute.")] = False,
    out: Annotated[Path | None, no_default("Folder of the results.", "--out", "-o")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files in the folder that no study made, where names are equal.")
    ] = False,
    redraw: Annotated[
        Path | None, no_default("Only draw the pages of this folder again: of a study, or of several.", "--redraw")
    ] = None,
    *,
    compute: Compute,
    output: Output,
) -> None:
    """Rerun a table or figure of the papers and draw its page, study.html.

    Exit code 2 where a training diverged; with --all, where a study failed: the others go on.
    """
    from ...analysis.studies import STUDIES

    if redraw is not None:
        given = {"NAME": name, "--all": every, "--quick": quick, "--out": out, "--data-dir": compute.data_dir}
        if unread := [k for k, value in given.items() if value]:
            raise ConfigurationError(f"--redraw computes nothing: leave out {', '.join(unread)}")
        _redraw(redraw, overwrite, output)
        return
    if every and name is not None:
        raise ConfigurationError(f"either name a study or run --all, not both: got {name!r}")
    if listing:
        known = {name: s.summary for name, s in STUDIES.items()}
        output.show({"studies": known}, table(("study", "reruns"), list(known.items())))
    elif every:
        _every(out or Path("runs") / "studies", quick, overwrite, compute, output)
    elif name is None:
        raise ConfigurationError(
            f"name a study: {', '.join(STUDIES)}; `stability study --list` says what they are, --all runs every one"
        )
    else:
        folder = out or Path("runs") / f"study-{name}"
        result, page = _one(name, folder, quick, overwrite, compute, output)
        status("", output.quiet)
        document = {"study": name, "out": folder, "page": page, **result.to_dict()}
        output.show(document, f"{result.text()}\n\nPage: {page}")


def _one(
    name: str,
    folder: Path,
    quick: bool,
    overwrite: bool,
    compute: Compute,
    output: Output,
    index: str = "",
) -> tuple[Any, Path]:
    """Run a study and draw its page.

    Raises:
        Interrupted: the user stopped it.
    """
    from ...analysis.studies import run_study
    from ..page.study import render_study

    try:
        result = run_study(
            name,
            out=folder,
            quick=quick,
            **asdict(compute),
            overwrite=overwrite,
            progress=lambda text: status(f"{name}: {text}", output.quiet),
        )
    except KeyboardInterrupt as stop:
        raise Interrupted(f"finished parts are kept in {folder}; the same command goes on from there") from stop
    return result, render_study(folder, overwrite=overwrite, index=index)


def _every(folder: Path, quick: bool, overwrite: bool, compute: Compute, output: Output) -> None:
    """Run all studies, one after the other; the index is drawn after each.

    Raises:
        StabilityError: some have no result.
    """
    from ...analysis.studies import STUDIES
    from ..page.study import render_index

    done: dict[str, str | None] = {}
    shown: dict[str, dict[str, Any]] = {}
    index = folder / "index.html"
    for name in STUDIES:
        try:
            result, page = _one(name, folder / name, quick, overwrite, compute, output, "../index.html")
            done[name] = None
            shown[name] = {"page": page, "seconds": result.seconds, "conclusion": result.conclusion}
        except StabilityError as error:
            done[name] = str(error)
            shown[name] = {"failed": str(error)}
        index = render_index(folder, done, overwrite=overwrite)
    status("", output.quiet)
    rows = [(n, duration(s["seconds"]), s["conclusion"]) for n, s in shown.items() if "page" in s]
    lines = [f"{name} ({took}): {said}" for name, took, said in rows]
    output.show({"out": folder, "index": index, "studies": shown}, "\n".join([*lines, "", f"Index: {index}"]))
    if failed := {name: why for name, why in done.items() if why is not None}:
        why = "; ".join(f"{name}: {text}" for name, text in failed.items())
        raise StabilityError(f"{len(failed)} of {len(done)} studies have no result: {why}; the index shows the others")


def _redraw(folder: Path, overwrite: bool, output: Output) -> None:
    """Draw the page of a study again, or those of all studies in a folder and their index."""
    from ..page.study import render_index, render_study
    from ..stored.studies import read_studies

    if (folder / "study.json").is_file():
        pages = [render_study(folder, overwrite=overwrite)]
    else:
        found, _ = read_studies(folder)
        pages = [render_study(folder / name, overwrite=overwrite, index="../index.html") for name in found]
        pages.append(render_index(folder, overwrite=overwrite))
    output.show({"pages": pages}, "\n".join(f"Page: {page}" for page in pages))
