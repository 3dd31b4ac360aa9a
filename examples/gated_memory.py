"""Train a small Mamba-2 on the characters of a text; certify its state and its memory, and shorten its memory.

    python examples/gated_memory.py runs/mamba2
    stability certify runs/mamba2/network.safetensors -o runs/mamba2/certificate.json
    stability verify runs/mamba2/certificate.json --weights runs/mamba2/network.safetensors

The script does the same in Python. Then it sets floors and certifies ``floored.safetensors``, the network with floors.

The bounds hold for every input and every length: the next norm of the network resets the inputs of a layer. The script
prints them beside the largest states on the held-out text. A floor is a lower limit of a head's steps, here the 1 %
quantile on the training text: the loss hardly changes, and every input is certainly forgotten much sooner.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from stability import certify, verify
from stability.analysis import evaluate, make_task, set_floors, train
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


def save_and_certify(model: SequenceModel, path: Path) -> Any:
    """Save a network and certify the file."""
    certificate = certify(save(model, path))
    valid = verify(certificate, weights=path).valid
    print(f"{path.name}: {certificate.verdict}, proofs checked again: {valid}")
    return certificate


def main(folder: Path) -> None:
    """Train, certify, set floors and certify again."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    task = make_task("characters", steps=128, limit=400, test_limit=20)
    layers = [Mamba2(task.input_size, WIDTH), Mamba2(WIDTH, WIDTH)]
    model = SequenceModel(layers, task.output_size, "all")
    result = train(model, task, epochs=3, batch_size=8, lr=3e-3)
    print(f"{result.history[-1].test_metric:.2f} bits per character, guessing {task.chance:.2f}")
    folder.mkdir(parents=True, exist_ok=True)
    certificate = save_and_certify(model, folder / "network.safetensors")
    for layer, reached in zip(certificate.layers, largest_states(model, task.test[0])):
        bounds, steps = layer.units("state_bound"), layer.horizons()
        print(
            f"layer {layer.layer}, {layer.type}: bounds of the heads' states at every length, and largest on the text"
        )
        for head, (bound, state, horizon) in enumerate(zip(bounds, reached.tolist(), steps)):
            print(f"  head {head}: {bound:.1f} ({state:.1f}); an input weighs at most 1 % after {horizon:,.0f} steps")
    repair = set_floors(model, task.train[0].split(50), lambda network: evaluate(network, *task.test, task)[0])
    print(f"loss on the held-out text: {repair.loss_before:.5f} nats, with floors {repair.loss_after:.5f}")
    for layer in repair.layers:
        before, after = layer.horizons_before.max(), layer.horizons_after.max()
        print(f"layer {layer.layer}: largest horizon {before:,.0f} steps, with floors {after:,.0f}")
    save_and_certify(model, folder / "floored.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/mamba2"))
