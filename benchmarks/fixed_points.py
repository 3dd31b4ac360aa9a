"""Equilibria of random networks: are all listed where the list is proved complete, how often is it, and how fast?

    OMP_NUM_THREADS=1 python -m benchmarks.fixed_points
    OMP_NUM_THREADS=1 python -m benchmarks.fixed_points --only tanh --sizes 2 4

``tanh``: maps ``h+ = tanh(W h + b)`` with weights of gain 0.5 to 3 and biases of size 0.3; every second ``W`` is
symmetric, as in a Hopfield network, and has many equilibria. ``gru`` and ``lstm``: cells with the same gains. The other
side is a dense multi-start: Newton's method with difference quotients from thousands of states, written here.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from stability import DrivenSystem, GatedCell, LureSystem, fixed_points
from stability.search.trajectories.simulation import draw_states

from .timing import arguments, keep

SIZES = {"tanh": (2, 3, 4, 6, 8, 12, 16), "gru": (2, 4, 6, 8), "lstm": (2, 4, 6)}
GAINS, BIAS = (0.5, 3.0), 0.3
STARTS, STEPS = 2_000, 40
Array = np.ndarray


def network(kind: str, n: int, number: int) -> DrivenSystem | GatedCell:
    """Return a random network of ``n`` units."""
    rng = np.random.default_rng([n, number])
    gain = rng.uniform(*GAINS)
    if kind == "tanh":
        W = rng.normal(size=(n, n))
        W = gain / np.sqrt(n) * ((W + W.T) / np.sqrt(2) if number % 2 else W)
        system = LureSystem(np.zeros((n, n)), np.eye(n), W, dt=1.0)
        return DrivenSystem(system, "tanh", np.zeros((n, 1)), BIAS * rng.normal(size=n))
    gates = 3 if kind == "gru" else 4
    weights = gain / np.sqrt(n) * rng.normal(size=(gates * n, n))
    weights[2 * n : 3 * n] += gain * np.eye(n)  # candidates that keep their own sign, for more equilibria
    return GatedCell(kind, np.zeros((gates * n, 1)), weights, BIAS * rng.normal(size=gates * n))


def multi_start(subject: Any, rng: np.random.Generator) -> Array:
    """Return the equilibria ``(k, n)`` that damped Newton steps from many states reach, up to duplicates."""
    n, u = subject.states, np.zeros(1)
    x = draw_states(subject, rng, STARTS)
    for _ in range(50):  # half of the states move towards the attractors first
        x[::2] = subject.advance(x[::2], u)
    for _ in range(STEPS):
        columns = [(subject.advance(x + d, u) - subject.advance(x - d, u)) / 2e-6 for d in 1e-6 * np.eye(n)]
        jacobian = np.stack(columns, axis=-1) - np.eye(n)
        residual = (subject.advance(x, u) - x)[..., None]
        try:
            step = np.linalg.solve(jacobian, residual)[..., 0]
        except np.linalg.LinAlgError:  # a saturated state
            step = (np.linalg.pinv(jacobian) @ residual)[..., 0]
        size = np.abs(step).max(axis=1, keepdims=True)
        x = np.clip(x - step * np.minimum(1.0, 1.0 / np.maximum(size, 1e-9)), -1e3, 1e3)
    exact = (np.abs(subject.advance(x, u) - x).max(axis=1) < 1e-12) & (size[:, 0] < 1e-8)
    exact &= (np.abs(x[:, : getattr(subject, "hidden", n)]) <= 1.0).all(axis=1)  # beyond, gates round to one
    points: list[Array] = []
    for point in x[exact]:
        if all(np.abs(point - other).max() > 1e-6 for other in points):
            points.append(point)
    return np.array(points).reshape(-1, n)


def row(kind: str, n: int, count: int) -> dict[str, Any]:
    """Return the figures of all networks of one size."""
    complete, missed, beyond, numbers, seconds, boxes = 0, 0, 0, [], [], []
    for number in range(count):
        subject = network(kind, n, number)
        start = time.process_time()
        found = fixed_points(subject)
        seconds.append(time.process_time() - start)
        other = multi_start(subject, np.random.default_rng(number))
        far = [np.abs(found.points - point).max(axis=1).min(initial=np.inf) > 1e-6 for point in other]
        complete, boxes = complete + found.complete, [*boxes, found.boxes]
        missed += int(sum(far)) if found.complete else 0
        beyond += len(found.points) - len(other) + int(sum(far))  # of these the multi-start missed
        numbers.append(len(found.points))
    figures = {"units": n, "networks": count, "complete": complete, "missed_where_complete": missed}
    figures |= {"missed_by_multi_start": beyond, "equilibria": sum(numbers), "most_equilibria": max(numbers)}
    figures |= {"median_seconds": float(np.median(seconds)), "most_seconds": max(seconds)}
    return {"kind": kind, **figures, "median_boxes": float(np.median(boxes)), "most_boxes": max(boxes)}


def main() -> None:
    parser = arguments(__doc__, "fixed_points", SIZES)
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--networks", type=int, default=50)
    options = parser.parse_args()
    for kind in options.only:
        for n in options.sizes or SIZES[kind]:
            keep(options.out, row(kind, n, options.networks if n <= 8 else min(options.networks, 20)), "kind", "units")


if __name__ == "__main__":
    main()
