"""Echo state networks that no claim about every input covers, certified for inputs in [-1, 1].

    python -m benchmarks.driven --seeds 20

n units, 10 % connectivity, normal weights scaled to a spectral radius, biases +-1, one input into 10 % of them with
weight +-1; leak 1 is no leak. Each network counts as certified where the proved bound halves a difference within
1,000 steps, and is checked again by the verifier. ``exponent`` is the largest growth factor a step that was seen along
trajectories (2,000 steps, inputs -1 and 1 at random): no proof can have a smaller rate.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np

from stability.certificate import Verdict
from stability.claims.driven import driven_contraction
from stability.systems import DrivenSystem, LureSystem
from stability.verify import verify_claim

CASES = ((100, 0.9, 1.0), (100, 1.0, 1.0), (100, 1.1, 1.0), (100, 0.9, 0.3), (500, 0.9, 1.0))
"""Units, spectral radius, leak."""


def network(n: int, radius: float, leak: float, seed: int) -> DrivenSystem:
    """One echo state network."""
    rng = np.random.default_rng(seed)
    W = rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.1)
    W *= radius / np.abs(np.linalg.eigvals(W)).max()
    b, U = rng.choice([-1.0, 1.0], size=n), np.zeros((n, 1))
    entered = rng.choice(n, n // 10, replace=False)
    U[entered, 0] = rng.choice([-1.0, 1.0], size=len(entered))
    system = LureSystem((1 - leak) * np.eye(n), leak * np.eye(n), W, None, (0.0, 1.0), 1.0)
    return DrivenSystem(system, "tanh", U, b)


def seen_exponent(driven: DrivenSystem, seed: int, steps: int = 2000) -> float:
    """The largest growth factor a step of a tangent vector, over a few runs."""
    rng = np.random.default_rng(seed)
    worst = 0.0
    for _ in range(3):
        x, v, total = rng.uniform(-1, 1, driven.states), rng.normal(size=driven.states), 0.0
        for _ in range(steps):
            u = rng.choice([-1.0, 1.0], size=1)
            v, x = driven.jacobian(x, u) @ v, driven.advance(x, u)
            size = float(np.linalg.norm(v))
            total, v = total + math.log(size), v / size
        worst = max(worst, math.exp(total / steps))
    return worst


def rows(case: tuple[int, float, float], seeds: int, limit: float) -> dict:
    """Counts and medians of one case."""
    n, radius, leak = case
    rates, seconds, seen, counted = [], [], [], 0
    for seed in range(seeds):
        driven, started = network(n, radius, leak, seed), time.process_time()
        claim, _ = driven_contraction(driven, (-1.0, 1.0), tol=1e-3, time_limit=limit)
        seconds.append(time.process_time() - started)
        if claim.verdict is not Verdict.CERTIFIED or claim.proof is None or claim.value is None:
            continue
        halves = math.log(2 * claim.proof.data["overshoot"]) / -math.log(claim.value)
        counted += bool(verify_claim(driven, claim).valid and halves <= 1000)
        rates.append(claim.value)
        seen.append(seen_exponent(driven, seed))
    median = {name: float(np.median(v)) if v else None for name, v in (("rate", rates), ("exponent", seen))}
    return {
        "n": n,
        "radius": radius,
        "leak": leak,
        "seeds": seeds,
        "certified": counted,
        **median,
        "seconds": float(np.median(seconds)),
    }


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a network, by the clock")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "driven.json")
    options = parser.parse_args()
    found = []
    for case in CASES:
        if case[0] in options.sizes:
            found.append(rows(case, options.seeds if case[0] <= 100 else max(1, options.seeds // 4), options.limit))
            print(json.dumps(found[-1]), flush=True)
    options.out.write_text(json.dumps({"rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
