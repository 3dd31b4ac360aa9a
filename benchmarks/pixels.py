"""What a bounded-gain network that reads images pixel by pixel came to: clean and certified accuracy of a training.

    stability train --model bounded_gain --task digits --task-set layout=pixels --task-set size=14 --data-dir MNIST \
        --hidden 128 --set activation=abs --set start=delay_line --epochs 2 --temperature 10 --target-radius 0.2 \
        --lr 0.003 --batch-size 128 --track-every 0 --out runs/pixels
    python -m benchmarks.pixels runs/pixels --data-dir MNIST

196 steps of one pixel each. All test images; certified is what ``certified_radius`` proves of the stored weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import torch

from stability import __version__
from stability.analysis import certified_radius, make_task
from stability.models import load

RADII = (0.1, 0.2, 0.3, 0.5)


def row(run: Path, data_dir: Path | None) -> dict[str, Any]:
    """Settings and figures of a training."""
    document = json.loads((run / "run.json").read_text())
    task = make_task(document["task"]["name"], data_dir=data_dir, **document["task"]["options"])
    radii = certified_radius(load(run), *task.test)
    return {
        "model": document["model"],
        "task": {**document["task"]["options"], "train": len(task.train[0]), "test": len(task.test[0])},
        "training": document["training"],
        "seconds": round(document["result"]["seconds"], 1),
        "clean": radii.accuracy_at(0.0),
        **{f"certified at {radius}": round(radii.accuracy_at(radius), 4) for radius in RADII},
        "median radius": round(statistics.median(radii.radius.tolist()), 4),
        "gain to the logits": round(radii.gain, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "pixels.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = {"command": "python -m benchmarks.pixels RUN --data-dir MNIST", "stability": __version__}
    report |= row(options.run, options.data_dir)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
