"""Random midpoint maps of one unit: certified radius over that of the nearest attack which many descents find.

    python -m benchmarks.midpoint                 # all families
    python -m benchmarks.midpoint --samples 12    # networks of each

A row is a family: an activation, what the head reads, a norm and a budget; its networks are the explicit midpoint map
of ``h' = -a h + phi(w h + E x + b)`` with a step of .1, .5 or 1, on 3 to 6 steps of one or two features, in turn.
Where descents miss the nearest attack, the share is less than it should be. Results are kept in
``benchmarks/results/midpoint.json``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.single import NORMS, attacked
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import activation

RESULTS = Path(__file__).parent / "results" / "midpoint.json"
NAMES, STEPS = ("tanh", "sigmoid", "relu", "leaky_relu"), (0.1, 0.5, 1.0)


def network(name: str, seed: int, reduction: str = "last") -> tuple[Classifier, np.ndarray]:
    """One of a family, and an input."""
    rng = np.random.default_rng(seed)
    entries, steps = 1 + seed % 2, 3 + seed // 2 % 4
    flow = LureSystem([[-rng.uniform(0.0, 1.5)]], [[1.0]], [[1.5 * rng.normal()]], slope=activation(name).slope)
    E, b = np.tile(rng.normal(size=(1, entries)), (2, 1)), np.tile(rng.normal(), 2)
    cell = DrivenSystem(flow.midpoint(STEPS[seed % 3]), name, E, b)
    head = rng.normal(size=(3, 1)), 0.2 * rng.normal(size=3)
    return Classifier(cell, *head, reduction), rng.normal(size=(steps, entries))


def family(name: str, reduction: str, norm: str, budget: str, count: int) -> dict[str, object]:
    """A row."""
    shares, spent = [], []
    for seed in range(count):
        net, x = network(name, seed, reduction)
        label, begun = int(net.logits(x).argmax()), time.process_time()
        (claim,) = largest_balls(net, x[None], [label], norm=norm, budget=budget)
        spent.append(time.process_time() - begun)
        radius = 0.0 if claim is None or claim.value is None else claim.value
        true = attacked(net, x, label, norm, budget, min(radius, 2.0) or 1.0)
        if radius > true * (1.0 + 1e-9):
            raise SystemExit(f"{name}, {reduction}, {norm}, {budget}, {seed}: an attack of {true} within {radius}")
        if np.isfinite(true) and true < 100.0:
            shares.append(radius / true)
    exact = sum(bool(share >= 1.0 - 1e-6) for share in shares)
    return {
        "name": f"{name}, {reduction}, {norm}, {budget}", "networks": len(shares), "to_1e-6": exact,
        "share_median": round(float(np.median(shares)), 9), "share_least": round(float(np.min(shares)), 4),
        "seconds_mean": round(float(np.mean(spent)), 2), "seconds_most": round(float(np.max(spent)), 2),
        "command": " ".join(["python -m benchmarks.midpoint", *sys.argv[1:]]),
    }  # fmt: skip


def main() -> None:
    """All families."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=12, help="networks of each family")
    parser.add_argument("--only", default="", help="families whose name begins so")
    told, rows = parser.parse_args(), []
    for name, reduction, (norm, budget) in itertools.product(NAMES, ("last", "mean"), NORMS):
        if f"{name}, {reduction}, {norm}, {budget}".startswith(told.only):
            rows.append(family(name, reduction, norm, budget, told.samples))
            print(json.dumps(rows[-1]), flush=True)
    if not told.only:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
