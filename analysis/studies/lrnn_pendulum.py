"""Four networks of two units trained on the pendulum: their vector fields, paths and verdicts.

Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, "Lipschitz recurrent neural networks" (ICLR 2021), figure 1: vector
fields of an unstable model, of two with an attracting equilibrium, and of a skew-symmetric one without.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from stability.certification import certify

from ...models import LipschitzRNN, SequenceModel
from ..tasks import Task, make_task
from ..training.settings import Settings
from .base import Job, Training, register_study, write_table
from .networks import LIPSCHITZ, confirmed
from .parts import Part
from .result import Compared, Figure, StudyResult

TITLE = "Vector fields of two-unit Lipschitz RNNs trained on the pendulum"
MODELS: dict[str, tuple[tuple[float, float], tuple[float, float], str]] = {
    "(a) no damping": ((0.5, 0.5), (0.0, 0.0), "unstable"),
    "(b) damped": ((0.75, 0.75), (0.5, 0.5), "asymptotically stable"),
    "(c) damped, nearly skew": ((0.95, 0.95), (0.5, 0.5), "asymptotically stable"),
    "(d) skew-symmetric": ((1.0, 1.0), (0.0, 0.0), "stable, no attracting equilibrium"),
}
"""Beta and gamma of A and W, and what the paper's figure shows in the panel of this letter."""
DT = 0.1
TARGET = "trajectory"
FULL: dict[str, Any] = {"steps": 60, "train": 400, "test": 100, "epochs": 30, "grid": 15, "paths": 8, "length": 200}
QUICK: dict[str, Any] = {"steps": 40, "train": 200, "test": 50, "epochs": 8, "grid": 11, "paths": 6, "length": 100}
TRAINING: dict[str, Any] = {"lr": 1e-2, "batch_size": 32, "clip": 1.0}
REACH, SMALL, DIGITS = 2.0, 0.05, 4  # digits: of what is drawn
DIFFERENCES = (
    "Beta and gamma of the four panels are choices of ours that span the cases which the paper's caption describes.",
    "The networks are given the initial state of a damped pendulum as a constant input and follow its trajectory; the "
    "paper does not say how it trains them. Chance is the variance of the trajectories.",
    "The input-free field is drawn, and the verdict is about the differential equation with any input.",
)


def _model(name: str, task: Task) -> SequenceModel:
    beta, gamma, _ = MODELS[name]
    layer = LipschitzRNN(task.input_size, 2, beta=beta, gamma=gamma, dt=DT, init_std=0.5)
    return SequenceModel(layer, task.output_size, reduction=task.reduction)


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**{name: settings[name] for name in ("steps", "train", "test")}, "target": TARGET}


def _plan(quick: bool) -> list[Training]:
    options = _options(QUICK if quick else FULL)
    return [Training("pendulum", options, functools.partial(_model, name), TRAINING) for name in MODELS]


def vector_field(layer: LipschitzRNN, h: np.ndarray) -> np.ndarray:
    r"""The input-free field :math:`A h + \tanh(W h + b)` at points.

    Args:
        layer: of two units.
        h: ``(points, 2)``.

    Returns:
        ``(points, 2)``.

    Example:
        >>> layer = LipschitzRNN(1, 2, beta=1.0, gamma=0.5, init_std=0.0).double()
        >>> _ = torch.nn.init.zeros_(layer.bias)
        >>> print(vector_field(layer, np.array([[2.0, 0.0]])).round(4).tolist())  # -h/2 + tanh(-h/2)
        [[-1.7616, 0.0]]
    """
    lure = layer.lure(continuous=True)
    bias = layer.bias.detach().double().cpu().numpy()
    return h @ lure.A.T + np.tanh(h @ lure.C.T + bias) @ lure.B.T


def path(layer: LipschitzRNN, start: np.ndarray, length: int) -> np.ndarray:
    """Points of the input-free equation from a start, by the classical Runge-Kutta rule with the layer's step.

    Args:
        layer: of two units.
        start: ``(2,)``.
        length: steps.

    Returns:
        ``(length + 1, 2)``, ended early where it leaves a box of a hundred.
    """
    h, points = start[None, :], [start]
    for _ in range(length):
        k1 = vector_field(layer, h)
        k2 = vector_field(layer, h + DT / 2 * k1)
        k3 = vector_field(layer, h + DT / 2 * k2)
        h = h + DT / 6 * (k1 + 2 * k2 + 2 * k3 + vector_field(layer, h + DT * k3))
        if not np.abs(h).max() < 100:
            break
        points.append(h[0])
    return np.array(points)


def _trained(job: Job, task: Task, settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    torch.manual_seed(job.seed)
    model = _model(name, task)
    result = job.train(model, task, Settings(epochs=settings["epochs"], seed=job.seed, **TRAINING), name)
    layer: Any = model.to("cpu").layer
    system = layer.lure(continuous=True)
    certificate = certify(system, rate="any", seed=job.seed)
    axis = np.linspace(-REACH, REACH, settings["grid"])
    points = np.array([[a, b] for a in axis for b in axis])
    angles = 2 * np.pi * np.arange(settings["paths"]) / settings["paths"]
    starts = 0.9 * REACH * np.column_stack([np.cos(angles), np.sin(angles)])
    paths = [path(layer, start, settings["length"]) for start in starts]
    ends = np.array([p[-1] for p in paths])
    eigenvalues = {k: np.linalg.eigvals(m).real.max() for k, m in (("A", system.A), ("W", system.C))}
    return {
        "error": result.test_metric,
        "seconds": result.seconds,
        "verdict": confirmed(certificate),
        "abscissa_A": float(eigenvalues["A"]),
        "abscissa_W": float(eigenvalues["W"]),
        "spread_of_ends": float(np.linalg.norm(ends - ends.mean(axis=0), axis=1).max()),
        "farthest": float(np.linalg.norm(ends, axis=1).max()),
        "field": np.column_stack([points, vector_field(layer, points)]).round(DIGITS).tolist(),
        "paths": [p.round(DIGITS).tolist() for p in paths],
    }


def _parts(job: Job, settings: dict[str, Any], task: Task) -> Iterator[Part]:
    for name, (beta, gamma, _) in MODELS.items():
        decided = {**settings, **TRAINING, "model": name, "beta": beta, "gamma": gamma, "dt": DT, "seed": job.seed}
        decided["target"] = TARGET
        yield Part(name[1], decided, functools.partial(_trained, job, task, settings, name))


@register_study(
    "lrnn-pendulum", "vector fields and verdicts of four two-unit networks (Lipschitz RNN, figure 1)", _plan
)
def run_lrnn_pendulum(job: Job) -> StudyResult:
    """Train the four, draw their fields, follow some paths, ask for verdicts.

    Args:
        job: ``quick``: shorter. ``curves.csv``: arrows (with ``u``, ``v``) and paths (without).

    Returns:
        One row a network: error, abscissas, where the paths end, verdict.
    """
    settings = QUICK if job.quick else FULL
    task = make_task("pendulum", seed=job.seed, **_options(settings))
    rows, curves, parts = [], [], job.parts(_parts(job, settings, task))
    for name, (beta, gamma, shown) in MODELS.items():
        part = next(parts)
        curves += [{"model": name, "h1": a, "h2": b, "u": u, "v": v} for a, b, u, v in part["field"]]
        curves += [{"model": name, "path": k, "h1": a, "h2": b} for k, p in enumerate(part["paths"]) for a, b in p]
        numbers = {k: v for k, v in part.items() if k not in ("field", "paths", "verdict", "seconds")}
        head = {"model": name, "beta": beta[0], "gamma": gamma[0], "chance": task.chance}
        rows.append({**head, **numbers, "seen": seen(part), "paper": shown,
                     "verdict": part["verdict"], "seconds": part["seconds"]})  # fmt: skip
        write_table(job.out / "curves.csv", curves)
    return StudyResult(
        "lrnn-pendulum", TITLE, job.quick, {**settings, **TRAINING, "dt": DT}, tuple(rows),
        conclusion=_conclusion(rows), paper=f"{LIPSCHITZ}, figure 1", compared=_compared(rows),
        differences=DIFFERENCES, figures=_figures(),
        seeds=(job.seed,),
    )  # fmt: skip


def seen(part: Mapping[str, Any]) -> str:
    """What the paths show: whether they end in one point, go far, or neither.

    Example:
        >>> seen({"spread_of_ends": 0.001, "farthest": 0.5}), seen({"spread_of_ends": 3.0, "farthest": 9.0})
        ('paths meet', 'paths go far')
    """
    if part["spread_of_ends"] < SMALL:
        return "paths meet"
    return "paths go far" if part["farthest"] > 2 * REACH else "paths stay and do not meet"


def _compared(rows: list[dict[str, Any]]) -> tuple[Compared, ...]:
    return tuple(Compared(row["model"], f"{row['seen']}; {row['verdict']}", row["paper"], "figure 1") for row in rows)


def _conclusion(rows: list[dict[str, Any]]) -> str:
    told = ", ".join(f"{row['model']} {row['seen']} ({row['verdict']})" for row in rows)
    share = max(row["error"] / row["chance"] for row in rows)
    return (
        f"After training, which leaves at most {share:.0%} of the trajectories' variance unexplained, and without "
        f"input: {told}; a verdict is about every input, a picture about none."
    )


def _figures() -> tuple[Figure, ...]:
    return tuple(
        Figure(
            "field", name, "h1", "h2", "path", where={"model": name}, vectors=("u", "v"),
            caption="Arrows show the direction only; dots are where the paths begin.",
        )
        for name in MODELS
    )  # fmt: skip
