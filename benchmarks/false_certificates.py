"""Rate of false claims (must be zero) and of certificates, on systems with a known answer.

    python -m benchmarks.false_certificates               # everything, in chunks; called again it goes on
    python -m benchmarks.false_certificates --share 0.02  # a short look

* ``systems``: random systems near the boundary of stability. Certified ones are attacked with constant slopes, and
  their rate is compared with the decay under these.
* ``contracting``: systems that contract by construction, margins from 1e-1 to 1e-12, given to the search for
  counterexamples; some as networks, cells and stacks. None may be refuted.
* ``feasible``: systems built to satisfy the inequality with a known margin; the share that is certified.
* ``peers``: how often the status of a semidefinite solver says stable about systems that are not.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")

from stability import LureSystem, Verdict, certify, refute, verify
from tests.honesty.constructions import (
    KINDS,
    contracts_no_faster,
    draw,
    drive,
    feasible_system,
    gated_cell,
    random_system,
    stack,
    worst_slopes,
)  # fmt: skip

from .timing import RESULTS, machine

Rng = np.random.Generator
SIZES = (1, 2, 2, 3, 3, 5)
COUNTS = {"systems": 1_200, "contracting": 20_500, "feasible": 160, "peers": 60}
CHUNKS = {"systems": 10, "contracting": 20, "feasible": 4, "peers": 1}
FAULTS = ("contradictions", "unverified", "refuted_wrongly", "certified_wrongly")


def systems(count: int, rng: Rng) -> Counter:
    tally: Counter = Counter()
    for _ in range(count):
        system = random_system(rng)
        rate = "best" if rng.random() < 0.1 else "any"
        certificate = certify(system, rate=rate, tol=1e-2, refute=bool(rng.random() < 0.1), time_limit=5.0)
        tally[str(certificate.verdict)] += 1
        if certificate.verdict is Verdict.CERTIFIED:
            tally["contradictions"] += contracts_no_faster(system, float(certificate.rate or 0.0), rng)
        if certificate.verdict is not Verdict.INCONCLUSIVE:
            tally["unverified"] += not verify(certificate).valid
    return tally


def contracting(count: int, rng: Rng) -> Counter:
    """All go through the search for slopes; one in twenty as a network, a cell or a stack through that of its kind."""
    tally: Counter = Counter()
    kinds = sorted(KINDS)
    for k in range(count):
        exponent = int(rng.integers(1, 13))
        if k % 50 == 49:
            subject = stack(rng, 10.0**-exponent) if rng.random() < 0.5 else gated_cell(rng, 10.0**-exponent)
        else:
            n = 20 if rng.random() < 0.01 else 10 if rng.random() < 0.02 else SIZES[rng.integers(len(SIZES))]
            made = draw(kinds[k % len(kinds)], rng, n, 10.0**-exponent)
            answer = certify(made.system, rate="any", refute=False)
            group = "margin >= 1e-6" if exponent <= 6 else "margin < 1e-6"
            tally[f"asked, {group}"] += 1
            tally[f"certified, {group}"] += answer.verdict is Verdict.CERTIFIED
            found = refute(made.system, seed=k, time_limit=0.05)
            tally["searched as a bare system"] += 1
            tally["refuted_wrongly"] += found.proof is not None
            subject = drive(made.system, rng) if k % 25 == 7 else None
        if subject is not None:
            found = refute(subject, seed=k, time_limit=0.15)
            tally["searched as a network, cell or stack"] += 1
            tally["refuted_wrongly"] += found.found
    return tally


def feasible(count: int, rng: Rng) -> Counter:
    tally: Counter = Counter()
    for k in range(count):
        margin = 10.0 ** -(1 + k % 8)
        verdict = certify(feasible_system(rng, margin), rate="any", refute=False, time_limit=20.0).verdict
        tally[f"asked, margin {margin:.0e}"] += 1
        tally[f"certified, margin {margin:.0e}"] += verdict is Verdict.CERTIFIED
    return tally


def solver_says(system: LureSystem) -> bool:
    """Return True if SCS reports the inequality at margin zero as solved."""
    import cvxpy as cp

    n, m = system.states, system.channels
    P, L = cp.Variable((n, n), PSD=True), cp.Variable(m, nonneg=True)
    lam = cp.diag(L)
    low, high = np.diag(system.alpha), np.diag(system.beta)
    if system.is_discrete:
        top, off, bottom = system.A.T @ P @ system.A - P, system.A.T @ P @ system.B, system.B.T @ P @ system.B
    else:
        top, off, bottom = system.A.T @ P + P @ system.A, P @ system.B, np.zeros((m, m))
    lmi = cp.bmat(
        [
            [top - 2 * system.C.T @ (low @ lam @ high) @ system.C, off + system.C.T @ (low + high) @ lam],
            [off.T + lam @ (low + high) @ system.C, bottom - 2 * lam],
        ]
    )
    problem = cp.Problem(cp.Minimize(0), [0.5 * (lmi + lmi.T) << 0.0 * np.eye(n + m), cp.trace(P) == n])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=cp.SCS, max_iters=5000)
        except cp.error.SolverError:
            return False
    return problem.status in ("optimal", "optimal_inaccurate")


def peers(count: int, rng: Rng) -> Counter:
    """Systems with a destabilizing slope matrix: how often the status of a solver says stable."""
    tally: Counter = Counter()
    while tally["unstable systems"] < count:
        system = random_system(rng)
        if system.D.any() or worst_slopes(system, rng, 30) < (1.0 if system.is_discrete else 0.0):
            continue
        tally["unstable systems"] += 1
        tally["solver's status says stable"] += solver_says(system)
        tally["certified_wrongly"] += certify(system, rate="any", refute=False).verdict is Verdict.CERTIFIED
    return tally


PARTS: dict[str, Callable[..., Counter]] = {p.__name__: p for p in (systems, contracting, feasible, peers)}


def total(chunks: dict[str, dict]) -> list[dict]:
    rows = []
    for part in PARTS:
        merged: dict = {"part": part}
        for name, row in chunks.items():
            if name.split("/")[0] == part:
                for key, value in row.items():
                    merged[key] = round(merged.get(key, 0) + value, 2)
        rows.append(merged)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--parts", nargs="*", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS / "false_certificates.json")
    options = parser.parse_args()
    asked = {"seed": options.seed, "share": options.share}
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    unfinished = isinstance(kept, dict) and kept.get("asked") == asked and "chunks" in kept
    chunks: dict[str, dict] = kept["chunks"] if unfinished else {}
    for part in options.parts:
        for chunk in range(CHUNKS[part]):
            name = f"{part}/{chunk}"
            if name in chunks:
                continue
            start, count = time.process_time(), max(1, int(options.share * COUNTS[part] / CHUNKS[part]))
            rng = np.random.default_rng([options.seed, *part.encode(), chunk])
            chunks[name] = {key: int(v) for key, v in PARTS[part](count, rng).items()}
            chunks[name]["cpu_seconds"] = round(time.process_time() - start, 2)
            print(name, json.dumps(chunks[name]), flush=True)
            written = {"machine": machine(), "asked": asked, "rows": total(chunks), "chunks": chunks}
            lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in written.items())
            options.out.write_text("{" + ",\n".join(lines) + "}\n", encoding="utf-8")
    rows = total(chunks)
    print(*(json.dumps(row) for row in rows), sep="\n")
    raise SystemExit(1 if sum(row.get(fault, 0) for row in rows for fault in FAULTS) else 0)


if __name__ == "__main__":
    main()
