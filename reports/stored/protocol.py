"""Protocols of measurements: numbers of sequences, steps, restarts and draws, read from the stored files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from ..formatting import number
from .facts import is_real
from .records import ModelRecord

SCORES = {"noise_scores": "noise", "attack_scores": "attacks"}
"""Step that measured a table of scores other than the accuracy of a sequence."""
PROTOCOLS: dict[str, tuple[tuple[str, str], ...]] = {
    "performance": (("performance.sequences", "{} test sequences"), ("", "95 % intervals")),
    "hessian": (
        ("hessian.samples", "{} training sequences"),
        ("budget.iterations", "{} Lanczos steps"),
        ("budget.probes", "{} random vectors for trace and density"),
    ),
    "noise": (
        ("noise.n", "{} test sequences"),
        ("budget.draws", "{} draws of each noise"),
        ("analysis.input_range", "salt and pepper set entries to the ends of the inputs' range"),
        ("", "white noise is not clipped"),
    ),
    "noise_scores": (("noise_scores.n", "{} test sequences"), ("budget.draws", "{} draws of each noise")),
    "attacks": (
        ("attacks.n", "{} test sequences"),
        ("budget.steps", "the stronger of DeepFool and {} steps of APGD"),
        ("budget.starts", "{} starting points"),
        ("analysis.input_range", "inputs stay in their range"),
    ),
    "attack_scores": (
        ("attack_scores.n", "{} test sequences"),
        ("budget.steps", "PGD of {} steps from one random start (stronger attacks find more)"),
        ("analysis.input_range", "inputs stay in their range"),
    ),
    "robustness": (("radius.samples", "certified: {} test sequences"), ("", "by one gain in double precision")),
    "local": (
        ("local.samples", "{} test sequences"),
        ("budget.restarts", "random restarts per attack: {}"),
        ("local.shortest", "packed sequences of {} steps or more, whose number is fixed"),
        ("local.unread", "{} left out because the network answers differently on their own steps alone"),
        ("local.counted", "certified radii are the largest of a fixed number of trials"),
    ),
    "norms": (
        ("drift.sequences", "{} test sequences"),
        ("norms.t", "{} steps"),
        ("drift.trained_length", "repeated after the {} steps of training"),
    ),
    "lyapunov": (
        ("exponents.trajectories", "{} test sequences"),
        ("exponents.steps", "{} steps"),
        ("exponents.skipped", "the first {} left out"),
    ),
    "growth": (
        ("growth.sequences", "{} test sequences"),
        ("growth.steps", "{} steps"),
        ("", "from the layer's initial state, in double precision"),
    ),
    "recovery": (("recovery.runs", "{} runs"), ("recovery.limit", "followed for at most {} steps")),
    "pairs": (
        ("pairs.pairs", "{} pairs of states that test sequences lead to"),
        ("pairs.steps", "{} steps on the same test sequence"),
    ),
    "margin": (("margin.tol", "factors to a relative tolerance of {}"),),
}  # fmt: skip
"""Parts of the protocol of each step: the path of a number, and a text with a place for it.

A path names a field of a document, a field of the analysis' budget, or a column of a table, whose largest value is
taken. A part whose number is missing is left out; a protocol whose first number is missing is empty.
"""


def protocol(models: Iterable[ModelRecord], step: str) -> str:
    """Return the protocols of a step of the analysis, each different one once; empty if no model has results.

    Args:
        models: the records.
        step: a key of ``PROTOCOLS``.
    """
    return "; or ".join(dict.fromkeys(filter(None, (_line(m, step) for m in models))))


def _line(model: ModelRecord, step: str) -> str:
    parts = [(text, _number(model, path) if path else "") for path, text in PROTOCOLS[step]]
    phrases = [text.format(_words(value)) for text, value in parts if value is not None and value is not False]
    return ", ".join(phrases) if parts[0][1] is not None else ""


def _number(model: ModelRecord, path: str) -> Any:
    stem, _, name = path.partition(".")
    document = model.analysis.get("budget") if stem == "budget" else model.documents.get(stem)
    if isinstance(document, Mapping) and name in document:
        return document[name]
    frame = model.frames.get(stem, ())
    return float(cast(Any, frame)[name].max()) if name in frame else None


def _words(value: Any) -> str:
    return number(value, 6) if is_real(value) else ""
