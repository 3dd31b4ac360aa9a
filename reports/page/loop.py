"""Page of a control loop: ``loop.html`` with its certificate, margins and Nyquist curve."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import pandas as pd

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
from ..loops import LoopResults
from ..names import printable
from .study import Section, Table, write_page

PAGE, JSON, CERTIFICATE = FILES = ("loop.html", "loop.json", "certificate.json")


def render_loop(found: LoopResults, root: Folder, *, overwrite: bool = False) -> Path:
    """Write the page of a loop, its results as JSON, its certificate and its figure.

    Args:
        found: the results.
        root: folder of the files.
        overwrite: whether files of these names that no such command made may be replaced.

    Returns:
        Path of ``loop.html``.

    Raises:
        ConfigurationError: another file is in the way.
        FileFormatError: a folder that cannot be written to.
    """
    found.certificates[0].save(root.path / CERTIFICATE)
    write_json(root.path / JSON, found.document())
    table = Table(found.header(), [row for row in found.rows() if row[0] != "verdict"], (1, 2))
    boxes = (
        (
            "Covered",
            "The stored matrices; every nonlinearity with these slopes; all initial states; exact arithmetic.",
            "",
        ),
        ("Not covered", "Errors of the model of the plant, delays and dynamics that the matrices do not contain.", ""),
        ("Check it again, without a solver", "", f"stability verify {CERTIFICATE}"),
    )
    text = found.advice()
    sections = (
        Section("margins", "Rates and margins", text, (table,), _figures(found), found.notes()[bool(text) :]),
        Section("scope", "Scope", boxes=boxes),
    )
    title = f"{verdict_word(found.certificates[0].verdict)}: {printable(found.name)} with {found.header()[1]}."
    kicker = f"Stability of a control loop · {found.about()}"
    return write_page(root, PAGE, title, kicker, sections, [(n, n) for n in (JSON, CERTIFICATE)], "loop", overwrite)


def _figures(found: LoopResults) -> list[Figure]:
    """Return the picture of the Nyquist curve with the circle, and of the proved decay; none for several channels."""
    curves: list[Nyquist] = []
    for certificate in found.certificates:
        with contextlib.suppress(StabilityError):  # several channels, or slopes below 0
            curves.append(nyquist(certificate.subject))
    if not curves:
        return []
    curve = curves[0]
    title = f"The circle criterion {'holds' if curve.holds else 'does not hold'} for {found.header()[1]}."
    reading = f"{READING} Right: proved bound on the distance of two states."
    values = {"frequency": curve.frequencies, "real": curve.values.real, "imag": curve.values.imag}
    return [Figure("nyquist", title, reading, "", pd.DataFrame(values), partial(_draw, found, curve))]


def _draw(found: LoopResults, curve: Nyquist) -> Drawing:
    drawing = blank(height=2.8)
    left, right = drawing.subplots(1, 2, width_ratios=(1, 2))
    draw_curve(left, curve)
    left.set_title("Nyquist curve")
    pairs = proved_pairs(found.certificates[0]) or proved_pairs(found.certificates[-1])
    column = found.header()[1 if proved_pairs(found.certificates[0]) else -1]
    draw_envelope(pairs, found.system.is_discrete, right, f"Proved decay, {column}" if pairs else "No decay is proved")
    if pairs:
        logarithmic(right.yaxis)
    for line in right.lines[:1]:
        line.set(color=PROVEN)
    return drawing
