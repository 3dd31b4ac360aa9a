"""First screen of the page: the headline, what qualifies it, and one table of verdicts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..formatting import bound, bound_at, count, metric, metric_word, number, percent, verdict_sign, verdict_word
from ..names import cut
from ..stored import facts
from ..stored.collect import Report
from ..stored.records import ModelRecord
from . import claims
from .next_step import next_step

LETTERS = 26
"""Letters of a name in the table and in the list of models; the card has all."""
GROUPS = {
    "certified": ("are proved stable", "is proved stable"),
    "refuted": ("are proved not to be stable", "is proved not to be stable"),
    "inconclusive": ("are undecided", "is undecided"),
    "uncovered": ("are covered by no theorem", "is covered by no theorem"),
    "invalid": ("have certificates that do not verify", "has a certificate that does not verify"),
    "stale": ("are shown without results", "is shown without results"),
    "None": ("were not examined", "was not examined"),
}
"""Verbs for counts of models, many and one, by state."""
HALVED = "two runs that read the same input are then at most half as far apart, wherever they start"
HALVED_IN_RANGE = f"{HALVED}; of a proof for a range of inputs, for these alone, from the step on at which it holds"
ROBUST = "accuracy certified by a gain bound in double precision, and left by the strongest attack"


@dataclass(frozen=True)
class Cell:
    """A cell of the verdict table.

    Attributes:
        text: of the cell.
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
        key: what it means, for that paragraph.
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


def _name(model: ModelRecord) -> str:
    return cut(model.title, 2 * LETTERS)


def noun(report: Report, many: bool | None = None) -> str:
    """Return the word for what is examined: recurrent networks, or control loops."""
    word = "control loop" if all(map(facts.is_loop, report.models)) else "recurrent network"
    return word + "s" * (len(report.models) != 1 if many is None else many)


def kicker(report: Report) -> str:
    """Return the line above the headline: kind of report, number of models, data, steps and date."""
    models, one = report.models, len(report.models) == 1
    title = f"Stability of a {noun(report)}" if one else f"Stability report · {len(models)} {noun(report)}"
    data = " and ".join(dict.fromkeys(filter(None, map(facts.data_name, models))))
    steps = {m.length for m in models if m.length is not None}
    length = f"{count(next(iter(steps)))} steps" if len(steps) == 1 else ""
    size = _loop_size(models[0]) if one and facts.is_loop(models[0]) else ""
    date = str(report.settings.get("finished") or "")
    return " · ".join(filter(None, (title, ", ".join(filter(None, (data, length))), size, date)))


def _loop_size(model: ModelRecord) -> str:
    summary = model.certificate or {}
    states, dt = summary.get("hidden"), summary.get("dt")
    return f"{count(states)} states{f', step {number(dt)} s' if dt else ''}" if states else ""


def headline(report: Report) -> str:
    """Return the finding in one or two sentences, by the rule that the key of the table states."""
    models = report.models
    if len(models) == 1:
        return _single(models[0])
    best, certified = facts.recommended(models), [m for m in models if m.state == "certified"]
    if best is not None:
        return f"Best with a proof{_range(best)}: {_name(best)}{_so_accurate(best)}. {_halving(best)}"
    if certified:
        fast = min(certified, key=lambda m: facts.halved(m) or math.inf)
        within = f", within {claims.duration_words(fast, when)}" if (when := facts.halved(fast)) is not None else ""
        return f"No proof is fast enough to matter: {_name(fast)} halves a difference first{within}{_range(fast)}."
    ranged = [m for m in models if facts.proved_range(m)]
    if ranged:
        return f"No network is proved stable for every input. {_name(ranged[0])} is, {facts.scope(ranged[0])}."
    close = facts.nearest(models)
    more = f" Nearest: {_name(close)}, undecided; on data its differences {_growth(close)}." if close else ""
    return f"No {noun(report, False).split()[-1]} is proved stable.{more}"


def _so_accurate(model: ModelRecord) -> str:
    known, found = facts.accuracy(model), facts.score(model)
    if known is not None:
        return f", {percent(known[0])} accurate"
    return f", {found.label} {metric(found.value, found.metric)}" if found else ""


def _halving(model: ModelRecord) -> str:
    when, driven = facts.halved(model), (model.certificate or {}).get("driven")
    if when is None:
        return ""
    since = driven.get("since") if driven else 0
    begun = "when its state has entered the set of the proof" if since is None else f"step {since}"
    counted = f", counted from {begun}," if since != 0 else ""
    after = f"After {claims.duration_words(model, when)}{counted}"
    if facts.is_layerwise(model):
        return f"{after} two runs of a layer that read the same input of the layer are at most half as far apart."
    if driven:  # a disturbance may take the state out of the sets of the proof
        return f"{after} any two runs that read the same input are at most half as far apart."
    return f"{after} any disturbance of its state is at most half as large, whatever the input."


def _range(model: ModelRecord) -> str:
    """Return the range of inputs or the layers that a proof is limited to, as the end of a phrase; else empty."""
    said = f" {facts.scope(model)}" if facts.proved_range(model) else ""
    return f", each recurrent layer by itself{',' * bool(said)}{said}" if facts.is_layerwise(model) else said


def _growth(model: ModelRecord) -> str:
    found = growth_cell(model)
    return "" if found is None else "stay" if found.text == "stays" else f"{found.text.replace('s ', ' ', 1)} a step"


def _single(model: ModelRecord) -> str:
    """Return the headline of a report of one model."""
    name = _name(model)
    if model.state == "certified":
        slow = "" if facts.is_fast(model) else ", but too slowly to matter"
        return f"{name} is proved stable{_range(model)}{slow}. {_halving(model)}"
    if model.state == "refuted":
        if facts.is_loop(model):
            return f"{name}: not stable for every activation in its sector."
        box = facts.proved_range(model)
        if box is not None:
            return (
                f"{name}: not stable for every input, but proved stable for {facts.between(box['low'], box['high'])}."
            )
        calm = claims.closer(model)
        return f"{name}: not stable for every input.{f' On the data it was: {calm}.' if calm else ''}"
    if model.state == "inconclusive":
        return f"{name}: undecided. There is no proof that it is stable, and no counter-example."
    return f"{name}: {verdict_word(model.state).lower()}."


def summary(report: Report) -> list[str]:
    """Return the sentences below the headline."""
    models, total = report.models, len(report.models)
    told = [_meaning(models[0])] if total == 1 else [_counts(report)]
    checked, bad = [m for m in models if m.checked], [m.title for m in models if m.refused and not m.stale]
    if checked:
        all_of = {1: "The certificate was", 2: "Both certificates were"}
        which = all_of.get(len(checked), f"All {len(checked)} certificates were")
        wrong = f"; not valid: {', '.join(bad)}" if bad else ""
        told.append(f"{which} checked again when this page was made{wrong}.")
    if total > 1:
        told += _comparison(report)
    else:
        told += [_too_slow(models[0]), claims.on_data(models[0]), _guaranteed(models[0])]
    told += [f"Not examined: {name} ({why})." for name, why in report.failed.items()]
    return [text for text in told if text]


def _counts(report: Report) -> str:
    groups = {state: sum(str(m.state) == state for m in report.models) for state in GROUPS}
    parts = [f"{n} {GROUPS[state][n == 1]}" for state, n in groups.items() if n]
    ranged = sum(m.state == "certified" and facts.proved_range(m) is not None for m in report.models)
    if ranged:
        parts[0] += " for a range of inputs" if ranged == groups["certified"] else f" ({ranged} for a range of inputs)"
    first, _, rest = parts[0].partition(" ")
    total = len(report.models)
    of = f"{first} of {total}" if parts[1:] else "Both" if total == 2 else f"All {total}"
    return f"{of} {noun(report)} {', '.join([rest, *parts[1:]])}."


def _comparison(report: Report) -> list[str]:
    models = report.models
    told, known = [], {m.name: found for m in models if (found := facts.accuracy(m)) is not None}
    if known:
        top = max((m for m in models if m.name in known), key=lambda m: known[m.name][0])
        if top.state != "certified" and any(m.state == "certified" for m in models):
            share = percent(known[top.name][0])
            told.append(f"The most accurate network, {_name(top)} ({share}), is not proved stable.")
    slow = [m for m in models if m.state == "certified" and not facts.is_fast(m)]
    if slow:
        names, share = " and ".join(map(_name, slow[:3])), max(facts.halved_in_sequences(m) or 0.0 for m in slow)
        verb = "is" if len(slow) == 1 else "are"
        told.append(f"{names} {verb} stable in name only: halving takes up to {claims.sequences(share)} sequences.")
    several = max(len(m.trainings.runs) for m in models)
    if several > 1:
        told.append(
            f"Each network was trained {several} times: accuracies, also under attack, and growth are means over the "
            "trainings with the 95 % interval of the mean; everything else is that of the first training."
        )
    elif known and len(known) > 1:
        gap = math.ceil(100 * math.sqrt(2) * max(high - low for _, low, high in known.values()) / 2)
        told.append(f"One training each: differences below {gap} points may be chance.")
    return [*told, f"{report.not_compared[:1].upper()}{report.not_compared[1:]}." if report.not_compared else ""]


def _meaning(model: ModelRecord) -> str:
    """Return the reason of the verdict on a single model in plain words."""
    if model.state == "refuted":
        return f"Proved: {claims.counter_example(model)} {claims.aftermath(model)}"
    return "" if model.state == "certified" else str(claims.claim(model).striptags())


def _too_slow(model: ModelRecord) -> str:
    """Return what a proof that is too slow to matter leaves of a difference within one sequence."""
    left = bound_at(model.length or 0, (model.certificate or {}).get("pairs", ()), True)
    if facts.halved(model) is None or facts.is_fast(model) or left is None:
        return ""
    share = bound(100 * left, 5, up=True)
    return f"Within {count(model.length)} steps, one sequence, a difference may keep {share} % of its size."


def _guaranteed(model: ModelRecord) -> str:
    local = model.documents.get("local", {})
    radius, n = local.get("median_radius"), local.get("correct")
    if not radius or not n or local.get("norm") != "l2":
        return ""
    change = f"no change of up to {bound(radius, 2, up=False)} (L2 norm over the sequence)"
    return f"Guaranteed: for half of {count(n)} correctly classified inputs {change} alters the answer."


def columns(report: Report) -> list[Column]:
    """Return the columns of the verdict table that hold a value of any model.

    Args:
        report: its models are in the order of the table.
    """
    models, size = report.models, facts.attack_size(report.models)
    loops = all(map(facts.is_loop, models))
    metrics = dict.fromkeys(metric_word(found.metric) for m in models if (found := facts.score(m)) is not None)
    stretches = {round(found, 1) for m in models if (found := facts.stretch(m)) is not None}
    longer = f"{number(next(iter(stretches)))} × length" if len(stretches) == 1 else "end of run"
    unit, what = ("seconds", "slopes") if loops else ("sequences", "weights")
    larger = f"the proof holds for {'' if loops else 'recurrent '}{what} up to so many times larger"
    word = " or ".join(metrics) or "accuracy"
    interval = "95 % interval" if "accuracy" in metrics else ""
    held = "held-out data" if any(m.run for m in models) else "the data"
    halving = HALVED_IN_RANGE if any(m.state == "certified" and facts.proved_range(m) for m in models) else HALVED
    found = [
        Column(("halved within", f"steps · {unit}"), "Halved within", halving, _halved_cell, proved=True),
        Column(("decay", "per second"), "Decay", "guaranteed rate of the differences", _decay_cell, proved=True),
        Column((what, "scaled to"), "Scaled to", larger, _scaled_cell, proved=True),
        Column(("on test data,", "per step"), "Per step", "mean change of the direction that grows most", growth_cell),
        Column(("norm at", longer), "Norm", "median state norm relative to that after one sequence", norm_cell),
        Column((word, interval or "on data"), word.capitalize(), f"on {held}, {interval}".strip(", "), accuracy_cell),
    ]
    if size is not None:
        heads = (f"accuracy at L2 {number(size)}", "certified – attacked")
        found.append(Column(heads, "Certified – attacked", ROBUST, lambda m: _robust_cell(m, size)))
    return [c for c in found if any(c.show(m) is not None for m in models)]


def _halved_cell(model: ModelRecord) -> Cell | None:
    when, dt, share = facts.halved(model), (model.certificate or {}).get("dt"), facts.halved_in_sequences(model)
    if when is None:
        return None
    if not model.is_discrete:
        return Cell(bound(when, 4, up=True), "s" if facts.is_loop(model) else "units of time")
    if facts.is_loop(model) and dt:
        return Cell(count(when), f"{number(when * dt)} s")
    detail = "" if share is None else f"{claims.sequences(share)} ×"
    return Cell(count(when), detail, "" if facts.is_fast(model) else "slow")


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
        return Cell("stays")
    if change >= 1:
        return Cell(f"grows ×\u00a0{number(1 + change)}")
    return Cell(f"{'grows' if change > 0 else 'shrinks'} {percent(abs(change))}")


def norm_cell(model: ModelRecord) -> Cell | None:
    """Return the factor by which the state norm has changed at the end of the longest run."""
    ratio = facts.norm_ratio(model)
    return None if ratio is None else Cell(f"×\u00a0{count(ratio) if ratio >= 1000 else number(ratio)}")


def accuracy_cell(model: ModelRecord) -> Cell | None:
    """Return the accuracy with its interval, or another metric."""
    known, found = facts.accuracy(model), facts.score(model)
    if known is not None:
        return Cell(*claims.accuracy_words(known))
    return Cell(metric(found.value, found.metric)) if found is not None and found.value is not None else None


def _robust_cell(model: ModelRecord, size: float) -> Cell | None:
    left, sure = facts.attacked(model, size), facts.certified_accuracy(model, size)
    if left is None:
        return None
    low = "?" if sure is None else str(math.floor(100 * sure + 1e-9))
    return Cell("", f"{low} – {math.ceil(100 * left[0] - 1e-9)} %", "", (sure, left[0]))


def table(report: Report) -> dict[str, object]:
    """Return the verdict table as the template needs it: its columns, its rows, and the groups to filter by."""
    shown = columns(report)
    rows = [
        {
            "model": m,
            "name": short_name(m),
            "detail": _verdict_detail(m),
            "cells": [c.show(m) for c in shown],
            "next": next_step(m).label,
        }
        for m in report.models
    ]
    proved = ["Verdict", *(c.name.lower() for c in shown if c.proved)]
    states = dict.fromkeys(str(m.state) for m in report.models)
    groups = [(s, verdict_sign(s), verdict_word(s), sum(str(m.state) == s for m in report.models)) for s in states]
    return {
        "columns": shown,
        "rows": rows,
        "noun": noun(report, False).split()[-1],
        "groups": groups if len(groups) > 1 and len(rows) > 2 else [],
        "proved": f"{' and '.join(filter(None, (', '.join(proved[:-1]), proved[-1])))} {'are' if proved[1:] else 'is'}",
        "measured": len(shown) > len(proved) - 1,
        "rule": _rule(report),
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
    return f"Rows: by verdict, proofs slower than ten sequences after faster ones, then by {by}."


def _verdict_detail(model: ModelRecord) -> str:
    """Return what narrows a verdict: the share of trainings with the same one, or the range of inputs."""
    states: Sequence[str | None] = model.trainings.states
    if model.trainings.several:
        return f"{sum(s == model.state for s in states)} of {len(states)}"
    if facts.proved_range(model) is None:
        return "each layer" if facts.is_layerwise(model) else ""
    return ("stable " if model.state == "refuted" else "") + facts.scope(model)
