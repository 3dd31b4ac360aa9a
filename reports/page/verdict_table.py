"""Verdict table of the page: one row for each model, one column for each quantity."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..formatting import bound, count, metric, metric_word, number, percent, verdict_sign, verdict_word, whole_percent
from ..names import cut
from ..stored import facts
from ..stored.collect import Report
from ..stored.records import ModelRecord
from . import claims
from .next_step import next_step

LETTERS = 26
"""Letters of a name in the table and in the list of models; the card has all."""
HALVED = "two runs that read the same input are then at most half as far apart, wherever they start"
ROBUST = "certified accuracy, from a gain in double precision, and accuracy under the strongest attack"
GROWTH = "largest Lyapunov exponent as a change per step"
HALVED_IN_RANGE = (
    f"{HALVED}; a proof for a range of inputs covers these only and counts from the step at which it begins to hold"
)


@dataclass(frozen=True)
class Cell:
    """A cell of the verdict table.

    Attributes:
        text: content of the cell.
        detail: smaller, beside it.
        tone: class of the detail.
        bar: certified and attacked accuracy, shares between 0 and 1, which are drawn before the text.
    """

    text: str
    detail: str = ""
    tone: str = ""
    bar: tuple[float | None, float] | None = None


@dataclass(frozen=True)
class Column:
    """A column of the verdict table.

    Attributes:
        head: two lines of its title.
        name: its title in the paragraph below the table.
        key: its meaning, for that paragraph.
        show: its cell of a model; ``None`` where the model has no such value.
        proved: the checker proves its values.
    """

    head: tuple[str, str]
    name: str
    key: str
    show: Callable[[ModelRecord], Cell | None]
    proved: bool = False


def short_name(model: ModelRecord) -> str:
    """Return a model's name in at most ``LETTERS`` letters."""
    return cut(model.title.replace(", margin penalty", " + margin"), LETTERS)


def noun(report: Report, is_plural: bool | None = None) -> str:
    """Return the word for what is examined: recurrent networks, or control loops."""
    word = "control loop" if all(map(facts.is_loop, report.models)) else "recurrent network"
    return word + "s" * (len(report.models) != 1 if is_plural is None else is_plural)


def columns(report: Report) -> list[Column]:
    """Return the columns of the verdict table that hold a value of any model.

    Args:
        report: its models are in the order of the table.
    """
    models, size = report.models, facts.attack_size(report.models)
    loops = all(map(facts.is_loop, models))
    metrics = dict.fromkeys(metric_word(score.metric) for m in models if (score := facts.score(m)) is not None)
    stretches = {round(factor, 1) for m in models if (factor := facts.stretch(m)) is not None}
    longer = f"{number(next(iter(stretches)))} × length" if len(stretches) == 1 else "end of run"
    unit, scaled = ("seconds", "slopes") if loops else ("sequences", "weights")
    larger = f"factor by which the {'' if loops else 'recurrent '}{scaled} may grow without losing the proof"
    word = " or ".join(metrics) or "accuracy"
    interval = "95 % interval" if "accuracy" in metrics else ""
    data = "held-out data" if any(m.run for m in models) else "the data"
    halving = HALVED_IN_RANGE if any(m.state == "certified" and facts.proved_range(m) for m in models) else HALVED
    candidates = [
        Column(
            ("halved within", f"steps · {unit}"),
            "Halved within",
            halving,
            _halved_cell if _none_halved(models) else _halved_or_bounded,
            proved=True,
        ),
        Column(("decay", "per second"), "Decay", "guaranteed rate of the differences", _decay_cell, proved=True),
        Column((scaled, "scaled to"), "Scaled to", larger, _scaled_cell, proved=True),
        Column(("on test data,", "per step"), "Per step", GROWTH, growth_cell),
        Column(("norm at", longer), "Norm", "median state norm relative to that after one sequence", norm_cell),
        Column((word, interval or "on data"), word.capitalize(), f"on {data}, {interval}".strip(", "), accuracy_cell),
    ]
    if size is not None:
        head = (f"accuracy, L2 ≤ {number(size)}", "certified – attacked")
        candidates.append(Column(head, "Certified – attacked", ROBUST, lambda m: _robust_cell(m, size)))
    return [c for c in candidates if any(c.show(m) is not None for m in models)]


def _halved_cell(model: ModelRecord) -> Cell | None:
    when, dt, share = facts.halved(model), (model.certificate or {}).get("dt"), facts.halved_in_sequences(model)
    if when is None:
        return None
    if not model.is_discrete:
        return Cell(bound(when, 4, up=True), "s" if facts.is_loop(model) else "units of time")
    if facts.is_loop(model) and dt:
        return Cell(count(when), f"{number(when * dt)} s")
    detail = "" if share is None else f"· {claims.sequences(share)}"
    return Cell(count(when), detail, "" if facts.is_fast(model) else "slow")


def _none_halved(models: Sequence[ModelRecord]) -> bool:
    return all(_halved_cell(m) is None for m in models)


def _halved_or_bounded(model: ModelRecord) -> Cell | None:
    """Return the bound of the state where no halving time is proved: there is room for it in a table of both."""
    limit = _state_limit(model)
    return _halved_cell(model) or (Cell("", limit) if limit else None)


def _state_limit(model: ModelRecord) -> str:
    gated = facts.bounds(model)
    return f"|h| ≤ {bound(gated['state_bound'], 3, up=True)}" if gated else ""


def _decay_cell(model: ModelRecord) -> Cell | None:
    summary = model.certificate or {}
    dt, rate = summary.get("dt") if model.is_discrete else 1.0, summary.get("rate")
    if model.state != "certified" or not facts.is_loop(model) or not rate or not dt:
        return None
    return Cell(bound(-math.log(rate) / dt if model.is_discrete else rate, 3, up=False))


def _scaled_cell(model: ModelRecord) -> Cell | None:
    factor = facts.scaled_to(model) if model.state == "certified" else None
    return None if factor is None else Cell(f"×\u00a0{bound(factor, 3, up=False)}")


def growth_cell(model: ModelRecord) -> Cell | None:
    """Return how differences change along the data, per step."""
    change = facts.growth_a_step(model)
    if change is None:
        return None
    if abs(change) < 5e-4:
        return Cell("unchanged")
    if change >= 1:
        return Cell(f"grows ×\u00a0{number(1 + change)}")
    return Cell(f"{'grows' if change > 0 else 'shrinks'} {percent(abs(change))}")


def norm_cell(model: ModelRecord) -> Cell | None:
    """Return the factor by which the state norm has changed at the end of the longest run."""
    ratio = facts.norm_ratio(model)
    return None if ratio is None else Cell(f"×\u00a0{count(ratio) if ratio >= 1000 else number(ratio)}")


def accuracy_cell(model: ModelRecord) -> Cell | None:
    """Return the accuracy with its interval, or another metric."""
    interval, score = facts.accuracy(model), facts.score(model)
    if interval is not None:
        return Cell(*claims.accuracy_words(interval))
    return Cell(metric(score.value, score.metric)) if score is not None and score.value is not None else None


def _robust_cell(model: ModelRecord, size: float) -> Cell | None:
    under_attack, certified = facts.attacked(model, size), facts.certified_accuracy(model, size)
    if under_attack is None:
        return None
    low = "?" if certified is None else whole_percent(certified, proved=True)
    return Cell("", f"{low} – {whole_percent(under_attack[0])} %", "", (certified, under_attack[0]))


def table(report: Report) -> dict[str, object]:
    """Return the verdict table as the template needs it: its columns, its rows, and the groups to filter by."""
    visible = columns(report)
    rows = [
        {
            "model": m,
            "name": short_name(m),
            "detail": _verdict_detail(m, bounds=_none_halved(report.models)),
            "cells": [c.show(m) for c in visible],
            "next": next_step(m).label,
        }
        for m in report.models
    ]
    proved = ["Verdict", *(c.name.lower() for c in visible if c.proved)]
    states = dict.fromkeys(str(m.state) for m in report.models)
    groups = [(s, verdict_sign(s), verdict_word(s), sum(str(m.state) == s for m in report.models)) for s in states]
    return {
        "columns": visible,
        "rows": rows,
        "noun": noun(report, False).split()[-1],
        "groups": groups if len(groups) > 1 and len(rows) > 2 else [],
        "proved": f"{' and '.join(filter(None, (', '.join(proved[:-1]), proved[-1])))} {'are' if proved[1:] else 'is'}",
        "measured": len(visible) > len(proved) - 1,
        "rule": _rule(report),
        "bounded": any(map(facts.bounds, report.models)),
        "ranged": any(m.state == "certified" and facts.proved_range(m) for m in report.models),
        "dashes": any(cell is None for row in rows for cell in row["cells"]),
    }


def _rule(report: Report) -> str:
    """Return the order of the rows in words; empty for one row."""
    if len(report.models) < 2:
        return ""
    if all(map(facts.is_loop, report.models)):
        return "Rows: by verdict, then by halving time."
    by = "accuracy" if facts.attack_size(report.models) is None else "accuracy under attack"
    between = "bounded states after contraction within ten sequences, slower contraction last"
    order = between if any(map(facts.bounds, report.models)) else "proofs slower than ten sequences after faster ones"
    return f"Rows: by verdict, {order}, then by {by}."


def _verdict_detail(model: ModelRecord, *, bounds: bool) -> str:
    """Return what narrows a verdict: share of trainings with the same one, range of inputs, or bound of the state."""
    states: Sequence[str | None] = model.trainings.states
    if model.trainings.several:
        return f"{sum(s == model.state for s in states)} of {len(states)}"
    if facts.proved_range(model) is None:
        return "each layer" if facts.is_layerwise(model) else _state_limit(model) if bounds else ""
    return ("stable " if model.state == "refuted" else "") + facts.scope(model)
