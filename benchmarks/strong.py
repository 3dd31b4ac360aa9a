"""The report's default attack against the one that it replaces, on the networks of a report: strength and time.

    stability report --out REPORT
    OMP_NUM_THREADS=1 python -m benchmarks.strong REPORT

For every network and norm, at the radii of the full report on as many sequences: the accuracy that PGD leaves (7 steps,
one random start, cross entropy), that DeepFool leaves, and that the strong attack leaves, which begins with DeepFool's
points. Processor seconds of each, in the same run. ``results/strong.json`` is the row that is kept.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from stability.analysis import attack_sweep, deepfool, make_task
from stability.analysis.campaign.budgets import BUDGETS
from stability.models import load

RESULTS = Path(__file__).parent / "results" / "strong.json"
STEPS = 7  # of PGD before


def timed(function: Callable[..., Any], *args: Any, **told: Any) -> tuple[Any, float]:
    """What a call gives, and its processor seconds."""
    start = time.process_time()
    return function(*args, **told), time.process_time() - start


def compared(folder: Path, x: torch.Tensor, y: torch.Tensor, bounds: Any) -> list[dict[str, Any]]:
    """A row a norm."""
    loaded, budget, rows = load(folder), BUDGETS["full"], []
    model = getattr(loaded, "model", loaded)
    for norm, sizes in (("linf", budget.epsilons_linf), ("l2", budget.epsilons_l2)):
        told: dict[str, Any] = {"epsilons": sizes, "norm": norm, "bounds": bounds}
        before, by_pgd = timed(attack_sweep, model, x, y, attack="pgd", steps=STEPS, **told)
        near, by_deepfool = timed(deepfool, model, x, y, norm=norm, bounds=bounds)
        own = {"steps": budget.steps, "starts": budget.starts}
        found, by_strong = timed(attack_sweep, model, x, y, attack="strong", near=near, **own, **told)
        other = attack_sweep(model, x, y, attack="deepfool", near=near, **told)
        rows.append(
            {
                "model": folder.name, "norm": norm, "epsilons": list(sizes), "n": len(x),
                "pgd": before.accuracy, "deepfool": other.accuracy, "strong": found.accuracy,
                "seconds": {"pgd": by_pgd, "deepfool": by_deepfool, "strong": by_strong},
            }
        )  # fmt: skip
    return rows


def main() -> None:
    """Compare on every network of a report, and keep the row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", type=Path, help="a report's folder, whose networks were trained on the default task")
    report = parser.parse_args().report
    torch.set_num_threads(1)
    task = make_task("digits")
    x, y = (part[: BUDGETS["full"].attacked] for part in task.test)
    rows = [row for f in sorted((report / "models").iterdir()) for row in compared(f, x, y, task.bounds)]
    total = {name: sum(row["seconds"][name] for row in rows) for name in ("pgd", "deepfool", "strong")}
    weaker = sum(
        mine > min(theirs, others)
        for row in rows
        for mine, theirs, others in zip(row["strong"], row["pgd"], row["deepfool"])
    )
    document = {
        "weaker": weaker,
        "radii": sum(len(row["strong"]) for row in rows),
        "seconds": total,
        "of_pgd": total["strong"] / total["pgd"],
        "of_the_step": (total["deepfool"] + total["strong"]) / (total["deepfool"] + total["pgd"]),
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    for row in rows:
        shown = (f"{name} " + " ".join(f"{100 * v:5.1f}" for v in row[name]) for name in ("pgd", "deepfool", "strong"))
        print(f"{row['model']:18} {row['norm']:5}", " | ".join(shown))
    print(f"weaker than either at {weaker} of {document['radii']} radii; time {document['of_pgd']:.2f} of PGD's")


if __name__ == "__main__":
    main()
