"""Gains: against the semidefinite program, the multipliers of the stability proof, and one existence check.

    python -m benchmarks.gains                      # all parts (about five minutes beside other work)
    python -m benchmarks.gains --only program
    python -m benchmarks.gains --only network

`program`: random networks with inputs and outputs (Euler maps), gains over every horizon: by the structured search and
by the semidefinite program of the same inequality (Clarabel through cvxpy). `network`: the report's contracting network
on digits, trained here, 64 units: gain to the logits at the end of 28 steps, over every horizon, and of the whole
output; each beside what the multipliers of the stability proof give with one number for their size (the search before),
in units of one existence check with proof of the same system. Processor time throughout; every gain is proved in it.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stability import LureSystem, certify
from stability.kernel.theorems.gain_lmi import bound
from stability.search.gains.lure import incremental_gain
from stability.search.gains.single_storage import AttachedLoop, StorageAttempt, stable_multipliers
from stability.search.solvers.deadline import Deadline
from stability.systems import DrivenSystem
from stability.threads import threads_for

PARTS = ("program", "network")


def processor(function: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of one call, and what came of it."""
    start = time.process_time()
    found = function()
    return time.process_time() - start, found


def existence(system: LureSystem) -> float:
    """Processor seconds of one existence check with proof."""
    return min(processor(lambda: certify(system, rate="any", solver="riccati", refute=False))[0] for _ in range(5))


def random_network(n: int, seed: int = 0) -> tuple[DrivenSystem, np.ndarray]:
    """A contracting Euler map with four inputs and three outputs."""
    rng = np.random.default_rng(seed)
    K, W = rng.standard_normal((2, n, n)) / np.sqrt(n)
    flow = LureSystem.recurrent(0.5 * (K - K.T) - np.eye(n), 0.9 * W / np.linalg.norm(W, 2))
    net = DrivenSystem(flow.euler(0.2), "tanh", rng.standard_normal((n, 4)))
    return net, rng.standard_normal((3, n))


def against_program(sizes: list[int]) -> list[dict[str, Any]]:
    """The same bound by both, value and time."""
    rows = []
    for n in sizes:
        net, H = random_network(n)
        for measure in ("l2", "final"):
            options = {"output": H, "measure": measure}
            ours, found = processor(lambda net=net, options=options: incremental_gain(net, solver="riccati", **options))
            theirs, program = processor(
                lambda net=net, options=options: incremental_gain(net, solver="cvxpy", **options)
            )
            row = {"part": "program", "n": n, "measure": measure, "gain": found.value, "program_gain": program.value}
            row |= {"above_program": found.value / program.value - 1.0, "times_faster": theirs / ours}
            rows.append({**row, "in_existence_checks": ours / existence(net.system)})
            report(rows[-1])
    return rows


def before(net: DrivenSystem, H: np.ndarray, measure: str, horizon: int | None) -> float:
    """The gain with the multipliers of the stability proof and one number for their size."""
    mode = "running" if measure == "l2" else "terminal"
    with threads_for(net.states):
        attempt = StorageAttempt(net.system, net.E, net.F, H, mode, 1.0, Deadline())
        delta = stable_multipliers(net.system, 1.0, Deadline())
        found = None if delta is None else AttachedLoop(attempt, delta).best_of_all()
    return np.inf if found is None else bound(mode, measure, found[0], 1.0, horizon, True)


def network(epochs: int | None = None) -> list[dict[str, Any]]:
    """The report's contracting network."""
    from stability.analysis import make_task
    from stability.analysis.training.presets import train_preset

    options = {} if epochs is None else {"epochs": epochs}
    model, _ = train_preset("contracting", make_task("digits"), **options)
    net, H = model.layer.driven(), model.head.weight.detach().numpy().astype(np.float64)
    unit, rows = existence(net.system), []
    for measure, horizon, pairs in (
        ("final", 28, False),
        ("final", 28, True),
        ("final", None, False),
        ("l2", None, False),
        ("l2", 28, False),
    ):
        asked = {"output": H, "measure": measure, "horizon": horizon, "pairs": pairs}
        runs = [processor(lambda asked=asked: incremental_gain(net, **asked)) for _ in range(3)]
        taken, found = min(runs, key=lambda run: run[0])
        row = {"part": "network", "n": net.states, "measure": measure, "horizon": horizon, "pairs": pairs}
        row |= {"gain": found.value, "before": before(net, H, measure, horizon), "seconds": taken}
        rows.append({**row, "in_existence_checks": taken / unit, "found": found.detail})
        report(rows[-1])
    return rows


def report(row: dict[str, Any]) -> None:
    """One line of JSON."""
    print(json.dumps({k: (float(f"{v:.5g}") if isinstance(v, float) else v) for k, v in row.items()}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", type=int, default=[8, 16, 24])
    parser.add_argument("--epochs", type=int, help="of the network's training; the report's by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gains.json")
    options = parser.parse_args()
    kept = json.loads(options.out.read_text())["rows"] if options.out.is_file() else []
    rows: list[dict[str, Any]] = [row for row in kept if row["part"] not in options.only]
    for part in options.only:
        rows += against_program(options.sizes) if part == "program" else network(options.epochs)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "numpy": np.__version__}
    options.out.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
