"""Verdicts in words: what was found, what it means, and what it does not mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .formatting import half_life, number, rate, time_unit, verdict_word

__all__ = [
    "CRITERIA",
    "GLOSSARY",
    "NAMES",
    "UNSOUND",
    "WITNESSES",
    "best_margin",
    "mark",
    "meaning",
    "reason",
    "sentence",
    "weaker",
]

CRITERIA = {
    "theorem1a": "Theorem 1 (a) of the Lipschitz RNN paper: the linear part outweighs the recurrent weights",
    "theorem1b": "Theorem 1 (b), sound reading: symmetric W up to a positive diagonal scaling",
    "theorem1b_published": "Theorem 1 (b) as published; false for non-symmetric W: it certifies nothing",
    "theorem1b_sound": "Theorem 1 (b), sound reading: symmetric W up to a positive diagonal scaling",
    "circle": "circle criterion: the loop gain stays below one at every frequency",
    "kyp": "strict positive realness after a loop transformation (Kalman-Yakubovich-Popov)",
    "multiplier": "multiplier LMI with a diagonal multiplier, the strongest of the quadratic criteria",
    "linear": "eigenvalues, exact for linear models",
    "interval": "bounds on every entry of the step Jacobian over the reachable box",
    "interval_jacobian": "bounds on every entry of the step Jacobian over the reachable box",
    "construction": "the model contracts by construction; the proof that it carries was re-checked",
    "cascade": "a stack of contracting layers with bounded coupling",
}

UNSOUND = ("theorem1b_published",)  # shown for comparison with the paper; no proof

NAMES = {
    "construction": "by construction",
    "theorem1a": "Theorem 1 (a)",
    "theorem1b": "Theorem 1 (b)",
    "theorem1b_sound": "Theorem 1 (b)",
    "theorem1b_published": "Theorem 1 (b) as published",
    "circle": "circle criterion",
    "kyp": "KYP",
    "multiplier": "multiplier LMI",
    "destabilising_slopes": "destabilising slopes",
    "unstable_equilibrium": "unstable equilibrium",
    "two_equilibria": "two equilibria",
    "separated_trajectories": "separated trajectories",
    "unstable_linear": "unstable linear part",
    "merged_stack": "the stack as one network",
    "stack_trajectories": "separated runs of the stack",
    "interval_jacobian": "interval Jacobian",
}

WITNESSES = {  # findings against stability, and what each is
    "destabilising_slopes": "search for constant slopes of the activation under which the system is unstable",
    "unstable_equilibrium": "search for an input with an unstable equilibrium",
    "two_equilibria": "search for an input with two equilibria",
    "separated_trajectories": "search for two trajectories under one input that stay apart",
    "merged_stack": "search for a counter-example of the stack as one network",
    "stack_trajectories": "search for two runs of the whole stack under one input that stay apart",
    "unstable_linear": "an eigenvalue of a linear system outside the stable region",
}

GLOSSARY = (
    (
        "Certified stable",
        "A proof stands in the certificate file: two copies of the system that start in different "
        "states and see the same input approach each other at least at the stated rate, for every "
        "input and every pair of starting states. The checker re-proves it without a solver, rounding "
        "errors included. It says nothing about accuracy.",
    ),
    (
        "Refuted",
        "The claim is false, and the certificate file holds something the network really does that "
        "contradicts it: an input with an unstable equilibrium, two equilibria for one input, or two "
        "trajectories that stay apart. It does not mean that the network blows up or is useless: "
        "remembering which of two things happened requires exactly this.",
    ),
    (
        "Inconclusive",
        "Neither a proof nor a counter-example was found. It is not a weak yes: nothing is claimed, "
        "only the margins that were reached are shown.",
    ),
    (
        "Rate, half-life, overshoot",
        "The distance of two trajectories is at most overshoot times the rate's decay times the "
        "distance at the start. The half-life is the time in which that bound halves. Discrete systems "
        "count steps, continuous ones units of time.",
    ),
    (
        "Margin",
        "By how much a criterion's condition holds (positive) or fails (negative), in the criterion's "
        "own units. A failing criterion does not make a model unstable: all of them are sufficient, "
        "none is necessary.",
    ),
    (
        "Weaker claims",
        "Bounded is weaker than one attracting equilibrium for each constant input, and that is weaker "
        "than contraction. A network without a certificate often still has the weaker property, proved "
        "in the same file.",
    ),
    (
        "Certified accuracy",
        "The share of test sequences that are classified correctly and provably stay so under every "
        "perturbation of the whole sequence up to the radius (Euclidean norm). Attacks show the "
        "opposite bound: what does break.",
    ),
)


def sentence(summary: Mapping[str, Any] | None, discrete: bool) -> str:
    """The verdict in one sentence.

    Args:
        summary: ``Certificate.summary()`` or the readable part of a certificate file; ``None`` for none.
        discrete: whether rates are per step.

    Example:
        >>> sentence({"verdict": "inconclusive", "findings": []}, True)
        'Neither a proof of stability nor a counter-example was found.'
    """
    if summary is None:
        return "No claim about stability was examined."
    verdict = str(summary["verdict"])
    if verdict == "certified":
        half = half_life(summary["rate"], discrete)
        if half is None or math.isinf(half):
            return "Any two trajectories under the same input approach each other: proved."
        if half == 0:
            return "Any two trajectories under the same input meet after one step, whatever the input and start."
        return (
            "Any two trajectories under the same input approach each other: the bound on their "
            f"distance halves every {number(half)} {time_unit(discrete)}, whatever the input and "
            "wherever they start."
        )
    if verdict == "refuted" and summary.get("proof") == "destabilising_slopes":
        return "Not stable for every activation with these slopes: the certificate holds an unstable one."
    if verdict == "refuted":
        return "Not globally stable: the certificate holds a counter-example that the network really produces."
    return "Neither a proof of stability nor a counter-example was found."


def mark(finding: Mapping[str, Any]) -> tuple[str, str]:
    """A finding's outcome in a sign and words, and its tone (``good``, ``bad`` or ``quiet``).

    Args:
        finding: with ``criterion``, ``holds``, ``margin`` and ``detail``.

    Example:
        >>> mark({"criterion": "circle", "holds": False, "margin": -1.0, "detail": ""})
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


def best_margin(summary: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The failing finding that came closest, by its own margin.

    Example:
        >>> best_margin({"findings": [{"criterion": "a", "holds": False, "margin": -2.0},
        ...                           {"criterion": "b", "holds": False, "margin": -0.5}]})["criterion"]
        'b'
    """
    failing = [
        f
        for f in summary.get("findings", ())
        if not f["holds"] and f["margin"] is not None and f["criterion"] not in {*WITNESSES, *UNSOUND}
    ]
    return max(failing, key=lambda f: f["margin"], default=None)


def reason(summary: Mapping[str, Any] | None) -> str:
    """Why the verdict is what it is."""
    if summary is None:
        return ""
    verdict = str(summary["verdict"])
    if verdict == "certified":
        name = str(summary.get("criterion"))
        return f"By the criterion {name}: {CRITERIA.get(name, 'see the certificate')}."
    if verdict == "refuted":
        return str(summary["statement"])
    closest = best_margin(summary)
    if closest is None:
        return "No criterion applies to this kind of model."
    margin = number(closest["margin"])
    return f"Closest criterion: {closest['criterion']}, margin {margin} (it must be positive)."


def meaning(summary: Mapping[str, Any] | None, discrete: bool) -> Sequence[tuple[str, str]]:
    """Label and value of what a certificate's cover says, in reading order."""
    if summary is None or str(summary["verdict"]) != "certified":
        return ()
    half = half_life(summary["rate"], discrete)
    return (
        ("rate", rate(summary["rate"], discrete)),
        ("half-life", f"{number(half)} {time_unit(discrete)}"),
        ("overshoot", number(summary["overshoot"])),
    )


def weaker(summary: Mapping[str, Any] | None) -> Sequence[tuple[str, str, str]]:
    """Name, verdict in words and statement of the further claims."""
    if summary is None:
        return ()
    words = {"certified": "proved", "refuted": "refuted", "inconclusive": "open"}
    return tuple(
        (str(c["name"]), words.get(str(c["verdict"]), verdict_word(c["verdict"])), str(c["statement"]))
        for c in summary.get("claims", ())
    )
