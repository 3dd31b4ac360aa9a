"""Command ``stability fixed-points``: the equilibria of a network under a constant input."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from stability.errors import ConfigurationError

from ..formatting import table
from ..names import printable
from .options import Output, Seed, no_default, with_default
from .sources import check_exists, open_subject


def fixed_points(
    model: Annotated[str, typer.Argument(help="Run directory, model file or module:factory.", metavar="MODEL")],
    *,
    values: Annotated[
        str | None, with_default("Constant input, numbers with commas.", "zero", "--input", metavar="NUMBERS")
    ] = None,
    cell: Annotated[str | None, no_default("Cell of a state dict: rnn_tanh, rnn_relu, lstm, gru.")] = None,
    max_boxes: Annotated[int | None, no_default("Most boxes to examine.", "--max-boxes", min=0)] = None,
    starts: Annotated[int, typer.Option(min=0, help="Starts of Newton's method.")] = 200,
    seed: Seed = 0,
    output: Output,
) -> None:
    """List the equilibria of a network under a constant input.

    Each equilibrium is proved to exist. For small networks it is also proved that there are no others. Exit code: 0,
    whether the list is proved complete or not; 2 bad input.
    """
    import stability

    check_exists(model)
    try:
        constant = None if values is None else [float(part) for part in values.split(",")]
    except ValueError as error:
        raise ConfigurationError(f"--input must be numbers with commas between them, got {values}") from error
    output.status(f"loading {model} ...")
    subject = open_subject(model, cell=cell)
    found = stability.fixed_points(subject, constant, max_boxes=max_boxes, starts=starts, seed=seed)
    output.status()
    box = None if found.box is None else found.box.tolist()
    points, rows = [], []
    for k, point in enumerate(found.equilibria, start=1):
        entry = {"state": point.state.tolist(), "radius": point.radius, "type": point.type, "unstable": point.unstable}
        pairs = [[value.real, value.imag] for value in point.eigenvalues.tolist()]
        points.append({**entry, "eigenvalues": pairs, "time_constants": point.time_constants.tolist()})
        shown = " ".join(map(str, point.state[:4].round(3))) + " ..." * (len(point.state) > 4)
        slowest = f"{np.abs(point.time_constants).max():.4g}"
        lead = complex(point.eigenvalues[0])
        value = f"{lead.real:.4g}" + (f" {lead.imag:+.4g}i" if abs(lead.imag) > 1e-12 * abs(lead) else "")
        rows.append((str(k), point.type, str(point.unstable), shown, value, slowest))
    unit = "steps" if found.equilibria and found.equilibria[0].is_discrete else "time"
    header = ("point", "type", "unstable directions", "state", "leading eigenvalue", f"slowest mode ({unit})")
    ending = "Proved: there are no others." if found.complete else f"There may be others: {found.reason}."
    document = {"model": model, "complete": found.complete, "reason": found.reason, "box": box, "points": points}
    text = f"{printable(model)}: {len(found.equilibria)} {'equilibrium' if len(points) == 1 else 'equilibria'}"
    output.show(document, f"{text}\n{table(header, rows, right=(0, 2, 3, 5))}\n{ending}")
