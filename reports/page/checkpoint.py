"""Page of a checkpoint with gated linear layers: ``report.html`` with proven bounds of every layer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stability.storage.folder import claim_folder
from stability.storage.writing import make_folder, write_text

from ..figures.figure import Figure
from ..figures.heat_map import Scale, heat_map
from ..formatting import count, number, verdict_word
from ..gated_layers import COLUMNS, MEASURED, CheckpointResults, measured_cells, proven_cells, steps
from ..jsonable import jsonable
from ..names import printable
from ..stored.reasons import shell_name
from .study import Badge, Box, Section, Table, write_page

PAGE, JSON, CERTIFICATE, UNITS = "report.html", "report.json", "certificate.json", "tables/units.csv"
HORIZONS = Scale((10, 100, 1_000, 10_000, 100_000, 1_000_000), "steps", "no limit proven")
RATIOS = Scale((2, 5, 10, 30, 100, 1_000), "proven bound divided by measured state")


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
    document = jsonable(results.document())
    with claim_folder(folder, "report") as root:
        root.reserve((PAGE, JSON, CERTIFICATE, UNITS), "report", overwrite=overwrite)
        make_folder(root.path / "tables")
        results.certificate.save(root.path / CERTIFICATE)
        write_text(root.path / JSON, json.dumps(document, indent=1, allow_nan=False) + "\n")
        write_text(root.path / UNITS, results.table().to_csv(index=False))
        kicker = f"Stability of a checkpoint · {printable(results.certificate.name)}"
        links = [(name, name) for name in (JSON, CERTIFICATE, UNITS)]
        sections = _sections(results, document["layers"])
        return write_page(root, PAGE, _finding(results), kicker, sections, links, "report", overwrite)


def _finding(results: CheckpointResults) -> str:
    """Return the verdict in a sentence."""
    layers, name = results.certificate.layers, printable(results.certificate.name)
    groups = {state: [x.layer for x in layers if str(x.verdict) == state] for state in ("refuted", "inconclusive")}
    word = verdict_word(str(results.certificate.verdict)).lower()
    if groups["refuted"]:
        return f"{name}: {word}. Under every input {_numbered(groups['refuted'])} grows or forgets nothing."
    if groups["inconclusive"]:
        return f"{name}: {word}. No state bound is proven for {_numbered(groups['inconclusive'])}."
    each = "its gated linear layer" if len(layers) == 1 else f"all {len(layers)} gated linear layers"
    return f"{name}: {word}. The states of {each} stay bounded at every length."


def _numbered(layers: Sequence[int]) -> str:
    shown = ", ".join(map(str, layers[:5])) + (f" and {len(layers) - 5} more" if len(layers) > 5 else "")
    return f"layer {shown}" if len(layers) == 1 else f"layers {shown}"


def _sections(results: CheckpointResults, rows: Sequence[Any]) -> list[Section]:
    skipped: dict[str, list[int]] = {}
    for layer, kind in results.skipped.items():
        skipped.setdefault(kind, []).append(layer)
    others = "; ".join(f"{kind}: {_numbered(numbers)}" for kind, numbers in skipped.items())
    limits = [
        "Each layer is certified alone. The outputs of the whole model have no proven bound.",
        "Where no horizon is proven, some allowed input may be kept for any number of steps.",
        "Rounding in float32 or bfloat16 is not covered.",
        *([f"Layers without a recurrent state are not covered ({others})."] if others else []),
    ]
    text = f"Not measured: {results.not_measured}." if results.not_measured else ""
    if results.measured:
        text = f"Bounds are proven. States and horizons are also measured on {printable(results.data)}."
    weights = shell_name(results.path)
    boxes = (
        Box("Covered", " ".join(results.scope())),
        Box("Not covered", " ".join(limits)),
        Box("Check it again, without a solver", "", (f"stability verify {CERTIFICATE} --weights {weights}",)),
    )
    return [
        Section("layers", "Layers", text, (_table(rows),), key=results.meanings(), boxes=boxes),
        Section("units", "Channels and heads", figures=_figures(results)),
    ]


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    more = [(first, second if first == "bound /" else f"{second}, measured") for first, second in MEASURED[1:]]
    columns = [*COLUMNS, *(more if any("measured" in row for row in rows) else [])]
    cells = [
        (
            str(row["layer"]),
            row["type"],
            Badge(row["verdict"]),
            *proven_cells(row),
            *(measured_cells(row) if "measured" in row else ("–",) * (len(columns) - len(COLUMNS))),
        )
        for row in rows
    ]
    header = [f"{first} {second}".replace("- ", "").strip() for first, second in columns]
    return Table(header, cells, range(3, len(header)))


def _figures(results: CheckpointResults) -> list[Figure]:
    units = {layer.layer: results.units(layer) for layer in results.certificate.layers}
    figures = []
    horizons = {layer: values["horizon"] for layer, values in units.items() if "horizon" in values}
    if horizons:
        every = np.concatenate(list(horizons.values()))
        finite = every[np.isfinite(every)]
        share = f"{count(len(finite))} of {count(len(every))} units have a proven memory horizon"
        most = f", the longest of {steps(int(finite.max()))} steps" if finite.size else ""
        reading = "Number of steps until the weight of an input is proven to be below the tolerance, by color."
        figures.append(
            heat_map("horizon", f"{share}{most}.", reading, "Proven for every allowed input.", horizons, HORIZONS)
        )
    ratios = {layer: values["ratio"] for layer, values in units.items() if "ratio" in values}
    if ratios:
        median = float(np.nanmedian(np.concatenate(list(ratios.values()))))
        title = f"The proven state bound is {number(median)} times the largest measured state, in the median unit."
        reading = "Proven bound of the state, divided by its largest value on the data, by color; darker is looser."
        figures.append(heat_map("tightness", title, reading, f"Measured on {printable(results.data)}.", ratios, RATIOS))
    return figures
