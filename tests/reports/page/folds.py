"""Folds of a report as a reader sees them: tables by caption, numbers as written."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path

from stability.reports.page.method import method
from stability.reports.page.parts import Cell, Table
from stability.reports.page.results import more_results
from stability.reports.stored.collect import collect


def tables(folder: Path) -> dict[str, Table]:
    """All tables of the folds of a report, by their captions."""
    report = collect(folder)
    parts = [part for fold in (*more_results(report), *method(report)) for part in fold.parts]
    return {part.caption: part for part in parts if isinstance(part, Table)}


def rows(table: Table) -> dict[str, dict[str, Cell]]:
    """Rows by the name in the first cell, cells by the titles of their columns."""
    return {row[0].text: dict(zip(table.header, row, strict=True)) for row in table.rows}


def numbers(text: str) -> list[Decimal]:
    """The decimal numbers of a text, powers of ten and true minus signs included."""
    plain = text.translate(str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")).replace("\u202f", "")
    found = re.findall(r"([-+]?\d+(?:\.\d+)?)(?:×10(-?\d+))?", plain)
    return [Decimal(digits).scaleb(int(power or 0)) for digits, power in found]
