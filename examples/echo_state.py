"""Echo state network with a stability proof: fixed random recurrent weights, and a read-out by least squares.

Train the read-out and certify the reservoir::

    python examples/echo_state.py runs/echo
    stability certify runs/echo/reservoir.safetensors

The task is to recall the input of some steps ago. The recurrence is an orthogonal matrix times 0.97, which makes the
echo state property a theorem: two reservoirs under the same input come together from any initial states. The read-out
is least squares by QR (``stability.models.lstsq``), block by block.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from stability import certify
from stability.analysis import fit_readout, task_from_arrays
from stability.models import EchoStateRNN, SequenceModel, save

DELAYS = (1, 5, 10, 20)


def recall(n: int = 40, steps: int = 200, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Return white noise and, as targets, its values some steps ago."""
    x = torch.rand(n, steps, 1, generator=torch.Generator().manual_seed(seed)) - 0.5
    return x, torch.cat([torch.nn.functional.pad(x, (0, 0, d, 0))[:, :steps] for d in DELAYS], dim=-1)


def main(folder: Path) -> None:
    """Train the read-out and certify the reservoir."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y = recall()
    task = task_from_arrays(x, y, held_out=0.25)
    model = SequenceModel(EchoStateRNN(1, 60, radius=0.97, input_scale=0.3), len(DELAYS), "all")
    solved = fit_readout(model, task, ridge=1e-10, washout=max(DELAYS))
    print(f"{solved.rows} equations, {solved.features} unknowns; share of the variance left on held-out sequences:")
    with torch.no_grad():
        x_test, y_test = task.test
        left = (model(x_test) - y_test)[:, max(DELAYS) :].square().mean((0, 1)) / y_test.var()
    print(", ".join(f"{d} steps ago: {float(e):.4f}" for d, e in zip(DELAYS, left)))
    certificate = certify(model, rate=0.971)
    print(f"{certificate.verdict}: differences shrink at least by the factor {certificate.rate:.3f} a step")
    folder.mkdir(parents=True, exist_ok=True)
    save(model, folder / "reservoir.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/echo"))
