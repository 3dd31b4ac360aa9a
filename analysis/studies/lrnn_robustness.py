"""Curvature, attacks and noise: the robustness section of the Lipschitz RNN paper, with several seeds and verdicts.

Erichson, Azencot, Queiruga, Hodgkinson, Mahoney, "Lipschitz recurrent neural networks" (ICLR 2021), section 7, table 3
and figure 2: MNIST as 98 steps of 8 pixels, stochastic gradient descent with momentum. The Hessian of the training loss
by Lanczos, PGD and DeepFool with 7 iterations and full access, PGD in steps of 0.01; white noise and salt and pepper on
the input, and noise on the parameters, which the section speaks of and does not show.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ...models import BoundedGainRNN, SequenceModel
from ..attacks.deepfool import deepfool
from ..attacks.gradient import pgd
from ..attacks.noise import noise_sweep, parameter_noise_sweep
from ..curvature.hessian import hessian_summary
from ..tasks import Task, make_task
from ..training.settings import Settings
from .base import Job, Training, register_study, write_table
from .networks import LIPSCHITZ, Make, counted, mean, median, networks, verdict
from .parts import Part
from .result import Compared, Figure, StudyResult

TITLE = "Robustness of recurrent networks: Hessian, attacks, noise"
FULL: dict[str, Any] = {"hidden": 32, "seeds": 5, "epochs": 5, "limit": 4000, "attacked": 200, "curved": 200}
QUICK: dict[str, Any] = {"hidden": 16, "seeds": 2, "epochs": 2, "limit": 600, "attacked": 50, "curved": 50}
TRAINING: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "batch_size": 32, "clip": 1.0}
RATES = {"neural ODE": 0.01, "unitary": 0.01}
RATE = 0.03  # of the others
DT = 0.1
BOUNDED, GAIN = "bounded gain", 1.0  # of the network, from the input sequence to the last state
STEPS, STEP_SIZE = 7, 0.01
REACH = STEPS * STEP_SIZE
LEVELS = {
    "white": (0.0, 0.1, 0.2, 0.3, 0.4),
    "salt_pepper": (0.0, 0.05, 0.1, 0.2, 0.3),
    "parameters": (0.0, 0.05, 0.1, 0.2, 0.3),
}
RIVALS = ("neural ODE", "antisymmetric")
"""The paper's text says that the Lipschitz RNN is better than these two in every column and under both noises."""
SMALLER = {"lambda_max": "largest eigenvalue of the Hessian", "trace": "its trace", "kappa": "its condition number"}
LARGER = {
    "pgd": "accuracy under PGD",
    "deepfool_l2": "median l2 distance by DeepFool",
    "deepfool_linf": "median linf distance by DeepFool",
    "white": "accuracy under white noise 0.3",
    "salt_pepper": "accuracy under salt and pepper 0.2",
    "parameters": "accuracy under parameter noise 0.2",
}
AT = {"white": 0.3, "salt_pepper": 0.2, "parameters": 0.2}
DIFFERENCES = (
    "The paper trains on the 60,000 images until all models have roughly the same loss; here are smaller networks and "
    "equal epochs on fewer images, and the loss reached is in the table. Curvature depends on how far training came.",
    "The paper names a learning rate of 0.1 for gradient descent. Here it is 0.03, and 0.01 for the neural ODE and the "
    "unitary network, which at more do not leave chance in so few epochs; gradients are clipped to norm 1 for all.",
    "Steps of 0.1, so that 98 steps cover a time of 9.8; the paper gives no step for this table.",
    f"The paper names PGD's 7 steps of 0.01 and no radius: here it is their reach, {REACH:g} in every pixel.",
    "DeepFool's distances are medians over the images that are classified correctly; the paper shows accuracies of an "
    "unstated radius.",
    "Parameter noise is relative to each tensor's root mean square; the paper argues about it by the Hessian alone.",
    "The condition number is the largest eigenvalue over the modulus of the smallest one in algebraic order, which is "
    "negative where the loss has not settled.",
    "Orthogonal, contracting and bounded-gain networks, the midpoint rule, and the verdicts are added; the gain of the "
    f"last, from the input sequence to the final state, is at most {GAIN:g} for every value of its parameters.",
)


def _networks(hidden: int) -> dict[str, Make]:
    """Those of the paper and the ones added, the last of them with a gain bounded by construction."""

    def bounded(task: Task) -> SequenceModel:
        return SequenceModel(BoundedGainRNN(task.input_size, hidden, gain=GAIN), task.output_size, task.reduction)

    return {**networks(hidden, DT), BOUNDED: bounded}


def _options(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"layout": "8", "limit": settings["limit"]}


def _training(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**TRAINING, "lr": RATES.get(name, RATE), "epochs": settings["epochs"]}


def _plan(quick: bool) -> list[Training]:
    chosen = QUICK if quick else FULL
    return [
        Training("digits", _options(chosen), make, _training(name, chosen))
        for name, make in _networks(chosen["hidden"]).items()
    ]


def measure(model: SequenceModel, task: Task, settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Everything that the study asks of one trained model.

    Args:
        model: it is left as it was found.
        task: whose training images give the Hessian, and whose test images are attacked.
        settings: ``curved`` and ``attacked``: how many of them.
        seed: of probes, starts and noise.

    Returns:
        JSON values: a number or ``None`` each, and ``sweeps``: kind to accuracies over its levels.
    """
    (x, y), (u, v) = task.train, task.test
    x, y, u, v = (t[:n] for t, n in zip((x, y, u, v), 2 * (settings["curved"],) + 2 * (settings["attacked"],)))
    curvature = hessian_summary(model, x, y, seed=seed, max_iter=30, tol=1e-2, trace_samples=8)
    found = {f"deepfool_{norm}": deepfool(model, u, v, norm=norm, steps=STEPS) for norm in ("l2", "linf")}
    attack = pgd(model, u, v, epsilon=REACH, steps=STEPS, step_size=STEP_SIZE, norm="linf", seed=seed)
    sweeps = {
        kind: noise_sweep(model, u, v, kind=kind, levels=LEVELS[kind], draws=2, seed=seed)
        for kind in ("white", "salt_pepper")
    }
    sweeps["parameters"] = parameter_noise_sweep(model, u, v, levels=LEVELS["parameters"], draws=2, seed=seed)
    return {
        "lambda_max": curvature.lambda_max,
        "trace": curvature.trace,
        "kappa": curvature.condition_number,
        "pgd": attack.robust_accuracy,
        **{name: median(r.norms[r.success & ~r.already_wrong]) for name, r in found.items()},
        "sweeps": {kind: list(sweep.accuracy) for kind, sweep in sweeps.items()},
    }


def _part(job: Job, task: Task, make: Any, settings: Mapping[str, Any], name: str, seed: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = make(task)
    training = Settings(seed=seed, **_training(name, settings))
    result = job.train(model, task, training, f"{name}, seed {seed}")
    found = measure(model.to("cpu"), task, settings, seed)
    head = {"accuracy": result.test_metric, "train_loss": result.train_loss, "seconds": result.seconds}
    return {**head, **found, "verdict": verdict(model.layer, seed)}


def _parts(job: Job, settings: dict[str, Any], task: Task) -> Iterator[Part]:
    for name, make in _networks(settings["hidden"]).items():
        for seed in range(job.seed, job.seed + settings["seeds"]):
            decided = {**settings, **_training(name, settings), "model": name, "seed": seed, "dt": DT}
            decided |= {"data": task.describe(), **({"gain": GAIN} if name == BOUNDED else {})}
            part = functools.partial(_part, job, task, make, settings, name, seed)
            yield Part(f"{name.replace(', ', '-').replace(' ', '-')}-{seed}", decided, part)


@register_study(
    "lrnn-robustness", "Hessian, PGD, DeepFool and noise of eight networks (Lipschitz RNN, table 3, figure 2)", _plan
)
def run_lrnn_robustness(job: Job) -> StudyResult:
    """Train every network with every seed, and measure.

    Args:
        job: ``quick``: small networks on few images; ``data_dir``: folder with MNIST. Beside the parts there is
            ``curves.csv``: a row a training with its numbers, and a row a training, noise and level.

    Returns:
        One row a network: means over the seeds, and its verdicts.
    """
    settings = QUICK if job.quick else FULL
    task = make_task("digits", data_dir=job.data_dir, **_options(settings))
    seeds = range(job.seed, job.seed + settings["seeds"])
    rows, curves, outcomes = [], [], job.parts(_parts(job, settings, task))
    for name in _networks(settings["hidden"]):
        parts = []
        for seed in seeds:
            parts.append(next(outcomes))
            job.progress(f"{name}, seed {seed}: {parts[-1]['accuracy']:.3f}, {parts[-1]['verdict']}")
            curves += _curves(name, seed, parts[-1])
            write_table(job.out / "curves.csv", curves)
        rows.append(_row(name, parts))
    shown = {
        **settings,
        **TRAINING,
        "lr": {"default": RATE, **RATES},
        "dt": DT,
        "gain": GAIN,
        "pgd": f"{STEPS} steps of {STEP_SIZE}, radius {REACH:g}",
    }
    compared = _compared(rows)
    return StudyResult(
        "lrnn-robustness", TITLE, job.quick, shown, tuple(rows), _notes(rows),
        conclusion=_conclusion(rows, compared), paper=f"{LIPSCHITZ}, section 7, table 3 and figure 2",
        compared=compared, differences=DIFFERENCES, figures=_figures(), seeds=tuple(seeds),
    )  # fmt: skip


def _curves(name: str, seed: int, part: Mapping[str, Any]) -> list[dict[str, Any]]:
    head = {"model": name, "seed": seed}
    numbers = {k: part[k] for k in (*SMALLER, "accuracy", "train_loss", "pgd", "deepfool_l2", "deepfool_linf")}
    sweeps = [
        {**head, "noise": kind, "level": level, "noisy": value}
        for kind, values in part["sweeps"].items()
        for level, value in zip(LEVELS[kind], values)
    ]
    return [{**head, **numbers, "noise": "none", "level": None, "noisy": None}, *sweeps]


def _row(name: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("accuracy", "train_loss", *SMALLER, "pgd", "deepfool_l2", "deepfool_linf")
    noisy = {kind: mean([p["sweeps"][kind][LEVELS[kind].index(AT[kind])] for p in parts]) for kind in LEVELS}
    return {
        "model": name,
        "seeds": len(parts),
        **{key: mean([p[key] for p in parts]) for key in names},
        **noisy,
        "verdicts": counted([p["verdict"] for p in parts]),
        "seconds": mean([p["seconds"] for p in parts]),
    }


def _holds(row: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    if row[key] is None or other[key] is None:
        return False
    return row[key] < other[key] if key in SMALLER else row[key] > other[key]


def _compared(rows: list[dict[str, Any]]) -> tuple[Compared, ...]:
    """What the paper's text says of each column: the Lipschitz RNN is better than both rivals."""
    by_name = {row["model"]: row for row in rows}
    ours, rivals = by_name["Lipschitz, Euler"], [by_name[name] for name in RIVALS]

    def shown(row: Mapping[str, Any], key: str) -> str:
        return "none" if row[key] is None else f"{row[key]:.3g}"

    def line(key: str, what: str) -> Compared:
        found = all(_holds(ours, rival, key) for rival in rivals)
        told = ", ".join(f"{row['model']} {shown(row, key)}" for row in (ours, *rivals))
        where = "figure 2" if key in ("white", "salt_pepper") else "section 7" if key == "parameters" else "table 3"
        better = "smaller" if key in SMALLER else "larger"
        return Compared(what, f"{'yes' if found else 'no'}: {told}", f"Lipschitz RNN {better} than both others", where)

    return tuple(line(key, what) for key, what in {**SMALLER, **LARGER}.items())


def _conclusion(rows: list[dict[str, Any]], compared: tuple[Compared, ...]) -> str:
    found = [c for c in compared if c.ours.startswith("yes")]
    lost = [c.what for c in compared if not c.ours.startswith("yes")]
    rest = f"; not found: {', '.join(lost)}" if lost else ""
    proved = [row["model"] for row in rows if row["verdicts"].startswith(f"{row['seeds']} certified")]
    return (
        f"In {len(found)} of {len(compared)} respects the Lipschitz RNN is on average more robust than the "
        f"neural ODE and the antisymmetric RNN, as the paper says{rest}; certified in every training: "
        f"{', '.join(proved) or 'none'}."
    )


def _notes(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    return tuple(
        f"{row['model']}: accuracy {row['accuracy']:.1%}, loss {row['train_loss']:.3f}; {row['verdicts']}."
        for row in rows
    )


def _figures() -> tuple[Figure, ...]:
    band = "Mean over the trainings, band from the least to the largest."
    noises = {
        "white": ("White noise on the input", "standard deviation"),
        "salt_pepper": ("Salt and pepper on the input", "share of the pixels"),
        "parameters": ("Noise on the parameters", "relative standard deviation"),
    }
    lines = [
        Figure(
            "lines", title, "level", "noisy", "model", where={"noise": kind}, xlabel=axis, ylabel="test accuracy",
            percent=True, caption=band,
        )
        for kind, (title, axis) in noises.items()
    ]  # fmt: skip
    points = {
        "lambda_max": ("Largest eigenvalue of the Hessian", "y", False),
        "pgd": (f"Accuracy under PGD, {STEPS} steps of {STEP_SIZE}", "", True),
        "deepfool_l2": ("Median l2 distance by DeepFool", "", False),
        "deepfool_linf": ("Median linf distance by DeepFool", "", False),
    }
    return (
        *lines,
        *(
            Figure(
                "points", title, "model", key, where={"noise": "none"}, log=log, percent=percent,
                ylabel=title[0].lower() + title[1:],
                caption="A stroke each training, a marker at their mean.",
            )
            for key, (title, log, percent) in points.items()
        ),
    )  # fmt: skip
