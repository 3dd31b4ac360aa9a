"""Verdicts in words: the result, its meaning and its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stability.kernel.format.sentences import at_most

from .boxes import in_box, interval
from .formatting import bound, bound_at, number, rate, signed, time_to, time_unit, verdict_word
from .layer_bounds import bounds_of_layer, layer_sentence
from .names import claim_name, single_value
from .rounding import measured_words

CRITERIA = {
    "theorem1a": "Theorem 1 (a) of the Lipschitz RNN paper: the linear part outweighs the recurrent weights",
    "theorem1b": "Theorem 1 (b), corrected: symmetric W up to a positive diagonal scaling",
    "theorem1b_published": "Theorem 1 (b) as published; false for non-symmetric W: it certifies nothing",
    "theorem1b_sound": "Theorem 1 (b), corrected: symmetric W up to a positive diagonal scaling",
    "schur": "Schur test: comparison with a system of non-negative weights, or of norms",
    "small_gain": "small gain theorem: the gain of the linear part stays below 1/M for slopes up to M in size",
    "circle": "circle criterion: strict positive realness for the interval of the slopes (KYP lemma)",
    "multiplier": "linear matrix inequality (LMI) with diagonal multipliers, the strongest quadratic criterion",
    "linear": "eigenvalues, exact for linear models",
    "interval": "bounds on every entry of the step Jacobian over the reachable box",
    "interval_jacobian": "bounds on every entry of the step Jacobian over the reachable box",
    "interval_lmi": "one quadratic norm for all step Jacobians over the reachable box",
    "construction": "the layer contracts for every value of its weights; its proof was checked again",
    "pairwise": "a weighted norm that neither the weights nor the activation on pairs stretch",
    "cascade": "a stack of contracting layers with bounded coupling",
    "driven": "linear matrix inequality (LMI) for the slopes on sets that all trajectories enter",
    "form": "equations of the step: affine maps and known activations",
    "average_bound": "the state is a weighted average of bounded values",
    "root_bound": "the state is a sum of bounded values, weighted by the root of 1 - a^2 with decay a",
    "delta_bound": "the delta rule adds bounded values to a state that the decay shrinks",
    "series_bound": "the state is a geometric series of bounded values",
}

UNSOUND = ("theorem1b_published",)  # shown for comparison with the paper; no proof

NAMES = {
    "construction": "by construction",
    "theorem1a": "Theorem 1 (a)",
    "theorem1b": "Theorem 1 (b)",
    "theorem1b_sound": "Theorem 1 (b)",
    "theorem1b_published": "Theorem 1 (b) as published",
    "schur": "Schur test",
    "small_gain": "small gain",
    "circle": "circle criterion",
    "multiplier": "multiplier LMI",
    "destabilising_slopes": "destabilising slopes",
    "unstable_equilibrium": "unstable equilibrium",
    "two_equilibria": "two equilibria",
    "unstable_linear": "unstable linear part",
    "merged_stack": "the stack as one network",
    "interval_jacobian": "interval Jacobian",
    "interval_lmi": "interval LMI",
    "gated_orbits": "periodic orbits",
    "pairwise": "weighted norm",
    "driven": "sets and multiplier LMI",
    "pair_isometry": "isometry",
    "pair_linear": "powers of W",
    "pair_jump": "jump of modReLU",
    "form": "readable step",
}

UNITS = {  # what a criterion's margin is; each has its own, and none compares with another's
    "construction": "1 − ρ per step, or λ per unit of time",
    "theorem1a": "rate per unit of time of the differential equation",
    "theorem1b": "eigenvalue of the scaled W",
    "theorem1b_sound": "eigenvalue of the scaled W",
    "theorem1b_published": "eigenvalue, as published",
    "small_gain": "loop gain: 1/M − ‖G‖",
    "circle": "least eigenvalue of T + T*",
    "multiplier": "1 − ρ or λ; if it fails, 1 minus the gain of the scaled loop",
    "linear": "1 − ρ per step, or λ per unit of time",
    "schur": "1 − ρ per step, or λ per unit of time",
    "interval": "1 − ρ per step",
    "interval_jacobian": "1 − ρ per step",
    "interval_lmi": "1 − ρ per step",
    "pairwise": "1 − ρ per step",
    "driven": "1 − ρ; if it fails, 1 minus the gain of the scaled loop",
}
NO_UNIT = "no number, it holds or fails"

WITNESSES = {  # findings against stability, and what each is
    "destabilising_slopes": "search for constant slopes of the activation under which the system is unstable",
    "unstable_equilibrium": "search for an input with an unstable equilibrium",
    "two_equilibria": "search for an input with two equilibria",
    "merged_stack": "search for a counterexample of the stack as one network",
    "unstable_linear": "an eigenvalue of a linear system outside the stable region",
}


def sentence(summary: Mapping[str, Any] | None, discrete: bool) -> str:
    """Return the verdict in one sentence.

    Args:
        summary: ``certificates.view``; ``None`` for none.
        discrete: whether rates are per step.

    Example:
        >>> sentence({"verdict": "inconclusive", "findings": []}, True)
        'Neither a proof of stability nor a counterexample was found.'
    """
    verdict = state(summary)
    if summary is None or verdict is None:
        return "No claim about stability was examined."
    if gated := summary.get("gated_linear"):
        return layer_sentence(verdict, gated)
    if verdict == "certified":
        note = _missed(summary, discrete)
        half = time_to(0.5, summary.get("pairs", ()), discrete)
        text = "Proved: any two trajectories under the same input approach each other, wherever they start"
        if summary.get("driven"):
            return _in_box(note, summary, half, discrete)
        if half is None:
            return f"{note}{text}."
        if summary["rate"] == 0 and discrete:
            return f"{note}{text}, and meet after one step."
        return f"{note}{text}; after {number(half, 4)} {time_unit(discrete)} their distance is at most half."
    if verdict == "refuted" and summary.get("proof") == "destabilising_slopes":
        return "Proved: some activation with slopes in the interval makes the system unstable."
    if verdict == "refuted":
        return "Proved by a counterexample: trajectories under the same input can stay apart."
    return "Neither a proof of stability nor a counterexample was found."


def _in_box(note: str, summary: Mapping[str, Any], half: float | None, discrete: bool) -> str:
    """Return the sentence of a claim about inputs in a box; the result for every input follows it."""
    driven = summary["driven"]
    start, range_words = _starting(driven, discrete), interval([driven["low"], driven["high"]])
    halves = "" if half is None else f", their distance is at most half {_lasting(half, time_unit(discrete))} later"
    text = f"{note}Proved: under inputs in {range_words} any two trajectories approach each other {start}{halves}."
    bare = next((c for c in summary.get("claims", ()) if c["name"] == "contraction"), None)
    if bare is not None and bare["verdict"] == "refuted":
        text += " Also proved: under other inputs they need not; there is a counterexample."
    return text


def _starting(driven: Mapping[str, Any], discrete: bool) -> str:
    """Return the time from which a claim about inputs in a box holds, in words."""
    since, settling = driven["since"], driven.get("settling")
    if since is not None:
        return f"from step {since} on"
    if settling is None:
        return "once they have entered the sets of the proof"
    settled = _lasting(settling, "steps") if discrete else f"{at_most(settling)} units of time"
    return f"from {settled} after they entered the first set of the proof"


def _missed(summary: Mapping[str, Any], discrete: bool) -> str:
    """Return a note on the requested rate if it was not reached."""
    meta = summary.get("meta") or {}
    if meta.get("asked_rate_reached") is not False:
        return ""
    requested = number(meta.get("asked_rate"), 5)
    return f"Certified stable, but not at the rate {requested}: best proved {rate(summary['rate'], discrete)}. "


def state(summary: Mapping[str, Any] | None) -> str | None:
    """Return the verdict: ``certified``, ``refuted`` or ``inconclusive``; ``None`` without a certificate.

    Args:
        summary: ``certificates.view``, or ``None``.

    Example:
        >>> state({"verdict": "refuted"}), state(None)
        ('refuted', None)
    """
    return None if summary is None else str(summary["verdict"])


def mark(finding: Mapping[str, Any]) -> tuple[str, str]:
    """Return a finding's outcome as sign and words, and its tone (``good``, ``bad`` or ``quiet``).

    Args:
        finding: with ``criterion``, ``holds``, ``margin`` and ``detail``.

    Example:
        >>> mark({"criterion": "small_gain", "holds": False, "margin": -1.0, "detail": ""})
        ('✗ fails', 'bad')
    """
    name = str(finding["criterion"])
    if name in WITNESSES:
        return ("! found", "bad") if finding["holds"] else ("– not found", "quiet")
    if finding["margin"] is None and not finding["holds"] and "not apply" in str(finding.get("detail")):
        return "– does not apply", "quiet"
    if name in UNSOUND:
        return ("(holds)" if finding["holds"] else "(fails)"), "quiet"
    return ("✓ holds", "good") if finding["holds"] else ("✗ fails", "bad")


def reason(summary: Mapping[str, Any] | None) -> str:
    """Return the reason of the verdict."""
    verdict = state(summary)
    if summary is None or verdict is None:
        return ""
    if verdict == "certified":
        name = str(summary.get("criterion"))
        return f"By this criterion: {CRITERIA.get(name, 'see the certificate')}."
    if verdict == "refuted":
        return str(summary["statement"])
    examined = [f for f in summary.get("findings", ()) if f["criterion"] not in {*WITNESSES, *UNSOUND}]
    if summary.get("gated_linear"):
        return "No theorem gives a finite bound of its state for every input."
    if summary.get("needs_box"):
        return "No criterion holds for an LSTM or GRU under every input: state a range of inputs."
    form = next((f for f in examined if f["criterion"] == "form"), None)
    if form is not None:
        return f"No criterion covers this step: {form['detail']}. Only measurements are available."
    if holds := [NAMES.get(str(f["criterion"]), str(f["criterion"])) for f in examined if f["holds"]]:
        return f"{', '.join(holds)}: holds numerically, but the checker accepts no proof at its rate."
    if not any(f["margin"] is not None for f in examined):
        why = next((str(f["detail"]) for f in examined if mark(f)[1] == "bad"), "")
        return f"No criterion holds: {why}." if why else "No criterion applies to this kind of model."
    last = next((f for f in examined if f["criterion"] == "multiplier" and f["margin"] is not None), None)
    if last is None:
        return "No criterion holds; the table lists their margins."
    margin = last["margin"]
    excess = f": the gain of the scaled loop exceeds 1 by {number(-margin)}" if margin < 0 else ""
    return f"No criterion holds. The strongest, the {NAMES['multiplier']}, has margin {signed(margin)}{excess}."


def meaning(summary: Mapping[str, Any] | None, discrete: bool, length: int | None = None) -> Sequence[tuple[str, str]]:
    """Return the facts of a certificate as labels and values, in reading order.

    Args:
        summary: ``certificates.view``.
        discrete: whether rates are per step.
        length: steps of the sequences that the network was made for, if known.

    Example:
        >>> summary = {"verdict": "certified", "rate": 0.9732, "overshoot": 2.9015, "pairs": [(0.9732, 2.9015)]}
        >>> for fact in meaning(summary, True, 28): print(*fact, sep=": ")
        rate: ρ = 0.9732 per step
        overshoot: 2.902
        bound after 28 steps (trained length): 1.36 × the initial distance
        below the initial distance: after 40 steps
        below half the initial distance: after 65 steps
    """
    if summary is None or state(summary) not in ("certified", "refuted"):
        return ()
    if gated := summary.get("gated_linear"):
        return bounds_of_layer(gated)
    if state(summary) == "refuted":
        size = summary.get("modulus")
        return () if size is None else (("modulus of the eigenvalue", f"{number(size, 4)} (1 is the limit)"),)
    pairs, unit, driven = summary.get("pairs", ()), time_unit(discrete), summary.get("driven")
    dt, rate_words = summary.get("dt"), rate(summary["rate"], discrete)
    if dt and 0.0 < summary["rate"] < 1.0:
        rate_words += f" of {number(dt)}: decay {bound(-math.log(summary['rate']) / dt, 4, up=False)} per unit of time"
    facts = [("rate", rate_words), ("overshoot", at_most(summary["overshoot"]))]
    if driven:
        facts.append(("holds", f"{_starting(driven, discrete)}, counted as {'step' if discrete else 'time'} 0"))
        facts.append(("inputs", f"in {interval([driven['low'], driven['high']])} at all times, and no others"))
    elif length is not None and discrete and pairs:
        share = bound(bound_at(length, pairs, discrete), 3, up=True)
        facts.append((f"bound after {length} steps (trained length)", f"{share} × the initial distance"))
    for share, words in ((1.0, "below the initial distance"), (0.5, "below half the initial distance")):
        when = time_to(share, pairs, discrete)
        if when is not None and (share < 1.0 or min(overshoot for _, overshoot in pairs) > 1.0 + 1e-6):
            facts.append((words, f"after {_lasting(when, unit, dt)}"))
    return [*facts, *_forgetting(summary, unit)]


def _lasting(when: float, unit: str, dt: float | None = None) -> str:
    """Format a number of steps or units of time; both if the duration of a step is known."""
    one = unit.removesuffix("s").replace("units", "unit")
    return f"{number(when, 4)} {one if when == 1 else unit}{f' ({number(when * dt, 4)} units of time)' if dt else ''}"


def _forgetting(summary: Mapping[str, Any], unit: str) -> list[tuple[str, str]]:
    """Return recovery time and memory horizon in words."""
    facts = []
    recovery, memory = summary.get("recovery"), summary.get("memory")
    if recovery:
        size, tol = number(recovery["size"]), number(recovery["tol"])
        event = f"a disturbance of the state of norm {size} has decayed below {tol}, under every input"
        if summary.get("driven"):  # what takes a state out of the sets of the proof starts anew
            event = f"two states at distance {size} in the sets of the proof have come closer than {tol}"
        lasting = _lasting(recovery["time"], unit, summary.get("dt"))
        facts.append(("recovery time", f"{lasting}, after which {event}"))
    if memory:
        size = at_most(memory["size"])
        event = (
            f"older inputs change the state by less than {number(memory['tol'])} "
            f"(any two states differ by at most {size})"
        )
        facts.append(("memory horizon", f"{_lasting(memory['time'], unit)}; {event}"))
    return facts


def like_data(summary: Mapping[str, Any] | None, discrete: bool) -> Sequence[tuple[str, str]]:
    """Return the second verdict, about inputs in a stated box or like the data, as labels and values.

    Args:
        summary: ``certificates.view``.
        discrete: whether rates are per step.

    Example:
        >>> found = {"answer": "open", "low": [0.0], "high": [1.0], "margin": 0.05, "why": "no sets shrink"}
        >>> like_data({"like_data": found}, True)[0][1]
        'open: no proof was found for inputs in [0, 1], the range of the data plus 5 % of its width (no sets shrink)'
    """
    result = (summary or {}).get("like_data")
    if not result or result.get("low") is None or result.get("high") is None:
        return ()
    box, label = interval([result["low"], result["high"]]), in_box(result)
    of = f"the range of the data plus {number(100 * (result['margin'] or 0.0))} % of its width"
    box_words = f"inputs in {box}, {'as stated with --input-box' if result.get('stated') else of}"
    why = f" ({result['why']})" if result.get("why") else ""
    if result["answer"] == "certified":
        text = (
            f"proved: {_starting(result, discrete)} any two trajectories approach each other under {box_words}: "
            f"{rate(result['rate'], discrete)}"
        )
        return (label, text), *((f"{name}, {label}", fact) for name, fact in _forgetting(result, time_unit(discrete)))
    text = {
        "implied": "also proved: the claim covers every input",
        "refuted": "not stable either: the input of the counterexample lies in "
        + ("the range of the data, all of which is in the box" if result.get("stated") else "the range of the data"),
    }.get(str(result["answer"]), f"open: no proof was found for {box_words}{why}")
    return ((label, text),)


def notes(summary: Mapping[str, Any] | None, inputs: str = "", range_words: str = "the range of the data") -> list[str]:
    """Return notes that explain the limits of the verdict.

    Args:
        summary: ``certificates.view``.
        inputs: ``boxes.box_note``, the inputs that the claim is about if it is not about every input.
        range_words: the range of inputs in which counterexamples were searched first.

    Example:
        >>> notes({"verdict": "certified"}, "Inputs in [0, 1], the range of the data.")
        ['Inputs in [0, 1], the range of the data.']
    """
    if summary is None:
        return []
    meta = summary.get("meta") or {}
    lines = [inputs] if inputs else []
    witness = meta.get("witness")
    if isinstance(witness, Mapping) and state(summary) == "refuted":
        lines += _witness(witness, range_words)
    limits = summary.get("witness_input")
    if limits is not None and state(summary) == "refuted":
        between = number(limits[0]) if limits[0] == limits[1] else f"from {number(limits[0])} to {number(limits[1])}"
        lines.append(f"No range that contains the counterexample's input (entries {between}) can be certified.")
    rounding = meta.get("rounding")
    if isinstance(rounding, Mapping) and state(summary) == "certified":
        lines += measured_words(rounding)
    return lines


def _witness(witness: Mapping[str, Any], range_words: str) -> list[str]:
    """Return the range that holds a counterexample's input, and whether its states are reachable."""
    inside, reachable = witness.get("input_in_data_range"), witness.get("states_reachable")
    place = {True: "in", False: "outside"}.get(inside)  # type: ignore[call-overload]
    states: dict[Any, str] = {
        True: "Its states can be reached from the initial state within the trained length.",
        False: "Its states cannot be reached from the initial state within the trained length.",
        None: "It is not known whether its states can be reached from the initial state within the trained length.",
    }
    lies = None if place is None else f"The input of the counterexample lies {place} {range_words}."
    return [text for text in (lies, states.get(reachable)) if text is not None]


def weaker(summary: Mapping[str, Any] | None) -> Sequence[tuple[str, str, str]]:
    """Return name, verdict in words and statement of the further claims."""
    if summary is None:
        return ()
    words = {"certified": "proved", "refuted": "refuted", "inconclusive": "open"}
    names = {str(c["name"]) for c in summary.get("claims", ())}
    names |= {"driven_contraction"} if summary.get("driven") else set()
    return tuple(
        (claim_name(str(c["name"]), names), words.get(str(state(c)), verdict_word(c["verdict"])), text)
        for c in summary.get("claims", ())
        for text in [single_value(c["statement"])]
    )
