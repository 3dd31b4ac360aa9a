"""Folded results below the models: criteria, curvature, spectra, exponents, claims, margins, radii, trainings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from stability.kernel.format.sentences import at_least as lower
from stability.kernel.format.sentences import at_most

from ..figures import Figure, appendix
from ..formatting import MISSING, at_least, bound, count, metric, number, percent, signed
from ..names import claim_name, single_value
from ..stored.collect import Report
from ..stored.facts import is_layerwise, is_real, verdict_counts
from ..stored.protocol import protocol
from ..stored.records import ModelRecord
from .criteria import criteria
from .disturbances import DEVIATIONS, disturbances, has_own_data
from .parts import Cell, Columns, Fold, Part, folded, name_cell, plural, tabulate, value
from .runs import runs

Drawn = Mapping[str, tuple[Figure, ...]]
USELESS = 1e6
"""Proved sizes of sets beyond which a claim tells nothing about states of usual size."""


def more_results(report: Report) -> list[Fold]:
    """Return the folded results that the stored files give something for, in reading order."""
    subject_figures = appendix(report)
    spectra, theorem1 = subject_figures.get("spectra", ()), subject_figures.get("theorem1", ())
    planes, margins = "recurrent matrices in the complex plane", "margins of both parts while the weights change"
    return [
        *criteria(report),
        *disturbances(report),
        *_curvature(report, subject_figures),
        *folded(report, "more-spectra", "Eigenvalues along training", planes, spectra, "eigenvalues"),
        *folded(report, "more-theorem1", "Theorem 1 along training", margins, theorem1, "spectra"),
        *_states(report, subject_figures),
        *_claims(report),
        *runs(report),
        *_margins(report),
        *_radii(report),
        *_classes(report),
        *_trainings(report),
    ]


def _curvature(report: Report, subject_figures: Drawn) -> list[Fold]:
    models = [m for m in report.models if m.documents.get("hessian")]
    columns: Columns = {
        "network": name_cell,
        "largest eigenvalue": _end("lambda_max"),
        "smallest eigenvalue": _end("lambda_min"),
        "trace": _trace,
        "gradient norm": value("hessian", "gradient_norm", number),
        "loss": value("hessian", "loss", number),
        "parameters": _parameters,
    }
    differences = [(m.documents["hessian"].get("pyhessian") or {}).get("lambda_max_difference") for m in models]
    most = max((abs(d) for d in differences if is_real(d)), default=None)
    note = (
        "A large top eigenvalue means a sharp minimum; a negative smallest one means that training did not reach a "
        f"minimum. ± is the residual of an eigenvalue and the 95 % interval of a trace. {protocol(models, 'hessian')}."
    )
    if most is not None:
        note += f" Largest relative difference to PyHessian's top eigenvalue: {bound(most, 2, up=True)}."
    if any("stored" in _parameters(m) for m in models):
        note += " A parametrized matrix is stored with more numbers than it has free parameters."
    parts = (*subject_figures.get("hessian", ()), *tabulate("Hessian of the training loss", columns, models, note=note))
    return folded(report, "more-hessian", "Loss curvature", "Hessian of the training loss", parts, "density")


def _end(name: str) -> Callable[[ModelRecord], str]:
    """Return what shows an end of the spectrum, with its residual where the iteration did not converge."""

    def show(model: ModelRecord) -> str:
        hessian = model.documents["hessian"]
        end, residual = hessian.get(name), hessian.get(f"{name}_residual")
        if is_real(end) and is_real(residual) and hessian.get("converged") is False and residual > 1e-3 * abs(end):
            return f"{number(end)} ± {bound(residual, 1, up=True)} (not converged)"
        return value("hessian", name, number)(model)

    return show


def _trace(model: ModelRecord) -> str:
    half = model.documents["hessian"].get("trace_half_width")
    return value("hessian", "trace", number)(model) + (f" ± {number(half, 2)}" if is_real(half) else "")


def _parameters(model: ModelRecord) -> str:
    free, stored = model.analysis.get("parameters"), model.documents["hessian"].get("n_parameters")
    if free is None or stored is None or free == stored:
        return count(stored if free is None else free)
    return f"{count(free)} ({count(stored)} stored)"


def _states(report: Report, subject_figures: Drawn) -> list[Fold]:
    """Make the fold of exponents, growth on single sequences and recovery."""
    models = report.models
    exponents: Columns = {
        "network": name_cell,
        "largest exponent per step": value("exponents", "largest", signed),
        "certified upper bound": _exponent_bound,
        "mean norm of the first state": value("drift", "start", number),
        "of the last state": value("drift", "end", number),
        "log2 of largest / smallest norm": value("drift", "drift_index", number),
    }
    growth: Columns = {
        "network": name_cell,
        "steps that stretch some difference": value("growth", "stretching", percent),
        "largest stretch": value("growth", "largest", _times),
        "steps in which the fastest direction grows": value("growth", "growing", percent),
        "sequences over which it grows": value("growth", "grown", percent),
        "most expanding sequence": _worst,
    }
    recovery: Columns = {
        "network": name_cell,
        "size": value("recovery", "size", number),
        "forgotten below": value("recovery", "tol", number),
        "steps, median of runs": value("recovery", "median", count),
        "steps, slowest run": value("recovery", "worst", count),
        "runs that recovered": value("recovery", "recovered", percent),
        "certified steps": _proved_time("recovery"),
        "certified memory in steps": _proved_time("memory"),
    }
    protocols = {step: protocol(models, step) or "not recorded" for step in ("lyapunov", "norms", "growth", "recovery")}
    layers = ", ".join(m.title for m in models if is_layerwise(m))
    layered = f"; of {layers}, for each recurrent layer with its own input" * bool(layers)
    parts: list[Part] = list(subject_figures.get("exponents", ()))
    parts += tabulate(
        "Lyapunov exponents and state norm",
        exponents,
        [m for m in models if m.documents.get("exponents") or m.documents.get("drift")],
        note="Below 0, small differences of the state shrink on average over steps and sequences. No average over "
        "these steps can exceed the certified bound, log ρ + log(C) / steps. Largest and smallest mean norm are those "
        f"after the first quarter of the run. Exponents: {protocols['lyapunov']}. Norms: {protocols['norms']}.",
    )
    parts += tabulate(
        "Growth of small differences on single test sequences",
        growth,
        [m for m in models if m.documents.get("growth")],
        note="Single sequences can grow even if the average shrinks. A network that is proven stable may stretch some "
        f"differences in the Euclidean norm: its proof uses another norm. Protocol: {protocols['growth']}.",
    )
    parts += tabulate(
        "Recovery from a disturbance of the state",
        recovery,
        [m for m in models if m.documents.get("recovery")],
        note=f"Certified steps hold for every input that the proof covers{layered}. Inputs older than the certified "
        f"memory change the state by less than the tolerance. Protocol: {protocols['recovery']}.",
    )
    title, summary = "Lyapunov exponents and growth on single sequences", "how fast states approach each other"
    return folded(report, "more-exponents", title, summary, parts, "lyapunov", "growth", "norms")


def _times(factor: Any) -> str:
    return f"× {number(factor)}" if is_real(factor) else MISSING


def _exponent_bound(model: ModelRecord) -> str:
    """Bound the mean growth per step by the pairs that the checker accepted, rounded up."""
    certificate, steps = model.certificate or {}, model.documents.get("exponents", {}).get("steps")
    usable = (
        model.state == "certified" and model.is_discrete and not certificate.get("driven") and not is_layerwise(model)
    )
    if not usable or not is_real(steps) or not steps > 0:
        return MISSING
    pairs = [(rate, overshoot) for rate, overshoot in certificate.get("pairs", ()) if rate > 0]
    least = min((math.log(rate) + math.log(overshoot) / steps for rate, overshoot in pairs), default=None)
    return "+" * (least is not None and least > 0) + bound(least, 3, up=True)


def _worst(model: ModelRecord) -> str:
    sequences: Any = model.documents["growth"].get("worst") or ()
    sequences = [w for w in sequences if isinstance(w, Mapping) and is_real(w.get("mean"))]
    worst = [f"no. {count(w.get('sequence'))}: {signed(w['mean'])} per step" for w in sequences]
    return worst[0] if worst else MISSING


def _proved_time(name: str) -> Callable[[ModelRecord], str]:
    def show(model: ModelRecord) -> str:
        proof = (model.certificate or {}).get(name)
        if not proof:
            return MISSING
        return count(math.ceil(proof["time"])) if model.is_discrete else f"time {bound(proof['time'], 4, up=True)}"

    return show


PROPERTIES = {
    "contraction": ("contraction", "rate"),
    "driven_contraction": ("contraction for inputs in a box", "rate"),
    "equilibrium": ("one equilibrium for each constant input", ""),
    "equilibrium_in_box": ("one equilibrium for each constant input in a box", ""),
    "bounded": ("bounded states", "radius"),
    "bounded_in_box": ("bounded states for inputs in a box", "diameter"),
    "gain": ("finite input-to-state gain", "gain"),
    "state_bound": ("bounded states at every length", "bound"),
    "state_gain": ("gain from the largest input to the state", "gain"),
    "as_it_runs": ("distance of a run in finite precision", "distance"),
    "decay": ("decay of every channel, mode or head", "decay"),
    "nonexpansive": ("differences do not grow, to 1e-6", "factor per step"),
}
"""Name of a claim for readers, and of the number that it proves."""


def _claims(report: Report) -> list[Fold]:
    proved = [
        (m, claim)
        for m in report.models
        for claim in (m.certificate or {}).get("claims", ())
        if claim["evidence"] == "proved" and not (is_real(claim["value"]) and claim["value"] > USELESS)
    ]
    columns: Columns = {
        "network": lambda row: name_cell(row[0]),
        "property": _property,
        "bound": _bound,
        "statement": lambda row: _short(row[1]["statement"]),
    }
    note = "Each statement is about the stored weights and has its own proof in certificate.json."
    tables = tabulate("Further proved claims", columns, proved, words=tuple(columns), note=note)
    return folded(report, "more-claims", "Further proved claims", plural(len(proved), "claim"), tables, "claims")


def _property(row: tuple[ModelRecord, Mapping[str, Any]]) -> Cell:
    name = str(row[1]["name"])
    words = PROPERTIES.get(name, (claim_name(name, ()), ""))[0]
    return Cell(f"✓ {words}", "good") if row[1]["verdict"] == "certified" else Cell(f"✗ not: {words}", "bad")


def _bound(row: tuple[ModelRecord, Mapping[str, Any]]) -> str:
    """Return the number of a claim, rounded so that it says no more than was proved."""
    model, claim = row
    label = PROPERTIES.get(str(claim["name"]), ("", ""))[1]
    if claim["verdict"] != "certified" or not is_real(claim["value"]) or not label:
        return ""
    if label == "rate" and not model.is_discrete:
        return f"rate ≥ {lower(claim['value'])} per unit of time"
    return f"{label} ≤ {at_most(claim['value'], near=1.0)}{' per step' * (label == 'rate')}"


def _short(statement: str) -> str:
    """Return a sentence of a certificate without its subject."""
    return re.sub(r"^.*? exact arithmetic\)\. ", "", single_value(statement))


def _margins(report: Report) -> list[Fold]:
    def factor(name: str, up: bool) -> Callable[[ModelRecord], str]:
        return lambda m: f"× {bound(m.margins[name], 4, up=up)}" if name in m.margins else MISSING

    columns: Columns = {
        "network": name_cell,
        "recurrent weights: stable up to": factor("gain_certified", up=False),
        "recurrent weights: unstable at": factor("gain_destabilising", up=True),
        "integrator step: stable up to": factor("step_certified", up=False),
        "integrator step: unstable at": factor("step_destabilising", up=True),
    }
    note = (
        "Factors of the recurrent weights (equally: of the slopes of the activation) and of the integrator's step. "
        "Both ends are proved: with the second factor some activation with such slopes makes the loop unstable."
    )
    tables = tabulate("Gain and step margins", columns, [m for m in report.models if m.margins], note=note)
    return folded(report, "more-margins", "Margins of gain and step", "how far weights and step may grow", tables)


def _radii(report: Report) -> list[Fold]:
    models = [m for m in report.models if m.documents.get("radius") or m.documents.get("local")]
    columns: Columns = {
        "network": name_cell,
        "gain to the logits": value("radius", "gain", lambda v: bound(v, 3, up=True)),
        "certified by the gain, median": value("radius", "median", at_least),
        "inputs": value("radius", "samples", count),
        "certified one by one, median": value("local", "median_radius", at_least),
        "attack succeeds at, median": value("local", "median_attack", number),
        "certified / attacked": value("local", "median_ratio", number),
        "inputs, one by one": value("local", "samples", count),
        "of these correct": value("local", "correct", count),
    }
    note = (
        "Both certified radii bound the same quantity from below: the smallest change of a sequence, in the Euclidean "
        "norm, that changes the answer. The gain is one number for all inputs, computed in double precision. The proof "
        "for one input uses what that input does; the checker accepted it. The true radius lies between the certified "
        "and the attacked one. The gain's median counts misclassified inputs as 0; the other medians leave them out."
    )
    note += f" {DEVIATIONS}." if has_own_data(models) else ""
    tables = tabulate("Certified radii", columns, models, note=note)
    summary = "by one gain for all inputs, and input by input"
    return folded(report, "more-radii", "Certified radii", summary, tables, "robustness", "local")


def _classes(report: Report) -> list[Fold]:
    own_data = [m for m in report.models if not m.run.get("result")]
    rows = [(m, c) for m in own_data for c in m.performance.get("by_class") or () if isinstance(c, Mapping)]
    columns: Columns = {
        "network": lambda row: name_cell(row[0]),
        "class": lambda row: str(row[1].get("name")),
        "accuracy": lambda row: percent(row[1].get("accuracy")),
        "sequences": lambda row: count(row[1].get("sequences")),
        "most often taken for": lambda row: str(row[1].get("taken_for") or "never mistaken"),
    }
    tables = tabulate("Accuracy by class", columns, rows, words=("class", "most often taken for"))
    return folded(report, "more-classes", "Accuracy by class", "own data", tables)


def _trainings(report: Report) -> list[Fold]:
    columns: Columns = {
        "network": name_cell,
        "trainings": lambda m: count(len(m.trainings.runs)),
        "verdicts": verdict_counts,
        "on held-out data": _over("run.result.test_metric"),
        "least to largest": _ends,
        "largest exponent per step": _over("exponents.largest"),
        "certified radius, by the gain": _over("radius.median"),
        "certified radius, one by one": _over("local.median_radius"),
        "top Hessian eigenvalue": _over("hessian.lambda_max"),
    }
    note = (
        "The trainings differ in their seeds alone: initial weights, order of the sequences, noise. Every certificate "
        "was checked again. ± is half of Student's 95 % interval of the mean. Other tables and figures show the first "
        "training, but for noise and attacks, which show means."
    )
    note += f" Intervals are left out: {report.not_compared}." if report.not_compared else ""
    models = [m for m in report.models if m.trainings.several]
    tables = tabulate("Means over several trainings", columns, models, words=("verdicts",), note=note)
    return folded(report, "more-trainings", "Several trainings", "verdicts and scores over seeds", tables, "trainings")


def _over(path: str) -> Callable[[ModelRecord], str]:
    """Return what shows the mean of a number over the trainings and half of its interval."""

    def show(model: ModelRecord) -> str:
        spread = model.trainings.number(path)
        if spread is None:
            return MISSING
        half = max(spread["high"] - spread["mean"], spread["mean"] - spread["low"])
        share = model.metric == "accuracy" and path.startswith("run.")
        return (
            f"{percent(spread['mean'])} ± {percent(half)}" if share else f"{number(spread['mean'])} ± {number(half, 2)}"
        )

    return show


def _ends(model: ModelRecord) -> str:
    spread = model.trainings.number("run.result.test_metric") or {}
    return " to ".join(metric(spread[k], model.metric) for k in ("least", "largest") if spread)
