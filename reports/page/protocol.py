"""How numbers were measured, in a line: how many samples, steps, restarts and draws, and what was clipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from ..boxes import interval
from ..formatting import count
from ..stored.records import ModelRecord

ENOUGH = 20  # steps of PGD below which benchmarks of robustness call an attack weak
_BAND = "bands or brackets: 95 % intervals for the sampling of sequences"


def protocol(models: Sequence[ModelRecord], step: str) -> str:
    """The protocol of a step of the analysis, over all models that have its results.

    Args:
        models: the records.
        step: a key of ``stability.storage.artifacts.STEPS``, or ``deepfool``, one of the attacks of its step.

    Returns:
        A line; where models differ, one after the other; empty where nothing was recorded.
    """
    said = dict.fromkeys(filter(None, (_LINES[step](m) for m in models)))
    return "; or ".join(said)


def _list(*parts: str | None) -> str:
    return ", ".join(filter(None, parts))


def _some(label: str, value: Any, unit: str = "") -> str:
    """``label value unit``, or nothing where there is no value."""
    real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"{label}{count(value)}{unit}" if real else ""


def _budget(model: ModelRecord, name: str) -> Any:
    budget = model.analysis.get("budget")
    return budget.get(name) if isinstance(budget, dict) else None


def _n(model: ModelRecord, *frames: str) -> str:
    """How many sequences, of how many, and what the network makes of them undisturbed, beside all."""
    for name in frames:
        frame = model.frames.get(name)
        if frame is not None and "n" in frame:
            return _first(float(cast(Any, frame["n"]).max()), model)
    return ""


def _first(n: Any, model: ModelRecord) -> str:
    whole = (model.analysis.get("task") or {}).get("test")
    known = isinstance(whole, (int, float)) and isinstance(n, (int, float)) and n < whole
    return _some("n = ", n, " test sequences") + (f" (the first of {count(whole)})" if known else "")


def _clipped(model: ModelRecord) -> str:
    where = interval(model.analysis.get("input_range"))
    return f"inputs clipped to {where}" if where else ""


def _noise(model: ModelRecord) -> str:
    n = _n(model, "noise", "noise_scores")
    where = interval(model.analysis.get("input_range"))
    ends = f"white noise is not clipped, salt and pepper are the ends of {where}" if where else ""
    return n and _list(n, _some("", _budget(model, "draws"), " draws of each noise"), ends, _BAND)


def _attacks(model: ModelRecord) -> str:
    n = _n(model, "attacks", "attack_scores")
    if "attacks" in model.frames:
        return _list(n, _strong(model), _clipped(model), _BAND)
    steps = _budget(model, "steps")
    pgd = _some("PGD ", steps, " steps from one random start, the loss of the task")
    weak = "a weak attack: stronger ones find more" if isinstance(steps, int) and steps < ENOUGH else ""
    return n and _list(n, pgd, weak, _clipped(model), _BAND)


def _deepfool(model: ModelRecord) -> str:
    n = _n(model, "attacks")
    return n and _list(n, "DeepFool, drawn back to where the class changes", _clipped(model), _BAND)


def _strong(model: ModelRecord) -> str:
    """DeepFool and APGD in turns, see ``stability.analysis.attacks.strong``."""
    steps, starts = _budget(model, "steps"), _budget(model, "starts")
    known = isinstance(starts, int) and starts > 1
    others = f", {count(starts - 1)} at random (cross entropy{', margin' if starts > 2 else ''})" if known else ""
    apgd = _some("APGD of ", steps, " steps on what DeepFool leaves")
    begun = _some("", starts, f" starts: DeepFool's point (margin loss){others}") if starts else ""
    return "strong attack: DeepFool, then " + ("; ".join(filter(None, (apgd, begun))) or "APGD")


def _robustness(model: ModelRecord) -> str:
    samples = model.documents.get("radius", {}).get("samples")
    return _first(samples, model) if samples is not None else ""


def _local(model: ModelRecord) -> str:
    found = model.documents.get("local")
    restarts = _some("attacks with ", _budget(model, "restarts"), " restarts")
    return _list(_first(found.get("samples"), model), restarts, _trials(found), *_packed(found)) if found else ""


def _trials(found: Mapping[str, Any]) -> str:
    """The sentence about radii that a fixed number of trials limits; empty where all of them are exact."""
    if not found.get("counted"):
        return ""
    return (
        "each certified radius is the largest of a fixed number of trials, so that more trials may prove a larger one"
    )


def _packed(found: Mapping[str, Any]) -> Iterator[str]:
    """Of a network that packs its sequences: what counts as given, and how many were not examined."""
    if found.get("longest") is not None:
        ends = f"{count(found.get('shortest'))} to {count(found['longest'])}"
        yield f"packed sequences of {ends} own steps, whose number counts as given: only their values change"
    if found.get("unread"):
        yield f"{count(found['unread'])} not examined, since the model answers to them otherwise than over these steps"


def _norms(model: ModelRecord) -> str:
    found = model.documents.get("drift")
    if not found:
        return ""
    frame, length = model.frames.get("norms"), found.get("trained_length")
    last = None if frame is None else float(cast(Any, frame["t"]).max())
    way = {"repeat": "by repeating them"}.get(str(found.get("extension")), "")
    horizon = _some("followed for ", last, " steps")
    beyond = f"beyond the {count(length)} that were trained on {way}".strip() if length is not None else ""
    return _list(_some("n = ", found.get("sequences"), " test sequences"), " ".join(filter(None, (horizon, beyond))))


def _lyapunov(model: ModelRecord) -> str:
    found = model.documents.get("exponents")
    if not found:
        return ""
    return _list(
        _some("n = ", found.get("trajectories"), " test sequences"),
        _some("", found.get("steps"), " steps each"),
        _some("after ", found.get("skipped"), " that are left out"),
    )


def _growth(model: ModelRecord) -> str:
    found = model.documents.get("growth")
    if not found:
        return ""
    steps = _some("every one of their ", found.get("steps"), " steps")
    return _list(_first(found.get("sequences"), model), steps, "from the layer's initial state, in double precision")


def _recovery(model: ModelRecord) -> str:
    found = model.documents.get("recovery")
    return (
        _list(_some("n = ", found.get("runs"), " runs"), _some("waited for ", found.get("limit"), " steps"))
        if found
        else ""
    )


def _hessian(model: ModelRecord) -> str:
    found = model.documents.get("hessian")
    if not found:
        return ""
    return _list(
        _some("n = ", found.get("samples"), " training sequences"),
        _some("", _budget(model, "iterations"), " Lanczos steps"),
        _some("", _budget(model, "probes"), " random vectors for trace and density"),
    )


def _performance(model: ModelRecord) -> str:
    return _some("n = ", model.performance.get("sequences"), " sequences") if model.performance else ""


def _training(model: ModelRecord) -> str:
    task = model.analysis.get("task") or {}
    return _list(_some("n = ", task.get("test"), " held-out sequences"), _some("", task.get("train"), " to train"))


def _pairs(model: ModelRecord) -> str:
    found = model.documents.get("pairs")
    if not found:
        return ""
    return _list(
        _some("n = ", found.get("pairs"), " pairs"),
        _some("", found.get("steps"), " steps"),
        "two states that test sequences lead to, then the same test sequence for both",
    )


_LINES: dict[str, Callable[[ModelRecord], str]] = {
    "training": _training,
    "performance": _performance,
    "noise": _noise,
    "attacks": _attacks,
    "deepfool": _deepfool,
    "robustness": _robustness,
    "local": _local,
    "norms": _norms,
    "lyapunov": _lyapunov,
    "growth": _growth,
    "recovery": _recovery,
    "hessian": _hessian,
    "pairs": _pairs,
}
