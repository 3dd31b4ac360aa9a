"""Studies of networks with a proof by construction: contraction and bounded gain, against ordinary networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stability.errors import UnsupportedError

from ...models import LSTM, BoundedGainRNN, ContractingRNN, LipschitzRNN, SequenceModel
from ..attacks.sweep import attack_sweep
from ..radius.certified import certified_radius
from ..tasks import Task
from .base import Case, Frame, Row, Size, Study, means, network, ranking, register_study, verdict
from .result import Figure

OURS = "No paper's: a question of ours."

# ---- contraction by construction -----------------------------------------------------------------------------------


def _contracting_cases(size: Size) -> list[Case]:
    layers = {
        "Lipschitz RNN": lambda n: network(LipschitzRNN, n, beta=0.75, gamma=0.001, dt=0.1),
        "Contracting RNN": lambda n: network(ContractingRNN, n, rate=0.99),
    }
    options = {"layout": "8", **({} if size["limit"] is None else {"limit": size["limit"]})}
    training = {"lr": 3e-3, "batch_size": 128, "clip": 1.0, "epochs": size["epochs"]}
    return [
        Case({"model": name, "hidden": n}, layer(n), "digits", options, training)
        for n in size["hidden"]
        for name, layer in layers.items()
    ]


def _contracting_conclusion(frame: Frame) -> str:
    sentences = []
    for hidden, group in frame.groupby("hidden", sort=False):
        certified = group[group["verdict"] == "certified"].groupby("model").size()
        counts = ", ".join(f"{name} {certified.get(name, 0)}" for name in dict.fromkeys(group["model"]))
        sentences.append(
            f"{hidden} units: {ranking(group)}; certified of {group['seed'].nunique()} trainings: {counts}"
        )
    return ". ".join(sentences) + "."


register_study(
    Study(
        "contracting",
        "test accuracy of networks that carry a proof against unconstrained ones, five seeds",
        "MNIST as 98 steps of 8: test accuracy of contracting and unconstrained networks",
        f"{OURS} The data and the layer are those of the Lipschitz RNN paper's robustness study.",
        {
            "full": {"hidden": (64, 128), "seeds": 5, "epochs": 4, "limit": None},
            "quick": {"hidden": (32,), "seeds": 2, "epochs": 2, "limit": 1000},
        },
        _contracting_conclusion,
        _contracting_cases,
        lambda model, task, size, seed, probed: {"verdict": verdict(model.layer, seed)},
        figures=(
            Figure(
                "points", "Test accuracy with and without a proof", "model", "test_metric", "hidden", "table",
                ylabel="accuracy", percent=True, caption="A stroke for each seed, a marker at their mean.",
            ),
        ),
        differences=(
            "The Lipschitz RNN paper has no networks that are contracting for every value of their parameters; its "
            "data and its layer are used here, with few epochs and gradients clipped for both kinds alike.",
        ),
    )
)  # fmt: skip

# ---- certified radii by construction -------------------------------------------------------------------------------

RADII = (0.1, 0.3, 0.5, 0.7, 1.0, 1.5)  # l2 radii at which certified accuracy is tabulated
BOUNDED = "bounded gain"
LAYERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "LSTM": (LSTM, {}),
    "Lipschitz RNN": (LipschitzRNN, {"gamma": (1.0, 0.001), "dt": 0.2}),
    "contracting RNN": (ContractingRNN, {"rate": 0.98}),
}
VARIANTS: dict[str, tuple[float, dict[str, Any]]] = {
    "temperature 1": (1.0, {}),
    "temperature 5": (1.0, {"temperature": 5.0}),
    "temperature 20": (1.0, {"temperature": 20.0}),
    **{
        f"radius {radius:g}": (1.0, {"temperature": 5.0, "objective": "certified", "target_radius": radius})
        for radius in (0.3, 0.5, 1.0)
    },
    "gain 0.2, temperature 5": (0.2, {"temperature": 5.0}),
}
"""Gain and training options of the networks of bounded gain."""


def _certified_cases(size: Size) -> list[Case]:
    training = {
        "lr": 5e-3, "clip": 1.0, "schedule": "cosine", "warm_up": 0.3, "epochs": size["epochs"],
        "batch_size": size["batch_size"],
    }  # fmt: skip
    bounded = {name: VARIANTS[name] for name in size.get("variants", VARIANTS)}
    plain = {name: LAYERS[name] for name in size.get("plain", LAYERS)}
    return [
        *(
            Case({"model": BOUNDED, "variant": name}, network(BoundedGainRNN, size["hidden"], gain=gain), "digits",
                 size["options"], {**training, **more})
            for name, (gain, more) in bounded.items()
        ),
        *(
            Case({"model": name, "variant": name}, network(layer, size["plain_hidden"], **options), "digits",
                 size["options"], training)
            for name, (layer, options) in plain.items()
        ),
    ]  # fmt: skip


def _shares(model: SequenceModel, task: Task, size: Size, seed: int, probed: Sequence[Row]) -> Row:
    x, y = task.test
    try:
        radii = certified_radius(model, x, y)
        certified, median = [radii.accuracy_at(r) for r in RADII], float(np.median(radii.radius))
    except UnsupportedError:
        certified, median = [0.0] * len(RADII), 0.0
    some = x[: size["attacked"]], y[: size["attacked"]]
    sweep = attack_sweep(model, *some, epsilons=RADII, norm="l2", steps=size["steps"], bounds=(0.0, 1.0))
    curves = [
        {"radius": r, "certified": proved, "attacked": accuracy}
        for r, proved, accuracy in zip(RADII, certified, sweep.accuracy, strict=True)
    ]
    row: Row = {f"{what} at {p['radius']}": p[what] for what in ("certified", "attacked") for p in curves}
    return {**row, "median radius": median, "curves": curves}


def _certified_conclusion(frame: Frame) -> str:
    clean, at, hit = (means(frame, c, "variant") for c in ("test_metric", "certified at 0.5", "attacked at 0.5"))
    best = max((name for name in at if name not in LAYERS), key=lambda name: at[name])
    strongest = max((name for name in at if name in LAYERS), key=lambda name: hit[name])
    above = "more" if at[best] > hit[strongest] else "not more"
    return (
        f"At l2 radius 0.5 the network of bounded gain trained with {best} is certified on {at[best]:.1%} of the "
        f"sequences, at {clean[best]:.1%} clean accuracy: {above} than attacks leave of any ordinary network "
        f"({strongest}: {hit[strongest]:.1%} of {clean[strongest]:.1%}), of which at most "
        f"{max(at[name] for name in at if name in LAYERS):.1%} are certified."
    )


register_study(
    Study(
        "certified-robustness",
        "clean, attacked and certified accuracy against the radius: the price of a proof",
        "Clean, attacked and certified accuracy, by architecture and by loss",
        OURS,
        {
            "full": {
                "hidden": 64, "plain_hidden": 64, "seeds": 5, "epochs": 10, "batch_size": 128, "attacked": 200,
                "steps": 20, "options": {},
            },
            "quick": {
                "hidden": 16, "plain_hidden": 16, "seeds": 1, "epochs": 6, "batch_size": 16, "attacked": 20, "steps": 5,
                "options": {"limit": 400, "test_limit": 100},
            },
            "folder": {
                "hidden": 128, "plain_hidden": 64, "seeds": 5, "epochs": 4, "batch_size": 256, "attacked": 200,
                "steps": 20, "options": {}, "plain": ("LSTM", "Lipschitz RNN"),
                "variants": ("temperature 5", "radius 0.3", "radius 1"),
            },
        },
        _certified_conclusion,
        _certified_cases,
        _shares,
        figures=(
            Figure("lines", "Certified accuracy", "radius", "certified", "variant", percent=True, xlabel="l2 radius",
                   caption="Bands from the least to the largest seed."),
            Figure("lines", "Accuracy under attack", "radius", "attacked", "variant", percent=True, xlabel="l2 radius",
                   caption="Projected gradients; a proof lies below every attack on the same sequences."),
        ),
        differences=(
            "Without a folder with MNIST: 4,000 embedded digits, networks of 64 units. On the whole of MNIST networks "
            "of bounded gain have 128 units and ordinary ones 64, and take as long.",
            "Attacks are projected gradients from one random start on a part of the test sequences; a stronger attack "
            "may find more, never below the certified accuracy on the same sequences.",
            "Certified is what certified_radius proves without a search around each sequence; such searches certify "
            "more of ordinary networks.",
        ),
    )
)  # fmt: skip
