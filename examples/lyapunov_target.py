"""Train networks towards a given largest Lyapunov exponent.

Train three networks and measure their exponents, then certify them::

    python examples/lyapunov_target.py runs/exponents
    stability report runs/exponents/plain runs/exponents/forgets runs/exponents/edge

The exponent is the mean rate at which neighboring states separate. Below zero they approach each other; at zero they
keep their distance. The exponent is differentiable through a QR factorization, so training can hold it at a target, at
some cost in accuracy. A certificate is stronger: it is about all trajectories.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from stability.analysis import lyapunov_exponents, make_task, train
from stability.models import ElmanRNN, SequenceModel

TARGETS = {"plain": None, "forgets": -0.7, "edge": 0.0}


def main(folder: Path) -> None:
    """Train and measure."""
    torch.set_num_threads(1)
    task = make_task("digits", size=14, limit=300, test_limit=200)
    for name, target in TARGETS.items():
        torch.manual_seed(0)
        model = SequenceModel(ElmanRNN(task.input_size, 16), task.output_size)
        options = {} if target is None else {"lyapunov_target": target, "lyapunov_weight": 5.0}
        result = train(model, task, epochs=6, lr=2e-2, batch_size=50, out=folder / name, overwrite=True, **options)
        exponent = lyapunov_exponents(model, task.test[0][:50], 1, skip=1).largest
        asked = "no target" if target is None else f"target {target:+.1f}"
        print(f"{name} ({asked}): exponent {exponent:+.2f} a step, accuracy {result.test_metric:.0%}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/exponents"))
