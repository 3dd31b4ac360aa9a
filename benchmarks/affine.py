"""Affine networks: certified radii against the true ones, whatever the states grow to, and what that takes.

    python -m benchmarks.affine                 # random networks, an LRU and a RotRNN layer under a linear head
    python -m benchmarks.affine --networks 3    # fewer of each kind

The true radius is the distance to the nearest boundary, from slopes in floating point, in l2, l2 a step and l_inf.
``off`` is the largest part of it by which a claim differs; ``seconds`` are of one input, search and proof, in the mean,
with what is computed once for a network; ``others`` are those of the other searches (10 s at most), and
``short`` is how many of these have less than .999999 of the radius. Rows are in ``benchmarks/results/affine.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from stability.kernel.systems.classifier import Classifier
from stability.search.local import affine_search as linear_balls
from stability.search.local.largest_radius import largest_balls
from stability.systems import DrivenSystem, LureSystem

RESULTS = Path(__file__).parent / "results" / "affine.json"
BALLS = (("l2", "total"), ("l2", "step"), ("linf", "total"))
Array = np.ndarray


def drawn(n: int, p: int, size: float, seed: int) -> Classifier:
    """``x+ = A x + F u`` of normal numbers and a spectral radius, under a head of three classes."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    A *= size / np.abs(np.linalg.eigvals(A)).max()
    cell = DrivenSystem(LureSystem.linear(A, dt=1.0), "identity", np.zeros((0, p)), F=rng.normal(size=(n, p)))
    return Classifier(cell, rng.normal(size=(3, n)), 0.1 * rng.normal(size=3), ("last", "mean")[seed % 2])


def layer(name: str, n: int, p: int, seed: int) -> Classifier:
    """A layer of this toolkit with ten classes, not trained."""
    import torch

    from stability.models import LAYERS, SequenceModel
    from stability.models.classifier import classifier

    torch.manual_seed(seed)
    return classifier(SequenceModel(LAYERS[name](p, n), 10, reduction="last").double())


def true_radius(net: Classifier, x: Array, label: int, norm: str, budget: str) -> float:
    """The distance to the nearest boundary, by slopes in floating point."""
    slopes = np.zeros((net.classes, *x.shape))
    worth = [np.zeros((net.classes, own.states)) for own in net.layers]
    for t in range(len(x) - 1, -1, -1):
        if net.reduction == "mean" or t == len(x) - 1:
            worth[-1] = worth[-1] + net.weight / (len(x) if net.reduction == "mean" else 1)
        for k in range(len(net.layers) - 1, -1, -1):
            own: Any = net.layers[k]
            s, gained = own.system, worth[k] @ own.system.B
            reads, worth[k] = gained @ own.E + worth[k] @ own.F, gained @ s.C + worth[k] @ s.A
            if k:
                worth[k - 1] = worth[k - 1] + reads
            else:
                slopes[:, t] = reads
    steep, logits = slopes - slopes[label], net.logits(x)
    size = np.abs(steep).max()
    lengths = np.sqrt(((steep / size) ** 2).sum(axis=2)) * size
    sizes = {
        "linf": np.abs(steep).sum(axis=(1, 2)),
        "total": size * np.sqrt(((steep / size) ** 2).sum(axis=(1, 2))),
        "step": lengths.sum(axis=1),
    }["linf" if norm == "linf" else budget]
    return min((logits[label] - logits[k]) / sizes[k] for k in range(net.classes) if k != label)


def measured(name: str, made: list[tuple[Classifier, int]]) -> dict[str, Any]:
    """A row."""
    off, spent, others, short, count, known = 0.0, 0.0, 0.0, 0, 0, linear_balls.applies
    for k, (net, steps) in enumerate(made):
        x = np.random.default_rng(k).normal(size=(1, steps, net.inputs))
        y = net.logits(x).argmax(axis=1)
        for norm, budget in BALLS:
            true, count = true_radius(net, x[0], int(y[0]), norm, budget), count + 1
            begun = time.process_time()
            (claim,) = largest_balls(net, x, y, norm=norm, budget=budget)
            spent += time.process_time() - begun
            off = max(off, float(abs((claim.value or 0.0) / true - 1.0)) if claim is not None else 1.0)
            linear_balls.applies = lambda asked: False
            begun = time.process_time()
            (claim,) = largest_balls(net, x, y, norm=norm, budget=budget, time_limit=10.0)
            others, linear_balls.applies = others + time.process_time() - begun, known
            short += int(claim is None or (claim.value or 0.0) < 0.999999 * true)
    row = {"name": name, "balls": count, "off": off, "seconds": spent / count, "others": others / count, "short": short}
    return {key: float(f"{v:.3g}") if isinstance(v, float) else v for key, v in row.items()}


def main() -> None:
    """Measure, and keep the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--networks", type=int, default=4, help="of each kind")
    parser.add_argument("--out", type=Path, default=RESULTS)
    told = parser.parse_args()
    count, rows = range(told.networks), list[dict[str, Any]]()
    kinds = {
        f"{n} units, {steps} steps, growing by {size:g} a step": [(drawn(n, 2, size, seed), steps) for seed in count]
        for n, steps, size in ((2, 400, 2.0), (4, 100, 2.0), (8, 100, 1.3), (16, 100, 1.0))
    }
    kinds |= {
        f"{name}, {n} units, {steps} steps of {p}": [(layer(name, n, p, seed), steps) for seed in count]
        for name in ("lru", "rotrnn")
        for n, steps, p in ((64, 28, 28), (64, 98, 8), (128, 784, 1))
    }
    for name, made in kinds.items():
        rows.append(measured(name, made))
        rows[-1]["command"] = " ".join(["python -m benchmarks.affine", *sys.argv[1:]])
        print(json.dumps(rows[-1]), flush=True)
        told.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
