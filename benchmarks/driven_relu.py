"""Networks of ReLU under inputs in [-.3, .3]: how many are certified for every input, and how many in the box.

    python -m benchmarks.driven_relu --seeds 20

n units, normal weights less 1.5 times the modulus of others (most are negative, as where units hold one another back),
scaled to a spectral radius, biases +-1, one input into a fifth of them. Every proof is checked again by the verifier;
``rate`` is the median of those certified in the box.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from stability import Verdict, certify
from stability.search.input_sets.driven import driven_contraction
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

CASES = ((16, 1.2, 1.0), (16, 1.2, 0.5), (32, 1.2, 0.5))
"""Units, spectral radius, leak (one: the state keeps nothing of itself)."""


def network(n: int, radius: float, leak: float, seed: int) -> DrivenSystem:
    """One network."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(n, n)) - 1.5 * np.abs(rng.normal(size=(n, n)))
    W *= radius / np.abs(np.linalg.eigvals(W)).max()
    U, b = np.zeros((n, 1)), rng.choice([-1.0, 1.0], size=n)
    U[rng.choice(n, n // 5, replace=False), 0] = 1.0
    system = LureSystem((1 - leak) * np.eye(n), leak * np.eye(n), W, None, (0.0, 1.0), 1.0)
    return DrivenSystem(system, "relu", U, b)


def row(case: tuple[int, float, float], seeds: int) -> dict:
    """Counts of one case."""
    rates, seconds, bare = [], [], 0
    for seed in range(seeds):
        driven, started = network(*case, seed), time.process_time()
        claim, _ = driven_contraction(driven, (-0.3, 0.3), tol=1e-2)
        seconds.append(time.process_time() - started)
        if claim.verdict is Verdict.CERTIFIED and verify_claim(driven, claim).valid:
            rates.append(claim.value)
        bare += certify(driven, rate="any", refute=False).verdict is Verdict.CERTIFIED
    rate = float(np.median(rates)) if rates else None
    found = {"seeds": seeds, "every_input": bare, "box": len(rates), "rate": rate, "seconds": float(np.median(seconds))}
    return {**dict(zip(("n", "radius", "leak"), case)), **found}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "driven_relu.json")
    options = parser.parse_args()
    rows = []
    for case in CASES:
        rows.append(row(case, options.seeds))
        print(json.dumps(rows[-1]), flush=True)
    options.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
