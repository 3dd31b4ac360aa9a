"""Norms of hidden states over ten times the length that a network was trained on, with what theory says beside them.

All architectures of this toolkit on handwritten digits by rows, trained briefly, then run on ten times as many steps:
digits repeated, and white noise of the same power, for which the laws of RotRNN and LRU are. The question is Biegun,
Dolga, Cunningham and Barber's (RotRNN, 2024), asked of every layer; bounds come from proofs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from ...models import GRU, LRU, LSTM, ElmanRNN, RotRNN, SequenceModel
from ..dynamics.norms import norm_drift
from ..tasks import Task, make_task
from ..training.settings import Settings
from .base import Job, Training, register_study, write_table
from .networks import mean, networks
from .parts import Part
from .result import Compared, Figure, StudyResult

TITLE = "Norms of hidden states over ten times the trained length"
FULL: dict[str, Any] = {"hidden": 24, "limit": 1500, "epochs": 3, "seeds": 2, "sequences": 40}
QUICK: dict[str, Any] = {"hidden": 16, "limit": 300, "epochs": 1, "seeds": 1, "sequences": 16}
TRAINING: dict[str, Any] = {"lr": 3e-3, "batch_size": 32, "clip": 1.0}
FACTOR, DT, KEPT = 10, 0.1, 70
OPTIONS: dict[str, Any] = {"layout": "rows"}
INPUTS = {"images": "digits, repeated", "white": "white noise"}
SLACK = 1e-6
DIFFERENCES = (
    "The RotRNN paper shows mean squared norms in its own deep networks along training on ListOps (study "
    "rotrnn-norms); here single layers of every kind are trained on digits and run for longer than they were trained.",
    "RotRNN and LRU have an expected norm for white inputs only; bounds are of layers that carry a proof by "
    "construction: orthogonal, linear and contracting ones.",
    "Repeated digits drive every network periodically: drift on them has the swing within a digit in it.",
)
More = Callable[[Task], SequenceModel]


def _model(layer: Any, hidden: int, options: Mapping[str, Any], task: Task) -> SequenceModel:
    return SequenceModel(layer(task.input_size, hidden, **options), task.output_size, reduction=task.reduction)


def _networks(hidden: int) -> dict[str, More]:
    others: dict[str, tuple[Any, dict[str, Any]]] = {
        "Elman": (ElmanRNN, {}),
        "LSTM": (LSTM, {}),
        "GRU": (GRU, {}),
        "RotRNN": (RotRNN, {"heads": 4}),
        "LRU": (LRU, {}),
    }
    made = {name: functools.partial(_model, layer, hidden, more) for name, (layer, more) in others.items()}
    return {**networks(hidden, DT), **made}


def _plan(quick: bool) -> list[Training]:
    chosen = QUICK if quick else FULL
    options = {**OPTIONS, "limit": chosen["limit"]}
    return [Training("digits", options, make, TRAINING) for make in _networks(chosen["hidden"]).values()]


def _measured(job: Job, task: Task, make: More, settings: Mapping[str, Any], name: str, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = make(task)
    training = Settings(epochs=settings["epochs"], seed=seed, **TRAINING)
    result = job.train(model, task, training, f"{name}, seed {seed}")
    layer: Any = model.to("cpu").layer
    images = task.test[0][: settings["sequences"]]
    generator = torch.Generator().manual_seed(seed)
    white = float(images.square().mean().sqrt()) * torch.randn(images.shape, generator=generator)
    out: dict[str, Any] = {"accuracy": result.test_metric, "seconds": result.seconds}
    for kind, x, how in (("images", images, "repeat"), ("white", white, "noise")):
        drift = norm_drift(layer, x, factor=FACTOR, extension=how, gradients=False, name=name, seed=seed)
        out[kind] = {**_summary(drift), "curve": _thinned(drift.frame())}
    return out


def _summary(drift: Any) -> dict[str, Any]:
    """Numbers of one measurement: norms at the trained and at ten times the length, what theory says of them."""
    rms, at = drift.rms[-1], drift.length - 1
    law = None if drift.expected is None else np.abs(np.log2(rms / drift.expected))[np.isfinite(drift.expected)]
    return {
        "trained": float(rms[at]),
        "end": float(rms[-1]),
        "drift": drift.drift_index,
        "off_law": None if law is None or not len(law) else float(law[len(law) // 4 :].max()),
        "inside_bound": _inside(rms, drift.envelope),
    }


def _inside(rms: np.ndarray, envelope: np.ndarray | None) -> bool | None:
    """Whether norms stay below a bound wherever there is one; ``None`` where there is none."""
    if envelope is None or not np.isfinite(envelope).any():
        return None
    known = np.isfinite(envelope)
    return bool((rms[known] <= envelope[known] * (1 + SLACK)).all())


def _thinned(frame: pd.DataFrame) -> list[dict[str, Any]]:
    last = frame[frame["layer"] == frame["layer"].max()]
    kept = last.iloc[:: max(1, len(last) // KEPT)]
    columns = ["t", "rms", "expected", "envelope"]
    return [
        {k: (None if v != v else float(v)) for k, v in zip(columns, row)}
        for row in kept[columns].itertuples(index=False, name=None)
    ]


def _parts(job: Job, settings: dict[str, Any], task: Task) -> Iterator[Part]:
    for name, make in _networks(settings["hidden"]).items():
        for seed in range(job.seed, job.seed + settings["seeds"]):
            decided = {**settings, **TRAINING, "model": name, "seed": seed, "dt": DT, "data": task.describe()}
            part = functools.partial(_measured, job, task, make, settings, name, seed)
            yield Part(f"{name.replace(', ', '-').replace(' ', '-').lower()}-{seed}", decided, part)


@register_study("norm-drift", "norms of hidden states of all architectures over ten times the length", _plan)
def run_norm_drift(job: Job) -> StudyResult:
    """Train every architecture, run it ten times as long.

    Args:
        job: ``quick``: smaller, one seed; ``data_dir``: folder with MNIST. ``curves.csv``: a row an architecture, seed,
            input, time and line (measured, expected, bound).

    Returns:
        One row an architecture: norms at the trained length and at its end, drift in doublings, theory.
    """
    settings = QUICK if job.quick else FULL
    task = make_task("digits", data_dir=job.data_dir, **OPTIONS, limit=settings["limit"])
    seeds = range(job.seed, job.seed + settings["seeds"])
    rows, curves, outcomes = [], [], job.parts(_parts(job, settings, task))
    for name in _networks(settings["hidden"]):
        parts = []
        for seed in seeds:
            parts.append(next(outcomes))
            for kind in INPUTS:
                curves += _curve(name, seed, kind, parts[-1][kind]["curve"])
            write_table(job.out / "curves.csv", curves)
        rows.append(_row(name, parts))
        job.progress(f"{name}: {rows[-1]['drift_images']:.2f} doublings")
    return StudyResult(
        "norm-drift", TITLE, job.quick, {**settings, **TRAINING, "factor": FACTOR, "dt": DT}, tuple(rows),
        conclusion=_conclusion(rows), paper="After Biegun, Dolga, Cunningham, Barber, RotRNN (2024), figure 3",
        compared=_compared(rows), differences=DIFFERENCES, figures=_figures(rows), seeds=tuple(seeds),
    )  # fmt: skip


def _curve(name: str, seed: int, kind: str, curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = {"rms": "measured", "expected": "expected", "envelope": "proved bound"}
    return [
        {"model": name, "seed": seed, "input": kind, "t": point["t"], "line": words, "norm": point[column]}
        for point in curve
        for column, words in lines.items()
        if point[column] is not None
    ]


def _row(name: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    numbers = {
        f"{what}_{kind}": mean([p[kind][what] for p in parts])
        for kind in INPUTS
        for what in ("trained", "end", "drift")
    }
    bounds = [p[kind]["inside_bound"] for p in parts for kind in INPUTS if p[kind]["inside_bound"] is not None]
    theory = {"off_law_white": mean([p["white"]["off_law"] for p in parts])}
    inside = {"inside_bound": f"{sum(bounds)} of {len(bounds)}" if bounds else None}
    return {"model": name, "accuracy": mean([p["accuracy"] for p in parts]), **numbers, **theory, **inside}


def _compared(rows: list[dict[str, Any]]) -> tuple[Compared, ...]:
    said = {"RotRNN": "constant", "LRU": "varies"}
    return tuple(
        Compared(f"{row['model']}, drift over ten times the length on white noise, doublings", row["drift_white"],
                 said[row["model"]], "figure 3") for row in rows if row["model"] in said
    )  # fmt: skip


def _conclusion(rows: list[dict[str, Any]]) -> str:
    ranked = sorted(rows, key=lambda r: r["drift_images"])
    calm, wild = ranked[0], ranked[-1]
    bounds = [row["inside_bound"].split(" of ") for row in rows if row["inside_bound"]]
    held, asked = sum(int(a) for a, _ in bounds), sum(int(b) for _, b in bounds)
    laws = ", ".join(f"{r['model']} {r['off_law_white']:.2f}" for r in rows if r["off_law_white"] is not None)
    return (
        f"On digits repeated ten times the norm of {calm['model']} drifts least ({calm['drift_images']:.2f} "
        f"doublings), that of {wild['model']} most ({wild['drift_images']:.2f}); measured norms stay below the proved "
        f"bound in {held} of {asked} cases, and off the law for white inputs by doublings of "
        f"at most: {laws or 'no law applies'}."
    )


def _figures(rows: list[dict[str, Any]]) -> tuple[Figure, ...]:
    measured = [
        Figure(
            "lines", f"Norm over time: {words}", "t", "norm", "model", where={"input": kind, "line": "measured"},
            log="y", xlabel="time step", ylabel="root mean square of ‖h‖",
            caption="Mean over the seeds, with their range.",
        )
        for kind, words in INPUTS.items()
    ]  # fmt: skip
    known = [row["model"] for row in rows if row["off_law_white"] is not None or row["inside_bound"]]
    theory = [
        Figure(
            "lines", f"{name} and theory, white noise", "t", "norm", "line", where={"input": "white", "model": name},
            log="y", xlabel="time step", ylabel="root mean square of ‖h‖",
        )
        for name in known
    ]  # fmt: skip
    return (*measured, *theory)
