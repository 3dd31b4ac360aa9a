"""What analysing the five default models of an earlier commit costs now, step by step, at the same budgets.

    OMP_NUM_THREADS=1 python -m benchmarks.analyses                 # about ten minutes, most of it steps that are new
    OMP_NUM_THREADS=1 python -m benchmarks.analyses --only contracting lstm --common
    git worktree add --detach ../before ca9b877 && make -C ../before nest
    OMP_NUM_THREADS=1 python -m benchmarks.analyses --beside ../before/build/nest   # both commits in turns

Processor seconds of every step, in units of four products of two 512 x 512 matrices, measured beside it: so stand
the figures of commit ca9b877, taken with the same weights, in ``results/analyses_before.json``, and the ratios of both
can be repeated without that commit. Steps that it did not have are listed apart (``--common`` leaves them out), and so
is what a step measures today and did not then (``NEW``): the ratio is about the same measurements, with the same
samples, probes, steps and restarts; ``ratio_with_new`` has in it whatever these steps measure now.
With ``--beside`` that commit's own code runs in the same minutes on the same weights, each step of each in turns, and
the ratio is that of the least seconds of both: nothing of it is an old figure.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
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
from stability.kernel.format.claims import Verdict

MODELS = ("contracting", "lipschitz", "antisymmetric", "neural_ode", "lstm")
RESULTS = Path(__file__).parent / "results"
NEW: tuple[tuple[str, str, Callable[[dict[str, Any]], bool]], ...] = (
    ("stability.analysis.campaign.certificate", "like_data", lambda told: True),
    ("stability.analysis.curvature.density", "opinion_on", lambda told: True),  # PyHessian's
    ("stability.analysis.attacks.steps", "parameter_noise_sweep", lambda told: True),
    ("stability.analysis.radius.certified", "logit_gain", lambda told: not APART.certified),
    ("stability.analysis.radius.certified", "_from_gain", lambda told: not APART.certified),  # its proof, checked
    ("stability.analysis.attacks.steps", "deepfool", lambda told: told.get("norm") == "linf"),
    (
        "stability.analysis.attacks.steps",
        "attack_sweep",
        lambda t: (t.get("attack"), t.get("norm")) == ("deepfool", "linf"),
    ),
)
"""What steps of that commit had not: file, function, and of which of its calls that is so."""


OTHER = """
import json, sys, tempfile, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from stability.analysis import make_task, pipeline
from stability.analysis.presets import train_preset
from stability.errors import StabilityError
task, (weights, name, folder) = make_task("digits"), sys.argv[1:]
model, _ = train_preset(name, task, epochs=1)
model.load_state_dict(torch.load(weights, weights_only=True))
work = pipeline.Work(Path(folder), model, model, task, pipeline.BUDGETS["full"], 0)
for step, carry_out in pipeline.STEPS.items():
    start = time.process_time()
    try:
        carry_out(work)
    except StabilityError:
        pass
    print(json.dumps([step, time.process_time() - start]), flush=True)
"""
"""What runs the steps of the earlier commit, in its own process and with its own packages."""


class Apart:
    """Processor seconds of what is new, while it runs inside the steps."""

    def __init__(self) -> None:
        self.seconds, self.certified = 0.0, True

    def watch(self) -> None:
        """Put a clock around every function of ``NEW``."""
        for place, name, is_new in NEW:
            module = importlib.import_module(place)
            setattr(module, name, self._timed(getattr(module, name), is_new))

    def _timed(self, function: Callable[..., Any], is_new: Callable[[dict[str, Any]], bool]) -> Callable[..., Any]:
        def timed(*args: Any, **told: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **told)
            finally:
                self.seconds += time.process_time() - start if is_new(told) else 0.0

        return timed

    def taken(self) -> float:
        """The seconds since the last call."""
        found, self.seconds = self.seconds, 0.0
        return found


APART = Apart()


def processor(function: Callable[[], Any]) -> float:
    """Processor seconds of one call."""
    start = time.process_time()
    function()
    return time.process_time() - start


def floor(repeats: int = 12) -> float:
    """Processor seconds of four products of two 512 x 512 matrices: the least of some runs."""
    a = np.random.default_rng(0).standard_normal((512, 512))
    return min(processor(lambda: [a @ a for _ in range(4)]) for _ in range(repeats))


def typical(name: str, task: Task, repeats: int, *told: Any) -> list[dict[str, Any]]:
    """The rows of each step's median run: both the step and its unit are measured beside other work."""
    runs = [steps_of(name, task, *told) for _ in range(repeats)]
    middle = (repeats - 1) // 2
    return [sorted(same, key=lambda row: row["in_floors"] - row["new_in_floors"])[middle] for same in zip(*runs)]


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
            before, outcome = floor(), "done"
            APART.taken()
            APART.certified = work.certificate is None or work.certificate.verdict is Verdict.CERTIFIED
            start = time.process_time()
            try:
                carry_out(work)
            except StabilityError as error:
                outcome = str(error)
            taken = time.process_time() - start
            unit, new = min(before, floor()), APART.taken()
            row = {
                "model": name,
                "step": step,
                "seconds": taken,
                "in_floors": taken / unit,
                "new_in_floors": new / unit,
                "new_seconds": new,
            }
            rows.append({**row, "outcome": outcome})
            print(json.dumps({k: (float(f"{v:.4g}") if isinstance(v, float) else v) for k, v in rows[-1].items()}))
    return rows


def compared(rows: list[dict[str, Any]], before: dict[tuple[str, str], float]) -> list[dict[str, Any]]:
    """A row a model: all steps that both have, and what the new ones take beside them."""
    found = []
    for name in dict.fromkeys(row["model"] for row in rows):
        own = {row["step"]: row["in_floors"] for row in rows if row["model"] == name}
        old = {step: before[name, step] for step in own if (name, step) in before}
        parts = sum(row.get("new_in_floors", 0.0) for row in rows if row["model"] == name and row["step"] in old)
        both, every = sum(own[step] for step in old), sum(own.values())
        row = {"model": name, "in_floors": both - parts, "before": sum(old.values()), "new_in_steps": parts}
        ratios = {"ratio": row["in_floors"] / row["before"], "ratio_with_new": both / row["before"]}
        found.append({**row, "new_steps": every - both, **ratios})
        print(json.dumps({k: (float(f"{v:.4g}") if isinstance(v, float) else v) for k, v in found[-1].items()}))
    return found


def other_steps(tree: Path, name: str, weights: Path) -> dict[str, float]:
    """Processor seconds of each step of the earlier commit."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", OTHER, str(weights / f"{name}.pt"), name, folder]
        environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"}
        told = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    return dict(map(json.loads, told.stdout.splitlines()))


def in_turns(tree: Path, name: str, task: Task, repeats: int) -> dict[str, Any]:
    """A row: the least seconds of each step, here and there, over some turns."""
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder)
        torch.save(train_preset(name, task)[0].state_dict(), weights / f"{name}.pt")
        theirs, ours = [], []
        for _ in range(repeats):
            theirs.append(other_steps(tree, name, weights))
            ours.append({row["step"]: row for row in steps_of(name, task, frozenset(theirs[0]), weights)})
    old = {step: min(run[step] for run in theirs) for step in theirs[0]}
    same = {step: min(run[step]["seconds"] - run[step]["new_seconds"] for run in ours) for step in old}
    every = {step: min(run[step]["seconds"] for run in ours) for step in old}
    total = sum(old.values())
    row = {"model": name, "seconds": sum(same.values()), "seconds_before": total, "ratio": sum(same.values()) / total}
    steps = {step: round(same[step] / old[step], 3) for step in old if old[step] > 0.05}
    return {**row, "ratio_with_new": sum(every.values()) / total, "steps": steps}


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--common", action="store_true", help="only the steps that the earlier commit had")
    parser.add_argument("--weights", type=Path, help="a folder of state dicts (MODEL.pt) instead of trainings")
    parser.add_argument("--beside", type=Path, help="that commit's packages (its build/nest): both run in turns")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "analyses.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    APART.watch()
    stored = json.loads((RESULTS / "analyses_before.json").read_text())
    before = {(row["model"], row["step"]): row["in_floors"] for row in stored["rows"]}
    kept = json.loads(options.out.read_text()) if options.out.is_file() else {"rows": []}
    if options.beside is not None:
        turns = [in_turns(options.beside, name, make_task("digits"), options.repeats) for name in options.only]
        print(*map(json.dumps, turns), sep="\n")
        others = [row for row in kept.get("beside", []) if row["model"] not in options.only]
        options.out.write_text(json.dumps({**kept, "beside": others + turns}, indent=1) + "\n")
        return
    task, common = make_task("digits"), frozenset(step for _, step in before) if options.common else None
    rows = [row for row in kept["rows"] if row["model"] not in options.only]
    rows += [row for name in options.only for row in typical(name, task, options.repeats, common, options.weights)]
    machine = {"processor": platform.processor() or platform.machine(), "numpy": np.__version__}
    document = {**kept, "machine": machine, "rows": rows, "models": compared(rows, before)}
    options.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
