"""First screen of the page: the headline, what qualifies it, and one table of verdicts."""

from __future__ import annotations

import math

from ..formatting import bound, bound_at, count, metric, number, percent, verdict_word
from ..names import cut
from ..stored import facts
from ..stored.collect import Report
from ..stored.records import ModelRecord
from . import claims
from .verdict_table import LETTERS, growth_cell, noun

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


def _name(model: ModelRecord) -> str:
    return cut(model.title, 2 * LETTERS)


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
    if found is None:
        return ""
    return "stay" if found.text == "unchanged" else f"{found.text.replace('s ', ' ', 1)} a step"


def _single(model: ModelRecord) -> str:
    """Return the headline of a report of one model."""
    name = _name(model)
    if model.state == "certified":
        slow = "" if facts.is_fast(model) else ", but too slowly to matter"
        return f"{name} is proved stable{_range(model)}{slow}. {_halving(model)}"
    if model.state == "refuted":
        if facts.is_loop(model):
            return f"{name}: unstable for at least one activation with slopes in its sector."
        box = facts.proved_range(model)
        if box is not None:
            return (
                f"{name}: not stable for every input, but proved stable for {facts.between(box['low'], box['high'])}."
            )
        calm = claims.closer(model)
        return f"{name}: not stable for every input.{f' On the data it was: {calm}.' if calm else ''}"
    if model.state == "inconclusive":
        return f"{name}: undecided. There is no proof that it is stable, and no counterexample."
    return f"{name}: {verdict_word(model.state).lower()}."


def summary(report: Report) -> list[str]:
    """Return the sentences below the headline."""
    models, total = report.models, len(report.models)
    told = [_meaning(models[0])] if total == 1 else [_counts(report)]
    told.append(_overshoot(models[0] if total == 1 else facts.recommended(models)))
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
        late = f"halving a difference may take {claims.sequences(share)} sequences"
        told.append(f"{names} {verb} proved stable, but too slowly to matter: {late}.")
    several = max(len(m.trainings.runs) for m in models)
    if several > 1:
        told.append(
            f"Each network was trained {several} times: accuracies, also under attack, and growth are means over the "
            "trainings with the 95 % interval of the mean; everything else is that of the first training."
        )
    elif known and len(known) > 1:
        gap = math.ceil(100 * math.sqrt(2) * max(high - low for _, low, high in known.values()) / 2)
        told.append(f"One training each: accuracy differences below {gap} points may be chance.")
    return [*told, f"{report.not_compared[:1].upper()}{report.not_compared[1:]}." if report.not_compared else ""]


def _meaning(model: ModelRecord) -> str:
    """Return the reason of the verdict on a single model in plain words."""
    if model.state == "refuted":
        return f"Proved: {claims.counter_example(model)} {claims.aftermath(model)}"
    return "" if model.state == "certified" else str(claims.claim(model).striptags())


def _overshoot(model: ModelRecord | None) -> str:
    """Return how far a proved bound first rises; empty where it does not."""
    factor = (
        (model.certificate or {}).get("overshoot") if model is not None and facts.halved(model) is not None else 1.0
    )
    if model is None or not isinstance(factor, float) or factor < 1.05:
        return ""
    return f"A disturbance of {_name(model)} may first grow by a factor of up to {bound(factor, 2, up=True)}."


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
