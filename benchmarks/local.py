"""Local certificates: how much of what attacks leave is proved, against published counts and in what time.

    python -m benchmarks.local --only default                       # default networks: certified / attacked radius, l2
    python -m benchmarks.local --only published --networks DIR --data-dir MNIST    # l_inf, published counts beside ours
    python -m benchmarks.local --only published --networks DIR --data-dir MNIST --first 30 --time-limit 60
    python -m benchmarks.local --only growth --data-dir MNIST       # seconds a sample over the length of the sequence
    python -m benchmarks.local --only long --data-dir MNIST         # l_inf, 98 steps
    python -m benchmarks.local --only batch                         # seconds a sample of many together

``--networks`` names a folder with ``MNIST_LSTM15net.onnx`` and ``MNIST_GRU30net.onnx`` of StarV (BSD 3-clause), the
networks of "Reachability analysis of recurrent neural networks" (Nonlinear Analysis: Hybrid Systems, 2025); the
published counts are that repository's own result files. A digit is two frames of 392 pixels there; asked is how many of
the first 100 correctly classified test digits are certified against every perturbation of an l_inf ball that is not
clipped. ``left`` counts those that the attacks of ``attack_radii`` do not change: no method can certify more.
``--data-dir`` holds MNIST's test set as IDX files. There limits and seconds are a processor's, so that a busy machine
changes no count; a cell (network, first, limit, radius) that was measured is not measured again, unless ``--again``.
Rows are kept in ``benchmarks/results/local.json``, each with its
command.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
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

RESULTS = Path(__file__).parent / "results" / "local.json"
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


def keep(kind: str, row: dict[str, Any]) -> None:
    """Put a row into the results, in the place of the one of the same kind and name."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []
    words = [Path(a).name if a.startswith("/") else a for a in sys.argv[1:]]  # not where a folder lies here
    row = {"kind": kind, **row, "command": " ".join(["python -m benchmarks.local", *words])}
    same = lambda r: all(r.get(k) == row.get(k) for k in ("kind", "name", "first", "time_limit"))  # noqa: E731
    found = [r for r in found if not same(r)] + [row]
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def timed(result: LocalRadius) -> dict[str, float]:
    """Seconds a correctly classified sample, attacks not included."""
    spent = result.seconds[result.correct]
    return {"seconds_mean": round(float(spent.mean()), 4), "seconds_most": round(float(spent.max()), 4)}


def default(names: list[str], count: int) -> None:
    """Median of certified over attacked radius, l2, of the default report's networks."""
    task = make_task("digits")
    for name in names:
        model = preset_model(name, task)
        train(model, task, **preset_training(name))
        x, y = (part[:count] for part in task.test)
        begun = time.process_time()
        result = local_radius(model, x, y)
        row = {
            "name": name,
            "samples": count,
            "correct": int(result.correct.sum()),
            "median_ratio": round(float(np.median(result.ratio)), 4),
            "median_radius": result.to_dict()["median_radius"],
            "median_attack": result.to_dict()["median_attack"],
            "processor_seconds": round(time.process_time() - begun, 2),
            **timed(result),
        }
        print(json.dumps(row), flush=True)
        keep("default", row)


def known(name: str, first: int, time_limit: float) -> dict[str, Any]:
    """The row of a network as far as it was measured."""
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else []
    asked = {"kind": "published", "name": name, "first": first, "time_limit": time_limit}
    return next((row for row in found if all(row.get(key) == value for key, value in asked.items())), {})


def published(networks: Path, digits: Path, first: int, time_limit: float, again: bool) -> None:
    """Certified counts at every published radius, beside the published ones and what attacks leave."""
    deadline.monotonic = time.process_time  # seconds of this process: the machine may be busy with others
    local.time = SimpleNamespace(perf_counter=time.process_time)
    images, labels = read_labelled_images(digits, "t10k")
    x = torch.tensor(images.reshape(len(images), 2, -1) / 255.0, dtype=torch.float64)
    y = torch.tensor(labels.astype(np.int64))
    for name, told in PUBLISHED.items():
        model = load_module(networks / f"{name}.onnx")
        if model is None:
            raise SystemExit(f"{networks / name}.onnx holds no network that can be run")
        with torch.no_grad():
            right = torch.cat([model.double()(part).argmax(1) for part in x.split(1000)]) == y
        rows = right.nonzero()[:first, 0]
        old = {} if again else known(name, first, time_limit)
        counts, left, seconds = ([*old.get(key, ())] for key in ("ours", "left", "seconds"))
        for epsilon in told["epsilons"][len(counts) :]:
            result = local_radius(model, x[rows], y[rows], norm="linf", epsilon=epsilon, time_limit=time_limit)
            assert result.certified is not None
            counts.append(int(result.certified.sum()))
            left.append(int((result.attack_radius > epsilon).sum()))
            seconds.append(timed(result))
            print(f"{name} eps {epsilon}: {counts[-1]} certified, attacks leave {left[-1]}, {seconds[-1]}", flush=True)
            both = {key: told[key] for key in told if key != "epsilons" and first == 100}
            row = {"name": name, "first": first, "time_limit": time_limit}
            row |= {"accuracy": round(float(right.double().mean()), 4), "epsilons": told["epsilons"]}
            keep("published", {**row, "ours": counts, "left": left, **both, "seconds": seconds})
        both = {key: told[key] for key in told if key != "epsilons" and first == 100}
        width = max(len(key) for key in [*both, "attacks leave"])
        for key, values in [("eps", told["epsilons"]), *both.items(), ("ours", counts), ("attacks leave", left)]:
            print(f"  {key:<{width}}  " + " ".join(f"{v:>7}" for v in values))


def growth(digits: Path | None, count: int, norms: list[str]) -> None:
    """Seconds a sample for the same digits read by rows of 8 pixels and by pixels, and the exponent.

    The networks are trained for one epoch: what counts is the time at slopes that a trained network has.
    """
    for name, layer in (("contracting", ContractingRNN), ("lipschitz", LipschitzRNN)):
        seconds: dict[str, dict[int, float]] = {norm: {} for norm in norms}
        radius: dict[str, dict[int, list[float]]] = {norm: {} for norm in norms}
        for steps, layout in ((98, "8"), (784, "pixels")):
            task = make_task("digits", layout=layout, data_dir=None if digits is None else str(digits), limit=500)
            torch.manual_seed(0)
            model = SequenceModel(layer(task.input_size, 128), 10)
            train(model, task, epochs=1)
            x = task.test[0][:count]
            with torch.no_grad():
                y = model.double()(x.double()).argmax(1)  # one epoch: the label may be another one
            subject = classifier(model)
            for norm in norms:
                begun = time.process_time()
                claims = largest_balls(subject, x.double().numpy(), y.numpy(), norm=norm)
                seconds[norm][steps] = round((time.process_time() - begun) / count, 3)
                found = [0.0 if claim is None else float(f"{claim.value:.4g}") for claim in claims]
                radius[norm][steps] = found
        for norm in norms:
            exponent = np.log(seconds[norm][784] / seconds[norm][98]) / np.log(8)
            row = {
                "name": name if norm == "l2" else f"{name}, {norm}",
                "seconds": seconds[norm],
                "radius": radius[norm],
                "exponent": round(float(exponent), 3),
                "samples": count,
            }
            print(json.dumps(row), flush=True)
            keep("growth", row)


def long(digits: Path | None, count: int) -> None:
    """Digits as 98 steps, l_inf: what is proved, and what attacks find."""
    layers = {
        "contracting": (ContractingRNN, 128), "lipschitz": (LipschitzRNN, 128), "elman": (ElmanRNN, 64),
        "gru": (GRU, 64), "lstm": (LSTM, 64),
    }  # fmt: skip
    task = make_task("digits", layout="8", data_dir=None if digits is None else str(digits), limit=2000)
    for name, (layer, units) in layers.items():
        torch.manual_seed(0)
        model = SequenceModel(layer(task.input_size, units), 10)
        train(model, task, epochs=2)
        model, x = model.double(), task.test[0][:count].double()
        with torch.no_grad():
            y = model(x).argmax(1)
        subject = classifier(model)
        attack = attack_radii(ClassifierNetwork(subject), x, y, norm="linf", restarts=2).norms.numpy()
        begun = time.process_time()
        claims = largest_balls(subject, x.numpy(), y.numpy(), norm="linf", upper=attack)
        seconds = round((time.process_time() - begun) / count, 2)
        radii = [0.0 if claim is None else float(f"{claim.value:.4g}") for claim in claims]
        row = {"name": name, "samples": count, "steps": 98, "attack": [float(f"{a:.4g}") for a in attack]}
        row |= {"radius": radii, "seconds": seconds}
        print(json.dumps(row), flush=True)
        keep("long", row)


def batch(count: int) -> None:
    """Seconds a sample of many at 64 units and 28 steps, l2, on one core."""
    task = make_task("digits")
    model = preset_model("contracting", task)
    train(model, task, **{**preset_training("contracting"), "epochs": 2})
    x, y = (part[:count] for part in task.test)
    local.time = SimpleNamespace(perf_counter=time.process_time)  # seconds of this process
    result = local_radius(model, x, y, restarts=0)
    row = {"name": "contracting", "samples": count, **timed(result), "median_radius": result.to_dict()["median_radius"]}
    print(json.dumps(row), flush=True)
    keep("batch", row)


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=("default", "published", "growth", "long", "batch"))
    parser.add_argument("--networks", type=Path, help="folder of the published networks")
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST's IDX files")
    parser.add_argument("--first", type=int, default=100, help="how many correctly classified digits")
    parser.add_argument("--time-limit", type=float, default=3.0, help="seconds a sample of the published networks")
    parser.add_argument("--models", default=",".join(DEFAULT), help="default networks, with commas between them")
    parser.add_argument("--samples", type=int, help="of the other parts")
    parser.add_argument("--norm", default="l2,linf", help="norms of the growth, with a comma between them")
    parser.add_argument("--again", action="store_true", help="measure cells of the published networks anew")
    told = parser.parse_args()
    torch.set_num_threads(1)
    if told.only in (None, "default"):
        default(told.models.split(","), told.samples or 100)
    if told.networks is not None and told.only in (None, "published"):
        if told.data_dir is None:
            raise SystemExit("--networks needs --data-dir, MNIST's IDX files")
        published(told.networks, told.data_dir, told.first, told.time_limit, told.again)
    elif told.only == "published":
        raise SystemExit("the published networks lie in the folder --networks")
    if told.only in (None, "growth"):
        growth(told.data_dir, told.samples or 2, told.norm.split(","))
    if told.only in (None, "long"):
        long(told.data_dir, told.samples or 4)
    if told.only in (None, "batch"):
        batch(told.samples or 1000)


if __name__ == "__main__":
    main()
