"""Speed of certificates: structured solver against the SDP and against one Cholesky factorisation, in one run.

    python -m benchmarks.certify                  # everything (about 10 minutes, most of it the SDP)
    python -m benchmarks.certify --only chol growth memory best
    python -m benchmarks.certify --only default beside bisection      # what is asked for by default, in processor time

Instances are Lipschitz RNNs with random weights, beta = 0.75, gamma = 1.2 for A and 0.3 for W. Every certificate
that is timed is verified with all rounding errors inside the time. Figures are ratios of two times of one run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from stability import LureSystem, Verdict, certify
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.search.solvers.deadline import Deadline

SOLVERS = ("CLARABEL", "SCS")
PARTS = ("sdp", "chol", "growth", "memory", "best", "default", "beside", "bisection")


def instance(n: int, seed: int = 0) -> LureSystem:
    """A Lipschitz RNN with random weights."""
    rng = np.random.default_rng(seed)

    def skew_symmetric(beta: float, gamma: float) -> np.ndarray:
        m = rng.standard_normal((n, n)) / np.sqrt(n)
        return (1 - beta) * (m + m.T) + beta * (m - m.T) - gamma * np.eye(n)

    a = skew_symmetric(0.75, 1.2)
    return LureSystem.recurrent(a, skew_symmetric(0.75, 0.3))


def seconds(function, repeats: int) -> float:
    """Least time of several runs: the machine is shared, and noise only ever adds."""
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def existence(system: LureSystem) -> None:
    certificate = certify(system, rate="any")
    assert certificate.verdict is Verdict.CERTIFIED


def against_sdp(sizes: list[int]) -> list[dict]:
    """cvxpy + SCS: feasibility form with P >= I and the inequality <= -1e-3 I, no objective: its fastest here."""
    import cvxpy as cp

    rows = []
    for n in sizes:
        system = instance(n)
        start = time.perf_counter()
        p, multipliers = cp.Variable((n, n), PSD=True), cp.Variable(n, nonneg=True)
        lam = cp.diag(multipliers)
        off = p + system.C.T @ lam
        lmi = cp.bmat([[system.A.T @ p + p @ system.A, off], [off.T, -2 * lam]])
        problem = cp.Problem(cp.Minimize(0), [p >> np.eye(n), 0.5 * (lmi + lmi.T) << -1e-3 * np.eye(2 * n)])
        problem.solve(solver=cp.SCS)
        sdp = time.perf_counter() - start
        ours = seconds(lambda system=system: existence(system), 5)
        rows.append(
            {"part": "sdp", "n": n, "sdp_s": sdp, "status": problem.status, "ours_s": ours, "ratio": sdp / ours}
        )
        report(rows[-1])
    return rows


def against_cholesky(n: int = 1024) -> list[dict]:
    system = instance(n)
    matrix = np.random.default_rng(1).standard_normal((2 * n, 2 * n))
    matrix = matrix @ matrix.T + 2 * n * np.eye(2 * n)
    ours = floor = np.inf
    for _ in range(4):  # interleaved
        floor = min(floor, seconds(lambda: np.linalg.cholesky(matrix), 2))
        ours = min(ours, seconds(lambda: existence(system), 1))
    row = {"part": "chol", "n": n, "cholesky_2n_s": floor, "ours_s": ours, "ratio": ours / floor}
    report(row)
    return [row]


def growth(sizes: tuple[int, ...] = (256, 512, 1024, 2048)) -> list[dict]:
    times = []
    for n in sizes:
        system = instance(n)
        existence(system)
        times.append(seconds(lambda system=system: existence(system), 3 if n <= 1024 else 2))
    slope = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    row = {"part": "growth", "n": list(sizes), "ours_s": times, "exponent": slope}
    report(row)
    return [row]


def memory(n: int = 2048) -> list[dict]:
    # VmHWM, the peak of this very process: ru_maxrss would be inherited from the parent across exec
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from benchmarks_certify import existence, instance\n"
        "existence(instance(64)); existence(instance(int(sys.argv[2])))\n"
        "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    ).replace("benchmarks_certify", Path(__file__).stem)
    out = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(n)], check=True, capture_output=True, text=True
    ).stdout.split()
    doubles = int(out[0]) * 1024 / 8 / n**2
    row = {
        "part": "memory",
        "n": n,
        "peak_MiB": int(out[0]) / 1024,
        "doubles_per_n2": doubles,
    }
    report(row)
    return [row]


def best_rate(n: int = 256) -> list[dict]:
    from stability.search.criteria.multiplier import multiplier_criterion

    system = instance(n)
    start = time.perf_counter()
    finding = multiplier_criterion(system, rate="best", tol=1e-3)
    row = {
        "part": "best",
        "n": n,
        "rate": finding.rate,
        "detail": finding.detail,
        "seconds": time.perf_counter() - start,
        "verified": check_lmi(system, finding.witness["P"], finding.witness["L"], finding.rate)[0],
    }
    report(row)
    return [row]


def euler(system: LureSystem, dt: float = 0.1) -> LureSystem:
    """The Euler map of a recurrent network."""
    return LureSystem(np.eye(system.states) + dt * system.A, dt * system.B, system.C, dt=dt)


def processor(function) -> tuple[float, Any]:
    """Processor seconds of one call, and what came of it."""
    start = time.process_time()
    found = function()
    return time.process_time() - start, found


def default(sizes: tuple[int, ...] = (8, 16, 24, 32, 64, 128, 256, 512)) -> list[dict]:
    """``certify`` as it is typed, rate and overshoot, against one existence check with proof of the same system."""
    rows = []
    for n in sizes:
        for kind, system in (("flow", instance(n)), ("map", euler(instance(n)))):
            exists = min(
                processor(lambda s=system: certify(s, rate="any", solver="riccati", refute=False))[0] for _ in range(3)
            )
            taken, found = processor(lambda s=system, n=n: certify(s, tol=1e-3 if n >= 64 else 1e-6))
            row = {"part": "default", "n": n, "kind": kind, "rate": found.rate, "overshoot": found.overshoot}
            rows.append({**row, "seconds": taken, "existence": exists, "ratio": taken / exists})
            report(rows[-1])
    return rows


def beside(n: int = 64) -> list[dict]:
    """The default while two other processes keep the cores busy, against the same without them, taken in turns."""
    rows = []
    for kind, system in (("flow", instance(n)), ("map", euler(instance(n)))):

        def once(system: LureSystem = system) -> tuple[float, float]:
            start = time.perf_counter()
            taken = processor(lambda: certify(system, tol=1e-3))[0]
            return taken, time.perf_counter() - start

        once()
        taken: dict[str, list[tuple[float, float]]] = {"alone": [], "beside": []}
        for _ in range(4):
            taken["alone"] += [once(), once()]
            others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
            try:
                time.sleep(0.2)
                taken["beside"] += [once(), once()]
            finally:
                for other in others:
                    other.kill()
                    other.wait()
        (alone, wall), (loaded, loaded_wall) = (np.min(taken[k], axis=0).tolist() for k in ("alone", "beside"))
        row = {"part": "beside", "n": n, "kind": kind, "seconds": loaded, "alone": alone, "ratio": loaded / alone}
        rows.append({**row, "wall_seconds": loaded_wall, "wall_alone": wall, "wall_ratio": loaded_wall / wall})
        report(rows[-1])
    return rows


def by_solver(system: LureSystem, solver: str, top: float, limit: float) -> tuple[float, float, bool]:
    """Processor seconds of a bisection below ``top``, the last rate with a proof, and whether it was done in time."""
    from stability.search.solvers.multiplier_program import multiplier_lmi
    from stability.search.solvers.rates import bisect

    until = Deadline.from_limit(limit)

    def holds(rate: float) -> bool:
        return multiplier_lmi(system, rate, solver=solver, time_limit=until).P is not None

    taken, rate = processor(lambda: bisect(holds, 0.0, top, 1e-6 * top, until))
    return taken, rate, not until.over


def bisection(
    sizes: tuple[int, ...] = (16, 32), solvers: tuple[str, ...] = SOLVERS, limit: float = 240.0
) -> list[dict]:
    """The best rate against bisection with a semidefinite solver, each step of which is a proof or none.

    A bisection that is not done within ``limit`` seconds of a clock is stopped: ``done`` says so, ``solver_rate`` is
    what it has proved until then, and ``times_faster`` is a lower bound.
    """
    from stability.search.criteria.multiplier import multiplier_criterion

    rows = []
    for n in sizes:
        system = instance(n)
        ours, found = min((processor(lambda s=system: multiplier_criterion(s)) for _ in range(3)), key=lambda x: x[0])
        for solver in solvers:
            theirs, rate, done = by_solver(system, solver, 2.0 * found.rate, limit)
            row = {"part": "bisection", "n": n, "solver": solver, "rate": found.rate, "solver_rate": rate}
            row |= {"done": done, "limit_s": limit, "solver_seconds": theirs}
            rows.append({**row, "seconds": ours, "times_faster": theirs / ours})
            report(rows[-1])
    return rows


def report(row: dict) -> None:
    print(json.dumps({k: (float(f"{v:.4g}") if isinstance(v, float) else v) for k, v in row.items()}), flush=True)


def stays(row: dict, sizes: list[int] | None, solvers: list[str]) -> bool:
    """Whether a kept row of a part that is measured again is about a size or a solver that is not."""
    other = row["part"] == "bisection" and row["solver"] not in solvers
    return other or (sizes is not None and row["part"] in ("default", "bisection") and row["n"] not in sizes)


def machine() -> dict:
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(x.split(":")[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {"processor": name, "cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--sizes", nargs="+", type=int, help="of the parts default and bisection; rows of others stay")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=list(SOLVERS), help="of the part bisection")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds that one bisection may take")
    parser.add_argument("--sdp-sizes", nargs="+", type=int, default=[64, 128, 256])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "certify.json")
    options = parser.parse_args()
    kept = json.loads(options.out.read_text())["rows"] if options.out.is_file() else []
    sized = {} if options.sizes is None else {"sizes": tuple(options.sizes)}
    rows: list[dict] = [
        row for row in kept if row["part"] not in options.only or stays(row, options.sizes, options.solvers)
    ]
    for part in options.only:
        rows += {
            "sdp": lambda: against_sdp(options.sdp_sizes),
            "chol": against_cholesky,
            "growth": growth,
            "memory": memory,
            "best": best_rate,
            "default": lambda: default(**sized),
            "beside": beside,
            "bisection": lambda: bisection(**sized, solvers=tuple(options.solvers), limit=options.limit),
        }[part]()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
