"""What analysing the five default models of an earlier commit costs now, step by step, at the same budgets.

    OMP_NUM_THREADS=1 python benchmarks/analyses.py                 # about four minutes, most of it steps that are new
    OMP_NUM_THREADS=1 python benchmarks/analyses.py --only contracting lstm --common

Processor seconds of every step, in units of four products of two 512 x 512 matrices, measured beside it: so stand
the figures of commit ca9b877, taken with the same weights, in ``results/analyses_before.json``, and the ratios of both
can be repeated without that commit. Steps that it did not have are listed apart (``--common`` leaves them out).
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from stability.analysis import make_task
from stability.analysis.campaign.budgets import BUDGETS, AnalysisSettings
from stability.analysis.campaign.inputs import about_inputs
from stability.analysis.campaign.pipeline import STEPS
from stability.analysis.campaign.work import Work
from stability.analysis.tasks import Task
from stability.analysis.training.presets import train_preset
from stability.errors import StabilityError

MODELS = ("contracting", "lipschitz", "antisymmetric", "neural_ode", "lstm")
RESULTS = Path(__file__).parent / "results"


def processor(function: Callable[[], Any]) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def floor(repeats: int = 12) -> float:
    """Processor seconds of four products of two 512 x 512 matrices: the least of some runs."""
    a = np.random.default_rng(0).standard_normal((512, 512))
    return min(processor(lambda: [a @ a for _ in range(4)]) for _ in range(repeats))


def steps_of(name: str, task: Task, common: frozenset[str] | None, weights: Path | None) -> list[dict[str, Any]]:
    """One row a step of a model, trained here or given."""
    model, _ = train_preset(name, task, **({} if weights is None else {"epochs": 1}))
    if weights is not None:
        model.load_state_dict(torch.load(weights / f"{name}.pt", weights_only=True))
    settings, rows = AnalysisSettings(BUDGETS["full"], 0), []
    target, inputs = about_inputs(model, model, task, None)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), target, model, task, settings, inputs["input_box"], inputs["input_seen"])
        for step, carry_out in STEPS.items():
            if common is not None and step not in common:
                continue
            work.begin(step)
            before, outcome, start = floor(), "done", time.process_time()
            try:
                carry_out(work)
            except StabilityError as error:
                outcome = str(error)
            taken = time.process_time() - start
            row = {"model": name, "step": step, "seconds": taken, "in_floors": taken / min(before, floor())}
            rows.append({**row, "outcome": outcome})
            print(json.dumps({k: (float(f"{v:.4g}") if isinstance(v, float) else v) for k, v in rows[-1].items()}))
    return rows


def compared(rows: list[dict[str, Any]], before: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    """A row a model: all steps that both have, and what the new ones take beside them."""
    found = []
    for name in dict.fromkeys(row["model"] for row in rows):
        own = {row["step"]: row["in_floors"] for row in rows if row["model"] == name}
        old = {step: before[name, step] for step in own if (name, step) in before}
        both, new = sum(own[step] for step in old), sum(own.values())
        row = {"model": name, "in_floors": both, "before": sum(old.values()), "new_steps": new - both}
        found.append({**row, "ratio": row["in_floors"] / row["before"]})
        print(json.dumps({k: (float(f"{v:.4g}") if isinstance(v, float) else v) for k, v in found[-1].items()}))
    return found


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--common", action="store_true", help="only the steps that the earlier commit had")
    parser.add_argument("--weights", type=Path, help="a folder of state dicts (MODEL.pt) instead of trainings")
    parser.add_argument("--out", type=Path, default=RESULTS / "analyses.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = json.loads((RESULTS / "analyses_before.json").read_text())
    before = {(row["model"], row["step"]): row["in_floors"] for row in stored["rows"]}
    kept = json.loads(options.out.read_text()) if options.out.is_file() else {"rows": []}
    task, common = make_task("digits"), frozenset(step for _, step in before) if options.common else None
    rows = [row for row in kept["rows"] if row["model"] not in options.only]
    rows += [row for name in options.only for row in steps_of(name, task, common, options.weights)]
    machine = {"processor": platform.processor() or platform.machine(), "numpy": np.__version__}
    document = {"machine": machine, "rows": rows, "models": compared(rows, before)}
    options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
