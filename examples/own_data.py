"""Examine a network and data of your own: a GRU classifier in plain PyTorch on simulated sensor data.

The script trains the network and saves the data for the command line::

    python examples/own_data.py runs/sensor
    cd runs/sensor && stability report own_data:load --data sensor.npz

This file is copied to the folder, too, since ``own_data:load`` imports it from there.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

WEIGHTS = Path("sensor.pt")
CLASSES = ("still", "slow", "fast")


class Sensor(nn.Module):
    """Scale three channels, run a GRU, and classify by its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(3, 4)
        self.rnn = nn.GRU(4, 8, batch_first=True)
        self.head = nn.Linear(8, len(CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, time, 3)`` to logits ``(batch, 3)``."""
        outputs, _ = self.rnn(self.scale(x))
        return self.head(outputs[:, -1])


def record(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return noisy oscillations ``x (n, 30, 3)`` in the sensor's unit, and their class of frequency ``y (n,)``."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(CLASSES), n)
    angle = 0.3 * y[:, None] * np.arange(30) + rng.uniform(0, 2 * np.pi, (n, 1))
    x = 5.0 * np.stack([np.cos(angle), np.sin(angle), np.cos(2 * angle)], axis=2) + rng.normal(size=(n, 30, 3))
    return x.astype(np.float32), y


def load() -> nn.Module:
    """Return the trained network; the command line calls this."""
    model = Sensor()
    model.load_state_dict(torch.load(WEIGHTS, weights_only=True))
    return model


def main(folder: Path) -> None:
    """Train and save the network, and measure it from Python."""
    from stability import certify
    from stability.analysis import attack_sweep, noise_sweep, norm_drift, task_from_arrays

    folder.mkdir(parents=True, exist_ok=True)
    (x, y), (x_test, y_test) = record(300, seed=0), record(100, seed=1)
    np.savez(folder / "sensor.npz", x=x, y=y, x_test=x_test, y_test=y_test, classes=np.array(CLASSES))
    torch.manual_seed(0)
    model, task = Sensor(), task_from_arrays(x, y, x_test=x_test, y_test=y_test, classes=CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(40):
        loss = task.loss(model(task.train[0]), task.train[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), folder / WEIGHTS)
    shutil.copyfile(__file__, folder / "own_data.py")
    x_held, y_held = (part[:40] for part in task.test)
    print(f"accuracy {task.metric(model(task.test[0]), task.test[1]):.3f}, guessing {task.chance:.3f}")
    print("under noise", noise_sweep(model, x_held, y_held, levels=[0, 1, 2], bounds=None).accuracy)
    attacked = attack_sweep(model, x_held, y_held, epsilons=[0, 0.5, 1], bounds=task.bounds)
    print("under attack", attacked.accuracy)
    print(f"doublings of the state's norm {norm_drift(model, x_held).drift_index:.2f}")
    print("certificate:", certify(model, time_limit=1).statement)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/sensor"))
