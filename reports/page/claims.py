"""Sentences about the claim of one model: the proof, its coverage, and the counterexample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from stability.kernel.format.sentences import at_most

from ..formatting import bound, count, metric_word, number, percent
from ..layer_bounds import state_size
from ..rounding import covered_steps, part_of_state, run_arithmetic, run_claim
from ..stored.facts import (
    between,
    bounds,
    halved,
    halved_in_sequences,
    is_layerwise,
    is_loop,
    is_real,
    proved_range,
    scope,
)
from ..stored.records import ModelRecord, select
from ..vocabulary import reason, sentence

COUNTER_EXAMPLES = {
    "unstable_everywhere": "Under every constant input it has an unstable equilibrium",
    "unstable_linear": "Under every input its linear part moves two runs apart",
    "two_equilibria": "Under one constant input it has two equilibria: where it ends depends on where it starts",
    "two_orbits": "Under one periodic input it has two cycles: where it ends depends on where it starts",
    "pair_isometry": "Under every input two runs that start far enough apart stay more than half as far apart",
    "pair_linear": "Under every input two runs that start far apart follow a linear map that does not contract",
    "pair_jump": "Under every input two states that nearly agree can be far apart one step later: modReLU jumps",
    "expanding_unit": "Under every input the state of one of its units grows without limit",
    "accumulator": "Under every input the decay of some of its units rounds to 1 in float32: they forget nothing",
    "destabilising_slopes": "Some activation with slopes in the sector makes the loop unstable (others may not)",
}
"""Sentences without a final period, by the kind of the proof. Other kinds use the certificate's statement."""
EQUILIBRIA = ("unstable_equilibrium", "gated_unstable")
GROWING = (*EQUILIBRIA, "unstable_everywhere", "unstable_linear", "destabilising_slopes")
REMEMBERS = "States may stay bounded: a network with two stable equilibria under one input is not stable in this sense."


def duration_words(model: ModelRecord, when: float) -> str:
    """Return a proved time in steps, converted to sequence lengths or seconds in parentheses."""
    if not model.is_discrete:
        return f"{bound(when, 4, up=True)} {'s' if is_loop(model) else 'units of time'}"
    steps, dt = f"{count(when)} step{'' if when == 1 else 's'}", (model.certificate or {}).get("dt")
    if is_loop(model):
        return f"{steps} ({number(when * dt)} s)" if dt else steps
    share = halved_in_sequences(model)
    return steps if share is None or not model.length else f"{steps} ({sequences(when / model.length)} sequences)"


def sequences(share: float) -> str:
    """Return a number of training lengths: one decimal up to ten, none above.

    Example:
        >>> sequences(57 / 28), sequences(247.6)
        ('2.0', '248')
    """
    return f"{share:.1f}" if share <= 10 else count(share)


def bounded(gated: Mapping[str, Any], name: str) -> str:
    """Return the proved state bound of a gated linear layer as a sentence without a final period."""
    size = state_size(gated["unit"])
    return f"At every length and for every input, {size} of {name} is at most {bound(gated['state_bound'], 3, up=True)}"


def claim(model: ModelRecord) -> Markup:
    """Return the main claim in plain words, with numbers rounded on the safe side."""
    summary, when = model.certificate or {}, halved(model)
    if model.refused or model.state == "uncovered" or not summary:
        why = model.refused or str(model.step("certificate").get("reason") or "no claim about stability was examined")
        return Markup("{}.").format(why[:1].upper() + why[1:].rstrip("."))
    if model.state == "refuted":
        return Markup("{} {}").format(counter_example(model), boundedness(model))
    rate_missed = (summary.get("meta") or {}).get("asked_rate_reached") is False
    if model.state != "certified" or summary.get("driven") or rate_missed or when is None:
        more = reason(summary) if model.state == "inconclusive" else ""
        return Markup("{} {}").format(sentence(summary, model.is_discrete), more)
    text = Markup(
        "This holds for each recurrent layer with its own input, not for the whole network. " * is_layerwise(model)
    )
    text += Markup(
        "For <b>every input and every pair of starting states</b>, the distance after {} is at most {} "
    ).format(Markup("<i>k</i> steps") if model.is_discrete else Markup("a time <i>t</i>"), _decay(model, summary))
    text += Markup("times the initial distance. It is at most half after <b>{}</b>.").format(
        duration_words(model, when)
    )
    recovery = summary.get("recovery")
    if recovery:
        span = duration_words(model, recovery["time"]).partition(" (")[0]
        text += f" A disturbance of size {number(recovery['size'])} is below {number(recovery['tol'])} after {span}."
    return text


def _decay(model: ModelRecord, summary: Mapping[str, Any]) -> Markup:
    """Return the bound on the relative distance as a formula."""
    rate, factor = summary["rate"], summary["overshoot"]
    prefix = "" if factor <= 1.0 else f"{at_most(factor)} × "
    if model.is_discrete:
        return Markup("{}{}<sup><i>k</i></sup>").format(prefix, at_most(rate, near=1.0))
    return Markup("{}exp(−{} <i>t</i>)").format(prefix, bound(rate, 4, up=False))


def counter_example(model: ModelRecord) -> str:
    """Describe the counterexample of a refuted model, and say whether its input is in the data's range."""
    summary = model.certificate or {}
    kind, constant, size = str(summary.get("proof")), summary.get("witness_input"), summary.get("modulus")
    text = COUNTER_EXAMPLES.get(kind)
    if kind in EQUILIBRIA:
        words = "one constant input" if constant is None or any(constant) else "the constant zero input"
        text = f"Under {words} it has an unstable equilibrium"
    if text is None:
        return str(summary.get("statement", ""))
    growth = f": differences grow ×\u00a0{bound(size, 4, up=False)} a step" if size and kind in GROWING else ""
    place = "" if "every" in text else _place(model)
    return f"{text}{growth}.{f' That input lies{place}.' if place else ''}"


def _place(model: ModelRecord) -> str:
    """Say whether the input of a counterexample is in the range of the data; empty if unknown."""
    inside = ((model.certificate or {}).get("meta") or {}).get("witness", {}).get("input_in_data_range")
    data = "stated box of inputs" if model.analysis.get("input_from") == "stated" else "data's range"
    return "" if not isinstance(inside, bool) else f" {'in' if inside else 'outside'} the {data}"


def boundedness(model: ModelRecord) -> str:
    """Say whether states stay bounded, if it is proved, and what the counterexample does not mean."""
    claims = {c["name"]: c["verdict"] for c in (model.certificate or {}).get("claims", ())}
    if claims.get("bounded") == "refuted":
        return "Its state can grow without limit: proved."
    if is_loop(model) or (model.certificate or {}).get("gated_linear"):
        return ""
    return ("Its state stays bounded: proved. " if claims.get("bounded") == "certified" else "") + REMEMBERS


def gist(model: ModelRecord) -> str:
    """Return a short summary of the verdict, shown next to a model's name."""
    when = halved(model)
    if model.state == "certified":
        ranged = f", {scope(model)}" if proved_range(model) else ""
        if gated := bounds(model):
            return f"state at most {bound(gated['state_bound'], 3, up=True)} at every length"
        span = "" if when is None else duration_words(model, when).partition(" (")[0]
        return f"halves a difference within {span}{ranged}" if span else ""
    if model.state == "refuted":
        return f"proven stable {scope(model)}" if proved_range(model) else f"counterexample{_place(model)}"
    return "no proof, no counterexample" if model.state == "inconclusive" else ""


def covered(model: ModelRecord) -> str:
    """List the weights, inputs and starting states that a proof covers."""
    summary = model.certificate or {}
    points = ["each recurrent layer with its own input"] if is_layerwise(model) else []
    points += ["the stored weights" if not is_loop(model) else "the stored matrices", "exact arithmetic"]
    if model.state == "certified":
        driven = summary.get("driven")
        points[1:1] = [
            between(driven["low"], driven["high"]) if driven else "every input",
            "every start" if not driven or driven.get("since") is not None else "starts in the sets of the proof",
        ]
        points[1:3] = ["every input and length", "starts within the bound"] if bounds(model) else points[1:3]
        factor = model.margins.get("gain_certified")
        scaled = "slopes of the activation" if is_loop(model) else "recurrent weights"
        points += [] if factor is None else [f"{scaled} scaled by up to ×\u00a0{bound(factor, 3, up=False)}"]
        points += _covered_run(model)
    return "; ".join(points)


def _covered_run(model: ModelRecord) -> list[str]:
    """Return the proved distance of a run in finite precision, as a share of the states, and what it changes."""
    run, meta = _useful_run(model), (model.certificate or {}).get("meta") or {}
    if run is None:
        return []
    share = part_of_state(run["value"], (meta.get("rounding") or {}).get("size"))
    words = f"{run_arithmetic(run)} on this machine's library, for inputs like the data: states within "
    words += f"{bound(run['value'], 3, up=True)} of the exact ones {covered_steps(run)}"
    words += f", {share} times their size" * bool(share) + _measured_rounding(model)
    margin = (meta.get("decisions") or {}).get("margin")
    if margin is None:
        return [words]
    return [words, f"decisions with a margin above {bound(margin, 3, up=True)}: rounding does not change them"]


def _useful_run(model: ModelRecord) -> Mapping[str, Any] | None:
    """Return the claim about a run, unless its bound is as large as the measured states, which says nothing."""
    summary = model.certificate or {}
    run, size = run_claim(summary), ((summary.get("meta") or {}).get("rounding") or {}).get("size")
    return None if run is None or (size and run["value"] >= size) else run


def _measured_rounding(model: ModelRecord) -> str:
    """Return the measured distance of a run to one in float64, in brackets; empty without a measurement."""
    rounding = ((model.certificate or {}).get("meta") or {}).get("rounding") or {}
    relative, sequences = rounding.get("relative"), rounding.get("sequences")
    if not isinstance(relative, (int, float)) or not isinstance(sequences, (int, float)):
        return ""
    return f" (measured: {number(relative, 2)} of the state's size, {count(sequences)} sequences)"


def not_covered(model: ModelRecord) -> str:
    """List the effects and inputs that a proof does not cover."""
    if _useful_run(model) is None:
        points = ["rounding of a float32 or float64 run" + _measured_rounding(model)]
    else:
        points = ["rounding in other arithmetic or under other inputs"]
    points += [] if model.is_discrete else ["a numerical integrator"]
    points += ["how fast the whole network forgets"] if is_layerwise(model) else []
    points += ["inputs outside that range"] if proved_range(model) else []
    points += ["whether two runs approach each other", "size of the outputs"] if bounds(model) else []
    points += (
        ["other matrices"]
        if is_loop(model)
        else ["quantized or retrained weights", metric_word(model.metric or "accuracy")]
    )
    return "; ".join(points)


def final_distances(model: ModelRecord) -> tuple[int, float, float] | None:
    """Return the steps of pairs of runs on data, and the median and 90 % quantile of their final relative distances."""
    frame = model.frames.get("pairs")
    rows = None if frame is None else select(frame, what="data").dropna(subset=["q50", "q90"]).sort_values("t")
    if rows is None or rows.empty:
        return None
    t, middle, high = (float(rows[name].iloc[-1]) for name in ("t", "q50", "q90"))
    return int(t), middle, high


def closer(model: ModelRecord) -> str:
    """Return the number of pairs of runs that came closer together; empty if fewer than nine of ten did."""
    document = model.documents.get("pairs", {})
    n, pairs = document.get("closer"), document.get("pairs")
    if not is_real(n) or not is_real(pairs) or not 0.9 * pairs <= n <= pairs or pairs < 1:
        return ""
    return f"{count(n)} of {count(pairs)} pairs of runs came closer together"


def on_data(model: ModelRecord) -> str:
    """Describe the measured final distances of pairs of runs on data; empty if they were not measured."""
    distances, pairs = final_distances(model), model.documents.get("pairs", {}).get("pairs")
    if distances is None or not pairs:
        return ""
    share = bound(100 * distances[1], 2, up=True)
    return (
        f"Measured: {count(distances[0])} steps after the start, half of {count(pairs)} pairs of runs were at most "
        f"{share} % as far apart as at the start."
    )


def accuracy_words(interval: tuple[float, float, float]) -> tuple[str, str]:
    """Return an accuracy, and its interval in whole per cent, rounded outwards.

    Example:
        >>> accuracy_words((0.948, 0.9325, 0.9603))
        ('94.8 %', '93–97')
    """
    value, low, high = interval
    return percent(value), f"{math.floor(100 * low + 1e-9)}–{math.ceil(100 * high - 1e-9)}"
