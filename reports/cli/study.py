"""``stability study``: tables and figures of the papers, rerun."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from stability.errors import ConfigurationError

from ..formatting import table
from .console import DataDir, Device, Interrupted, Json, Quiet, Seed, say, show_json, status

__all__ = ["register", "study"]


def study(
    name: Annotated[str | None, typer.Argument(help="Name of the study.", metavar="[NAME]", show_default=False)] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies and what they rerun.")] = False,
    quick: Annotated[bool, typer.Option(help="A small version: the shape of the result in a minute.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the results.", show_default=False)] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files in the folder that no study made, where names are equal.")
    ] = False,
    data_dir: DataDir = None,
    seed: Seed = 0,
    device: Device = "cpu",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Rerun a table or figure of the papers; exit code 2 where a training diverged."""
    from ...analysis.studies import STUDIES, run_study

    if listing or name is None:
        if not listing:
            raise ConfigurationError(f"name a study: {', '.join(STUDIES)}; `stability study --list` says what they are")
        if as_json:
            show_json({"studies": {k: s.summary for k, s in STUDIES.items()}})
        else:
            say(table(("study", "reruns"), [(k, s.summary) for k, s in STUDIES.items()]), quiet)
        return
    folder = out or Path("runs") / f"study-{name}"
    try:
        result: Any = run_study(
            name,
            out=folder,
            quick=quick,
            data_dir=data_dir,
            seed=seed,
            device=device,
            overwrite=overwrite,
            progress=lambda text: status(f"{name}: {text}", quiet),
        )
    except KeyboardInterrupt as stop:
        raise Interrupted(f"finished parts are kept in {folder}; the same command goes on from there") from stop
    status("", quiet)
    if as_json:
        show_json({"study": name, "out": folder, **result.to_dict()})
    else:
        say(f"{result.text()}\n\nResults: {folder}", quiet)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(study)
