r"""Hidden-state norms of RotRNN and LRU along training, over depth and seeds.

Biegun, Dolga, Cunningham, Barber, "RotRNN: modelling long sequences with rotations" (2024), figure 3: ListOps, the
mean over batch and time of :math:`\|x_t\|^2` in each recurrent layer of an 8-layer network, and in a 1-layer
network over 5 seeds. On a GPU the study has the paper's sizes (its Table 3 and 80,000 iterations, of which
``RECORDED`` are recorded). On a processor it keeps the depths and the seeds, with expressions of 10 to 100 tokens, a
quarter of the width and 1,600 iterations: about 20 minutes on one core (66 ms an iteration with 8 layers, 9 ms with 1).
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...models import DeepNetwork
from ..tasks import Task, make_task
from ..training.outcome import Progress
from .base import Job, Training, by_iterations, register_study, write_table
from .parts import Part
from .result import Compared, Figure, StudyResult

TITLE = "Mean squared norm of hidden states along training on ListOps, RotRNN and LRU"
RECORDED = 40
DATA = {"max_length": 2000, "min_length": 500, "train": 96000, "test": 2000}
NETWORK = {"width": 128, "hidden": 256, "heads": 32, "batch": 32, "iterations": 80000, "depths": [8, 1], "seeds": 5}
PAPER = {**DATA, **NETWORK}
DATA_HERE = {"max_length": 100, "min_length": 10, "train": 8000, "test": 512}
SMALL = {**PAPER, **DATA_HERE, "width": 32, "hidden": 64, "heads": 8, "iterations": 1600}
DATA_QUICK = {"max_length": 32, "min_length": 8, "train": 1000, "test": 256}
QUICK = {**SMALL, **DATA_QUICK, "width": 16, "hidden": 32, "iterations": 40, "depths": [4, 1], "seeds": 2}
CITED = "Biegun, Dolga, Cunningham, Barber, RotRNN: modelling long sequences with rotations (2024), figure 3"
DIFFERENCES = (
    "A quarter of the paper's width, expressions of up to 100 tokens and 1,600 iterations: the paper's size needs a "
    "GPU, where it is chosen by itself.",
)
TRAINING = {"learning_rate": 1e-3, "weight_decay": 0.05, "norm": "batch", "mixing": "glu", "dropout": 0.0}
START = {"rotrnn": {"gamma_min": 0.5, "gamma_max": 0.999}, "lru": {"r_min": 0.5, "r_max": 0.999}}
THETA_MAX = math.pi / 100


def _network(kind: str, depth: int, settings: dict[str, Any], task: Task) -> DeepNetwork:
    options = {**START[kind], "theta_max": THETA_MAX, **({"heads": settings["heads"]} if kind == "rotrnn" else {})}
    shape = {
        "hidden_size": settings["hidden"],
        **{key: settings[key] for key in ("width", "norm", "mixing", "dropout")},
    }
    return DeepNetwork(task.input_size, task.output_size, layer=kind, depth=depth, options=options, **shape)


def _parts(job: Job, settings: dict[str, Any], task: Task) -> Iterator[Part]:
    for depth in settings["depths"]:
        for kind in ("rotrnn", "lru"):
            for seed in range(job.seed, job.seed + settings["seeds"]):
                chosen = {**settings, "seed": seed, "model": kind, "depth": depth, "data_seed": job.seed}
                train = functools.partial(_train, job, task, chosen)
                yield Part(f"{kind}-depth{depth}-seed{seed}", chosen, train)


def _train(job: Job, task: Task, chosen: dict[str, Any]) -> dict[str, Any]:
    """AdamW on sequences drawn with replacement; every now and then the norms on a fixed test batch."""
    torch.manual_seed(chosen["seed"])
    model = _network(chosen["model"], chosen["depth"], chosen, task)
    every = max(1, chosen["iterations"] // RECORDED)
    settings = by_iterations(chosen, every, optimizer="adamw", weight_decay=chosen["weight_decay"])
    (x, y), probe = task.train, task.test[0][: chosen["batch"]].to(job.device)
    generator = torch.Generator().manual_seed(settings.seed)

    def sample(n: int, _: int) -> tuple[Tensor, Tensor]:
        rows = torch.randint(len(x), (n,), generator=generator)
        return x[rows], y[rows]

    def norms() -> list[float]:
        return model.hidden_norms(probe, batch_statistics=True).tolist()

    def news(now: Progress) -> str:
        curve.append([now.epoch * every, *norms()])
        return f"iteration {now.epoch * every}: loss {now.loss:.3f}"

    model.to(job.device)
    curve = [[0, *norms()]]
    network = f"{chosen['model']}, {chosen['depth']} layers"
    result = job.train(model, replace(task, sample=sample), settings, network, news)
    return {"curve": curve, "accuracy": result.test_metric, "seconds": result.seconds}


def spread(values: list[float]) -> float:
    """``log2(max / min)``: by how many doublings values differ; infinite where one of them is 0."""
    return math.log2(max(values) / min(values)) if min(values) > 0 else math.inf


def _plan(quick: bool) -> list[Training]:
    return [
        Training(
            "listops",
            {key: sizes[key] for key in DATA},
            lambda task, kind=kind, depth=depth, sizes=sizes: _network(kind, depth, {**sizes, **TRAINING}, task),
            {"optimizer": "adamw", "batch_size": sizes["batch"], "lr": TRAINING["learning_rate"]},
        )
        for sizes in ([QUICK] if quick else [SMALL, PAPER])
        for depth in sizes["depths"]
        for kind in START
    ]


@register_study("rotrnn-norms", "hidden-state norms of RotRNN and LRU along training (RotRNN paper, figure 3)", _plan)
def run_rotrnn_norms(job: Job) -> StudyResult:
    """Rerun the norms.

    Args:
        job: ``seed``: the first of the seeds of weights and batches, the expressions are those of ``seed``; ``quick``:
            shallower, fewer seeds, a minute; ``device``: a GPU gets the paper's sizes. Beside the parts there is
            ``curves.csv`` (model, depth, seed, iteration, layer, norm).

    Returns:
        One row a network: the mean squared norm at the start and the end of training, and its spread over training
        and layers in doublings.
    """
    sizes = QUICK if job.quick else PAPER if job.device.type == "cuda" else SMALL
    settings = {**sizes, **TRAINING, "theta_max": THETA_MAX}
    task = make_task("listops", seed=job.seed, **{key: settings[key] for key in DATA})
    rows, curves, parts = [], [], job.parts(_parts(job, settings, task))
    for depth in settings["depths"]:
        for kind in ("rotrnn", "lru"):
            for seed in range(job.seed, job.seed + settings["seeds"]):
                part, model = next(parts), _network(kind, depth, settings, task)
                curves += [
                    {"model": kind, "depth": depth, "seed": seed, "iteration": i, "layer": k, "norm": value}
                    for i, *norms in part["curve"]
                    for k, value in enumerate(norms)
                ]
                write_table(job.out / "curves.csv", curves)
                rows.append(_row(kind, depth, seed, model, part))
    return StudyResult(
        "rotrnn-norms", TITLE, job.quick, settings, tuple(rows), _notes(rows, settings),
        conclusion=_conclusion(rows, settings), paper=CITED, compared=_compared(rows, settings),
        differences=DIFFERENCES if sizes is not PAPER else (), figures=_figures(settings),
        seeds=tuple(range(job.seed, job.seed + settings["seeds"])),
    )  # fmt: skip


def _of(rows: list[dict[str, Any]], kind: str, depth: int, value: str) -> float:
    return statistics.fmean(row[value] for row in rows if row["model"] == kind and row["depth"] == depth)


def _conclusion(rows: list[dict[str, Any]], settings: dict[str, Any]) -> str:
    depth = settings["depths"][0]
    a, b = (_of(rows, kind, depth, "spread_all") for kind in ("rotrnn", "lru"))
    same = "about as much" if abs(a - b) < 0.25 * max(a, b) else "less" if a < b else "more"
    return (
        f"Over layers and training the mean squared norms of {depth}-layer RotRNN vary {same} than those of LRU "
        f"({a:.2f} against {b:.2f} doublings)."
        if same != "about as much"
        else f"Over layers and training the mean squared norms of {depth}-layer RotRNN and LRU vary about as much "
        f"({a:.2f} and {b:.2f} doublings): the figure's constant norms are not found at this size."
    )


def _compared(rows: list[dict[str, Any]], settings: dict[str, Any]) -> tuple[Compared, ...]:
    said = {"rotrnn": "constant over layers, training and seeds", "lru": "varies"}
    return tuple(
        Compared(
            f"{kind}, {depth} layers: spread over training and layers, in doublings",
            _of(rows, kind, depth, "spread_all"), words, "figure 3",
        )
        for depth in settings["depths"]
        for kind, words in said.items()
    )  # fmt: skip


def _figures(settings: dict[str, Any]) -> tuple[Figure, ...]:
    axes: dict[str, Any] = {"xlabel": "iteration", "ylabel": "mean squared norm", "log": "y"}
    each = [
        Figure(
            "lines", f"{kind}, {depth} layers", "iteration", "norm", "layer" if depth > 1 else "seed",
            where={"model": kind, "depth": depth}, **axes,
            caption="A line a layer: mean of the seeds, band over them." if depth > 1 else "A line a seed.",
        )
        for depth in settings["depths"]
        for kind in START
    ]  # fmt: skip
    spreads = Figure(
        "points", "Spread of the norms over layers and training", "model", "spread_all", "depth", source="table",
        ylabel="doublings", caption="A stroke each seed, a marker at their mean; colours are numbers of layers.",
    )  # fmt: skip
    return (*each, spreads)


def _row(kind: str, depth: int, seed: int, model: nn.Module, part: dict[str, Any]) -> dict[str, Any]:
    first, last = part["curve"][0][1:], part["curve"][-1][1:]
    every = [value for _, *norms in part["curve"] for value in norms]
    return {
        "model": kind,
        "depth": depth,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "norm_start": statistics.fmean(first),
        "norm_end": statistics.fmean(last),
        "spread_layers_end": spread(last),
        "spread_training": max(spread([norms[k + 1] for norms in part["curve"]]) for k in range(depth)),
        "spread_all": spread(every),
        "accuracy": part["accuracy"],
        "seconds": part["seconds"],
    }


def _notes(rows: list[dict[str, Any]], settings: dict[str, Any]) -> tuple[str, ...]:
    notes = [
        "Norms are means over batch and time of |x_t|^2; spreads are log2(largest / smallest), in doublings: over the "
        "layers at the end, over training in the layer that moved most, and over both.",
        f"White input of variance one would give RotRNN {settings['heads']} (1 for each head) far from the start of a "
        "sequence; what a layer inside a network reads is not white.",
    ]
    for depth in settings["depths"]:
        for kind in ("rotrnn", "lru"):
            own = [row for row in rows if row["model"] == kind and row["depth"] == depth]
            ends = [row["norm_end"] for row in own]
            notes.append(
                f"{kind}, {depth} layers, {len(own)} seeds: norm at the end {statistics.fmean(ends):.3g} "
                f"(spread over seeds {spread(ends):.2f}); spread over training and layers "
                f"{statistics.fmean(row['spread_all'] for row in own):.2f}."
            )
    return tuple(notes)
