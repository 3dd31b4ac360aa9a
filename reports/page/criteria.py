"""Folded matrix of criteria and networks, and the second opinions of solvers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..formatting import MISSING, count, margin_words
from ..stored.collect import Report
from ..stored.facts import is_loop
from ..stored.records import ModelRecord
from ..vocabulary import NAMES, NO_UNIT, UNITS, WITNESSES, mark
from .parts import Cell, Columns, Fold, folded, name_cell, plural, tabulate

FLOW = "about the differential equation"
"""Words of a finding that is not about the discrete map."""
UNSOUND = "theorem1b_published"
"""The criterion that is false as published."""


def criteria(report: Report) -> list[Fold]:
    """Return the fold that shows which criterion holds for which network."""
    contraction = [m for m in report.models if not (m.certificate or {}).get("gated_linear")]
    models = [m for m in contraction if (m.certificate or {}).get("findings")]
    findings = [f for m in models for f in (m.certificate or {})["findings"] if f["criterion"] not in WITNESSES]
    findings = [f for f in findings if not mark(f)[0].startswith(MISSING)]
    names = list(dict.fromkeys(str(f["criterion"]) for f in findings))
    columns: Columns = {"network": name_cell}
    columns |= {NAMES.get(name, name.replace("_", " ")): _outcome(name) for name in names}
    note = (
        "✓ holds, ✗ fails, · does not apply; hover for the margin. Each criterion is sufficient for stability, none is "
        "necessary: failing all of them proves nothing. Margins of different criteria are not comparable."
    )
    if UNSOUND in names:
        note += " Theorem 1 (b) as published is false for non-symmetric W; it is shown and never used."
    if any(FLOW in str(f.get("detail")) for f in findings):
        note += " Signs in brackets are about the differential equation behind a layer, not about the map that runs."
    tables = tabulate("Criteria for stability", columns, models if names else (), words=tuple(columns), note=note)
    noun = "loop" if all(map(is_loop, models)) else "network"
    summary = f"{'1 criterion' if len(names) == 1 else f'{len(names)} criteria'}, {plural(len(models), noun)}"
    parts = (*tables, *_opinions(report))
    return folded(report, "more-criteria", "Which criterion decides", summary, parts, "margins")


def _outcome(criterion: str) -> Callable[[ModelRecord], Cell]:
    def show(model: ModelRecord) -> Cell:
        entry = next((f for f in (model.certificate or {})["findings"] if f["criterion"] == criterion), None)
        if entry is None or mark(entry)[0].startswith(MISSING):
            return Cell("·", "quiet")
        sign, bracketed = "✓" if entry["holds"] else "✗", criterion == UNSOUND or FLOW in str(entry.get("detail"))
        unit = UNITS.get(criterion, UNITS["linear"] if criterion.startswith("layer ") else NO_UNIT)
        hint = str(entry.get("detail") or "") if entry["margin"] is None else f"{margin_words(entry['margin'])}, {unit}"
        tone = "quiet" if bracketed else "good" if entry["holds"] else "bad"
        return Cell(f"({sign})" if bracketed else sign, tone, hint=hint)

    return show


def _opinions(report: Report) -> tuple[str, ...]:
    """Return how many statuses of semidefinite solvers were wrong, and which."""
    opinions = [(m, o) for m in report.models for o in m.documents.get("cross_check", {}).get("opinions") or ()]
    posed = [(m, o) for m, o in opinions if isinstance(o, Mapping) and o.get("solver")]
    judged = [(m, o) for m, o in posed if o.get("wrong") is not None]
    names = [
        f"{NAMES.get(str(o.get('criterion')), str(o.get('criterion')))} of {m.title} ({o['solver']}: {o.get('status')})"
        for m, o in judged
        if o["wrong"]
    ]
    pending = f"; {count(len(posed) - len(judged))} searches ended without an answer" * (len(judged) < len(posed))
    text = (
        "Second opinions: cvxpy solved the small gain test and the circle criterion as semidefinite programs. "
        f"{count(len(names))} of {count(len(judged))} solver statuses were wrong{': ' * bool(names)}{', '.join(names)}"
        f"{pending}. A status counts as wrong if its P fails the exact check, or if it says infeasible although the "
        "frequency-domain test passes. No verdict depends on a solver."
    )
    return (text,) if posed else ()
