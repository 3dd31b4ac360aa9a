"""Regions of attraction: certified over simulated area of the pendulum's loop, and random saturated loops.

python -m benchmarks.region --only pendulum    # controllers from three seeds
python -m benchmarks.region --only random      # unstable plants: share with a proof, starts that do not converge
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import solve_discrete_are

from examples.pendulum import closed_loop, grid, inside, returns, train
from stability import regional
from stability.search.input_sets import attraction
from stability.systems import ControlLoop

from .timing import arguments, keep, processor

Rows = Iterator[dict[str, Any]]


def counted(loop: ControlLoop, box: Any) -> tuple[Any, dict[str, Any]]:
    """Return the claim, the processor seconds and the number of semidefinite programs."""
    solved, pose = [], attraction.pose_attraction

    def counting(*inputs: Any) -> Any:
        solved.append(1)
        return pose(*inputs)

    attraction.pose_attraction = counting
    try:
        seconds, claim = processor(lambda: regional(loop, box=box))
    finally:
        attraction.pose_attraction = pose
    return claim, {"seconds": seconds, "programs": len(solved)}


def pendulum(options: Namespace) -> Rows:
    """Compare the certified ellipsoid's section with simulations on a grid, controller at rest."""
    starts = grid()
    for seed in range(3):
        loop = closed_loop(train(seed))
        claim, effort = counted(loop, [1.0, 4.0, *[0.0] * (loop.states - 2)])
        simulated, certified = returns(loop, starts), inside(claim, starts)
        share = float(certified.sum() / simulated.sum())
        angle, speed = claim.proof.data["box"][:2].tolist()
        row = {"seed": seed, "certified_over_simulated": share, "false": int((certified & ~simulated).sum())}
        yield {**row, "angle": angle, "speed": speed, **effort}


def random(options: Namespace) -> Rows:
    """Prove regions of unstable plants with saturated linear-quadratic feedback, and simulate from their edge."""
    rng, proved, false, effort = np.random.default_rng(0), 0, 0, np.zeros(2)
    for _ in range(options.loops):
        n, m = int(rng.integers(2, 7)), int(rng.integers(1, 3))
        A, B = rng.normal(size=(n, n)), 0.1 * rng.normal(size=(n, m))
        A = np.eye(n) + 0.1 * (A - np.eye(n) * (np.linalg.eigvals(A).real.max() - rng.uniform(0.1, 0.6)))
        X = solve_discrete_are(A, B, np.eye(n), np.eye(m))
        loop = ControlLoop(A, B, -np.linalg.solve(np.eye(m) + B.T @ X @ B, B.T @ X @ A), dt=0.1)
        claim, cost = counted(loop, None)
        effort += list(cost.values())
        if claim.proof is None:
            continue
        proved += 1
        data, x = claim.proof.data, rng.normal(size=(200, n))
        x *= np.sqrt(data["level"] / np.einsum("ki,ij,kj->k", x, data["P"], x))[:, None]
        size = np.linalg.norm(x, axis=1) * data["overshoot"]
        steps = 2000
        for _ in range(steps):
            x = loop.advance(x)
        false += int((np.linalg.norm(x, axis=1) > size * data["rate"] ** steps * (1 + 1e-6) + 1e-12).sum())
    seconds, programs = effort / options.loops
    yield {"loops": options.loops, "proved": proved, "false_starts": false, "seconds": seconds, "programs": programs}


PARTS = {"pendulum": pendulum, "random": random}


def main() -> None:
    """Run the chosen parts and store their rows."""
    parser = arguments(__doc__, "region", PARTS)
    parser.add_argument("--loops", type=int, default=200)
    options = parser.parse_args()
    for part in options.only:
        for row in PARTS[part](options):
            keep(options.out, {"part": part, **row}, "part", "seed")


if __name__ == "__main__":
    main()
