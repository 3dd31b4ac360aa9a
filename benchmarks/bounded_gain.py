"""What a prescribed gain costs: forward and backward of a bounded-gain layer against an Elman RNN of its size.

    python -m benchmarks.bounded_gain

A batch of sequences as training has them, rounds by turns so that a busy machine slows both alike, medians of processor
seconds on one thread.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stability import __version__
from stability.models import BoundedGainRNN, ElmanRNN

SIZES = ((64, 28, 28, 128), (128, 28, 28, 256), (256, 28, 28, 256))
"""Hidden units, features, steps and batch."""


def layers(hidden: int, features: int) -> dict[str, nn.Module]:
    """The layers that are compared, the Elman RNN first."""
    made: dict[str, nn.Module] = {"elman": ElmanRNN(features, hidden)}
    made["torch.nn.RNN"] = nn.RNN(features, hidden, batch_first=True)
    made |= {a: BoundedGainRNN(features, hidden, activation=a) for a in ("maxmin", "abs", "householder")}
    return made


def seconds(layer: nn.Module, x: Tensor) -> float:
    """Processor seconds of one forward and backward pass."""
    start = time.process_time()
    layer(x)[0].square().sum().backward()
    return time.process_time() - start


def compare(hidden: int, features: int, steps: int, batch: int, rounds: int) -> dict[str, Any]:
    """Medians of one size, and their ratios to the Elman RNN's."""
    torch.manual_seed(0)
    x, made = torch.randn(batch, steps, features), layers(hidden, features)
    times: dict[str, list[float]] = {name: [] for name in made}
    for turn in range(rounds + 2):
        for name, layer in made.items():
            spent = seconds(layer, x)
            if turn >= 2:
                times[name].append(spent)
    median = {name: statistics.median(values) for name, values in times.items()}
    return {
        "hidden": hidden, "features": features, "steps": steps, "batch": batch,
        "milliseconds": {name: round(1e3 * value, 2) for name, value in median.items()},
        "of_elman": {name: round(value / median["elman"], 2) for name, value in median.items()},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "bounded_gain.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for size in SIZES:
        rows.append(compare(*size, options.rounds))
        print(json.dumps(rows[-1]), flush=True)
    machine = {"python": platform.python_version(), "torch": torch.__version__, "stability": __version__}
    report = {"command": "python -m benchmarks.bounded_gain", "machine": machine, "rows": rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
