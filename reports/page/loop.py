"""Page of a control loop: ``loop.html`` with its certificate, margins and Nyquist curve."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from stability.control_loop import LoopAnalysis
from stability.display import draw_envelope
from stability.errors import StabilityError
from stability.feedback_loops import Nyquist, nyquist
from stability.recovery import proved_pairs
from stability.storage.folder import Folder

from ..figures.figure import PROVEN, Drawing, Figure, blank
from ..figures.layout import logarithmic
from ..figures.nyquist import READING, draw_curve
from ..formatting import verdict_word
from ..jsonable import write_json
from ..loops import CERTIFICATE, JSON, PAGE, loop_notes, loop_table, size_words
from ..names import printable
from .study import Section, Table, write_page

SCOPE = (
    ("Covered", "The stored matrices, every nonlinearity with these slopes, all states, exact arithmetic.", ""),
    ("Not covered", "Errors of the model of the plant, delays and dynamics that the matrices do not contain.", ""),
    ("Check it again, without a solver", "", f"stability verify {CERTIFICATE}"),
)
KEY = (
    ("Slopes", "those of the nonlinearity, which may change in time; a constant slope makes the loop linear"),
    ("Overshoot", "bound of the factor by which a distance of two states may grow first"),
)


def render_loop(analysis: LoopAnalysis, document: Mapping[str, Any], root: Folder, *, overwrite: bool = False) -> Path:
    """Write the page of a loop, its results as JSON, its certificate and its figure.

    Args:
        analysis: the results.
        document: the same as JSON values, with the name of the loop as ``loop``.
        root: folder of the files.
        overwrite: whether files of these names that no such command made may be replaced.

    Returns:
        Path of ``loop.html``.

    Raises:
        ConfigurationError: another file is in the way.
        FileFormatError: a folder that cannot be written to.
    """
    analysis.certificates[0].save(root.path / CERTIFICATE)
    write_json(root.path / JSON, document)
    header, rows = loop_table(analysis)
    notes = loop_notes(analysis)
    obstacle = notes.pop(0) if str(analysis.certificates[0].verdict) != "certified" else ""
    table = Table(header, rows, (1, 2))
    sections = (
        Section("margins", "Rates and margins", obstacle, (table,), _figures(analysis, header[1]), key=KEY),
        Section("scope", "Notes", notes=notes, boxes=SCOPE),
    )
    title = f"{verdict_word(analysis.certificates[0].verdict)}: {printable(document['loop'])}, {header[1]}."
    kicker = f"Stability of a control loop · {size_words(analysis)}"
    return write_page(root, PAGE, title, kicker, sections, [(n, n) for n in (JSON, CERTIFICATE)], "loop", overwrite)


def _figures(analysis: LoopAnalysis, slopes: str) -> list[Figure]:
    """Return the picture of the Nyquist curve with the circle, and of the proved decay, or of the latter alone."""
    for certificate in analysis.certificates:
        with contextlib.suppress(StabilityError):  # several channels, or slopes below 0
            curve = nyquist(certificate.subject)
            title = f"The circle criterion {'holds' if curve.holds else 'does not hold'} for {slopes}."
            reading = f"{READING} Right: proved bound on the distance of two states."
            points: Any = curve.values
            values = {"frequency": curve.frequencies, "real": np.real(points), "imag": np.imag(points)}
            return [Figure("nyquist", title, reading, "", pd.DataFrame(values), partial(_draw, analysis, curve))]
    pairs, name = _proved(analysis)
    title, reading = f"Distances of two states decay for {name}.", "Proved bound on the distance of two states."
    table = pd.DataFrame(pairs, columns=["rate", "overshoot"])
    return [Figure("decay", title, reading, "", table, partial(_draw, analysis, None))] if pairs else []


def _proved(analysis: LoopAnalysis) -> tuple[list[tuple[float, float]], str]:
    """Return the proved pairs of rate and overshoot, and the slopes that they hold for."""
    parts = zip(analysis.certificates, loop_table(analysis)[0][1:])
    return next(((pairs, name) for part, name in parts if (pairs := proved_pairs(part))), ([], ""))


def _draw(analysis: LoopAnalysis, curve: Nyquist | None) -> Drawing:
    drawing = blank(height=2.8)
    *left, right = [drawing.subplots()] if curve is None else drawing.subplots(1, 2, width_ratios=(1, 2))
    if curve is not None:
        draw_curve(left[0], curve)
        left[0].set_title("Nyquist curve")
    pairs, name = _proved(analysis)
    draw_envelope(pairs, analysis.system.is_discrete, right, f"Proved decay, {name}" if pairs else "No decay is proved")
    if pairs:
        logarithmic(right.yaxis)
        right.lines[-3].set(color=PROVEN)  # the last two are the levels
    return drawing
