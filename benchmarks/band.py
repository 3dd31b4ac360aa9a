"""The band of inconclusive answers: random systems that constant slopes and diagonal multipliers leave open.

    python -m benchmarks.band --systems 10

Maps ``x+ = phi(W x + input)`` of every activation with slopes in [0, 1], ``W`` normal of standard deviation
``g / sqrt(n)``, ``g`` drawn evenly from [0.7, 1.1]. Systems are drawn until so many are open by the peer: the
multiplier inequality does not hold, and no constant slopes destabilise. Each of these is asked again with sequences of
slopes and with metrics common to vertices of slopes. Every answer is checked again by the verifier. ``seconds``:
processor seconds of ``certify`` a system, ``peer_seconds`` of what left it open.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from stability import LureSystem, Verdict, certify, verify
from stability.criteria.multiplier import multiplier_criterion
from stability.refute.slopes import search_slopes
from stability.solve.deadline import Deadline

SIZES = (16, 32, 64, 128)
GAINS = (0.7, 1.1)


def system(n: int, seed: int) -> tuple[LureSystem, float]:
    """One system and its gain."""
    rng = np.random.default_rng((n, seed))
    gain = float(rng.uniform(*GAINS))
    W = gain * rng.normal(size=(n, n)) / np.sqrt(n)
    return LureSystem(np.zeros((n, n)), np.eye(n), W, None, (0.0, 1.0), 1.0), gain


def is_open(subject: LureSystem) -> bool:
    """Whether diagonal multipliers and constant slopes leave it open."""
    if multiplier_criterion(subject, rate="any", solver="riccati").holds:
        return False
    return search_slopes(subject, rng=np.random.default_rng(0), deadline=Deadline()).excess <= 0.0


def row(n: int, wanted: int) -> dict[str, Any]:
    """Counts of one size."""
    kinds: dict[str, int] = {}
    peer, seconds, seed, decided = [], [], 0, 0
    while len(seconds) < wanted and seed < 40 * wanted:
        subject, gain = system(n, seed)
        seed, started = seed + 1, time.process_time()
        left_open = is_open(subject)
        peer.append(time.process_time() - started)
        if not left_open:
            continue
        started = time.process_time()
        certificate = certify(subject, rate="any")
        seconds.append(time.process_time() - started)
        if certificate.verdict is Verdict.INCONCLUSIVE:
            continue
        if not verify(certificate).valid:
            raise SystemExit(f"n = {n}, gain {gain}: an answer does not verify")
        decided += 1
        kinds[str(certificate.criterion)] = kinds.get(str(certificate.criterion), 0) + 1
    return {
        "n": n,
        "drawn": seed,
        "open": len(seconds),
        "decided": decided,
        "by": kinds,
        "seconds": float(np.median(seconds)) if seconds else None,
        "peer_seconds": float(np.median(peer)),
    }


def main() -> None:
    """Measure, print and keep: rows of other sizes stay in the file as they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", type=int, default=10, help="open systems of each size")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "band.json")
    options = parser.parse_args()
    for n in options.sizes:
        new = row(n, options.systems)
        print(json.dumps(new), flush=True)
        kept = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
        rows = sorted([r for r in kept if r["n"] != n] + [new], key=lambda r: r["n"])
        total = {key: sum(r[key] for r in rows) for key in ("open", "decided")}
        options.out.write_text(json.dumps({"rows": rows, "all": total}, indent=1) + "\n")


if __name__ == "__main__":
    main()
