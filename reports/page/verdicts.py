"""First screen of the page: headline and summary."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..formatting import bound, bound_at, count, metric, number, percent, verdict_word
from ..names import cut
from ..stored import facts
from ..stored.collect import Report
from ..stored.records import ModelRecord
from . import claims
from .verdict_table import LETTERS, growth_cell, noun

GROUPS = {
    "certified": ("are proven stable", "is proven stable"),
    "refuted": ("are proven not stable", "is proven not stable"),
    "inconclusive": ("are undecided", "is undecided"),
    "uncovered": ("are covered by no theorem", "is covered by no theorem"),
    "invalid": ("have certificates that do not verify", "has a certificate that does not verify"),
    "stale": ("are shown without results", "is shown without results"),
    "None": ("were not examined", "was not examined"),
}
"""Verbs for counts of models, many and one, by state."""
LIMITS: dict[str, Callable[[ModelRecord], bool]] = {
    "for a range of inputs": lambda m: facts.proved_range(m) is not None,
    "layer by layer, each layer with its own input": facts.is_layerwise,
    "by a bound of the state, which is not contraction": lambda m: bool(facts.bounds(m)),
}
"""Limits of proofs, and whether a proof has them."""


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
        kind = " of bounded states" if facts.bounds(best) else facts.limits(best)
        return f"Best with a proof{kind}: {_name(best)}{_so_accurate(best)}. {_halving(best)}"
    if certified:
        fast = min(certified, key=lambda m: facts.halved(m) or math.inf)
        within = f", within {claims.duration_words(fast, when)}" if (when := facts.halved(fast)) is not None else ""
        return (
            f"No proof is fast enough to matter: {_name(fast)} halves a difference first{within}{facts.limits(fast)}."
        )
    ranged = [m for m in models if facts.proved_range(m)]
    if ranged:
        return f"No network is proven stable for every input. {_name(ranged[0])} is, {facts.scope(ranged[0])}."
    close = facts.nearest(models)
    more = f" Nearest: {_name(close)}, undecided; on data its differences {_growth(close)}." if close else ""
    return f"No {noun(report, False).split()[-1]} is proven stable.{more}"


def _so_accurate(model: ModelRecord) -> str:
    interval, score = facts.accuracy(model), facts.score(model)
    if interval is not None:
        return f", {percent(interval[0])} accurate"
    return f", {score.label} {metric(score.value, score.metric)}" if score else ""


def _halving(model: ModelRecord) -> str:
    when, driven = facts.halved(model), (model.certificate or {}).get("driven")
    if gated := facts.bounds(model):
        return f"{claims.bounded(gated, model.title)}."
    if when is None:
        return ""
    since = driven.get("since") if driven else 0
    begun = "when its state has entered the set of the proof" if since is None else f"step {since}"
    counted = f", counted from {begun}," if since != 0 else ""
    time = f"After {claims.duration_words(model, when)}{counted}"
    if facts.is_layerwise(model):
        return f"{time} two runs of a layer that read the same input of the layer are at most half as far apart."
    if driven:  # a disturbance may take the state out of the sets of the proof
        return f"{time} any two runs that read the same input are at most half as far apart."
    return f"{time} any disturbance of its state is at most half as large, whatever the input."


def _growth(model: ModelRecord) -> str:
    growth = growth_cell(model)
    if growth is None:
        return ""
    return "stay" if growth.text == "unchanged" else f"{growth.text.replace('s ', ' ', 1)} per step"


def _single(model: ModelRecord) -> str:
    """Return the headline of a report of one model."""
    name = _name(model)
    if model.state == "certified":
        slow = "" if facts.is_fast(model) or facts.bounds(model) else ", but too slowly to matter"
        loop = f" for every activation with slopes in {_sector(model)}" * facts.is_loop(model)
        return f"{name} is proven stable{loop}{facts.limits(model)}{slow}. {_halving(model)}"
    if model.state == "refuted":
        if facts.is_loop(model):
            return f"{name}: unstable for at least one activation with slopes in {_sector(model)}."
        box = facts.proved_range(model)
        if box is not None:
            return (
                f"{name}: not stable for every input, but proven stable for {facts.between(box['low'], box['high'])}."
            )
        calm = claims.closer(model)
        return f"{name}: not stable for every input.{f' On the data it was: {calm}.' if calm else ''}"
    if model.state == "inconclusive":
        return f"{name}: undecided. There is no proof that it is stable, and no counterexample."
    return f"{name}: {verdict_word(model.state).lower()}."


def _sector(model: ModelRecord) -> str:
    """Return the interval of slopes of a loop's activation, all digits; words where channels differ in it."""
    slopes = (model.certificate or {}).get("slopes")
    if not slopes:
        return "its sector"
    return f"[{', '.join(repr(v).removesuffix('.0').replace('-', '−') for v in slopes)}]"


def summary(report: Report) -> list[str]:
    """Return the sentences below the headline."""
    models, total = report.models, len(report.models)
    sentences = [_meaning(models[0])] if total == 1 else [_counts(report)]
    sentences.append(_overshoot(models[0] if total == 1 else facts.recommended(models)))
    checked, bad = [m for m in models if m.checked], [m.title for m in models if m.refused and not m.stale]
    if checked:
        all_of = {1: "The certificate was", 2: "Both certificates were"}
        subject = all_of.get(len(checked), f"All {len(checked)} certificates were")
        wrong = f"; not valid: {', '.join(bad)}" if bad else ""
        sentences.append(f"{subject} checked again when this page was made{wrong}.")
    if total > 1:
        sentences += _comparison(report)
    else:
        sentences += [_too_slow(models[0]), claims.on_data(models[0]), _guaranteed(models[0])]
    sentences += [f"Not examined: {name} ({why})." for name, why in report.failed.items()]
    return [text for text in sentences if text]


def _counts(report: Report) -> str:
    groups = {state: sum(str(m.state) == state for m in report.models) for state in GROUPS}
    parts = [f"{n} {GROUPS[state][n == 1]}" for state, n in groups.items() if n]
    proven = [m for m in report.models if m.state == "certified"]
    for words, has_limit in LIMITS.items():
        n = sum(map(has_limit, proven))
        parts[0] += "" if not n else f" {words}" if n == len(proven) else f" ({n} {words})"
    first, _, rest = parts[0].partition(" ")
    total = len(report.models)
    of = f"{first} of {total}" if parts[1:] else "Both" if total == 2 else f"All {total}"
    return f"{of} {noun(report)} {', '.join([rest, *parts[1:]])}."


def _comparison(report: Report) -> list[str]:
    models = report.models
    sentences, accuracies = [], {m.name: interval for m in models if (interval := facts.accuracy(m)) is not None}
    if accuracies:
        top = max((m for m in models if m.name in accuracies), key=lambda m: accuracies[m.name][0])
        if top.state != "certified" and any(m.state == "certified" for m in models):
            share = percent(accuracies[top.name][0])
            sentences.append(f"The most accurate network, {_name(top)} ({share}), is not proven stable.")
    slow = [m for m in models if m.state == "certified" and not facts.is_fast(m) and not facts.bounds(m)]
    if slow:
        names, share = " and ".join(map(_name, slow[:3])), max(facts.halved_in_sequences(m) or 0.0 for m in slow)
        verb = "is" if len(slow) == 1 else "are"
        late = f"halving a difference may take {claims.sequences(share)} sequences"
        sentences.append(f"{names} {verb} proven stable, but too slowly to matter: {late}.")
    several = max(len(m.trainings.runs) for m in models)
    if several > 1:
        sentences.append(
            f"Each network was trained {several} times: accuracies, also under attack, and growth are means over the "
            "trainings with the 95 % interval of the mean; everything else is that of the first training."
        )
    elif accuracies and len(accuracies) > 1:
        gap = math.ceil(100 * math.sqrt(2) * max(high - low for _, low, high in accuracies.values()) / 2)
        sentences.append(f"One training each: accuracy differences below {gap} points may be chance.")
    return [*sentences, f"{report.not_compared[:1].upper()}{report.not_compared[1:]}." if report.not_compared else ""]


def _meaning(model: ModelRecord) -> str:
    """Return the reason of the verdict on a single model in plain words."""
    if model.state == "refuted":
        return f"Proved: {claims.counter_example(model)} {claims.boundedness(model)}"
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
    remaining = bound_at(model.length or 0, (model.certificate or {}).get("pairs", ()), True)
    if facts.halved(model) is None or facts.is_fast(model) or remaining is None:
        return ""
    share = bound(100 * remaining, 5, up=True)
    return f"Within {count(model.length)} steps, one sequence, a difference may keep {share} % of its size."


def _guaranteed(model: ModelRecord) -> str:
    local = model.documents.get("local", {})
    radius, n = local.get("median_radius"), local.get("correct")
    if not radius or not n or local.get("norm") != "l2":
        return ""
    change = f"no change of up to {bound(radius, 2, up=False)} (L2 norm over the sequence)"
    return f"Guaranteed: for half of {count(n)} correctly classified inputs {change} alters the answer."
