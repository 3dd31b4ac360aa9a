"""Frequency responses at 200 points: one Schur form with back-substitutions against a dense solve at each point.

    OMP_NUM_THREADS=1 python -m benchmarks.response

Peers are ``numpy.linalg.solve`` on the stack of all points and, if installed, python-control with slycot. The time of
the Schur form, which gives the poles as well, is included.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stability.search.solvers.state_space import StateSpace
from stability.search.solvers.transfer_function import Response, state_space

from .timing import arguments, in_turns, keep

try:
    import control
    import slycot  # noqa: F401
except ImportError:
    control = None


def dense(system: StateSpace, points: np.ndarray) -> np.ndarray:
    """Return ``C (s I - A)^{-1} B + D`` at all points by one stacked solve."""
    eye = np.eye(system.states)
    return system.C @ np.linalg.solve(points[:, None, None] * eye - system.A, system.B + 0j) + system.D


def main() -> None:
    parser = arguments(__doc__, "response")
    parser.add_argument("--repeats", type=int, default=3)
    options, rng, omegas = parser.parse_args(), np.random.default_rng(0), np.geomspace(1e-2, 1e1, 200)
    for n, m in ((n, m) for n in (16, 64, 256) for m in (1, 8)):
        A = rng.normal(size=(n, n)) / np.sqrt(n) - 1.2 * np.eye(n)
        system = state_space(A, rng.normal(size=(n, m)), rng.normal(size=(m, n)))
        calls: dict[str, Callable[[], Any]] = {
            "ours": lambda s=system: Response(s).values(1j * omegas),
            "form": lambda s=system: Response(s),
            "dense": lambda s=system: dense(s, 1j * omegas),
        }
        if control is not None:
            peer = control.ss(system.A, system.B, system.C, system.D)
            calls["control"] = lambda p=peer: control.frequency_response(p, omegas, squeeze=False)
        seconds = {name: min(times) for name, times in in_turns(calls, options.repeats).items()}
        row = {"states": n, "inputs_and_outputs": m, "points": len(omegas), "seconds": seconds["ours"]}
        row["share_of_the_form"] = seconds["form"] / seconds["ours"]
        row |= {f"times_faster_than_{k}": seconds[k] / seconds["ours"] for k in list(calls)[2:]}
        ours, other = calls["ours"](), calls["dense"]()
        row["difference_from_dense"] = float(np.abs(ours - other).max() / np.abs(other).max())
        keep(options.out, row, "states", "inputs_and_outputs")


if __name__ == "__main__":
    main()
