"""Drawings of a few lines, bands and dots as SVG.

Text is in the page's font, colours are CSS variables, names from outside are text. What is proved, measured or
heuristic in a drawing is a group of that class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree as ET

import numpy as np
from numpy.typing import ArrayLike

from ..formatting import number
from ..names import printable, shorten
from .clipping import clipped, with_crossings

INK, MUTED, RULE, GOOD, BAD = "var(--ink)", "var(--muted)", "var(--rule)", "var(--good)", "var(--bad)"
DOTTED, DASHED = "1.2 2.2", "4 2.5"
_LETTER, _BOLD = 5.2, 6.9  # width of one at 10 units, and of one of a title, about
_WORDS, _NARROW, _SAMPLE = 6.2, 5.6, 13.0  # of a letter in words, and in the row of names; of the line before a name
_LINE = 14.0  # height of a line beneath
ROW = 17.0
"""Height of the row of names."""


def color_of(index: int) -> str:
    """The page's colour of the series with this index; there are twelve."""
    return f"var(--s{index % 12})"


@dataclass
class Axis:
    """A linear or logarithmic axis with round ticks.

    Attributes:
        low: its lower end.
        high: its upper end.
        log: whether it is logarithmic; both ends are positive then.
        title: what is on it.
        percent: whether ticks are shares, written as per cent.
        last: where its ticks end: what is drawn beyond has no place of its own on it.
    """

    low: float
    high: float
    log: bool = False
    title: str = ""
    percent: bool = False
    last: float = math.inf

    def __post_init__(self) -> None:
        if self.log:
            self.low = max(self.low, 1e-300)
        if not self.high > self.low:
            self.high = self.low * 10.0 if self.log else self.low + 1.0

    def place(self, values: ArrayLike) -> np.ndarray:
        """Values as shares of the axis' length, below 0 or above 1 for those beyond its ends."""
        x, low, high = np.asarray(values, dtype=float), self.low, self.high
        if self.log:
            x, low, high = np.log(np.maximum(x, 1e-300)), math.log(low), math.log(high)
        return (x - low) / (high - low)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values on it, at most so many, and none beyond ``last``.

        Example:
            >>> Axis(0.0, 1.0).ticks(), Axis(1e-3, 10.0, log=True).ticks(3)
            ([0.0, 0.25, 0.5, 0.75, 1.0], [0.001, 0.1, 10.0])
        """
        end = min(self.high, self.last)
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(end) + 1e-9)
            every = max(1, -(-(last - first + 1) // most))
            found = [10.0**k for k in range(first, last + 1, every)]
            if len(found) < 2:
                every = (m * 10.0**k for k in range(first - 1, last + 2) for m in (1.0, 2.0, 5.0))
                found = [v for v in every if self.low * (1 - 1e-9) <= v <= end * (1 + 1e-9)]
            return found if len(found) > 1 else [self.low, end]
        raw = (end - self.low) / (most - 1)
        unit = 10.0 ** math.floor(math.log10(raw))
        step = next(s * unit for s in (1.0, 2.0, 2.5, 5.0, 10.0) if s * unit >= raw * (1 - 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(end / step + 1e-9)
        return [round(k * step, 12 - math.floor(math.log10(step))) for k in range(first, last + 1)]

    def word(self, value: float) -> str:
        """A tick's label, with as many digits as tell the ticks apart.

        Example:
            >>> Axis(0.9995, 1.0005).word(1.0), Axis(0.0, 1.0).word(0.5)
            ('1.00000', '0.5')
        """
        if self.percent:
            return f"{100 * value:.0f} %"
        ticks = self.ticks()
        if self.log or len({number(tick) for tick in ticks}) == len(ticks):
            return number(value)
        return f"{value:.{max(0, 1 - math.floor(math.log10(ticks[1] - ticks[0])))}f}"


@dataclass
class Rows(Axis):
    """A vertical axis of named rows.

    Attributes:
        names: of some rows, by their place.
    """

    names: Mapping[float, str] = field(default_factory=dict)

    def ticks(self, most: int = 5) -> list[float]:
        """The places of the names."""
        return list(self.names)

    def word(self, value: float) -> str:
        """The name there."""
        return self.names[value]


def _text(parent: ET.Element, x: float, y: float, text: str, **more: str) -> ET.Element:
    element = ET.SubElement(parent, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", **more})
    element.text = printable(text)
    return element


@dataclass
class Plot:
    """One small drawing: axes, and what is put into them in the order of the calls.

    Attributes:
        title: a name from outside or a few words; it is shortened, and stands there in full for the pointer.
        x: the horizontal axis.
        y: the vertical axis.
        width: of the drawing, in units of a page's pixels.
        height: of it, without the row of names.
        row: room under the title for names of what is drawn, where they lie on nothing (see ``name``).
    """

    title: str
    x: Axis
    y: Axis
    width: float = 300.0
    height: float = 190.0
    row: bool = False
    _marks: list[tuple[str, ET.Element]] = field(default_factory=list, repr=False)
    _lines: int = field(default=0, repr=False)
    _named: float = field(default=4.0, repr=False)

    def __post_init__(self) -> None:
        self.height += ROW * self.row

    def _shares(self, xs: ArrayLike, ys: ArrayLike) -> np.ndarray:
        return np.column_stack([self.x.place(xs), self.y.place(ys)])

    def _framed(self, shares: np.ndarray) -> np.ndarray:
        """Points of the drawing; those beyond the axes are put on their edge."""
        left, top, right, bottom = self._frame
        return np.array([left, bottom]) + np.clip(shares, 0.0, 1.0) * np.array([right - left, top - bottom])

    def _at(self, xs: ArrayLike, ys: ArrayLike) -> np.ndarray:
        return self._framed(self._shares(xs, ys))

    @property
    def _frame(self) -> tuple[float, float, float, float]:
        labels = max((len(self.y.word(t)) for t in self.y.ticks(4)), default=1)
        top, wide = 22.0 + ROW * self.row, (_WORDS if isinstance(self.y, Rows) else _LETTER) * labels
        return 10.0 + wide + (13.0 if self.y.title else 0.0), top, self.width - 12.0, self.height - 32.0

    @property
    def inner(self) -> tuple[float, float]:
        """Width and height of what is between the axes."""
        left, top, right, bottom = self._frame
        return right - left, bottom - top

    @property
    def left(self) -> float:
        """Where the vertical axis stands."""
        return self._frame[0]

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Where a point stands in the drawing."""
        ((a, b),) = self._at([x], [y])
        return float(a), float(b)

    @staticmethod
    def _path(points: np.ndarray) -> str:
        rounded = np.round(points, 1)
        keep = np.ones(len(rounded), bool)
        keep[1:] = (rounded[1:] != rounded[:-1]).any(axis=1)
        return "M" + "L".join(f"{a:g} {b:g}" for a, b in rounded[keep])

    def line(
        self,
        xs: ArrayLike,
        ys: ArrayLike,
        color: str,
        mark: str = "",
        *,
        width: float = 1.6,
        dash: str = "",
        opacity: float = 1.0,
    ) -> None:
        """A line through points, broken where one is not finite and cut where it leaves the axes."""
        paths = [self._path(self._framed(piece)) for piece in clipped(self._shares(xs, ys))]
        if paths:
            look = {"d": "".join(paths), "fill": "none", "stroke": color, "stroke-width": f"{width:g}"}
            look |= {"stroke-linejoin": "round"} | ({"stroke-dasharray": dash} if dash else {})
            look |= {"opacity": f"{opacity:g}"} if opacity < 1 else {}
            self._marks.append((mark, ET.Element("path", look)))

    def band(
        self,
        xs: ArrayLike,
        low: ArrayLike,
        high: ArrayLike,
        color: str,
        mark: str = "",
        *,
        opacity: float = 0.18,
    ) -> None:
        """The area between two lines."""
        x, a, b = (np.asarray(v, dtype=float) for v in (xs, low, high))
        good = np.isfinite(x) & np.isfinite(a) & np.isfinite(b)
        if good.any():
            lower, upper = (with_crossings(self._shares(x[good], v[good])) for v in (a, b))
            border = self._framed(np.concatenate([lower, upper[::-1]]))
            look = {"d": self._path(border) + "Z", "fill": color, "opacity": f"{opacity:g}"}
            self._marks.append((mark, ET.Element("path", look)))

    def dots(
        self,
        xs: ArrayLike,
        ys: ArrayLike,
        color: str,
        mark: str = "",
        *,
        size: float = 5.0,
        opacity: float = 1.0,
    ) -> None:
        """Dots as one path of points with round ends."""
        points = np.round(self._at(np.asarray(xs, dtype=float), np.asarray(ys, dtype=float)), 1)
        if len(points):
            d = "".join(f"M{a:g} {b:g}h0" for a, b in points)
            look = {"d": d, "fill": "none", "stroke": color, "stroke-width": f"{size:g}", "stroke-linecap": "round"}
            self._marks.append((mark, ET.Element("path", look | ({"opacity": f"{opacity:g}"} if opacity < 1 else {}))))

    def cells(
        self,
        boxes: Sequence[tuple[float, float, float, float]],
        color: str,
        mark: str = "",
        *,
        opacity: float = 1.0,
    ) -> None:
        """Rectangles of one colour: left, right, bottom and top of each."""
        if boxes:
            left, right, bottom, top = np.asarray(boxes, dtype=float).T
            corners = zip(np.round(self._at(left, top), 1), np.round(self._at(right, bottom), 1))
            d = "".join(f"M{a:g} {b:g}H{c:g}V{e:g}H{a:g}z" for (a, b), (c, e) in corners)
            self._marks.append((mark, ET.Element("path", {"d": d, "fill": color, "opacity": f"{opacity:g}"})))

    def ring(self, x: float, y: float, color: str, mark: str = "") -> None:
        """A circle around a point."""
        a, b = self.at(x, y)
        d = f"M{a - 5:.1f} {b:.1f}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z"
        self._marks.append((mark, ET.Element("path", {"d": d, "fill": "none", "stroke": color, "stroke-width": "1.6"})))

    def say(
        self,
        x: float,
        y: float,
        words: str,
        color: str = MUTED,
        mark: str = "",
        *,
        anchor: str = "start",
        shift: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        """A few words at a point."""
        ((a, b),) = self._at([x], [y])
        holder = ET.Element("g")
        _text(holder, a + shift[0], b + shift[1], words, **{"fill": color, "font-size": "10px", "text-anchor": anchor})
        self._marks.append((mark, holder))

    def label(
        self,
        words: str,
        box: tuple[float, float, float, float],
        leader: tuple[tuple[float, float], tuple[float, float]] | None,
        color: str,
        mark: str = "",
        anchor: str = "start",
    ) -> None:
        """Words in a box of the drawing's own units, see ``labels``, with a line to what they name where it is away."""
        holder = ET.Element("g")
        if leader is not None:
            (a, b), (c, d) = leader
            look = {"d": f"M{a:.1f} {b:.1f}L{c:.1f} {d:.1f}", "fill": "none", "stroke": color}
            ET.SubElement(holder, "path", look | {"stroke-width": "0.8", "class": "leader"})
        x, look = box[2] if anchor == "end" else box[0], {"fill": "var(--ink)", "font-size": "10px"}
        _text(holder, x, box[3] - 2, words, **look, **{"text-anchor": anchor})
        self._marks.append((mark, holder))

    def beneath(self, words: str, color: str, mark: str = "") -> None:
        """Words under the whole drawing, two in a row, behind a dot of the colour of what they name."""
        holder, half = ET.Element("g"), 0.5 * self.width
        x = 8.0 + half * (self._lines % 2)
        y = self.height + 12.0 + _LINE * (self._lines // 2)
        look = {"d": f"M{x:.1f} {y - 3.4:.1f}h0", "stroke": color, "stroke-width": "5", "stroke-linecap": "round"}
        ET.SubElement(holder, "path", {"fill": "none", **look})
        short = shorten(words, int((half - 18) / _WORDS))
        _text(holder, x + 6, y, short, **{"fill": "var(--ink)", "font-size": "10px"})
        self._marks.append((mark, holder))
        self._lines += 1

    def name(self, words: str, color: str = "", mark: str = "", *, dash: str = "") -> None:
        """Words in the row under the title, behind a piece of the line that they name where it has a colour.

        Args:
            words: a few.
            color: of the line; empty for words alone.
            mark: of what is named, so that the name goes where that goes.
            dash: of the line.
        """
        holder, at = ET.Element("g"), self._named
        if color:
            look = {"d": f"M{at:.1f} 25.5h{_SAMPLE:g}", "fill": "none", "stroke": color, "stroke-width": "1.6"}
            ET.SubElement(holder, "path", look | ({"stroke-dasharray": dash} if dash else {}))
            at += _SAMPLE + 3.0
        _text(holder, at, 29.0, words, **{"fill": MUTED, "font-size": "10px"})
        self._named = at + _NARROW * len(words) + 9.0
        self._marks.append((mark, holder))

    def upright(self, x: float, color: str = MUTED, mark: str = "", *, dash: str = "2 2") -> None:
        """A vertical line through the whole height."""
        self.line([x, x], [self.y.low, self.y.high], color, mark, width=1.0, dash=dash)

    def level(self, y: float, color: str = MUTED, mark: str = "", *, dash: str = "") -> None:
        """A horizontal line through the whole width."""
        self.line([self.x.low, self.x.high], [y, y], color, mark, width=1.0, dash=dash)

    def svg(self, description: str) -> str:
        """The drawing as one ``<svg>`` element.

        Args:
            description: what a reader who cannot see it is told.

        Returns:
            Markup; nothing in it is an identifier, so that any number of drawings share a page.

        Example:
            >>> Plot("a < b", Axis(0, 1), Axis(0, 1)).svg("nothing")[:58]
            '<svg viewBox="0 0 300 190" role="img" aria-label="nothing"'
        """
        under = 6.0 + _LINE * -(-self._lines // 2) if self._lines else 0.0
        view = f"0 0 {self.width:g} {self.height + under:g}"
        left, top, right, bottom = self._frame
        axes = (left, top, right, bottom, self.x.low, self.x.high, self.x.log, self.y.low, self.y.high, self.y.log)
        root = ET.Element("svg", {"viewBox": view, "role": "img", "aria-label": printable(description)})
        root.set("data-axes", " ".join(f"{float(v):.6g}" for v in axes))
        shown = shorten(printable(self.title), int((self.width - 12) / _BOLD))
        head = _text(root, 4.0, 13.0, shown, **{"font-size": "11px", "font-weight": "bold", "fill": INK})
        if shown != printable(self.title):
            ET.SubElement(head, "title").text = printable(self.title)
        small = {"font-size": "10px", "fill": MUTED}
        grid = []
        for tick in self.y.ticks(4):
            ((_, at),) = self._at([self.x.low], [tick])
            grid.append(f"M{left:.1f} {at:.1f}H{right:.1f}")
            _text(root, left - 4, at + 3.4, self.y.word(tick), **small, **{"text-anchor": "end"})
        end = -math.inf
        for tick in self.x.ticks(5):
            ((at, _),) = self._at([tick], [self.y.low])
            half = 0.5 * _LETTER * len(self.x.word(tick))
            if at - half > end + 4:  # labels never touch each other
                grid.append(f"M{at:.1f} {bottom:.1f}v3")
                place = min(max(at, half), self.width - half - 1)
                _text(root, place, bottom + 13, self.x.word(tick), **small, **{"text-anchor": "middle"})
                end = place + half
        ET.SubElement(root, "path", {"d": "".join(grid), "fill": "none", "stroke": RULE, "stroke-width": "0.7"})
        for mark, element in self._marks:
            holder = ET.SubElement(root, "g", {"class": mark}) if mark else root
            holder.append(element)
        look = {"fill": "none", "stroke": MUTED, "stroke-width": "0.8"}
        ET.SubElement(root, "path", {"d": f"M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}", **look})
        if self.x.title:
            _text(root, 0.5 * (left + right), self.height - 4, self.x.title, **small, **{"text-anchor": "middle"})
        if self.y.title:
            turn = {"transform": f"translate(10 {0.5 * (top + bottom):.1f}) rotate(-90)"}
            _text(root, 0.0, 0.0, self.y.title, **small, **{"text-anchor": "middle"}, **turn)
        return ET.tostring(root, encoding="unicode")
