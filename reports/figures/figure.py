"""Figures of the page: drawn by matplotlib, shown inline with the page's colors, and written as files beside it."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure as Drawing

from stability.storage.writing import make_folder, write_bytes, write_text

from ..names import printable

PROVEN, UNDECIDED, REFUTED = "#0a5fa5", "#6b7080", "#c2410c"
INK, MUTED, RULE, PAPER = "#1b1e26", "#5c6270", "#d7dae0", "#ffffff"
SERIES = ("#1f6fb5", "#c2591a", "#2a8a5f", "#a0468c", "#8a7412", "#b8434b", "#5b6b85", "#6a4fb8")
"""Colors of series that no verdict colors."""
COLORS = {
    PROVEN: "--proven", UNDECIDED: "--undecided", REFUTED: "--refuted",
    INK: "--ink", MUTED: "--muted", RULE: "--rule", PAPER: "--paper",
    **{color: f"--series-{k}" for k, color in enumerate(SERIES)},
}  # fmt: skip
"""Colors of a drawing and the variable of the page's style sheet that stands for each, light or dark."""
VERDICT = {"certified": PROVEN, "refuted": REFUTED}
"""Color of a verdict; any other is drawn in ``UNDECIDED``."""
UNDATED: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
"""Metadata with which equal figures give equal files."""
FORMATS = (*UNDATED, "csv")
WIDTH = 10.4
"""Inches of a figure that is as wide as the page's text."""
STYLE: Any = {
    "font.family": "DejaVu Sans", "font.size": 8.5, "text.color": INK,
    "axes.edgecolor": MUTED, "axes.labelcolor": MUTED, "axes.labelsize": 8.5, "axes.linewidth": 0.8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left", "axes.titlesize": 8.5,
    "axes.titleweight": "bold", "axes.axisbelow": True, "grid.color": RULE, "grid.linewidth": 0.7,
    "xtick.color": MUTED, "ytick.color": MUTED, "xtick.labelsize": 8, "ytick.labelsize": 8,
    "lines.linewidth": 1.4, "lines.solid_capstyle": "round", "figure.facecolor": PAPER, "axes.facecolor": "none",
    "svg.fonttype": "none", "svg.hashsalt": "stability", "pdf.fonttype": 42, "savefig.dpi": 200, "path.simplify": False,
    "text.parse_math": False,
}  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A numbered figure of a page.

    Attributes:
        name: stem of its files, and its anchor in the page.
        title: the finding, one sentence.
        reading: how to read it.
        protocol: how the numbers were measured.
        table: the numbers that are drawn, as its CSV holds them.
        draw: make the matplotlib figure; called within ``style``.
    """

    name: str
    title: str
    reading: str
    protocol: str
    table: pd.DataFrame
    draw: Callable[[], Drawing]

    def svg(self) -> str:
        """Return the drawing as one ``<svg>`` element for the page, with its colors as variables."""
        with style():
            return _inline(self.draw(), self.name, self.title)

    def write(self, folder: Path, formats: Sequence[str] = FORMATS) -> tuple[str, ...]:
        """Write the figure's files.

        Args:
            folder: where; made if it is not there.
            formats: some of ``FORMATS``.

        Returns:
            Names of the files, ``NAME.svg`` ...
        """
        make_folder(folder)
        if "csv" in formats:
            write_text(folder / f"{self.name}.csv", self.table.to_csv(index=False))
        kinds = [kind for kind in formats if kind in UNDATED]
        with style():
            drawing = self.draw() if kinds else blank()
            for kind in kinds:
                drawing.savefig(buffer := io.BytesIO(), format=kind, metadata=UNDATED[kind])
                write_bytes(folder / f"{self.name}.{kind}", buffer.getvalue())
        return tuple(f"{self.name}.{kind}" for kind in formats)


@contextmanager
def style() -> Iterator[None]:
    """Draw in the toolkit's style: no display is needed, and nobody's own settings change the figure."""
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # names in other scripts
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def blank(width: float = WIDTH, height: float = 3.2) -> Drawing:
    """Return an empty figure of this size in inches, laid out so that labels never overlap axes."""
    return Drawing(figsize=(width, height), layout="constrained")


def color_of(state: str | None) -> str:
    """Return the color of a verdict.

    Example:
        >>> color_of("certified") == PROVEN, color_of(None) == UNDECIDED
        (True, True)
    """
    return VERDICT.get(str(state), UNDECIDED)


_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"


def _inline(drawing: Drawing, name: str, alt: str) -> str:
    """Turn matplotlib's file into an element of the page.

    The page's policy forbids style attributes and style elements: properties become attributes. Identifiers are kept
    where the drawing itself refers to them, and for groups named ``curve:...``, and begin with the figure's name.
    """
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None})
    root = ET.fromstring(buffer.getvalue())
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.rpartition("}")[2] in ("metadata", "style", "title"):
                parent.remove(child)
    text = ET.tostring(root, encoding="unicode")
    used = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text))
    frames = _frames(drawing)
    exact = {path for group in root.iter() if group.get("id") in frames for path in group.iter()}
    for element in root.iter():
        if "d" in element.attrib and element not in exact:
            element.set("d", re.sub(r"\d+\.\d{3,}", lambda m: f"{float(m[0]):.2f}", element.attrib["d"]))
        identifier = element.attrib.pop("id", None)
        if identifier in used:
            element.set("id", f"{name}-{identifier}")
        elif identifier in frames:
            element.set("data-curve", identifier.removeprefix("curve:"))
            element.set("data-axes", frames[identifier])
        _rename(element, name)
    view = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update({"viewBox": view, "role": "img", "aria-label": printable(alt), "class": "figure"})
    ET.register_namespace("", _SVG[1:-1])
    return ET.tostring(root, encoding="unicode").replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)


def _rename(element: ET.Element, name: str) -> None:
    """Replace style by attributes, links by those within the figure, and colors by the page's variables."""
    styled, link = element.attrib.pop("style", ""), element.attrib.pop(_LINK, None)
    element.attrib.update(_attributes(styled))
    if link is not None:
        element.set("href", link.replace("#", f"#{name}-"))
    for key, value in list(element.attrib.items()):
        variable = COLORS.get(value)
        element.set(key, value.replace("url(#", f"url(#{name}-") if variable is None else f"var({variable})")


def _attributes(styled: str) -> dict[str, str]:
    """Return the presentation attributes that say what a style attribute says."""
    attributes = dict(re.findall(r"\s*([\w-]+)\s*:\s*([^;]+)", styled))
    font = attributes.pop("font", None)
    if font is not None:
        attributes["font-size"] = next(iter(re.findall(r"[\d.]+px", font)), "8px")
        attributes |= {"font-weight": "bold"} if re.match(r"(\w+ )*(bold|700)\b", font) else {}
    attributes.pop("font-family", None)
    return attributes


def _frames(drawing: Drawing) -> dict[str, str]:
    """Return the position and the limits of the axes of every line with a name.

    The text holds left, top, right, bottom in the drawing's units, then the least and the largest value and
    ``linear`` or ``log`` of each axis: enough to read a curve's values from the page.
    """
    frames, height = {}, 72.0 * drawing.get_figheight()
    for axes in drawing.axes:
        box = axes.get_window_extent().transformed(drawing.dpi_scale_trans.inverted()).frozen()
        left, bottom, right, top = (72.0 * v for v in box.extents)
        edges = [f"{v:.4f}" for v in (left, height - top, right, height - bottom)]
        limits = [f"{v:.10g}" for v in (*axes.get_xlim(), *axes.get_ylim())]
        scales = [axes.get_xscale(), axes.get_yscale()]
        text = " ".join([*edges, *limits[:2], scales[0], *limits[2:], scales[1]])
        frames |= {str(line.get_gid()): text for line in axes.lines if str(line.get_gid()).startswith("curve:")}
    return frames
