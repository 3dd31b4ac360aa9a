"""The section of noise, attacks and certified radii."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..boxes import interval
from ..figures import strips
from ..formatting import METRICS, count, number
from ..stored.collect import Report
from ..stored.reasons import reasons_for, remarks_on
from ..stored.records import ModelRecord
from .answer import accuracy
from .layout import NAMED, Section, Table, crowded, field, tabulate
from .marks import HEURISTIC, MEASURED
from .protocol import protocol
from .strengths import strengths
from .trainings import bands

L2 = "radius, Euclidean norm of the change"
SCORES = {"noise": "noise_scores", "attacks": "attack_scores"}
DEVIATIONS = "Sizes are in units of each feature's standard deviation: 0.2 = 20 % of a feature's standard deviation"
LINF = "largest change of an entry"
WEIGHTS = "standard deviation / root mean square of the tensor"


def _ranges(models: Sequence[ModelRecord]) -> str:
    """Where the sizes of perturbations are not those of inputs in [0, 1]: what they are shares of."""
    if any((m.analysis.get("task") or {}).get("data", {}).get("source") == "arrays" for m in models):
        return f" {DEVIATIONS}."
    found = [interval(m.analysis.get("input_range")) for m in models if {"attacks", "attack_scores"} & set(m.frames)]
    ranges = [text for text in dict.fromkeys(found) if text not in ("", interval([0, 1]))]
    if not ranges:
        return ""
    return f" Inputs lie in {' or '.join(ranges)}; sizes are in their unit, attacks stay in that range."


def _beginning(models: Sequence[ModelRecord]) -> str:
    """How undisturbed sequences stand in curves and tables."""
    curved = [m for m in models if {"noise", "attacks"} & set(m.frames)]
    if curved and _clean(models).keys() >= {m.name for m in curved}:
        return " Accuracy without any disturbance stands in the first table; curves are of part of its sequences."
    return " They begin at what is measured on their own sequences, part of those of the first table."


PLANS = (
    ("noise", {"noise": "white"}, "White noise", "standard deviation of the noise"),
    ("noise", {"noise": "salt_pepper"}, "Salt-and-pepper noise", "share of entries replaced"),
    ("noise", {"noise": "parameters"}, "Noise on the weights", WEIGHTS),
    ("attacks", {"attack": "strong", "norm": "linf"}, "Strong attack, any entry", LINF),
    ("attacks", {"attack": "strong", "norm": "l2"}, "Strong attack, Euclidean", L2),
    ("attacks", {"attack": "pgd", "norm": "linf"}, "PGD attack, any entry", LINF),
    ("attacks", {"attack": "pgd", "norm": "l2"}, "PGD attack, Euclidean", L2),
    ("attacks", {"attack": "deepfool", "norm": "linf"}, "DeepFool attack, any entry", LINF),
    ("attacks", {"attack": "deepfool", "norm": "l2"}, "DeepFool attack, Euclidean", L2),
)
"""Table and step, what selects its rows, title, and what is on the horizontal axis."""
SCORED = tuple(
    (step, {**keys, "metric": name}, f"{title}: {words}", axis)
    for step, keys, title, axis in PLANS
    if keys.get("attack") not in ("deepfool", "strong")
    for name, words in METRICS.items()
)
"""The same of tasks with a value, or with a target at every step."""


def _clean(models: Sequence[ModelRecord]) -> dict[str, float]:
    """The one undisturbed accuracy of each model, which the answer shows; none where curves are over trainings."""
    found = ((m.name, accuracy(m)) for m in models if not m.trainings.several)
    return {name: known[0] for name, known in found if known is not None}


def _asked(step: str, keys: Mapping[str, str]) -> str:
    """Whose protocol it is."""
    return "deepfool" if keys.get("attack") == "deepfool" else step


_STRIPS = (
    " Drawn of each model that has both: accuracy that a certified gain proves up to a radius (thick), and that the "
    "strongest attack leaves (dashed). The truth lies in the shaded strip; its width is the mean over the radii."
)


def _rows(models: Sequence[ModelRecord], said: Mapping[str, str]) -> tuple[Table, ...]:
    """A row a model in a table for every kind of perturbation."""
    clean = _clean(models)
    told: dict[str, dict[str, Any]] = {
        s: {"protocol": line, "step": "attacks" if s == "deepfool" else s, "clean": clean} for s, line in said.items()
    }
    out: tuple[Table, ...] = ()
    for step, keys, title, axis in PLANS:
        out += strengths(models, step, keys, f"{title}: accuracy by {axis}", **told[_asked(step, keys)])
    for step, keys, title, axis in SCORED:
        out += strengths(models, SCORES[step], keys, f"{title} by {axis}", **{**told[step], "clean": {}})
    return out


def robustness(report: Report) -> Section | None:
    """Accuracy, or what else a task is measured by, under noise and attack, and what is proved of it."""
    models = report.models
    said = {step: protocol(models, step) for step in ("noise", "attacks", "deepfool", "robustness")}
    radii = said["robustness"]
    panels = crowded(strips.proved(models), (HEURISTIC, MEASURED))
    tables = tabulate(
        "Gain-based radius, from one certified gain for all inputs (computed in double precision): changes of the "
        "whole sequence up to this Euclidean norm do not change the answer (where there are several, each has a "
        "radius). Radii of single inputs, below, are proved one by one and have nothing to do with the gain",
        (
            NAMED,
            field("gain to the logits", "radius", "gain", number),
            field("median radius", "radius", "median", number),
            field("largest radius", "radius", "largest", number),
            field("samples", "radius", "samples", count),
        ),
        [m for m in models if m.documents.get("radius")],
        protocol=radii,
        made=("robustness",),
    ) + _rows(models, said)
    other = any(frame in m.frames for m in models for frame in ("noise_scores", "attack_scores"))
    what = "The metric of each model's task" if other else "Accuracy"
    return Section(
        "robustness",
        "Accuracy under noise and attack" if (panels or tables) and not other else "Noise and attack",
        f"{what} on the same test sequences when they are disturbed at random and when they are "
        "disturbed on purpose, with full knowledge of the network. "
        + bands(report)
        + _ranges(models)
        + _beginning(models)
        + _STRIPS * bool(panels)
        + " A network with values to give has no curve where noise on its weights makes it diverge." * other,
        tables,
        panels,
        remarks_on(models, "attacks") + reasons_for(models, "noise", "attacks", "robustness"),
        protocol=f"Certified: {radii}. Attacked: {said['attacks']}" if panels else "",
        made=("robustness", "attacks") if panels else (),
    ).kept
