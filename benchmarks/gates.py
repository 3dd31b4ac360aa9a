"""Random LSTM and GRU of one unit: certified radius over that of the nearest attack which many descents find.

    python -m benchmarks.gates                 # all families
    python -m benchmarks.gates --samples 9     # networks of each
    python -m benchmarks.gates --time-limit 60 # seconds for each radius

A row is a family: a cell, what the head reads, a norm and a budget; its networks have 3 to 6 steps of one or two
features, in turn. Where descents miss the nearest attack, the share is less than it should be. Results are kept in
``benchmarks/results/gates.json``.
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
from stability.gated.cell import GatedCell
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier

RESULTS = Path(__file__).parent / "results" / "gates.json"
GATES = {"gru": 3, "lstm": 4}


def network(kind: str, seed: int, reduction: str = "last") -> tuple[Classifier, np.ndarray]:
    """One of a family, and an input."""
    rng, count = np.random.default_rng(seed), GATES[kind]
    entries, steps = 1 + seed % 2, 3 + seed // 2 % 4
    weights = rng.normal(size=(count, entries)), rng.normal(size=(count, 1))
    cell = GatedCell(kind, *weights, 0.5 * rng.normal(size=count), 0.5 * rng.normal(size=count))
    head = 2.0 * rng.normal(size=(3, 1)), 0.3 * rng.normal(size=3)
    return Classifier(cell, *head, reduction), rng.normal(size=(steps, entries))


def family(
    kind: str, reduction: str, norm: str, budget: str, seeds: range, limit: float | None, told: bool = False
) -> dict[str, object]:
    """A row."""
    shares, spent = [], []
    for seed in seeds:
        net, x = network(kind, seed, reduction)
        label, begun = int(net.logits(x).argmax()), time.process_time()
        (claim,) = largest_balls(net, x[None], [label], norm=norm, budget=budget, time_limit=limit)
        spent.append(time.process_time() - begun)
        radius = 0.0 if claim is None or claim.value is None else claim.value
        true = attacked(net, x, label, norm, budget, min(radius, 2.0) or 1.0)
        if radius > true * (1.0 + 1e-9):
            raise SystemExit(f"{kind}, {reduction}, {norm}, {budget}, {seed}: an attack of {true} within {radius}")
        if told:
            proof = "" if claim is None or claim.proof is None else claim.proof.kind
            print(seed, x.shape, radius, true, radius / true, proof, round(spent[-1], 2), file=sys.stderr, flush=True)
        if np.isfinite(true) and true < 100.0:
            shares.append(radius / true)
    exact = sum(bool(share >= 1.0 - 1e-6) for share in shares)
    return {
        "name": f"{kind}, {reduction}, {norm}, {budget}", "networks": len(shares), "to_1e-6": exact,
        "share_median": round(float(np.median(shares)), 9), "share_least": round(float(np.min(shares)), 4),
        "seconds_mean": round(float(np.mean(spent)), 2), "seconds_most": round(float(np.max(spent)), 2),
        "command": " ".join(["python -m benchmarks.gates", *sys.argv[1:]]),
    }  # fmt: skip


def main() -> None:
    """All families."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=20, help="networks of each family")
    parser.add_argument("--time-limit", type=float, default=None, help="seconds for each radius")
    parser.add_argument("--only", default="", help="families whose name begins so")
    parser.add_argument("--told", action="store_true", help="each network's radius, too")
    told, rows = parser.parse_args(), []
    for kind, reduction, (norm, budget) in itertools.product(GATES, ("last", "mean"), NORMS):
        if f"{kind}, {reduction}, {norm}, {budget}".startswith(told.only):
            seeds = range(told.samples)
            rows.append(family(kind, reduction, norm, budget, seeds, told.time_limit, told.told))
            print(json.dumps(rows[-1]), flush=True)
    if not told.only:
        RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
