"""From a matplotlib figure to a piece of SVG that lives inside a page.

Colours are drawn as placeholders and become CSS variables, so that one drawing is legible on light and on
dark; text stays text in the page's font; identifiers carry the figure's name, so that many figures share one
document.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

__all__ = ["BAD", "GOOD", "INK", "MUTED", "RULE", "UNSURE", "panel", "series_color", "standalone", "to_svg"]

INK, MUTED, RULE = "#f10000", "#f10001", "#f10002"
GOOD, BAD, UNSURE = "#f10003", "#f10004", "#f10005"
_SERIES = tuple(f"#f2000{i:x}" for i in range(12))
_VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    RULE: "--rule",
    GOOD: "--good",
    BAD: "--bad",
    UNSURE: "--unsure",
} | {c: f"--s{i}" for i, c in enumerate(_SERIES)}

WIDTH, HEIGHT = (
    4.6,
    3.1,
)  # inches: 331 by 223 units, so that 10-unit text is 10-12 px wherever the page is read
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


def _round(match: re.Match[str]) -> str:
    text = f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def to_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as one ``<svg>`` element.

    Args:
        figure: what ``panel`` gave.
        name: unique in the page; letters, digits and hyphens.
        description: what a reader who cannot see it is told.

    Returns:
        Markup without declarations and metadata; colours as CSS variables, identifiers prefixed by ``name``.
    """
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(
        r'\s+id="(?:figure|axes|patch|line2d|text|xtick|ytick|matplotlib\.axis|legend|\w+Collection)_\d+"',
        "",
        text,
    )
    text = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"#f[12]000[0-9a-f]", lambda m: f"var({_VARIABLES[m[0]]})", text)
    text = re.sub(r'="[^"]*"', lambda m: re.sub(r"-?\d+\.\d{3,}", _round, m[0]), text)  # attributes, never tick labels
    text = re.sub(r"font: ([^;\"]*?)([\d.]+)px [^;\"]+", lambda m: f"font-size: {m[2]}px{_weight(m[1])}", text)
    text = re.sub(r"font-family: [^;\"]+(?:; )?", "", text)
    text = re.sub(r' transform="rotate\(-?0 [^"]*\)"', "", text)
    text = re.sub(r"<style type=\"text/css\">.*?</style>", "", text, flags=re.DOTALL)
    head = re.match(r"<svg[^>]*>", text)
    box = re.search(r'viewBox="([^"]+)"', text)
    if head is None or box is None:
        raise RuntimeError("matplotlib wrote an SVG without a view box")
    label = html.escape(description, quote=True)
    opening = f'<svg viewBox="{box[1]}" role="img" aria-label="{label}" xmlns:xlink="http://www.w3.org/1999/xlink">'
    return re.sub(r"\n\s*", "\n", opening + text[head.end() :]).strip()


def standalone(svg: str) -> str:
    """The drawing as a file of its own: the page's light colours put in, on white.

    Args:
        svg: what ``to_svg`` gave.

    Returns:
        An SVG document.
    """
    css = resources.files("stability.reports.templates").joinpath("report.css").read_text(encoding="utf-8")
    root = css[css.index(":root") : css.index("}")]
    values = dict(re.findall(r"(--[\w-]+):\s*(#[0-9a-f]{6})", root))
    text = re.sub(r"var\((--[\w-]+)\)", lambda m: values[m[1]], svg)
    look = f"background: {values['--card']}; font-family: sans-serif"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" style="{look}" '
    return text.replace("<svg ", head, 1) + "\n"


def _weight(words: str) -> str:
    return "; font-weight: bold" if "bold" in words or "700" in words else ""
