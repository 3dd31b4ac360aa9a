"""The circle criterion and KYP as semidefinite programs, beside the frequency domain that decided them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..opinions import COLUMNS, NUMERIC, not_asked, opinion_cells, opinion_count
from ..stored.collect import Report
from ..stored.records import ModelRecord
from .layout import Cell, Column, Section, named, tabulate, text
from .marks import HEURISTIC
from .trainings import first_only

TONES = {"wrong": "bad", "right": "good"}


def _column(k: int, title: str) -> Column:
    def show(row: tuple[ModelRecord, Mapping[str, Any]]) -> Cell:
        said = opinion_cells(row[1])[k]
        return Cell(said, TONES.get(said, "quiet" if said == "–" else ""))

    return Column(title, show, numeric=k in NUMERIC, mark=HEURISTIC)


def opinions(report: Report) -> Section | None:
    """What solvers said, a row a criterion and solver, and how often a status alone would have been wrong.

    Args:
        report: what ``collect`` read.
    """
    known = [(m, m.documents["cross_check"]) for m in report.models if "cross_check" in m.documents]
    rows = [(m, o) for m, found in known for o in found.get("opinions") or () if isinstance(o, Mapping)]
    unasked = not_asked([(m.title, str(o.get("status"))) for m, o in rows if not o.get("solver")])
    rows = [(m, o) for m, o in rows if o.get("solver")]
    tables = tabulate(
        "Second opinions: the inequality as a program, by a solver",
        (text("model", lambda row: named(row[0])), *(_column(k, title) for k, title in enumerate(COLUMNS))),
        rows,
        "no answer: why stands under the status",
        made=("cross_check",),
    )
    said = [o.get("wrong") for _, o in rows if o.get("wrong") is not None]
    return Section(
        "opinions",
        "Criteria as semidefinite programs",
        "The circle criterion (bounded real lemma) and KYP are decided in the frequency domain. Here cvxpy poses both "
        "as linear matrix inequalities, and a solver answers with a status: optimal says that a P with a positive "
        "margin t exists, infeasible that none does; inaccurate ones count as said, those of a search that was stopped "
        "early do not. A status alone is wrong where the P that came with a yes does not satisfy the inequality, "
        "rounding errors counted, and where a no stands against the frequency domain's yes. No verdict depends on it. "
        + " ".join(filter(None, (opinion_count(len(said), sum(map(bool, said))), unasked)))
        + first_only(report),
        tables,
        notes=() if tables else tuple(filter(None, (unasked,))),
    ).kept
