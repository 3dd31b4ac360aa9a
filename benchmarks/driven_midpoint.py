"""Midpoint maps under inputs in [-.2, .2]: how many are certified, and how wide their boxes are beside runs.

    python -m benchmarks.driven_midpoint --seeds 20

2 to 8 units, a linear part ``-a I + .3 (M - M^T)``, weights that are antisymmetric less .1 I or normal ones, steps of
.1 to .8, one input. ``share`` is the width of the proved box of states over that of what 200 runs of 400 steps fill
under inputs at the ends of the range, both on average over the states; the median of all networks, and the largest.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from stability import Verdict
from stability.search.input_sets.driven import driven_contraction
from stability.search.input_sets.limit_sets import claims_in_box
from stability.search.solvers.deadline import Deadline
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

END = 0.2


def network(kind: str, seed: int) -> DrivenSystem:
    """One map."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    M, W = rng.normal(size=(2, n, n)) / np.sqrt(n)
    leak, gain = (rng.uniform(0.5, 1.2), 1.2) if kind == "antisymmetric" else (1.0, rng.uniform(0.8, 1.6))
    W = gain * (W - W.T) - 0.1 * np.eye(n) if kind == "antisymmetric" else gain * W
    step = LureSystem.recurrent(-leak * np.eye(n) + 0.3 * (M - M.T), W).midpoint(rng.uniform(0.1, 0.8))
    copies = step.channels // n
    E, b = rng.normal(size=(n, 1)), rng.choice([-1.0, 1.0], size=n) * rng.uniform(0.5, 2.0)
    return DrivenSystem(step, "tanh", np.tile(E, (copies, 1)), np.tile(b, copies), np.zeros((n, 1)))


def filled(driven: DrivenSystem, seed: int) -> float:
    """How wide it is on average what runs fill."""
    rng = np.random.default_rng(seed)
    x, low, high = 3.0 * rng.normal(size=(200, driven.states)), np.inf, -np.inf
    for k in range(400):
        x = driven.advance(x, rng.choice([-END, END], size=(200, 1)))
        if k > 200:
            low, high = np.minimum(low, x.min(axis=0)), np.maximum(high, x.max(axis=0))
    return float(np.mean(high - low))


def row(kind: str, seeds: int) -> dict:
    """Counts of one kind."""
    shares, seconds, proved = [], [], 0
    for seed in range(seeds):
        driven, started = network(kind, seed), time.process_time()
        claim, finding = driven_contraction(driven, (-END, END), tol=1e-2)
        more = claims_in_box(driven, claim, finding, Deadline())
        seconds.append(time.process_time() - started)
        proved += claim.verdict is Verdict.CERTIFIED and verify_claim(driven, claim).valid
        ends = next((c for c in more if c.name == "bounded_in_box" and verify_claim(driven, c).valid), None)
        if ends is not None:
            data = ends.proof.data
            shares.append(float(np.mean(data["most"] - data["least"])) / filled(driven, seed))
    found = {"seeds": seeds, "certified": proved, "boxes": len(shares), "share": float(np.median(shares))}
    return {"kind": kind, **found, "widest": max(shares), "seconds": float(np.median(seconds))}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "driven_midpoint.json")
    options = parser.parse_args()
    rows = []
    for kind in ("antisymmetric", "any weights"):
        rows.append(row(kind, options.seeds))
        print(json.dumps(rows[-1]), flush=True)
    options.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
