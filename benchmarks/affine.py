"""Affine networks: time of the exact search for certified radii against the searches for other networks.

    python -m benchmarks.affine                 # random networks, an LRU and a RotRNN layer under a linear head
    python -m benchmarks.affine --networks 3    # fewer of each kind

``seconds``: processor time of one input, search and proof, in l2, l2 per step and l_inf; ``others``: the same of the
other searches (10 s at most); ``short``: how many of these prove less than 0.999999 of the radius.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from stability.kernel.systems.classifier import Classifier
from stability.models import LAYERS, SequenceModel
from stability.models.classifier import classifier
from stability.search.local import affine_search
from stability.search.local.largest_radius import largest_balls
from stability.systems import DrivenSystem, LureSystem

from .timing import arguments, keep, processor


def random_network(n: int, p: int, radius: float, seed: int) -> Classifier:
    """Return ``x+ = A x + F u`` with normal weights and a given spectral radius, under a head of three classes."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, n))
    A *= radius / np.abs(np.linalg.eigvals(A)).max()
    cell = DrivenSystem(LureSystem.linear(A, dt=1.0), "identity", np.zeros((0, p)), F=rng.normal(size=(n, p)))
    return Classifier(cell, rng.normal(size=(3, n)), 0.1 * rng.normal(size=3), ("last", "mean")[seed % 2])


def untrained_layer(name: str, n: int, p: int, seed: int) -> Classifier:
    torch.manual_seed(seed)
    return classifier(SequenceModel(LAYERS[name](p, n), 10, reduction="last").double())


def measured(networks: list[Classifier], steps: int) -> dict[str, Any]:
    """Certify one random input of each network in three norms, by the exact search and by the others."""
    seconds, others, short, known = [], [], 0, affine_search.applies
    for seed, net in enumerate(networks):
        x = np.random.default_rng(seed).normal(size=(1, steps, net.inputs))
        y = net.logits(x).argmax(axis=1)
        for norm, budget in (("l2", "total"), ("l2", "step"), ("linf", "total")):
            asked = {"norm": norm, "budget": budget, "time_limit": 10.0}
            taken, (exact,) = processor(lambda net=net, x=x, y=y, asked=asked: largest_balls(net, x, y, **asked))
            seconds.append(taken)
            affine_search.applies = lambda asked: False
            taken, (claim,) = processor(lambda net=net, x=x, y=y, asked=asked: largest_balls(net, x, y, **asked))
            affine_search.applies = known
            others.append(taken)
            short += claim is None or (claim.value or 0.0) < 0.999999 * exact.value
    return {"balls": len(seconds), "seconds": np.mean(seconds), "others": np.mean(others), "short": short}


def main() -> None:
    parser = arguments(__doc__, "affine")
    parser.add_argument("--networks", type=int, default=4, help="of each kind")
    options = parser.parse_args()
    seeds = range(options.networks)
    for n, steps, radius in ((2, 400, 2.0), (4, 100, 2.0), (8, 100, 1.3), (16, 100, 1.0)):
        row = measured([random_network(n, 2, radius, seed) for seed in seeds], steps)
        keep(options.out, {"name": f"{n} units, {steps} steps, spectral radius {radius:g}", **row}, "name")
    for name in ("lru", "rotrnn"):
        for n, steps, p in ((64, 28, 28), (64, 98, 8), (128, 784, 1)):
            row = measured([untrained_layer(name, n, p, seed) for seed in seeds], steps)
            keep(options.out, {"name": f"{name}, {n} units, {steps} steps of {p}", **row}, "name")


if __name__ == "__main__":
    main()
