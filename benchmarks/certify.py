"""Speed of certificates against a semidefinite program, a Cholesky factorization and bisection.

    python -m benchmarks.certify                  # everything (about 10 minutes, most of it the semidefinite program)
    python -m benchmarks.certify --only chol growth memory best
    python -m benchmarks.certify --only default beside bisection

Instances are Lipschitz RNNs with random weights, beta = 0.75, gamma = 1.2 for A and 0.3 for W. The time of a
certificate includes its verification.
"""

from __future__ import annotations

import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from stability import LureSystem, Verdict, certify
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.multiplier_program import multiplier_lmi
from stability.search.solvers.rates import bisect

from .timing import arguments, in_turns, keep, processor

SOLVERS = ("CLARABEL", "SCS")
Rows = Iterator[dict[str, Any]]


def instance(n: int, seed: int = 0) -> LureSystem:
    """Return a Lipschitz RNN with random weights."""
    rng = np.random.default_rng(seed)

    def skew_symmetric(beta: float, gamma: float) -> np.ndarray:
        m = rng.standard_normal((n, n)) / np.sqrt(n)
        return (1 - beta) * (m + m.T) + beta * (m - m.T) - gamma * np.eye(n)

    a = skew_symmetric(0.75, 1.2)
    return LureSystem.recurrent(a, skew_symmetric(0.75, 0.3))


def kinds(n: int) -> tuple[tuple[str, LureSystem], ...]:
    """Return the flow and its Euler map."""
    return ("flow", instance(n)), ("map", instance(n).euler(0.1))


def existence(system: LureSystem) -> None:
    """Certify existence only."""
    assert certify(system, rate="any", solver="riccati", refute=False).verdict is Verdict.CERTIFIED


def least(call: Callable[[], Any], rounds: int = 3) -> float:
    """Return the least processor seconds of a call."""
    return min(in_turns({"": call}, rounds)[""])


def sdp(options: Namespace) -> Rows:
    """Compare with cvxpy and SCS: P >= I, the inequality <= -1e-3 I, no objective (the fastest form here)."""
    import cvxpy as cp

    for n in options.sizes or (64, 128, 256):
        system = instance(n)
        p, multipliers = cp.Variable((n, n), PSD=True), cp.Variable(n, nonneg=True)
        lam = cp.diag(multipliers)
        off = p + system.C.T @ lam
        lmi = cp.bmat([[system.A.T @ p + p @ system.A, off], [off.T, -2 * lam]])
        problem = cp.Problem(cp.Minimize(0), [p >> np.eye(n), 0.5 * (lmi + lmi.T) << -1e-3 * np.eye(2 * n)])
        taken, ours = processor(lambda p=problem: p.solve(solver=cp.SCS))[0], least(lambda s=system: existence(s), 5)
        yield {"n": n, "sdp_s": taken, "status": problem.status, "ours_s": ours, "ratio": taken / ours}


def chol(options: Namespace, n: int = 1024) -> Rows:
    """Compare with one float64 Cholesky factorization of a 2n matrix."""
    matrix = np.random.default_rng(1).standard_normal((2 * n, 2 * n))
    matrix, system = matrix @ matrix.T + 2 * n * np.eye(2 * n), instance(n)
    times = in_turns({"floor": lambda: np.linalg.cholesky(matrix), "ours": lambda: existence(system)}, 4)
    floor, ours = min(times["floor"]), min(times["ours"])
    yield {"n": n, "cholesky_2n_s": floor, "ours_s": ours, "ratio": ours / floor}


def growth(options: Namespace, sizes: tuple[int, ...] = (256, 512, 1024, 2048)) -> Rows:
    """Fit the exponent of the time over the number of units."""
    times = [least(partial(existence, instance(n)), 2) for n in sizes]
    yield {"sizes": list(sizes), "ours_s": times, "exponent": np.polyfit(np.log(sizes), np.log(times), 1)[0]}


def memory(options: Namespace, n: int = 2048) -> Rows:
    """Measure the peak memory of a process of its own (VmHWM: ru_maxrss would include the parent's)."""
    code = f"from benchmarks.certify import *; existence(instance(64)); existence(instance({n}))"
    code += "; print(*[line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')])"
    kibibytes = int(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout)
    yield {"n": n, "peak_MiB": kibibytes / 1024, "doubles_per_n2": kibibytes * 1024 / 8 / n**2}


def best(options: Namespace, n: int = 256) -> Rows:
    """Search the best rate to 1e-3."""
    system = instance(n)
    seconds, found = processor(lambda: multiplier_criterion(system, rate="best", tol=1e-3))
    verified = check_lmi(system, found.witness["P"], found.witness["L"], found.rate)[0]
    yield {"n": n, "rate": found.rate, "detail": found.detail, "seconds": seconds, "verified": verified}


def default(options: Namespace) -> Rows:
    """Compare ``certify`` with its default options with one existence check of the same system."""
    for n in options.sizes or (8, 16, 24, 32, 64, 128, 256, 512):
        for kind, system in kinds(n):
            exists = least(lambda s=system: existence(s))
            taken, found = processor(lambda s=system, n=n: certify(s, tol=1e-3 if n >= 64 else 1e-6))
            row = {"n": n, "kind": kind, "rate": found.rate, "overshoot": found.overshoot, "seconds": taken}
            yield {**row, "existence": exists, "ratio": taken / exists}


def beside(options: Namespace, n: int = 64) -> Rows:
    """Compare ``certify`` while two other processes keep the cores busy with the same without them."""
    for kind, system in kinds(n):

        def once(system: LureSystem = system) -> tuple[float, float]:
            start = time.perf_counter()
            return processor(lambda: certify(system, tol=1e-3))[0], time.perf_counter() - start

        once()
        taken: dict[str, list[tuple[float, float]]] = {"alone": [], "beside": []}
        for _ in range(4):
            taken["alone"] += [once(), once()]
            others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
            try:
                taken["beside"] += [once(), once()]
            finally:
                for other in others:
                    other.kill()
                    other.wait()
        (alone, wall), (loaded, loaded_wall) = (np.min(taken[k], axis=0).tolist() for k in ("alone", "beside"))
        yield {"n": n, "kind": kind, "ratio": loaded / alone, "wall_ratio": loaded_wall / wall}


def bisection(options: Namespace) -> Rows:
    """Compare the best rate with bisection by a semidefinite solver, each step of which is a proof or none.

    A bisection that is not ``done`` within the limit is stopped; ``times_faster`` is then a lower bound.
    """
    for n in options.sizes or (16, 32):
        system = instance(n)
        ours, found = min((processor(lambda s=system: multiplier_criterion(s)) for _ in range(3)), key=lambda x: x[0])
        for solver in options.solvers:
            until = Deadline.from_limit(options.limit)

            def holds(rate: float, system: LureSystem = system, solver: str = solver, until: Any = until) -> bool:
                return multiplier_lmi(system, rate, solver=solver, time_limit=until).P is not None

            top = 2.0 * found.rate
            theirs, rate = processor(lambda h=holds, t=top, u=until: bisect(h, 0.0, t, 1e-6 * t, u))
            row = {"n": n, "solver": solver, "rate": found.rate, "solver_rate": rate, "done": not until.over}
            yield {**row, "solver_seconds": theirs, "seconds": ours, "times_faster": theirs / ours}


def main() -> None:
    parts = {part.__name__: part for part in (sdp, chol, growth, memory, best, default, beside, bisection)}
    parser = arguments(__doc__, "certify", parts)
    parser.add_argument("--sizes", nargs="+", type=int, help="units, of the parts sdp, default and bisection")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS), help="of the part bisection")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of one bisection")
    options = parser.parse_args()
    for part in options.only:
        for row in parts[part](options):
            keep(options.out, {"part": part, **row}, "part", "n", "kind", "solver")


if __name__ == "__main__":
    main()
