"""Incremental gains against the semidefinite program, and against the multipliers of the stability proof.

python -m benchmarks.gains --only program    # random networks: value and time of both
python -m benchmarks.gains --only network    # the default report's contracting network
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import numpy as np

from stability import LureSystem, certify
from stability.analysis import make_task
from stability.analysis.training.presets import train_preset
from stability.kernel.theorems.gain_lmi import bound
from stability.search.gains.lure import incremental_gain
from stability.search.gains.single_storage import AttachedLoop, StorageAttempt, stable_multipliers
from stability.search.solvers.deadline import Deadline
from stability.systems import DrivenSystem
from stability.threads import threads_for

from .timing import arguments, in_turns, keep, processor

Rows = Iterator[dict[str, Any]]


def existence(system: LureSystem) -> float:
    """Return the processor seconds of one existence check with proof."""
    return min(in_turns({"": lambda: certify(system, rate="any", solver="riccati", refute=False)}, 5)[""])


def random_network(n: int, seed: int = 0) -> tuple[DrivenSystem, np.ndarray]:
    """Return a contracting Euler map with four inputs, and an output matrix with three rows."""
    rng = np.random.default_rng(seed)
    K, W = rng.standard_normal((2, n, n)) / np.sqrt(n)
    flow = LureSystem.recurrent(0.5 * (K - K.T) - np.eye(n), 0.9 * W / np.linalg.norm(W, 2))
    return DrivenSystem(flow.euler(0.2), "tanh", rng.standard_normal((n, 4))), rng.standard_normal((3, n))


def program(options: Namespace) -> Rows:
    """Compare with the semidefinite program of the same inequality."""
    for n in options.sizes:
        net, H = random_network(n)
        for measure in ("l2", "final"):
            asked = {"output": H, "measure": measure}
            ours, found = processor(lambda net=net, asked=asked: incremental_gain(net, solver="riccati", **asked))
            theirs, other = processor(lambda net=net, asked=asked: incremental_gain(net, solver="cvxpy", **asked))
            row = {"n": n, "measure": measure, "gain": found.value, "program_gain": other.value}
            row |= {"above_program": found.value / other.value - 1.0, "times_faster": theirs / ours}
            yield {**row, "in_existence_checks": ours / existence(net.system)}


def by_stability_proof(net: DrivenSystem, H: np.ndarray, measure: str, horizon: int | None) -> float:
    """Return the gain with the multipliers of the stability proof and one number for their size."""
    mode = "running" if measure == "l2" else "terminal"
    with threads_for(net.states):
        attempt = StorageAttempt(net.system, net.E, net.F, H, mode, 1.0, Deadline())
        delta = stable_multipliers(net.system, 1.0, Deadline())
        found = None if delta is None else AttachedLoop(attempt, delta).best_of_all()
    return np.inf if found is None else bound(mode, measure, found[0], 1.0, horizon, True)


def network(options: Namespace) -> Rows:
    """Bound the gains of the default report's contracting network from its input to its logits."""
    model, _ = train_preset("contracting", make_task("digits"))
    net, H = model.layer.driven(), model.head.weight.detach().double().numpy()
    unit = existence(net.system)
    for measure, horizon, pairs in (
        ("final", 28, False), ("final", 28, True), ("final", None, False), ("l2", None, False), ("l2", 28, False),
    ):  # fmt: skip
        asked = {"output": H, "measure": measure, "horizon": horizon, "pairs": pairs}
        runs = [processor(lambda asked=asked: incremental_gain(net, **asked)) for _ in range(3)]
        taken, found = min(runs, key=lambda run: run[0])
        row = {"n": net.states, "measure": measure, "horizon": horizon, "pairs": pairs, "gain": found.value}
        row |= {"before": by_stability_proof(net, H, measure, horizon), "seconds": taken}
        yield {**row, "in_existence_checks": taken / unit, "found": found.detail}


def main() -> None:
    parts = {"program": program, "network": network}
    parser = arguments(__doc__, "gains", parts)
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 16, 24], help="units of the random networks")
    options = parser.parse_args()
    for part in options.only:
        for row in parts[part](options):
            keep(options.out, {"part": part, **row}, "part", "n", "measure", "horizon", "pairs")


if __name__ == "__main__":
    main()
