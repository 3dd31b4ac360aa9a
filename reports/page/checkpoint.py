"""Page of a checkpoint with gated linear layers: ``report.html`` with proven bounds of every layer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stability.storage.folder import claim_folder
from stability.storage.writing import make_folder, write_text

from ..figures.figure import Figure
from ..figures.heat_map import Scale, heat_map
from ..formatting import count, number, verdict_word
from ..gated_layers import COLUMNS, MEASURED, meanings, measured_cells, proven_cells, scope, steps
from ..jsonable import write_json
from ..names import printable
from ..stored.reasons import shell_name
from .study import Badge, Section, Table, write_page

if TYPE_CHECKING:
    from ...analysis.checkpoint_results import CheckpointResults

PAGE, JSON, CERTIFICATE, UNITS = "report.html", "report.json", "certificate.json", "tables/units.csv"
HORIZONS = Scale((10, 100, 1_000, 10_000, 100_000, 1_000_000), "steps", "no limit proven")
RATIOS = Scale((2, 5, 10, 30, 100, 1_000), "proven bound divided by measured state")
LISTED = 5
"""Most layers whose numbers a sentence lists."""


def render_checkpoint(results: CheckpointResults, folder: str | Path, *, overwrite: bool = False) -> Path:
    """Write the page of a checkpoint.

    Args:
        results: claims and measurements.
        folder: folder of the page; it also gets ``report.json`` (the JSON object of ``stability certify``),
            ``certificate.json``, ``tables/units.csv`` and ``figures/*``.
        overwrite: whether files of these names that no report made may be replaced.

    Returns:
        Path of ``report.html``.

    Raises:
        ConfigurationError: a file that no report made is in the way.
        FileFormatError: a folder that cannot be written to.
        FolderInUseError: another process writes there.
    """
    document, files = results.document(), (JSON, CERTIFICATE, UNITS)
    with claim_folder(folder, "report") as root:
        root.reserve((PAGE, *files), "report", overwrite=overwrite)
        make_folder(root.path / "tables")
        results.certificate.save(root.path / CERTIFICATE)
        write_json(root.path / JSON, document)
        write_text(root.path / UNITS, results.table().to_csv(index=False))
        kicker = f"Stability of a checkpoint · {printable(results.certificate.name)}"
        sections = _sections(results, document["layers"])
        links = [(name, name) for name in files]
        return write_page(root, PAGE, _finding(results), kicker, sections, links, "report", overwrite)


def _finding(results: CheckpointResults) -> str:
    """Return the verdict in a sentence."""
    layers, verdict = results.certificate.layers, str(results.certificate.verdict)
    head = f"{printable(results.certificate.name)}: {verdict_word(verdict).lower()}."
    numbers = [layer.layer for layer in layers if str(layer.verdict) == verdict]
    named = f"layer{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers[:LISTED]))}"
    named += f" and {len(numbers) - LISTED} more" if len(numbers) > LISTED else ""
    if verdict == "refuted":
        return f"{head} The state of {named} grows, or is never forgotten, under every input."
    if verdict == "inconclusive":
        return f"{head} No state bound is proven for {named}."
    each = "its gated linear layer" if len(layers) == 1 else f"all {len(layers)} gated linear layers"
    return f"{head} The states of {each} stay bounded at every length."


def _sections(results: CheckpointResults, rows: list[Any]) -> list[Section]:
    limits = [
        "Each layer is certified alone. The outputs of the whole model have no proven bound.",
        "Where no horizon is proven, some allowed input may be kept for any number of steps.",
        "Rounding in float32 or bfloat16 is not covered.",
    ]
    if others := results.skipped:
        kinds = ", ".join(sorted(set(others.values())))
        limits.append(f"{len(others)} layers without a recurrent state ({kinds}) are not covered.")
    text = f"Not measured: {results.not_measured}." if results.not_measured else ""
    if results.measured:
        text = f"Bounds are proven. States and horizons are also measured on {printable(results.data)}."
    again = f"stability verify {CERTIFICATE} --weights {shell_name(results.path)}"
    boxes = (
        ("Covered", " ".join(scope(results)), ""),
        ("Not covered", " ".join(limits), ""),
        ("Check it again, without a solver", "", again),
    )
    return [
        Section("layers", "Layers", text, (_table(rows),), key=meanings(rows), boxes=boxes),
        Section("units", "Channels and heads", figures=_figures(results, rows[0]["horizon"]["tol"])),
    ]


def _table(rows: Sequence[Any]) -> Table:
    seen = any("measured" in row for row in rows)
    columns = [*COLUMNS, *((a, b if a == "bound /" else f"{b}, measured") for a, b in MEASURED[1:] if seen)]
    cells = [(str(r["layer"]), r["type"], Badge(r["verdict"]), *proven_cells(r), *measured_cells(r)) for r in rows]
    header = [f"{first} {second}".replace("- ", "").strip() for first, second in columns]
    return Table(header, [row[: len(header)] for row in cells], range(3, len(header)))


def _figures(results: CheckpointResults, tolerance: float) -> list[Figure]:
    units, figures = results.units(), []
    horizons = {layer: values["horizon"] for layer, values in units.items() if "horizon" in values}
    if horizons:
        every = np.concatenate(list(horizons.values()))
        finite = every[np.isfinite(every)]
        title = f"{count(len(finite))} of {count(len(every))} units have a proven memory horizon"
        title += f", the longest of {steps(int(finite.max()))} steps." if finite.size else "."
        reading = f"Number of steps until the weight of an input is proven to be below {tolerance:g}, by color."
        figures.append(heat_map("horizon", title, reading, "Proven for every allowed input.", horizons, HORIZONS))
    ratios = {layer: values["ratio"] for layer, values in units.items() if "ratio" in values}
    if ratios:
        median = float(np.nanmedian(np.concatenate(list(ratios.values()))))
        title = f"The proven state bound is {number(median)} times the largest measured state, in the median unit."
        reading = "Proven bound of the state, divided by its largest value on the data, by color; darker is looser."
        figures.append(heat_map("tightness", title, reading, f"Measured on {printable(results.data)}.", ratios, RATIOS))
    return figures
