"""``stability study``: tables and figures of the papers, rerun."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError

from ..formatting import table
from .console import Interrupted, status
from .options import Compute, Output, no_default


def study(
    name: Annotated[str | None, typer.Argument(help="Name of the study.", metavar="[NAME]", show_default=False)] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies and what they rerun.")] = False,
    quick: Annotated[bool, typer.Option(help="A small version: the shape of the result in a minute.")] = False,
    out: Annotated[Path | None, no_default("Folder of the results.", "--out", "-o")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files in the folder that no study made, where names are equal.")
    ] = False,
    *,
    compute: Compute,
    output: Output,
) -> None:
    """Rerun a table or figure of the papers; exit code 2 where a training diverged."""
    from ...analysis.studies import STUDIES, run_study

    if listing or name is None:
        if not listing:
            raise ConfigurationError(f"name a study: {', '.join(STUDIES)}; `stability study --list` says what they are")
        known = {name: s.summary for name, s in STUDIES.items()}
        output.show({"studies": known}, table(("study", "reruns"), list(known.items())))
        return
    folder = out or Path("runs") / f"study-{name}"
    try:
        result: Any = run_study(
            name,
            out=folder,
            quick=quick,
            **asdict(compute),
            overwrite=overwrite,
            progress=lambda text: status(f"{name}: {text}", output.quiet),
        )
    except KeyboardInterrupt as stop:
        raise Interrupted(f"finished parts are kept in {folder}; the same command goes on from there") from stop
    status("", output.quiet)
    output.show({"study": name, "out": folder, **result.to_dict()}, f"{result.text()}\n\nResults: {folder}")
