"""Frequency responses at many points: one Schur form and one back-substitution, against a dense solve of each point.

    OMP_NUM_THREADS=1 python -m benchmarks.response

Peers are ``numpy.linalg.solve`` on a stack of all points, and python-control with slycot (a Hessenberg form once, then
one point after the other) where it is installed. Figures are ratios of processor seconds of one run, in turns, the
least of several each; the Schur form, which gives the poles as well, is in ours, and told by itself.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stability.search.solvers.state_space import StateSpace
from stability.search.solvers.transfer_function import Response, state_space

Array = np.ndarray
POINTS = 200


def best(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Least processor seconds of each, in turns, after one run that does not count."""
    found = dict.fromkeys(runs, np.inf)
    for turn in range(repeats + 1):
        for name, run in runs.items():
            start = time.process_time()
            run()
            if turn:
                found[name] = min(found[name], time.process_time() - start)
    return found


def dense(system: StateSpace, points: Array) -> Array:
    """``C (s I - A)^{-1} B + D`` of all points by one stacked solve."""
    eye = np.eye(system.states)
    return system.C @ np.linalg.solve(points[:, None, None] * eye - system.A, system.B + 0j) + system.D


def hessenberg(system: StateSpace, omegas: Array) -> Array | None:
    """The same by python-control, where it and slycot are there."""
    try:
        import control
        import slycot  # noqa: F401
    except ImportError:
        return None
    peer = control.ss(system.A, system.B, system.C, system.D)
    return np.moveaxis(control.frequency_response(peer, omegas, squeeze=False).complex, 2, 0)


def rows(repeats: int) -> list[dict]:
    """One row a size and number of inputs and outputs."""
    found, rng = [], np.random.default_rng(0)
    for n in (16, 64, 256):
        for m in (1, 8):
            A = rng.normal(size=(n, n)) / np.sqrt(n) - 1.2 * np.eye(n)
            system = state_space(A, rng.normal(size=(n, m)), rng.normal(size=(m, n)))
            omegas = np.geomspace(1e-2, 1e1, POINTS)
            points = 1j * omegas
            runs: dict[str, Callable[[], Any]] = {
                "ours": lambda system=system, points=points: Response(system).values(points),
                "form": lambda system=system: Response(system),
                "dense": lambda system=system, points=points: dense(system, points),
            }
            if hessenberg(system, omegas[:2]) is not None:
                runs["control"] = lambda system=system, omegas=omegas: hessenberg(system, omegas)
            G = {name: run() for name, run in runs.items() if name != "form"}
            size = np.abs(G["dense"]).max()
            seconds = best(runs, repeats)
            row = {"states": n, "inputs_and_outputs": m, "points": POINTS, "seconds": seconds["ours"]}
            row["share_of_the_form"] = seconds["form"] / seconds["ours"]
            for name in list(G)[1:]:
                row[f"times_faster_than_{name}"] = seconds[name] / seconds["ours"]
                row[f"difference_from_{name}"] = float(np.abs(G["ours"] - G[name]).max() / size)
            print(json.dumps(row), flush=True)
            found.append(row)
    return found


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "response.json")
    options = parser.parse_args()
    options.out.write_text(json.dumps({"rows": rows(options.repeats)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
