"""Honesty: how often is a false claim made or accepted (must be never), and how often is a true one found?

    python -m benchmarks.false_certificates               # everything, in chunks; called again it goes on
    python -m benchmarks.false_certificates --share 0.02  # a short look

* ``systems``: random systems of many shapes near the boundary of stability, badly scaled, non-normal, with slopes that
  differ by channel and channels that drive others. Every certified one is attacked with constant slopes, and its rate
  compared with the decay they show. Contradictions must be zero.
* ``contracting``: systems that contract by construction (``honesty/constructions.py``), margins from 1e-1 to 1e-12.
  Each is put to the search for counter-examples, some as one network, cells and stacks too. None may be refuted.
* ``corruptions``: valid proofs of every certifying kind with one number, matrix or word altered and the sentence made
  again, so that the rule decides; what is accepted is put to a judge (``honesty/judges.py``). None may be false.
* ``witnesses``: counter-examples of every kind, borrowed, corrupted or invented, above systems that contract by
  construction. None may be accepted.
* ``feasible``: systems built to satisfy the inequality with a known margin; the share that is certified.
* ``peers``: what would be answered by taking an SDP solver's status at its word on the same systems.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np

os.environ.setdefault("OMP_NUM_THREADS", "1")

from benchmarks.honesty.constructions import KINDS, draw, drive
from benchmarks.honesty.corruptions import CERTIFYING, run_corruptions
from benchmarks.honesty.networks import gated_cell, stack
from benchmarks.honesty.peers import solver_says
from benchmarks.honesty.systems import contracts_no_faster, feasible_system, random_system, worst_slopes
from benchmarks.honesty.witnesses import WITNESSES, run_borrowed, run_invented
from stability import Verdict, certify, refute, verify

Rng = np.random.Generator
SIZES = (1, 2, 2, 3, 3, 5)
COUNTS = {"systems": 1_200, "contracting": 20_500, "corruptions": 4_400, "witnesses": 6_000, "feasible": 160,
          "peers": 60}  # fmt: skip
CHUNKS = {"systems": 10, "contracting": 20, "corruptions": 11, "witnesses": 4, "feasible": 4, "peers": 1}
FAULTS = ("contradictions", "unverified", "refuted_wrongly", "false", "certified_wrongly")


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


def corruptions(count: int, rng: Rng, chunk: int) -> Counter:
    made = run_corruptions(CERTIFYING[chunk % len(CERTIFYING)], count, rng)
    row = asdict(made)
    kind = row.pop("kind")
    return Counter({**row, f"{kind}: accepted of corrupted": f"{made.accepted} of {made.corruptions}"})


def witnesses(count: int, rng: Rng) -> Counter:
    tally: Counter = Counter()
    made = run_borrowed(count // 2, rng)
    made += [run_invented(kind, count // 2 // len(WITNESSES), rng) for kind in WITNESSES]
    for one in made:
        tally.update({"witnesses": one.corruptions, "accepted": one.accepted, "false": one.false})
        tally[f"{one.kind}: tried"] += one.corruptions
    return tally


def feasible(count: int, rng: Rng) -> Counter:
    tally: Counter = Counter()
    for k in range(count):
        margin = 10.0 ** -(1 + k % 8)
        verdict = certify(feasible_system(rng, margin), rate="any", refute=False, time_limit=20.0).verdict
        tally[f"asked, margin {margin:.0e}"] += 1
        tally[f"certified, margin {margin:.0e}"] += verdict is Verdict.CERTIFIED
    return tally


def peers(count: int, rng: Rng) -> Counter:
    """Systems with a destabilising slope matrix: how often does the solver's status say stable?"""
    tally: Counter = Counter()
    while tally["unstable systems"] < count:
        system = random_system(rng)
        if system.D.any() or worst_slopes(system, rng, 30) < (1.0 if system.is_discrete else 0.0):
            continue
        tally["unstable systems"] += 1
        tally["solver's status says stable"] += solver_says(system)
        tally["certified_wrongly"] += certify(system, rate="any", refute=False).verdict is Verdict.CERTIFIED
    return tally


PARTS: dict[str, Callable[..., Counter]] = {
    "systems": systems, "contracting": contracting, "corruptions": corruptions, "witnesses": witnesses,
    "feasible": feasible, "peers": peers,
}  # fmt: skip


def total(chunks: dict[str, dict]) -> list[dict]:
    rows = []
    for part in PARTS:
        merged: dict = {"part": part}
        for name, row in chunks.items():
            if name.split("/")[0] == part:
                for key, value in row.items():
                    merged[key] = value if isinstance(value, str) else round(merged.get(key, 0) + value, 2)
        rows.append(merged)
    return rows


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--parts", nargs="*", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "false_certificates.json")
    options = parser.parse_args()
    asked = {"seed": options.seed, "share": options.share}
    kept = json.loads(options.out.read_text()) if options.out.exists() else {}
    unfinished = isinstance(kept, dict) and kept.get("asked") == asked and "chunks" in kept
    chunks: dict[str, dict] = kept["chunks"] if unfinished else {}
    machine = {"processor": _processor(), "cores": os.cpu_count(), "python": platform.python_version()}
    machine["numpy"] = np.__version__
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for part in options.parts:
        for chunk in range(CHUNKS[part]):
            name = f"{part}/{chunk}"
            if name in chunks:
                continue
            start, count = time.process_time(), max(1, int(options.share * COUNTS[part] / CHUNKS[part]))
            rng = np.random.default_rng([options.seed, *part.encode(), chunk])
            found = PARTS[part](count, rng, chunk) if part == "corruptions" else PARTS[part](count, rng)
            chunks[name] = {key: v if isinstance(v, str) else int(v) for key, v in found.items()}
            chunks[name]["cpu_seconds"] = round(time.process_time() - start, 2)
            print(name, json.dumps(chunks[name]), flush=True)
            written = {"machine": machine, "asked": asked, "rows": total(chunks), "chunks": chunks}
            options.out.write_text(json.dumps(written, indent=1) + "\n")
    rows = total(chunks)
    print(*(json.dumps(row) for row in rows), sep="\n")
    raise SystemExit(1 if sum(row.get(fault, 0) for row in rows for fault in FAULTS) else 0)


if __name__ == "__main__":
    main()
