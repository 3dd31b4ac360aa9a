"""Folded cards of the models: claim, coverage, facts, next step, files with digests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from stability.storage.artifacts import ARTIFACTS, WEIGHTS

from ..formatting import bound, count, number, percent, rate
from ..layer_bounds import bounds_of_layer
from ..names import single_value
from ..stored.facts import attacked, certified_accuracy, is_loop, score, stretch, verdict_counts
from ..stored.margins import ENDS, SCALED
from ..stored.reasons import missing, model_advice
from ..stored.records import ModelRecord
from ..vocabulary import like_data
from .claims import claim, covered, gist, not_covered
from .next_step import next_step
from .verdict_table import accuracy_cell, growth_cell, norm_cell

DIGITS = 12
"""Letters of a digest in the page; ``files.json`` has all 64."""


def files(model: ModelRecord) -> list[str]:
    """Return the paths, relative to the page, of a model's files that are as the analysis left them."""
    results = (a.name for a in ARTIFACTS if not a.name.endswith(".pt"))
    margins = (f"margin_{kind}_{end}.json" for kind in SCALED for end in ENDS)
    names = dict.fromkeys((*results, *margins))
    return [f"models/{model.name}/{n}" for n in names if n not in model.changed and (model.folder / n).is_file()]


def card(model: ModelRecord, size: float | None, digests: Mapping[str, str], is_open: bool) -> dict[str, Any]:
    """Return what the template shows of a model.

    Args:
        model: the record.
        size: the l2 size of attacks at which models are compared.
        digests: SHA-256 of files by path, relative to the page.
        is_open: show it unfolded.
    """
    paths = [p for p in files(model) if p in digests]
    short = {p.rpartition("/")[2]: (quote(p), digests[p][:DIGITS]) for p in paths}
    settled = model.state in ("certified", "refuted")
    statement = (model.certificate or {}).get("statement")
    return {
        "record": model,
        "open": is_open,
        "gist": gist(model),
        "claim": claim(model),
        "ranged": [f"{label[:1].upper()}{label[1:]}: {value}." for label, value in _ranged(model)],
        "covered": covered(model) if settled else "",
        "not_covered": not_covered(model) if settled else "",
        "facts": facts(model, size),
        "next": next_step(model),
        "advice": [*model_advice(model)[1:], *((m.reason, m.command) for m in missing(model) if m.command)],
        "statement": None if statement is None else single_value(statement),
        "digests": [(name, *short[name]) for name in ("certificate.json", WEIGHTS) if name in short],
        "files": [(name, href) for name, (href, _) in short.items()],
    }


def _ranged(model: ModelRecord) -> list[tuple[str, str]]:
    """Return the verdict for inputs like the data, where it is another than the main one."""
    inside = (model.certificate or {}).get("like_data") or {}
    return list(like_data(model.certificate, model.is_discrete)[:1]) if inside.get("answer") == "certified" else []


def facts(model: ModelRecord, size: float | None) -> list[tuple[str, str]]:
    """Return the label and value of up to eight numbers about a model.

    Args:
        model: the record.
        size: the l2 size of attacks at which models are compared.
    """
    gated = (model.certificate or {}).get("gated_linear")
    pairs = [*_rate(model), *(bounds_of_layer(gated) if gated else ()), *_margin(model)]
    scored, growth, norm = score(model), growth_cell(model), norm_cell(model)
    accuracy = accuracy_cell(model)
    if scored is not None and accuracy is not None:
        pairs.append((scored.label, f"{accuracy.text} ({accuracy.detail} %)" if accuracy.detail else accuracy.text))
    if growth is not None:
        pairs.append(
            ("on data, a difference", growth.text if growth.text == "unchanged" else f"{growth.text} per step")
        )
    if norm is not None:
        pairs.append((f"state norm after {number(stretch(model))} × the length", norm.text))
    if size is not None and (under_attack := attacked(model, size)) is not None:
        sure = certified_accuracy(model, size)
        low = "" if sure is None else f", certified {bound(100 * sure, 3, up=False)} %"
        pairs.append((f"accuracy under an L2 attack of {number(size)}", percent(under_attack[0]) + low))
    pairs += [*_single_inputs(model), *_trainings(model)]
    return pairs


def _rate(model: ModelRecord) -> list[tuple[str, str]]:
    summary = model.certificate or {}
    if model.state != "certified" or not isinstance(summary.get("rate"), float):
        return []
    return [("guaranteed rate", rate(summary["rate"], model.is_discrete))]


def _margin(model: ModelRecord) -> list[tuple[str, str]]:
    """Return the two-sided margins: factors that keep the proof, and the first that is proved to break it."""
    pairs = []
    slopes = "slopes, scaled" if is_loop(model) else "recurrent weights, scaled"
    for kind, label in (("gain", slopes), ("step", "step of the integrator, scaled")):
        proved, refuted = (model.margins.get(f"{kind}_{end}") for end in ("certified", "destabilising"))
        parts = [f"stable up to ×\u00a0{bound(proved, 3, up=False)}"] if proved is not None else []
        parts += [f"not from ×\u00a0{bound(refuted, 3, up=True)}"] if refuted is not None else []
        pairs += [(label, ", ".join(parts))] if parts else []
    return pairs


def _single_inputs(model: ModelRecord) -> list[tuple[str, str]]:
    local = model.documents.get("local", {})
    radius, n, share = (local.get(key) for key in ("median_radius", "correct", "median_ratio"))
    if not radius or not n:
        return []
    part = "" if not share else f", {percent(share)} of what attacks find"
    return [(f"proved radius, median of {count(n)} inputs", f"{bound(radius, 2, up=False)}{part}")]


def _trainings(model: ModelRecord) -> list[tuple[str, str]]:
    if not model.trainings.several:
        return []
    return [(f"verdicts of {len(model.trainings.runs)} trainings", verdict_counts(model))]
