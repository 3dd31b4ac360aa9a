"""Certified radii of single inputs: compared with attacks and with published counts, and their time.

    python -m benchmarks.local --only default                       # default networks: certified / attacked radius, l2
    python -m benchmarks.local --only published --networks DIR --data-dir MNIST    # l_inf, published counts beside ours
    python -m benchmarks.local --only published --networks DIR --data-dir MNIST --first 30 --time-limit 60
    python -m benchmarks.local --only growth --data-dir MNIST       # seconds a sample over the length of the sequence
    python -m benchmarks.local --only long --data-dir MNIST         # l_inf, 98 steps
    python -m benchmarks.local --only batch                         # seconds a sample of many together

``--networks``: folder with ``MNIST_LSTM15net.onnx`` and ``MNIST_GRU30net.onnx`` of StarV (BSD 3-clause), the networks
of "Reachability analysis of recurrent neural networks" (Nonlinear Analysis: Hybrid Systems, 2025); the published counts
are that repository's result files: how many of the first 100 correctly classified digits, two frames of 392 pixels
each, are certified against every perturbation in an l_inf ball that is not clipped. ``left``: those that the attacks do
not change, an upper bound of every such count. ``--data-dir``: MNIST's test set as IDX files. Limits and seconds are
processor time.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from stability.analysis import local_radius, make_task, preset_model, train
from stability.analysis.attacks.smallest import attack_radii
from stability.analysis.radius import local
from stability.analysis.radius.local import LocalRadius
from stability.analysis.tasks.idx import read_labelled_images
from stability.analysis.training.presets import preset_training
from stability.models import GRU, LSTM, ContractingRNN, ElmanRNN, LipschitzRNN, SequenceModel
from stability.models.classifier import classifier
from stability.models.classifier_network import ClassifierNetwork
from stability.models.sources import load_module
from stability.search.local.largest_radius import largest_balls
from stability.search.solvers import deadline

from .timing import arguments, keep, processor

Rows = Iterator[dict[str, Any]]
DEFAULT = ("contracting", "lipschitz", "antisymmetric", "neural_ode", "lstm", "gru")
PUBLISHED: dict[str, dict[str, Any]] = {
    "MNIST_LSTM15net": {
        "epsilons": (0.005, 0.01, 0.015, 0.02, 0.025),
        "auto_LiRPA": (94, 66, 19, 4, 1),
        "StarV, LP by Gurobi": (94, 72, 26, 10, 3),
        "StarV, estimate": (92, 48, 15, 5, 2),
        "POPQORN": (64, 12, 4, 1, 0),
    },
    "MNIST_GRU30net": {
        "epsilons": (0.0025, 0.005, 0.0075, 0.01, 0.0125),
        "auto_LiRPA": (100, 96, 87, 67, 41),
        "StarV, LP by Gurobi": (98, 95, 87, 65, 42),
        "StarV, estimate": (98, 88, 58, 33, 14),
    },
}


def timed(result: LocalRadius) -> dict[str, float]:
    """Return seconds of a correctly classified sample, attacks not included."""
    spent = result.seconds[result.correct]
    return {"seconds_mean": float(spent.mean()), "seconds_most": float(spent.max())}


def default(options: Namespace) -> Rows:
    """Compare certified and attacked l2 radii of the default report's networks."""
    task = make_task("digits")
    for name in options.models.split(","):
        model = preset_model(name, task)
        train(model, task, **preset_training(name))
        x, y = (part[: options.samples or 100] for part in task.test)
        result = local_radius(model, x, y)
        row = {"name": name, "samples": len(x), "correct": int(result.correct.sum())}
        row["median_ratio"] = float(np.median(result.ratio))
        row |= {key: result.to_dict()[key] for key in ("median_radius", "median_attack")}
        yield {**row, **timed(result)}


def published(options: Namespace) -> Rows:
    """Count certified digits at every published radius."""
    if options.networks is None or options.data_dir is None:
        raise SystemExit("--only published needs --networks and --data-dir")
    deadline.monotonic = time.process_time
    images, labels = read_labelled_images(options.data_dir, "t10k")
    x = torch.tensor(images.reshape(len(images), 2, -1) / 255.0, dtype=torch.float64)
    y = torch.tensor(labels.astype(np.int64))
    for name, known in PUBLISHED.items():
        model = load_module(options.networks / f"{name}.onnx")
        with torch.no_grad():
            right = torch.cat([model.double()(part).argmax(1) for part in x.split(1000)]) == y
        rows, counts, left, seconds = right.nonzero()[: options.first, 0], [], [], []
        for epsilon in known["epsilons"]:
            asked = {"norm": "linf", "epsilon": epsilon, "time_limit": options.time_limit}
            result = local_radius(model, x[rows], y[rows], **asked)
            counts.append(int(result.certified.sum()))
            left.append(int((result.attack_radius > epsilon).sum()))
            seconds.append(timed(result))
        row = {"name": name, "first": options.first, "time_limit": options.time_limit, **known, "ours": counts}
        yield {**row, "left": left, "accuracy": float(right.double().mean()), "seconds": seconds}


def trained(options: Namespace, layer: Any, units: int, layout: str, limit: int, epochs: int) -> tuple[Any, ...]:
    """Train a network on digits; return it with inputs and the labels that it gives them."""
    task = make_task("digits", layout=layout, data_dir=options.data_dir and str(options.data_dir), limit=limit)
    torch.manual_seed(0)
    model = SequenceModel(layer(task.input_size, units), 10)
    train(model, task, epochs=epochs)
    x = task.test[0][: options.samples or 4].double()
    with torch.no_grad():
        return classifier(model.double()), x, model(x).argmax(1)


def growth(options: Namespace) -> Rows:
    """Time the same digits read in 98 steps of 8 pixels and in 784 of one, and fit the exponent."""
    for (name, layer), norm in product((("contracting", ContractingRNN), ("lipschitz", LipschitzRNN)), ("l2", "linf")):
        seconds, radius = {}, {}
        for steps, layout in ((98, "8"), (784, "pixels")):
            subject, x, y = trained(options, layer, 128, layout, 500, 1)
            taken, claims = processor(
                lambda s=subject, x=x, y=y, norm=norm: largest_balls(s, x.numpy(), y.numpy(), norm=norm)
            )
            seconds[steps], radius[steps] = taken / len(x), [claim.value if claim else 0.0 for claim in claims]
        exponent = float(np.log(seconds[784] / seconds[98]) / np.log(8))
        row = {"name": name if norm == "l2" else f"{name}, {norm}", "seconds": seconds, "radius": radius}
        yield {**row, "exponent": exponent, "samples": len(x)}


def long(options: Namespace) -> Rows:
    """Compare certified and attacked l_inf radii of digits read in 98 steps."""
    layers = {
        "contracting": (ContractingRNN, 128), "lipschitz": (LipschitzRNN, 128), "elman": (ElmanRNN, 64),
        "gru": (GRU, 64), "lstm": (LSTM, 64),
    }  # fmt: skip
    for name, (layer, units) in layers.items():
        subject, x, y = trained(options, layer, units, "8", 2000, 2)
        attack = attack_radii(ClassifierNetwork(subject), x, y, norm="linf", restarts=2).norms.numpy()
        asked = {"norm": "linf", "upper": attack}
        taken, claims = processor(
            lambda s=subject, x=x, y=y, asked=asked: largest_balls(s, x.numpy(), y.numpy(), **asked)
        )
        row = {"name": name, "samples": len(x), "steps": 98, "attack": attack.tolist()}
        yield {**row, "radius": [claim.value if claim else 0.0 for claim in claims], "seconds": taken / len(x)}


def batch(options: Namespace) -> Rows:
    """Time many samples at 64 units and 28 steps, l2, on one core."""
    task = make_task("digits")
    model = preset_model("contracting", task)
    train(model, task, **{**preset_training("contracting"), "epochs": 2})
    x, y = (part[: options.samples or 1000] for part in task.test)
    result = local_radius(model, x, y, restarts=0)
    row = {"name": "contracting", "samples": len(x), **timed(result)}
    yield {**row, "median_radius": result.to_dict()["median_radius"]}


def main() -> None:
    parts = {part.__name__: part for part in (default, published, growth, long, batch)}
    parser = arguments(__doc__, "local", parts)
    parser.add_argument("--networks", type=Path, help="folder of the published networks")
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST's IDX files")
    parser.add_argument("--first", type=int, default=100, help="number of correctly classified digits")
    parser.add_argument("--time-limit", type=float, default=3.0, help="seconds a sample of the published networks")
    parser.add_argument("--models", default=",".join(DEFAULT), help="default networks, with commas between them")
    parser.add_argument("--samples", type=int, help="of the other parts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    local.time = SimpleNamespace(perf_counter=time.process_time)
    for part in options.only:
        for row in parts[part](options):
            keep(options.out, {"kind": part, **row}, "kind", "name", "first", "time_limit")


if __name__ == "__main__":
    main()
