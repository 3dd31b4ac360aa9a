"""Command ``stability loop``: certificate and margins of one control loop, in one screen and as a page."""

from __future__ import annotations

import textwrap
from typing import Annotated, Any

import typer

from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.plants import is_linear_system
from stability.user_code import names_code

from ..formatting import table, verdict_word
from ..loops import FILES, loop_notes, loop_table, size_words
from ..names import printable
from .checkpoints import EXIT
from .options import Output, Results, Seed, check_seconds, no_default, with_default
from .sources import check_exists, open_subject


def loop(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(help="Matrices A, B, C, D, dt, slope (.npz, .mat), or module:factory.", metavar="LOOP"),
    ],
    slope: Annotated[
        tuple[float, float] | None,
        with_default("Slopes of the nonlinearity.", "those of the file, or 0 1", metavar="LOW HIGH"),
    ] = None,
    sign: Annotated[
        int | None, with_default("1: u = phi(y); -1: u = -phi(y).", "1; -1 for a plant of a factory", metavar="SIGN")
    ] = None,
    time_limit: Annotated[
        float | None, no_default("Time limit of all searches, in seconds.", metavar="SECONDS")
    ] = None,
    seed: Seed = 0,
    *,
    results: Results,
    output: Output,
) -> None:
    """Prove that a control loop is stable, and compute its margins.

    The loop is a linear plant in feedback with a nonlinearity whose slopes lie in an interval; the nominal loop has the
    upper slope. A factory returns a state space of python-control or scipy, a LureSystem, or feedback(plant,
    controller). Exit code: 0 proven stable, 1 undecided, 2 bad input, 3 proven not stable.
    """
    from stability.control_loop import analyze_loop

    time_limit = check_seconds(time_limit)
    check_exists(model)
    folder = results.claim(context, *FILES)
    output.status(f"loading {model} ...")
    subject = _open(model, slope, sign)
    found = analyze_loop(subject, seed=seed, time_limit=time_limit, progress=output.status)
    output.status()
    document, page, verdict = {"loop": model, **found.to_dict()}, None, str(found.certificates[0].verdict)
    if folder is not None:
        from ..page.loop import render_loop

        page = render_loop(found, document, folder, overwrite=results.overwrite)
    header, rows = loop_table(found)
    lines = [f"{printable(model)}: CONTROL LOOP {verdict_word(verdict).upper()} for {header[1]}"]
    lines += [f"  {line}".rstrip() for line in (size_words(found), "", *table(header, rows).splitlines())]
    notes = loop_notes(found)
    if sign is None and verdict != "certified" and not names_code(model):
        notes.append("If the file holds a plant with negative feedback, u = -phi(y), add --sign -1.")
    if isinstance(subject, LureSystem) and slope is None and found.part(-1)["verdict"] == "certified" != verdict:
        notes.append("For the linear loop alone use --slope {:g} {:g}.".format(*found.part(-1)["slope"]))
    notes.append(f"Page: {page}" if page else "For the Nyquist curve and the certificate add --out FOLDER.")
    lines += ["", *(textwrap.fill(note, 98, initial_indent="  ", subsequent_indent="  ") for note in notes)]
    output.show({**document, "notes": notes[:-1], "page": page}, "\n".join(lines))
    raise typer.Exit(EXIT[verdict])


def _open(name: str, slope: tuple[float, float] | None, sign: int | None) -> Any:
    """Return the subject of a name, with the slopes and the sign of the options."""
    if names_code(name):
        from ...models.factories import from_factory

        found = from_factory(name)
        if is_linear_system(found) or isinstance(found, tuple):
            return LureSystem.from_state_space(found, slope or (0.0, 1.0), -1 if sign is None else sign)
    else:
        found = open_subject(name)
    subject = as_subject(found)
    if slope is None and sign in (None, 1):
        return subject
    if not isinstance(subject, LureSystem) or subject.origin is not None:
        raise ConfigurationError("--slope and --sign are for the matrices of a loop: leave them out")
    if sign not in (None, -1, 1):
        raise ConfigurationError(f"--sign must be -1 or 1, got {sign}")
    slopes = (subject.alpha, subject.beta) if slope is None else slope
    return LureSystem(subject.A, (sign or 1) * subject.B, subject.C, (sign or 1) * subject.D, slopes, subject.dt)
