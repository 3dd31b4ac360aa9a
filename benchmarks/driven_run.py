"""Echo state networks whose sets stay wide, for narrow inputs: with sets alone, and with trajectories drawn to a run.

    python -m benchmarks.driven_run --seeds 5

The networks of ``benchmarks.driven`` at spectral radius .9 without leak, inputs within some range. Each is searched
twice: as it is, and with what looks near a run left out. Seconds are of the processor, ``check`` those of the verifier.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.driven import network
from stability.search.input_sets import driven as searches
from stability.verification import verify_claim

CASES = ((200, 0.2), (300, 0.1), (500, 0.1), (500, 0.05))
"""Units, and how far from zero inputs go."""


def one(n: int, reach: float, limit: float, seed: int) -> dict:
    """One network: rates with sets alone and with a run, seconds of both searches and of the check."""
    driven, found = network(n, 0.9, 1.0, seed), {}
    with mock.patch.object(searches, "contraction_near_run", return_value=None):
        started = time.process_time()
        found["alone"] = searches.driven_contraction(driven, (-reach, reach), tol=1e-3, time_limit=limit)[0].value
        found["seconds alone"] = time.process_time() - started
    started = time.process_time()
    claim, _ = searches.driven_contraction(driven, (-reach, reach), tol=1e-3, time_limit=limit)
    found["seconds"] = time.process_time() - started
    started = time.process_time()
    found["rate"] = claim.value if claim.proof is not None and verify_claim(driven, claim).valid else None
    found["check"] = time.process_time() - started
    found["kind"] = None if claim.proof is None else claim.proof.kind
    return found


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=[200, 300, 500])
    parser.add_argument("--reaches", type=float, nargs="+", default=[0.05, 0.1, 0.2])
    parser.add_argument("--limit", type=float, default=900.0, help="seconds a search, by the clock")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "driven_run.json")
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for n, reach in CASES:
        if n not in options.sizes or reach not in options.reaches:
            continue
        found = []
        for seed in range(options.seeds):
            found.append(one(n, reach, options.limit, seed))
            print(n, reach, seed, json.dumps(found[-1]), flush=True)
        row = {"n": n, "reach": reach, "seeds": options.seeds}
        for key in ("alone", "rate"):
            values = [f[key] for f in found if f[key] is not None]
            row |= {f"{key} certified": len(values), key: float(np.median(values)) if values else None}
        row |= {key: float(np.median([f[key] for f in found])) for key in ("seconds alone", "seconds")}
        checks = [f["check"] for f in found if f["rate"] is not None]  # where there is something to check
        row["check"] = float(np.median(checks)) if checks else None
        row["kinds"] = sorted({f["kind"] for f in found if f["kind"]})
        print(json.dumps(row), flush=True)
        rows = sorted(
            [r for r in rows if (r["n"], r["reach"]) != (n, reach)] + [row], key=lambda r: (r["n"], -r["reach"])
        )
        options.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
