"""Train a small Mamba-2 on the characters of a text, and certify the size of its state and how long it remembers.

    python examples/gated_memory.py runs/mamba2
    stability certify runs/mamba2/network.safetensors -o runs/mamba2/certificate.json
    stability verify runs/mamba2/certificate.json --weights runs/mamba2/network.safetensors

The bounds hold for every input and every length: the next norm of the network resets the inputs of a layer. The script
prints them beside the largest states on the held-out text.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from stability import certify, verify
from stability.analysis import make_task, train
from stability.models import Mamba2, SequenceModel, save

WIDTH = 32


def largest_states(model: SequenceModel, x: torch.Tensor) -> list[torch.Tensor]:
    """Return the largest Frobenius norm of every head's state on ``x``, for each layer."""
    found = []
    with torch.no_grad():
        for layer in (part for part in model.modules() if isinstance(part, Mamba2)):
            h = layer.states(x).unflatten(-1, (layer.heads, -1))
            found.append(h.norm(dim=-1).amax((0, 1)))
            x = layer(x)[0]
    return found


def main(folder: Path) -> None:
    """Train, certify and compare."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    task = make_task("characters", steps=128, limit=400, test_limit=20)
    layers = [Mamba2(task.input_size, WIDTH), Mamba2(WIDTH, WIDTH)]
    model = SequenceModel(layers, task.output_size, "all")
    result = train(model, task, epochs=3, batch_size=8, lr=3e-3)
    print(f"{result.history[-1].test_metric:.2f} bits per character, guessing {task.chance:.2f}")
    folder.mkdir(parents=True, exist_ok=True)
    path = save(model, folder / "network.safetensors")
    certificate = certify(path)
    valid = verify(certificate, weights=path).valid
    print(f"{certificate.verdict}, proofs checked again: {valid}")
    for layer, reached in zip(certificate.layers, largest_states(model, task.test[0])):
        bounds, steps = layer.units("state_bound"), layer.horizons()
        print(
            f"layer {layer.layer}, {layer.type}: bounds of the heads' states at every length, and largest on the text"
        )
        for head, (bound, state, horizon) in enumerate(zip(bounds, reached.tolist(), steps)):
            print(f"  head {head}: {bound:.1f} ({state:.1f}); an input weighs at most 1 % after {horizon:,.0f} steps")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/mamba2"))
