"""Boxes of LSTM cells under inputs in [-1, 1]: how wide, and how many cells are certified on them.

    OMP_NUM_THREADS=1 python -m benchmarks.gated_sets --seeds 8

Cells of normal weights and biases of deviation s, recurrent ones of s / sqrt(units), two inputs. ``apart``: where the
cell state settles is bounded by the ranges of the gates, each for itself; ``together``: by what the gates read in
common as well (``lstm_cell_range``), which is what the library does. ``width``: of the cell state's box, the
mean over entries and cells; ``certified``: how many of the cells contract on their box, each proof checked by the
verifier; ``box_seconds``, ``seconds``: processor time of a box, and of a verdict, the medians. ``reached``: how wide
the box is that runs fill under inputs at random ends, held for eight steps.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np

from stability.kernel.arithmetic.intervals import Interval
from stability.kernel.systems import gated_bounds as bounds
from stability.kernel.systems.gated_cell import GatedCell
from stability.search.criteria.interval import fastest_gated_claim, gated_findings
from stability.verification import verify_claim

CASES = ((8, 0.2), (8, 0.25), (8, 0.3), (16, 0.2), (16, 0.25), (16, 0.3), (32, 0.2), (32, 0.3))
"""Units, deviation."""


@contextmanager
def gates_apart() -> Iterator[None]:
    """Boxes as the gates' own ranges imply them."""

    def nothing(cell: GatedCell, h: Interval) -> Interval:
        return Interval(np.full(cell.hidden, -np.inf), np.full(cell.hidden, np.inf))

    with mock.patch.object(bounds, "settling_range", nothing):
        yield


def cell_of(m: int, scale: float, seed: int) -> GatedCell:
    """One cell."""
    rng = np.random.default_rng(seed)
    w_ih, w_hh = scale * rng.normal(size=(4 * m, 2)), scale / np.sqrt(m) * rng.normal(size=(4 * m, m))
    return GatedCell("lstm", w_ih, w_hh, scale * rng.normal(size=4 * m), None, -1.0, 1.0)


def reached(cell: GatedCell, runs: int = 200, steps: int = 400) -> float:
    """The mean width of what the cell states of some runs fill, after their first steps."""
    rng, x = np.random.default_rng(0), np.zeros((runs, cell.states))
    low, high = np.full(cell.hidden, np.inf), np.full(cell.hidden, -np.inf)
    inputs = rng.choice([-1.0, 1.0], size=(steps // 8, runs, cell.inputs))
    for t in range(steps):
        x = cell.advance(x, inputs[t // 8])
        if t >= 50:
            low, high = np.minimum(low, x[:, cell.hidden :].min(0)), np.maximum(high, x[:, cell.hidden :].max(0))
    return float((high - low).mean())


def measured(cells: list[GatedCell]) -> dict[str, float | int | None]:
    """Width, verdicts and processor seconds of some cells."""
    widths, boxes, seconds, rates = [], [], [], []
    for cell in cells:
        started = time.process_time()
        box = bounds.invariant_box(cell)
        between = time.process_time()
        proof = fastest_gated_claim(cell, gated_findings(cell, rate="any", time_limit=60.0))
        boxes.append(between - started)
        seconds.append(time.process_time() - between)
        if box is not None:
            widths.append(float((box.high - box.low)[cell.hidden :].mean()))
        if proof is not None and verify_claim(cell, proof[0]).valid:
            rates.append(proof[0].value)
    return {
        "width": float(np.mean(widths)) if widths else None,
        "certified": len(rates),
        "box_seconds": float(np.median(boxes)),
        "seconds": float(np.median(seconds)),
    }


def row(case: tuple[int, float], seeds: int) -> dict:
    """One case, both ways."""
    cells = [cell_of(*case, seed) for seed in range(seeds)]
    with gates_apart():
        before = measured(cells)
    found = {"reached": float(np.mean([reached(cell) for cell in cells])), "apart": before, "together": measured(cells)}
    return {**dict(zip(("m", "scale"), case)), "seeds": seeds, **found}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "gated_sets.json")
    parser.add_argument("--units", type=int, nargs="*", default=[], help="these sizes; the others' rows are kept")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.units or case[0] in options.units]
    kept = json.loads(options.out.read_text())["rows"] if options.units and options.out.exists() else []
    rows = {(found["m"], found["scale"]): found for found in kept}
    for case in cases:
        rows[case] = row(case, options.seeds)
        print(json.dumps(rows[case]), flush=True)
    options.out.write_text(json.dumps({"rows": [rows[case] for case in CASES if case in rows]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
