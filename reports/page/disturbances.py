"""Folded table of accuracies under noise and attacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from ..boxes import interval
from ..formatting import METRICS, MISSING, metric, metric_word, number, percent, whole_percent
from ..stored.collect import Report
from ..stored.facts import accuracy
from ..stored.protocol import protocol
from ..stored.records import ModelRecord, select
from ..stored.sweeps import rows_of
from .parts import Cell, Columns, Fold, Table, folded, name_cell, shade, tabulate

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
    protocols = [(what, protocol(models, step)) for what, steps in STEPS.items() for step in steps]
    averaged = "Numbers are means over the trainings of a network. " * any(m.trainings.several for m in models)
    note = f"{averaged}{''.join(f'{subject}: {line}. ' for subject, line in protocols if line)}{_units(models)} "
    note += "Hover for 95 % intervals."
    plain, scored = {"noise": "noise", "attack": "attacks"}, {"noise": "noise_scores", "attack": "attack_scores"}
    tables = [*_heat(models, plain, "accuracy", note)]
    for name in METRICS:
        tables += _heat(models, scored, name, note)
    attack_notes = [f"{m.title}: {words}" for m in models for words in m.step("attacks").get("notes") or ()]
    summary = (
        f"{tables[0].caption.partition(',')[0].lower()} under {len(tables[0].header) - 2} disturbances"
        if tables
        else ""
    )
    parts = (*tables, *attack_notes) if tables else ()
    stems = (*plain.values(), *scored.values())
    return folded(report, "more-noise", "Noise and attacks", summary, parts, *stems)


def _heat(models: Sequence[ModelRecord], frames: Mapping[str, str], name: str, note: str) -> tuple[Table, ...]:
    """Tabulate what all disturbances leave of one metric; return nothing where it was not measured."""
    scored, word = frames["noise"].endswith("_scores"), metric_word(name)
    caption = f"{word[:1].upper()}{word[1:]}{', %' * (name == 'accuracy')}"
    columns: Columns = {"network": name_cell, "clean": _clean}
    if scored:
        columns.pop("clean")
    measured: set[str] = set()
    for kind, keys, title, most in PLANS:
        extra = {"attack": "pgd" if scored else "strong"} if kind == "attack" else {}
        query = {**extra, **keys, **({"metric": name} if scored else {})}
        at = "level" if kind == "noise" else "epsilon"
        curves = {m.name: rows for m in models if (rows := rows_of(m, frames[kind], query)) is not None}
        sizes = sorted({float(size) for rows in curves.values() for size in rows[at] if size > 0})
        subset = sizes if len(sizes) <= most else [sizes[(k + 1) * len(sizes) // (most + 1)] for k in range(most)]
        columns |= {title(size): _score(curves, at, size, "score" if scored else "accuracy", name) for size in subset}
        measured |= set(curves)
    rows = [m for m in models if m.name in measured]
    return tabulate(caption, columns, rows, note=note)


def _score(curves: Mapping[str, pd.DataFrame], at: str, size: float, column: str, name: str) -> Callable[..., Cell]:
    """Return what shows the score that a disturbance of this size leaves."""

    def show(model: ModelRecord) -> Cell:
        rows = select(curves[model.name], **{at: size}) if model.name in curves else pd.DataFrame()
        if rows.empty or pd.isna(rows[column].iloc[0]):
            return Cell(MISSING, "quiet")
        score = float(rows[column].iloc[0])
        limits = [metric(rows[key].iloc[0], name) for key in ("ci_low", "ci_high") if key in rows]
        return _shaded(score, name, f"{metric(score, name)}, 95 % interval {' to '.join(limits)}" if limits else "")

    return show


def _shaded(score: float, name: str, hint: str) -> Cell:
    if name != "accuracy":
        return Cell(metric(score, name), hint=hint)
    return Cell(whole_percent(score), shade(score), hint=hint)


def _clean(model: ModelRecord) -> Cell:
    share = accuracy(model)
    if share is None:
        return Cell(MISSING, "quiet")
    return _shaded(share[0], "accuracy", f"{percent(share[0])}, 95 % interval {' to '.join(map(percent, share[1:]))}")


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
