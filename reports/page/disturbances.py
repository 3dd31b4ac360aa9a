"""Folded table of accuracies under noise and attacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from ..boxes import interval
from ..formatting import METRICS, MISSING, metric, metric_word, number, percent
from ..stored.collect import Report
from ..stored.facts import accuracy
from ..stored.protocol import protocol
from ..stored.records import ModelRecord, select
from ..stored.sweeps import rows_of
from .parts import Cell, Columns, Fold, Table, folded, named, shade, tabulate

STEPS = {"Noise": ("noise", "noise_scores"), "Attacks": ("attacks", "attack_scores")}
DEVIATIONS = "Sizes are in units of each feature's standard deviation"
MOST = 5
"""Sizes of one kind of attack in the table."""


def _share(size: float) -> str:
    return f"{number(100 * size)} %"


PLANS: tuple[tuple[str, Mapping[str, str], Callable[[float], str], int], ...] = (
    ("noise", {"noise": "white"}, lambda size: f"noise σ {number(size)}", 2),
    ("noise", {"noise": "salt_pepper"}, lambda size: f"salt, pepper {_share(size)}", 2),
    ("noise", {"noise": "parameters"}, lambda size: f"weights {_share(size)}", 2),
    ("attack", {"norm": "l2"}, lambda size: f"L2 {number(size)}", MOST),
    ("attack", {"norm": "linf"}, lambda size: f"L∞ {number(size)}", MOST),
)
"""Kind of disturbance, columns that select its rows, title of a size, and most sizes in the table."""


def disturbances(report: Report) -> list[Fold]:
    """Return the fold that compares all models under noise and attacks, one table for each metric."""
    models = report.models
    said = [(what, protocol(models, step)) for what, steps in STEPS.items() for step in steps]
    averaged = "Numbers are means over the trainings of a network. " * any(m.trainings.several for m in models)
    note = f"{averaged}{''.join(f'{what}: {how}. ' for what, how in said if how)}{_units(models)} "
    note += "Hover for 95 % intervals."
    plain, scored = {"noise": "noise", "attack": "attacks"}, {"noise": "noise_scores", "attack": "attack_scores"}
    tables = [*_heat(models, plain, "accuracy", note)]
    for name in METRICS:
        tables += _heat(models, scored, name, note)
    told = [f"{m.title}: {words}" for m in models for words in m.step("attacks").get("notes") or ()]
    summary = (
        f"{tables[0].caption.partition(',')[0].lower()} under {len(tables[0].header) - 2} disturbances"
        if tables
        else ""
    )
    parts = (*tables, *told) if tables else ()
    stems = (*plain.values(), *scored.values())
    return folded(report, "more-noise", "Noise and attacks", summary, parts, *stems)


def _heat(models: Sequence[ModelRecord], frames: Mapping[str, str], name: str, note: str) -> tuple[Table, ...]:
    """Tabulate what all disturbances leave of one metric; return nothing where it was not measured."""
    scored, word = frames["noise"].endswith("_scores"), metric_word(name)
    caption = f"{word[:1].upper()}{word[1:]}{', %' * (name == 'accuracy')}"
    columns: Columns = {"network": named, "clean": _clean}
    if scored:
        columns.pop("clean")
    shown: set[str] = set()
    for kind, keys, title, most in PLANS:
        extra = {"attack": "pgd" if scored else "strong"} if kind == "attack" else {}
        wanted = {**extra, **keys, **({"metric": name} if scored else {})}
        at = "level" if kind == "noise" else "epsilon"
        found = {m.name: rows for m in models if (rows := rows_of(m, frames[kind], wanted)) is not None}
        sizes = sorted({float(size) for rows in found.values() for size in rows[at] if size > 0})
        chosen = sizes if len(sizes) <= most else [sizes[(k + 1) * len(sizes) // (most + 1)] for k in range(most)]
        columns |= {title(size): _left(found, at, size, "score" if scored else "accuracy", name) for size in chosen}
        shown |= set(found)
    rows = [m for m in models if m.name in shown]
    return tabulate(caption, columns, rows, note=note)


def _left(found: Mapping[str, pd.DataFrame], at: str, size: float, column: str, name: str) -> Callable[..., Cell]:
    """Return what shows the score that a disturbance of this size leaves."""

    def show(model: ModelRecord) -> Cell:
        rows = select(found[model.name], **{at: size}) if model.name in found else pd.DataFrame()
        if rows.empty or pd.isna(rows[column].iloc[0]):
            return Cell(MISSING, "quiet")
        left = float(rows[column].iloc[0])
        ends = [metric(rows[key].iloc[0], name) for key in ("ci_low", "ci_high") if key in rows]
        return _shaded(left, name, f"{metric(left, name)}, 95 % interval {' to '.join(ends)}" if ends else "")

    return show


def _shaded(left: float, name: str, hint: str) -> Cell:
    if name != "accuracy":
        return Cell(metric(left, name), hint=hint)
    text = "< 1" if 0 < left < 0.01 else "> 99" if 0.99 < left < 1 else f"{100 * left:.0f}"
    return Cell(text, shade(left), hint=hint)


def _clean(model: ModelRecord) -> Cell:
    found = accuracy(model)
    if found is None:
        return Cell(MISSING, "quiet")
    return _shaded(found[0], "accuracy", f"{percent(found[0])}, 95 % interval {' to '.join(map(percent, found[1:]))}")


def has_own_data(models: Sequence[ModelRecord]) -> bool:
    """Return True if any model was examined on data of the user's own, whose sizes are in standard deviations."""
    return any(((m.analysis.get("task") or {}).get("data") or {}).get("source") == "arrays" for m in models)


def _units(models: Sequence[ModelRecord]) -> str:
    """Name the unit of the sizes of disturbances."""
    ranges = {interval(m.analysis.get("input_range")) for m in models} - {"", interval([0, 1])}
    unit = "Sizes of noise and attacks are in the unit of the inputs"
    if has_own_data(models):
        unit = DEVIATIONS
    elif ranges:
        unit += f", which lie in {' or '.join(sorted(ranges))}"
    return f"{unit}; noise on weights is relative to the root mean square of each tensor. L2: norm of the whole change."
