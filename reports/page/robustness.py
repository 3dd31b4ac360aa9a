"""The section of noise, attacks and certified radii."""

from __future__ import annotations

from collections.abc import Sequence

from ..boxes import interval
from ..figures import panels as figures
from ..formatting import METRICS, count, number
from ..stored.collect import ModelRecord, Report
from ..stored.reasons import reasons_for
from .layout import NAMED, Section, draw, field, tabulate
from .marks import HEURISTIC, MEASURED
from .protocol import protocol
from .trainings import bands

L2 = "radius, Euclidean norm of the change"
_NOISES = 3  # of the plans below
LINF = "largest change of an entry"
WEIGHTS = "standard deviation / root mean square of the tensor"


def _ranges(models: Sequence[ModelRecord]) -> str:
    """Where the sizes of perturbations are not those of inputs in [0, 1]: what they are shares of."""
    found = [interval(m.analysis.get("input_range")) for m in models if {"attacks", "attack_scores"} & set(m.frames)]
    ranges = [text for text in dict.fromkeys(found) if text not in ("", interval([0, 1]))]
    if not ranges:
        return ""
    return f" Inputs lie in {' or '.join(ranges)}; sizes are in their unit, attacks stay in that range."


def _scored(models: Sequence[ModelRecord]) -> list[str | None]:
    """Panels for tasks with a value, or with a target at every step: one for each metric and kind of perturbation."""
    plans = (
        ("noise_scores", {"noise": "white"}, "White noise", "standard deviation of the noise"),
        ("noise_scores", {"noise": "salt_pepper"}, "Salt-and-pepper noise", "share of entries replaced"),
        ("noise_scores", {"noise": "parameters"}, "Noise on the weights", WEIGHTS),
        ("attack_scores", {"attack": "pgd", "norm": "linf"}, "PGD attack, any entry", LINF),
        ("attack_scores", {"attack": "pgd", "norm": "l2"}, "PGD attack, Euclidean", L2),
    )
    out = []
    for frame, keys, title, axis in plans:
        for name, words in METRICS.items():
            whole, said = {**keys, "metric": name}, f"{title}: {words}"
            anchor = "-".join((frame, *whole.values())).replace("_", "-")
            out.append(figures.scores(models, frame, whole, said, axis, anchor))
    return out


def robustness(report: Report) -> Section | None:
    """Accuracy, or what else a task is measured by, under noise and attack, and what is proved of it."""
    models = report.models
    plans = (
        ("noise", {"noise": "white"}, "White noise", "standard deviation of the noise"),
        ("noise", {"noise": "salt_pepper"}, "Salt-and-pepper noise", "share of entries replaced"),
        ("noise", {"noise": "parameters"}, "Noise on the weights", WEIGHTS),
        ("attacks", {"attack": "pgd", "norm": "linf"}, "PGD attack, any entry", LINF),
        ("attacks", {"attack": "pgd", "norm": "l2"}, "PGD attack, Euclidean", L2),
        ("attacks", {"attack": "deepfool", "norm": "linf"}, "DeepFool attack, any entry", LINF),
        ("attacks", {"attack": "deepfool", "norm": "l2"}, "DeepFool attack, Euclidean", L2),
    )
    drawn = [
        (figures.sweep(models, frame, keys, title, label, "-".join((frame, *keys.values())).replace("_", "-")), "")
        for frame, keys, title, label in plans
    ]
    noise, attacks, radii = (protocol(models, step) for step in ("noise", "attacks", "robustness"))
    random, on_purpose = drawn[:_NOISES], drawn[_NOISES:]
    panels = draw(*random, marks=(MEASURED,), protocol=noise, made=("noise",))
    panels += draw(*on_purpose, marks=(MEASURED,), protocol=attacks, made=("attacks",))
    panels += draw(
        *((svg, "") for svg in _scored(models)),
        marks=(MEASURED,),
        protocol="; ".join(filter(None, (noise, attacks))),
        made=("noise", "attacks"),
    )
    panels += draw(
        (
            figures.proved(models, {"attack": "pgd", "norm": "l2"}, "Proved and attacked", "proved-l2"),
            "Thick lines without markers: accuracy that is proved up to this radius. Lines with "
            "markers: accuracy that PGD leaves. The truth lies between them.",
        ),
        marks=(HEURISTIC, MEASURED),
        protocol=f"Certified: {radii}. Attacked: {attacks}",
        made=("robustness", "attacks"),
    )
    tables = tabulate(
        "Certified radius: changes of the whole sequence up to this Euclidean norm do not change the "
        "answer (where there are several, each has a radius), by a certified gain (computed in double precision)",
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
    )
    other = any(frame in m.frames for m in models for frame in ("noise_scores", "attack_scores"))
    what = "The metric of each model's task" if other else "Accuracy"
    return Section(
        "robustness",
        "Accuracy under noise and attack" if (panels or tables) and not other else "Noise and attack",
        f"{what} on the same test sequences when they are disturbed at random and when they are "
        "disturbed on purpose, with full knowledge of the network. "
        + bands(report)
        + _ranges(models)
        + " Curves begin at what is measured on their own sequences, part of those of the first table."
        + " A network with values to give has no curve where noise on its weights makes it diverge." * other,
        tables,
        panels,
        reasons_for(models, "noise", "attacks", "robustness"),
    ).kept
