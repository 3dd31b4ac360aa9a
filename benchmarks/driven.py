"""Echo state networks that no claim about every input covers, certified for inputs in [-1, 1].

    python -m benchmarks.driven --seeds 20

n units, 10 % connectivity, normal weights scaled to a spectral radius, biases +-1, one input into 10 % of them with
weight +-1; leak 1 is no leak. Each network counts as certified where the proved bound halves a difference within
1,000 steps, and is checked again by the verifier. ``exponent`` is the largest growth factor a step that was seen along
trajectories (2,000 steps, inputs -1 and 1 at random): no proof can have a smaller rate.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import multiprocessing
import sys
import time
from pathlib import Path

import numpy as np

from stability.kernel.format.claims import Verdict
from stability.search.input_sets.driven import driven_contraction
from stability.systems import DrivenSystem, LureSystem
from stability.verification import verify_claim

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


def one(case: tuple[int, float, float], limit: float, seed: int) -> dict:
    """One network: whether it counts, its rate, the growth that was seen, seconds of search and of the check."""
    n, radius, leak = case
    driven, started = network(n, radius, leak, seed), time.process_time()
    claim, _ = driven_contraction(driven, (-1.0, 1.0), tol=1e-3, time_limit=limit)
    found: dict = {"seconds": time.process_time() - started, "counted": False, "rate": None, "exponent": None}
    if claim.verdict is Verdict.CERTIFIED and claim.proof is not None and claim.value is not None:
        halves = math.log(2 * claim.proof.data["overshoot"]) / -math.log(claim.value)
        started = time.process_time()
        found["counted"] = bool(verify_claim(driven, claim).valid and halves <= 1000)
        found["check"] = time.process_time() - started
        found["rate"], found["exponent"] = claim.value, seen_exponent(driven, seed)
    print(*case, seed, json.dumps(found), file=sys.stderr, flush=True)
    return found


def rows(case: tuple[int, float, float], seeds: int, limit: float, processes: int) -> dict:
    """Counts and medians of one case."""
    job = functools.partial(one, case, limit)
    if processes == 1:
        found = [job(seed) for seed in range(seeds)]
    else:
        with multiprocessing.get_context("spawn").Pool(processes) as pool:
            found = pool.map(job, range(seeds), chunksize=1)
    certified = [f for f in found if f["rate"] is not None]
    median = {
        k: float(np.median([f[k] for f in certified])) if certified else None for k in ("rate", "exponent", "check")
    }
    return {
        **dict(zip(("n", "radius", "leak"), case)),
        "seeds": seeds,
        "certified": sum(f["counted"] for f in found),
        **median,
        "seconds": float(np.median([f["seconds"] for f in found])),
        "longest": max(f["seconds"] for f in found),
    }


def main() -> None:
    """Measure, print and keep: rows of other cases stay in the file as they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a network, by the clock")
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 500])
    parser.add_argument("--radii", type=float, nargs="+", default=[0.9, 1.0, 1.1])
    parser.add_argument("--leaks", type=float, nargs="+", default=[1.0, 0.3])
    parser.add_argument("--processes", type=int, default=1, help="networks at a time; seconds are of the processor")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "driven.json")
    options = parser.parse_args()
    for case in CASES:
        if case[0] in options.sizes and case[1] in options.radii and case[2] in options.leaks:
            seeds = options.seeds if case[0] <= 100 else max(1, options.seeds // 4)
            row = rows(case, seeds, options.limit, options.processes)
            print(json.dumps(row), flush=True)
            kept = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
            kept = [r for r in kept if (r["n"], r["radius"], r["leak"]) != case] + [row]
            kept.sort(key=lambda r: CASES.index((r["n"], r["radius"], r["leak"])))
            options.out.write_text(json.dumps({"rows": kept}, indent=1) + "\n")


if __name__ == "__main__":
    main()
