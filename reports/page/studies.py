"""The studies of a folder, listed with what each came to and a link to its page."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

from ..formatting import MISSING, duration
from ..names import cut
from ..stored.limits import LETTERS
from ..stored.studies import PAGE, StudyRecord
from .layout import Cell, Column, Section, tabulate, text


def study_sections(found: Mapping[str, StudyRecord], missing: Mapping[str, str], base: str = "") -> tuple[Section, ...]:
    """The studies of a folder as a section of a page.

    Args:
        found: records by their folders' names.
        missing: why others have no result.
        base: from the page to the folder, with a ``/`` at its end.

    Returns:
        One section; none where there is nothing.
    """
    columns = (
        text("study", lambda item: Cell(item[0], href=f"{base}{quote(item[0])}/{PAGE}")),
        text("reruns", lambda item: item[1].get("title") + " (quick version)" * bool(item[1].get("quick", False))),
        text("what came out", lambda item: item[1].get("conclusion") or MISSING),
        Column("time", lambda item: duration(item[1].get("seconds", None))),
    )
    tables = tabulate("The studies", columns, found.items())
    failed = tabulate(
        "Without a result",
        (text("study", lambda item: item[0]), text("reason", lambda item: cut(item[1], LETTERS))),
        missing.items(),
    )
    section = Section("studies", "Studies", "Tables and figures of the papers, rerun here.", tables + failed).kept
    return () if section is None else (section,)
