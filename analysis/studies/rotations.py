"""Studies of the RotRNN paper: accuracy of RotRNN and LRU, and the norms of their hidden states along training.

Biegun, Dolga, Cunningham, Barber, "RotRNN: modelling long sequences with rotations" (2024), table 1 and figure 3.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from ...models import DeepNetwork
from ..tasks import Task
from .base import Case, Frame, Row, Size, Study, means, ranking, register_study
from .result import Compared, Figure

PAPER = "Biegun, Dolga, Cunningham, Barber, RotRNN: modelling long sequences with rotations (2024)"
RANGES: dict[str, dict[str, Any]] = {
    "rotrnn": {"heads": 8, "gamma_min": 0.5, "gamma_max": 0.999},
    "lru": {"r_min": 0.5, "r_max": 0.999},
}


def _network(kind: str, theta: float, shape: dict[str, Any], task: Task) -> DeepNetwork:
    options = {**RANGES[kind], "theta_max": theta}
    return DeepNetwork(
        task.input_size, task.output_size, layer=kind, options=options, norm="batch", mixing="glu", **shape
    )


# ---- table 1: accuracy ---------------------------------------------------------------------------------------------

LRA = {"rotrnn": 0.611, "lru": 0.579}
"""The paper's test accuracies on ListOps; the LRU's is the one trained by the paper's authors."""


def _accuracy_cases(size: Size) -> list[Case]:
    shape = {"hidden_size": 64, "width": 32, "depth": 2}
    training = {"lr": 3e-3, "batch_size": 50, "epochs": size["epochs"]}
    return [
        Case({"task": name, "model": kind}, functools.partial(_network, kind, math.pi / 10, shape), name, size[name],
             training)
        for name in ("listops", "digits")
        for kind in RANGES
    ]  # fmt: skip


register_study(
    Study(
        "linear-recurrences",
        "small RotRNN and LRU networks on short ListOps and on digits (RotRNN paper, table 1)",
        "RotRNN and LRU on short ListOps and on digits",
        f"{PAPER}, table 1",
        {
            "full": {
                "listops": {"max_length": 40, "min_length": 5, "train": 8000, "test": 1000},
                "digits": {"size": 14, "layout": "pixels"}, "epochs": 12, "seeds": 1,
            },
            "quick": {
                "listops": {"max_length": 20, "min_length": 4, "train": 1000, "test": 300},
                "digits": {"size": 7, "layout": "pixels", "limit": 500, "test_limit": 300}, "epochs": 3, "seeds": 1,
            },
        },
        lambda frame: "; ".join(f"{name}: {ranking(frame, task=name)}" for name in ("listops", "digits")) + ".",
        _accuracy_cases,
        compared=lambda frame: [
            Compared(f"ListOps, {kind}", means(frame, "test_metric", task="listops")[kind], said, "table 1")
            for kind, said in LRA.items()
        ],
        figures=tuple(
            Figure("lines", f"Along training on {name}", "step", "test_metric", "model", where={"task": name},
                   xlabel="epoch", ylabel="test accuracy", percent=True, caption="One seed.")
            for name in ("listops", "digits")
        ),
        differences=(
            "Expressions of at most 40 tokens (the paper: 2,048) and 8,000 of them: short expressions are easier, so "
            "that the accuracies do not compare.",
            "Digits by 196 pixels in place of the paper's CIFAR images; one seed.",
        ),
    )
)  # fmt: skip

# ---- figure 3: norms of hidden states ------------------------------------------------------------------------------


def _norm_cases(size: Size) -> list[Case]:
    every = max(1, size["iterations"] // 40)
    training = {
        "epochs": size["iterations"] // every, "fresh": every, "batch_size": 32, "lr": 1e-3, "optimizer": "adamw",
        "weight_decay": 0.05,
    }  # fmt: skip
    options = {name: size[name] for name in ("max_length", "min_length", "train", "test")}
    return [
        Case({"model": kind, "network": "deep" if depth > 1 else "one layer", "depth": depth},
             functools.partial(_network, kind, math.pi / 100,
                               {"hidden_size": size["hidden"], "width": size["width"], "depth": depth}),
             "listops", options, training, resample=True)
        for depth in size["depths"]
        for kind in RANGES
    ]  # fmt: skip


def _norms(model: DeepNetwork, task: Task) -> list[Row]:
    probe = task.test[0][:32].to(next(model.parameters()).device)
    return [
        {"layer": k, "norm": norm} for k, norm in enumerate(model.hidden_norms(probe, batch_statistics=True).tolist())
    ]


def _spread(model: DeepNetwork, task: Task, size: Size, seed: int, probed: Sequence[Row]) -> Row:
    norms = [row["norm"] for row in probed]
    end = norms[-len(model.blocks) :]
    return {"norm_end": sum(end) / len(end), "spread": math.log2(max(norms) / min(norms))}


def _norm_conclusion(frame: Frame) -> str:
    deep = frame[frame["network"] == "deep"]
    listed = ", ".join(f"{kind} {spread:.2f}" for kind, spread in means(deep, "spread").items())
    return f"Mean squared norms of deep networks vary over layers and training by doublings of: {listed}."


register_study(
    Study(
        "rotrnn-norms",
        "hidden-state norms of RotRNN and LRU along training (RotRNN paper, figure 3)",
        "Mean squared norm of hidden states along training on ListOps, RotRNN and LRU",
        f"{PAPER}, figure 3",
        {
            "full": {
                "max_length": 100, "min_length": 10, "train": 8000, "test": 512, "width": 32, "hidden": 64,
                "iterations": 1600, "depths": (8, 1), "seeds": 5,
            },
            "quick": {
                "max_length": 32, "min_length": 8, "train": 1000, "test": 256, "width": 16, "hidden": 32,
                "iterations": 40, "depths": (4, 1), "seeds": 2,
            },
        },
        _norm_conclusion,
        _norm_cases,
        _spread,
        _norms,
        compared=lambda frame: [
            Compared(
                f"{kind}, {depth} layers: spread over training and layers, in doublings",
                means(frame, "spread", depth=depth)[kind],
                "constant over layers, training and seeds" if kind == "rotrnn" else "varies", "figure 3",
            )
            for depth in sorted(set(frame["depth"]), reverse=True)
            for kind in RANGES
        ],
        figures=tuple(
            Figure(
                "lines", f"{kind}, {words}", "step", "norm", series,
                where={"model": kind, "network": words}, xlabel="iteration", ylabel="mean squared norm", log="y",
            )
            for words, series in (("deep", "layer"), ("one layer", "seed"))
            for kind in RANGES
        ),
        differences=(
            "A quarter of the paper's width, expressions of up to 100 tokens and 1,600 iterations in place of 80,000.",
        ),
    )
)  # fmt: skip
