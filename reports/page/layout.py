"""What a page is made of: sections with tables and panels; the template lays them out."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

__all__ = ["Cell", "Panel", "Section", "Table", "draw"]


@dataclass(frozen=True)
class Cell:
    """A table cell: text, and a tone (``good``, ``bad``, ``quiet`` or none) that its text also says."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; ``numeric`` columns are aligned to the right; ``dash``: what a cell with a dash alone means."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[int, ...] = ()
    dash: str = ""

    @property
    def explained(self) -> str:
        """The caption, with what a dash means where there is one.

        Example:
            >>> Table("Seconds", ("model", "noise"), ((Cell("a"), Cell("–")),), dash="was not run").explained
            'Seconds (– was not run)'
        """
        dashed = any(cell.text == "–" for row in self.rows for cell in row)
        return f"{self.caption} (– {self.dash})" if dashed and self.dash else self.caption


@dataclass(frozen=True)
class Panel:
    """One drawing and what to see in it."""

    svg: Markup
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    anchor: str
    title: str
    text: str
    tables: tuple[Table, ...] = ()
    panels: tuple[Panel, ...] = ()
    notes: tuple[str, ...] = ()


def draw(*drawn: tuple[str | None, str]) -> tuple[Panel, ...]:
    """Panels of what could be drawn, each with its caption."""
    return tuple(Panel(Markup(svg), caption) for svg, caption in drawn if svg is not None)
