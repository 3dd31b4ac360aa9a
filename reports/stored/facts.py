"""Facts about one model and comparisons between models that the page, its figures and the terminal share."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import pandas as pd

from stability.kernel.systems.parts import ALL_LAYERS
from stability.statistics import wilson
from stability.storage.artifacts import WEIGHTS

from ..boxes import box_limits
from ..formatting import bound, metric_word, time_to, verdict_word
from .records import ModelRecord, select
from .sweeps import rows_of

ORDER = ("certified", "inconclusive", "uncovered", "refuted", "invalid", "stale")
"""States of models from best to worst."""
TASKS = {"digits": "handwritten digits", "adding": "adding problem", "characters": "text, by characters"}
"""Names of tasks for readers."""
SEQUENCES = 10.0
"""Training lengths within which a proved halving counts as fast enough to matter."""
Interval = tuple[float, float, float]
"""A share with the ends of its 95 % interval."""


@dataclass(frozen=True)
class Score:
    """Main measure of a model's quality, and the data that it refers to."""

    label: str
    metric: str | None
    value: Any
    chance: Any


def is_real(value: Any) -> TypeGuard[float]:
    """Return True for a number that is not a boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def score(model: ModelRecord) -> Score | None:
    """Return the metric on held-out data; for a model without a training record, the one measured here."""
    result = model.run.get("result")
    if isinstance(result, Mapping) and result:
        word = metric_word(model.metric) + ", first training" * model.trainings.several
        return Score(f"held-out {word}", model.metric, result.get("test_metric"), result.get("chance"))
    stats = model.performance
    if not stats:
        return None
    name = str(stats.get("metric"))
    return Score(f"{metric_word(name)} on {data_name(model)}", name, stats.get("value"), stats.get("chance"))


def data_name(model: ModelRecord) -> str:
    """Return the name of the data that a model was examined on; empty where there are none."""
    task = model.analysis.get("task") or model.run.get("task")
    task = task if isinstance(task, Mapping) else {}
    data, name = task.get("data"), task.get("name")
    if isinstance(data, Mapping) and data.get("source") == "arrays":
        return str(data.get("what", "arrays"))
    return TASKS.get(str(name), f"task {name}") if name else ""


def is_loop(model: ModelRecord) -> bool:
    """Return True for a system that came as matrices, without a network to run and without data."""
    source = str(model.analysis.get("source", ""))
    return source.endswith((".npz", ".mat")) and not data_name(model) and not model.run


def accuracy(model: ModelRecord) -> Interval | None:
    """Return the accuracy on undisturbed data with its 95 % interval; ``None`` for another metric.

    Of several trainings it is their mean, and the interval is one over trainings.
    """
    scored, task = score(model), model.analysis.get("task")
    means = model.trainings.number("run.result.test_metric") or model.trainings.number("performance.value")
    if means is not None and scored is not None and scored.metric == "accuracy":
        return means["mean"], max(0.0, means["low"]), min(1.0, means["high"])
    n = model.performance.get("sequences") or (task.get("test") if isinstance(task, Mapping) else None)
    if scored is None or scored.metric != "accuracy" or not is_real(scored.value) or not is_real(n):
        return None
    if not 0 <= scored.value <= 1 or not 1 <= n < 1e12:
        return None
    return (float(scored.value), *wilson(float(scored.value), int(n)))


def verdict_counts(model: ModelRecord) -> str:
    """Return the verdicts of all trainings of a model, counted."""
    return ", ".join(f"{n} {verdict_word(verdict)}" for verdict, n in Counter(model.trainings.states).most_common())


def between(low: Any, high: Any) -> str:
    """Return the range of a box of inputs in words, with ends that lie inside the box.

    Example:
        >>> between([-0.12345], [1.0])
        'inputs between −0.123 and 1'
    """
    limits = box_limits([low, high])
    if limits is None:
        return "inputs in a range"
    least, largest = bound(min(limits[0]), 3, up=True), bound(max(limits[1]), 3, up=False)
    same = len(set(limits[0])) == len(set(limits[1])) == 1
    return f"inputs between {least} and {largest}{'' if same else ' (each feature in its own range)'}"


def proved_range(model: ModelRecord) -> Mapping[str, Any] | None:
    """Return the box of inputs that a proof is limited to; ``None`` for every input, and without a proof."""
    summary = model.certificate or {}
    inside = summary.get("like_data") or {}
    return (
        summary.get("driven") if model.state == "certified" else inside if inside.get("answer") == "certified" else None
    )


def scope(model: ModelRecord) -> str:
    """Return the inputs that a proof of stability is about, as the end of a sentence."""
    box = proved_range(model)
    return "whatever the input" if box is None else f"for {between(box['low'], box['high'])}"


def is_layerwise(model: ModelRecord) -> bool:
    """Return True if a proof is about several recurrent layers, each with its own input, and not about the whole."""
    part = ((model.certificate or {}).get("meta") or {}).get("part")
    return model.state == "certified" and str(part).startswith(ALL_LAYERS)


def bounds(model: ModelRecord) -> Mapping[str, Any]:
    """Return the proved bounds of a gated linear layer that is proven stable; empty for other models."""
    return ((model.certificate or {}).get("gated_linear") or {}) if model.state == "certified" else {}


def recheck(model: ModelRecord) -> str:
    """Return the command that checks a certificate again, for the folder of the page."""
    folder = f"models/{model.name}"
    several = bounds(model).get("layers", 1) > 1
    more = f" --weights {shlex.quote(f'{folder}/{WEIGHTS}')}" if several else ""
    return f"stability verify {shlex.quote(f'{folder}/certificate.json')}{more}"


def limits(model: ModelRecord) -> str:
    """Return the range of inputs or the layers that a proof is limited to, as the end of a phrase; else empty."""
    words = f" {scope(model)}" if proved_range(model) else ""
    return f", each recurrent layer with its own input{',' * bool(words)}{words}" if is_layerwise(model) else words


def halved(model: ModelRecord) -> float | None:
    """Return the steps (for a flow, the time) after which the distance of two trajectories is proved to be halved."""
    summary = model.certificate or {}
    return time_to(0.5, summary.get("pairs", ()), model.is_discrete) if model.state == "certified" else None


def halved_in_sequences(model: ModelRecord) -> float | None:
    """Return the proved halving time in training lengths; ``None`` if either is unknown."""
    when = halved(model)
    return None if when is None or not model.length or not model.is_discrete else when / model.length


def is_fast(model: ModelRecord) -> bool:
    """Return True for a proof that halves differences within ten training lengths, or whose length is unknown."""
    when = halved_in_sequences(model)
    return halved(model) is not None and (when is None or when <= SEQUENCES)


def attack_sizes(models: Sequence[ModelRecord], norm: str = "l2") -> list[float]:
    """Return the perturbation sizes above zero with which all attacked models were attacked."""
    frames = [m.frames["attacks"] for m in models if "attacks" in m.frames]
    sizes = [set(select(frame, attack="strong", norm=norm)["epsilon"]) for frame in frames]
    return sorted(float(e) for e in set.intersection(*sizes) if e > 0) if sizes else []


def attack_size(models: Sequence[ModelRecord]) -> float | None:
    """Return the l2 size at which models are compared: the second smallest with which all were attacked."""
    common = attack_sizes(models)
    return common[min(1, len(common) - 1)] if common else None


def attacked(model: ModelRecord, size: float, norm: str = "l2") -> Interval | None:
    """Return the accuracy under the strongest attack of this size, with its 95 % interval, as in ``accuracy``."""
    rows = rows_of(model, "attacks", {"attack": "strong", "norm": norm})
    rows = None if rows is None else select(rows, epsilon=size)
    if rows is None or rows.empty:
        return None
    value, low, high = (float(rows[name].iloc[0]) for name in ("accuracy", "ci_low", "ci_high"))
    return value, low, high


def certified_accuracy(model: ModelRecord, size: float) -> float | None:
    """Return the accuracy that a gain certifies at the next larger stored radius: a lower bound."""
    frame = model.frames.get("robustness")
    if frame is None:
        return None
    above = cast(pd.DataFrame, frame[frame["radius"] >= size * (1 - 1e-12)])
    return 0.0 if above.empty else float(above.sort_values("radius")["certified_accuracy"].iloc[0])


def growth_a_step(model: ModelRecord) -> float | None:
    """Return the mean change per step of the fastest direction along the data: ``exp(largest exponent) - 1``."""
    means = model.trainings.curve("lyapunov") if model.trainings.several else None
    largest = model.documents.get("exponents", {}).get("largest") if means is None else float(means["mean"].iloc[0])
    return math.expm1(largest) if is_real(largest) and model.is_discrete else None


def _norms(model: ModelRecord) -> dict[int, float]:
    """Return the median norm of the last layer's state by step."""
    frame = model.frames.get("norms")
    if frame is None:
        return {}
    rows = select(frame, layer=frame["layer"].max())
    return dict(zip(rows["t"].astype(int).tolist(), rows["q50"].astype(float).tolist()))


def norm_ratio(model: ModelRecord) -> float | None:
    """Return the median state norm at the end of the longest run, divided by the one at the training length."""
    norms, length = _norms(model), model.length
    if length is None or not norms.get(length, 0.0) > 0 or max(norms) <= length:
        return None
    return norms[max(norms)] / norms[length]


def stretch(model: ModelRecord) -> float | None:
    """Return the length of the run of ``norm_ratio``, in training lengths."""
    return None if norm_ratio(model) is None or not model.length else max(_norms(model)) / model.length


def scaled_to(model: ModelRecord) -> float | None:
    """Return the factor up to which the recurrent weights may be scaled without losing the proof."""
    return model.margins.get("gain_certified")


def ranked(models: Sequence[ModelRecord]) -> list[ModelRecord]:
    """Rank models by verdict, then by accuracy under attack.

    Among proofs, those of a fast contraction come first, then those of bounded states, then those of a slow one.
    """
    size = attack_size(models)

    def key(m: ModelRecord) -> tuple[int, int, float, float]:
        under_attack, clean, when = None if size is None else attacked(m, size), accuracy(m), halved(m)
        place = ORDER.index(m.state) if m.state in ORDER else len(ORDER)
        best = under_attack[0] if under_attack else clean[0] if clean else -math.inf
        strength = 0 if m.state != "certified" or is_fast(m) else 1 if bounds(m) else 2
        return place, strength, -best, math.inf if when is None else when

    return sorted(models, key=key)


def recommended(models: Sequence[ModelRecord]) -> ModelRecord | None:
    """Return the first ranked model if its proof halves differences within ten training lengths or bounds its state."""
    best = ranked(models)[:1]
    return best[0] if best and (is_fast(best[0]) or bounds(best[0])) else None


def nearest(models: Sequence[ModelRecord]) -> ModelRecord | None:
    """Return the undecided model whose differences shrink fastest, or grow slowest, along the data."""
    open_ones = [m for m in models if m.state == "inconclusive" and growth_a_step(m) is not None]
    return min(open_ones, key=lambda m: growth_a_step(m) or 0.0, default=None)
