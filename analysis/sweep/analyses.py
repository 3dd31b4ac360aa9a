"""Analyses of the trained networks of a sweep.

Attacks and local radii are split: each part is a job about the test sequences from ``start`` to ``stop``. Its counts
are added and its lists joined afterwards. The random starts of attacks are drawn anew in each part.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from stability.errors import UnsupportedError
from stability.statistics import wilson

from ...models.files import load
from ..attacks.noise import noise_sweep
from ..attacks.sweep import attack_sweep
from ..curvature.hessian import hessian_summary
from ..dynamics.lyapunov import lyapunov_exponents
from ..dynamics.norms import norm_drift
from ..radius.local import local_radius
from ..results import plain_value
from ..tasks import Task
from .job import Found, Inputs
from .training import task_of

DEFAULTS: dict[str, dict[str, Any]] = {
    "attacks": {"samples": 200, "part": 100, "attack": "pgd", "norm": "linf", "epsilons": [0.0, 0.01, 0.04]},
    "radius": {"samples": 20, "part": 10, "norm": "l2", "epsilon": None, "restarts": 1},
    "noise": {"samples": 500, "noise": "white", "levels": [0.0, 0.1, 0.2, 0.4], "draws": 3},
    "norms": {"samples": 100, "factor": 10},
    "lyapunov": {"samples": 8},
    "hessian": {"samples": 64, "max_iter": 32, "trace_samples": 4},
}
"""Default options of every analysis; ``part``: number of test sequences of one job."""
Analysis = Callable[[nn.Module, Task, Mapping[str, Any]], Mapping[str, Any]]
ANALYSES: dict[str, Analysis] = {}


def parts_of(name: str, options: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the range of test sequences of each job of an analysis.

    Args:
        name: name of the analysis.
        options: its options, complete.

    Returns:
        Start and stop of each part; one part for an analysis that is not split.

    Example:
        >>> parts_of("radius", {"samples": 25, "part": 10}), parts_of("noise", {"samples": 500})
        ([(0, 10), (10, 20), (20, 25)], [(0, 500)])
    """
    samples = int(options["samples"])
    step = int(options.get("part", samples))
    return [(start, min(start + step, samples)) for start in range(0, samples, step)]


def _analysis(name: str) -> Callable[[Analysis], Analysis]:
    """Register the analysis of a network under its name."""

    def register(analysis: Analysis) -> Analysis:
        ANALYSES[name] = analysis
        return analysis

    return register


def analyse_network(name: str, options: Mapping[str, Any], inputs: Inputs) -> Found:
    """Run one part of an analysis on the network of the parent job.

    Args:
        name: name of the analysis.
        options: its options, with ``start``, ``stop``, and ``training``: the options of the parent.
        inputs: network of the parent, and paths of data.

    Returns:
        JSON values: ``unavailable`` with the reason where the network or its task has no such result.

    Raises:
        StabilityError: an error of the analysis.
    """
    with tempfile.TemporaryDirectory(prefix="stability-job-") as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(inputs.network)
        model = load(path)
    task = task_of(options["training"], inputs)
    try:
        return plain_value(ANALYSES[name](model.to(options["training"]["device"]), task, options)), {}
    except UnsupportedError as error:  # a property of the network or its task, not a failure
        return {"unavailable": str(error)}, {}


def _labelled(task: Task, options: Mapping[str, Any]) -> tuple[Tensor, Tensor, tuple[Any, Any]]:
    """Return the test sequences of the part, their classes, and the bounds of the inputs.

    Raises:
        UnsupportedError: a task without one class a sequence.
    """
    if not task.labels_sequences:
        raise UnsupportedError(f"needs one class for each sequence, and task {task.name} has none")
    x, y = task.test
    bounds = task.bounds or (float(x.min()), float(x.max()))
    return x[options["start"] : options["stop"]], y[options["start"] : options["stop"]], bounds


def _others(options: Mapping[str, Any], *taken: str) -> dict[str, Any]:
    known = {"training", "start", "stop", "samples", "part", *taken}
    return {name: value for name, value in options.items() if name not in known}


@_analysis("attacks")
def attacked(model: nn.Module, task: Task, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Count the sequences of the part that are classified correctly under attack, for each radius."""
    x, y, bounds = _labelled(task, options)
    if not len(x):
        return {"n": 0, "standing": [0] * len(options["epsilons"])}
    seed = options["training"]["seed"] + options["start"]
    result = attack_sweep(model, x, y, bounds=bounds, seed=seed, **_others(options))
    return {"n": result.n, "standing": [round(share * result.n) for share in result.accuracy]}


@_analysis("radius")
def local(model: nn.Module, task: Task, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Compute certified radius and attack radius of each sequence of the part."""
    x, y, _ = _labelled(task, options)
    if not len(x):
        return {"correct": [], "radius": [], "attack_radius": []}
    result = local_radius(model, x, y, seed=options["training"]["seed"] + options["start"], **_others(options))
    return {"correct": result.correct, "radius": result.radius, "attack_radius": result.attack_radius}


@_analysis("noise")
def noised(model: nn.Module, task: Task, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Measure the accuracy at each level of noise."""
    x, y, bounds = _labelled(task, options)
    more = {"kind": options["noise"], "bounds": bounds, "seed": options["training"]["seed"]}
    result = noise_sweep(model, x, y, **more, **_others(options, "noise"))
    return {"n": result.n, "accuracy": result.accuracy}


@_analysis("norms")
def drift(model: nn.Module, task: Task, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Measure the drift of the state norm beyond the length of the sequences."""
    x = task.test[0][: options["stop"]]
    result = norm_drift(model, x, seed=options["training"]["seed"], **_others(options))
    return {"slope": float(result.slope[-1]), "doublings": result.drift_index, "gradient_slope": result.grad_slope}


@_analysis("lyapunov")
def exponents(model: nn.Module, task: Task, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Estimate the largest Lyapunov exponent on the data."""
    x = task.test[0][: options["stop"]]
    result = lyapunov_exponents(model, x, seed=options["training"]["seed"], **_others(options))
    return {"largest": result.largest, "kaplan_yorke": result.kaplan_yorke}


@_analysis("hessian")
def curved(model: nn.Module, task: Task, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Estimate extreme eigenvalues and trace of the Hessian of the training loss."""
    x, y = (part[: options["stop"]] for part in task.train)
    result = hessian_summary(model, x, y, loss=task.loss, seed=options["training"]["seed"], **_others(options))
    names = ("lambda_max", "lambda_min", "trace", "loss", "gradient_norm")
    return {name: getattr(result, name) for name in names}


def merged(name: str, options: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the parts of an analysis.

    Args:
        name: name of the analysis.
        options: its options, complete.
        parts: results of its jobs, in order.

    Returns:
        Columns of the table, without the prefix of the analysis.

    Example:
        >>> found = merged("attacks", {"epsilons": [0.1]}, [{"n": 3, "standing": [2]}, {"n": 1, "standing": [1]}])
        >>> found["n"], found["accuracy_at_0.1"]
        (4, 0.75)
    """
    why = next((part["unavailable"] for part in parts if "unavailable" in part), None)
    if why is not None:
        return {"unavailable": why}
    if name == "attacks":
        return _attacks(options["epsilons"], parts)
    if name == "radius":
        return _radii(options, parts)
    if name == "noise":
        return {"n": parts[0]["n"], **dict(zip(_at("accuracy", options["levels"]), parts[0]["accuracy"]))}
    return dict(parts[0])


def _at(what: str, sizes: Sequence[float]) -> list[str]:
    return [f"{what}_at_{size:g}" for size in sorted(set(sizes))]


def _attacks(epsilons: Sequence[float], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    n = sum(part["n"] for part in parts)
    out: dict[str, Any] = {"n": n}
    for k, epsilon in enumerate(sorted(set(epsilons))):
        share = sum(part["standing"][k] for part in parts) / n if n else None
        interval = (None, None) if share is None else wilson(share, n)
        out |= dict(zip((f"{what}_at_{epsilon:g}" for what in ("accuracy", "low", "high")), (share, *interval)))
    return out


def _radii(options: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    correct = [c for part in parts for c in part["correct"]]
    radius = np.array([r for part in parts for r in part["radius"]], dtype=float)
    attacks = [math.inf if r is None else r for part in parts for r in part["attack_radius"]]  # JSON has no infinity
    right = np.array(correct, dtype=bool)
    out: dict[str, Any] = {"n": len(correct), "correct": int(right.sum())}
    for column, values in (("median_radius", radius), ("median_attack", np.array(attacks, dtype=float))):
        middle = float(np.median(values[right])) if right.any() else math.nan
        out[column] = middle if math.isfinite(middle) else None
    epsilon = options["epsilon"]
    if epsilon is not None:
        out["certified_accuracy"] = float((right & (radius >= epsilon)).mean()) if len(right) else None
    return out
