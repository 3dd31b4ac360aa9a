"""From a matplotlib figure to a piece of SVG that lives inside a page.

Colours are drawn as placeholders and become CSS variables, so that one drawing is legible on light and on
dark; text stays text in the page's font; identifiers are made here from the figure's name and a number, so that many
figures share one document. The drawing is read once as XML, and only attributes of its elements are changed: no text
in it, whatever it says, can become markup. Styles become presentation attributes, which a strict content security
policy lets through.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Any
from xml.etree import ElementTree as ET

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ..names import printable, shorten

INK, MUTED, RULE = "#f10000", "#f10001", "#f10002"
_SERIES = tuple(f"#f2000{i:x}" for i in range(12))
_VARIABLES = {INK: "--ink", MUTED: "--muted", RULE: "--rule", **{c: f"--s{i}" for i, c in enumerate(_SERIES)}}

WIDTH, HEIGHT = 4.6, 3.1
"""Inches: 331 by 223 units, so that 10-unit text is 10-12 px wherever the page is read."""
_ROW = 0.19
"""Inches of a legend's row."""
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "stability",
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "grid.color": RULE,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 2.4,
    "legend.labelcolor": INK,
    "lines.linewidth": 1.7,
    "lines.markersize": 4.5,
    "path.simplify": False,
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.unicode_minus": True,
    "axes.formatter.use_mathtext": False,
}


def series_color(index: int) -> str:
    """The placeholder colour of the series with this index; there are twelve."""
    return _SERIES[index % len(_SERIES)]


@contextmanager
def panel(title: str, *, height: float = HEIGHT) -> Iterator[tuple[Figure, Axes]]:
    """One axes of the page's usual size in the page's style."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.set_title(title)
        yield figure, axes


def legend_below(axes: Axes, columns: int = 2) -> None:
    """A legend below the panel, which grows by it, so that it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    figure, rows = axes.get_figure(root=True), -(-len(handles) // columns)
    if figure is not None and handles:
        figure.set_figheight(figure.get_figheight() + _ROW * max(0, rows - 1))
        figure.legend(handles, labels, loc="outside lower center", ncols=columns)


def label(name: str, room: int = 24) -> str:
    """A name from outside as a figure shows it: printable and short. ``to_svg`` puts the full one beside it."""
    text = shorten(printable(name), room)
    return " " + text if text.startswith("_") else text  # matplotlib leaves labels that begin with it out of legends


_NUMBER = re.compile(r"-?\d+\.\d{3,}")
_PLACEHOLDER = re.compile(r"#f[12]000[0-9a-f]")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_FONT = re.compile(r"([^;]*?)([\d.]+)px")
_STROKE = tuple(
    f"stroke-{k}" for k in ("dasharray", "dashoffset", "linecap", "linejoin", "miterlimit", "opacity", "width")
)
_TEXT = ("text-anchor", "font-size", "font-weight", "font-style")
_PRESENTATION = frozenset(("fill", "fill-opacity", "fill-rule", "stroke", *_STROKE, "opacity", *_TEXT))
_VERBATIM = ("id", "href", "text-anchor", "viewBox")


def _round(match: re.Match[str]) -> str:
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def _local(name: str) -> str:
    """A tag's or attribute's name without its namespace."""
    return name.rpartition("}")[2]


def _presentation(style: str) -> dict[str, str]:
    """The declarations of a ``style`` attribute as presentation attributes; the page's font is left to the page."""
    out: dict[str, str] = {}
    for declaration in style.split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        font = _FONT.match(value) if key == "font" else None
        if font is not None:
            out["font-size"] = f"{font[2]}px"
            if "bold" in font[1] or "700" in font[1]:
                out["font-weight"] = "bold"
        elif key in _PRESENTATION:
            out[key] = value
    return out


def _attributes(element: ET.Element, rename: Callable[[str], str]) -> None:
    """Give one element plain names, rounded numbers, colours of the page and references that hold in it."""
    given = {_local(k): v for k, v in element.attrib.items()}
    given |= _presentation(given.pop("style", ""))
    element.attrib.clear()
    for key, value in given.items():
        if key == "id":
            value = rename(value)
        elif key == "href":
            value = "#" + rename(value.removeprefix("#"))
        elif key not in _VERBATIM:
            value = _REFERENCE.sub(lambda m: f"url(#{rename(m[1])})", value)
            value = _PLACEHOLDER.sub(lambda m: f"var({_VARIABLES[m[0]]})", value)
            value = " ".join(_NUMBER.sub(_round, value).split())
        if not (key == "transform" and value.startswith("rotate(-0 ")):
            element.set(key, value)


def _references(root: ET.Element) -> list[str]:
    """Identifiers that something in the drawing refers to, in order of appearance."""
    found: dict[str, None] = {}
    for element in root.iter():
        for key, value in element.attrib.items():
            if _local(key) == "href":
                found[value.removeprefix("#")] = None
            found.update(dict.fromkeys(_REFERENCE.findall(value)))
    return list(found)


def _print(figure: Figure, buffer: io.StringIO) -> None:
    """What ``savefig`` does, with one drawing where that makes two, of which the first only lays out."""
    canvas, engine = figure.canvas, figure.get_layout_engine()
    assert isinstance(canvas, FigureCanvasSVG)
    figure.dpi = 72  # as the file will have it: text takes the room that it takes there
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    canvas.print_svg(buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))


def to_svg(figure: Figure, name: str, description: str, names: Sequence[str] = ()) -> str:
    """The figure as one ``<svg>`` element.

    Args:
        figure: what ``panel`` gave.
        name: unique in the page, and ours: lower-case letters, digits and hyphens, a letter first.
        description: what a reader who cannot see it is told.
        names: names from outside that stand in the figure as ``label`` shows them; where one was shortened the
            full one becomes the text's ``<title>``.

    Returns:
        Markup without declarations, metadata and styles; colours as CSS variables, identifiers made from ``name``.

    Raises:
        ValueError: for a ``name`` that is not ours.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise ValueError(f"a figure's name is made of lower-case letters, digits and hyphens, got {name!r}")
    buffer = io.StringIO()
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        # The page's font draws the text, not matplotlib's; a figure too small for its names is still a figure.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        warnings.filterwarnings("ignore", r".*constrained_layout not applied", UserWarning)
        _print(figure, buffer)
    root = ET.fromstring(buffer.getvalue())
    known = {old: f"{name}-{k}" for k, old in enumerate(_references(root))}
    box = root.attrib["viewBox"]
    for parent in root.iter():
        for child in list(parent):
            unseen = child.attrib.get("style") == "fill: none"  # the background of a figure and of its axes
            if unseen or _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        if element.get("id") not in known:
            element.attrib.pop("id", None)
        _attributes(element, lambda old: known[old])
        if element.tag != "text":
            element.text = None
        element.tail = "\n"
    _full_names(root, names)
    root.attrib.clear()
    root.attrib.update({"viewBox": box, "role": "img", "aria-label": printable(description)})
    root.tail = None
    return ET.tostring(root, encoding="unicode")


def _full_names(root: ET.Element, names: Sequence[str]) -> None:
    """Beside every shortened name the full one, for the pointer and for those who are read to."""
    shown = {label(n): printable(n) for n in names if label(n).strip() != printable(n)}
    for text in [e for e in root.iter("text") if e.text]:
        for short, full in shown.items():
            if short in str(text.text):
                title = ET.SubElement(text, "title")
                title.text = full
                break


def standalone(svg: str) -> str:
    """The drawing as a file of its own: the page's light colours put in, on white.

    Args:
        svg: what ``to_svg`` gave.

    Returns:
        An SVG document.
    """
    css = resources.files("stability.reports.page.templates").joinpath("report.css").read_text(encoding="utf-8")
    light = css[css.index(":root") : css.index("}")]
    values = dict(re.findall(r"(--[\w-]+):\s*(#[0-9a-f]{6})", light))
    root = ET.fromstring(svg)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key not in ("aria-label", "id", "href"):
                element.set(key, re.sub(r"var\((--[\w-]+)\)", lambda m: values[m[1]], value))
    look = f"background: {values['--card']}; font-family: sans-serif"
    root.attrib.update({"xmlns": "http://www.w3.org/2000/svg", "style": look})
    return ET.tostring(root, encoding="unicode") + "\n"
