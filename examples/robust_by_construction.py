"""Train a classifier and an observer of bounded gain, and compare certified with attacked accuracy.

Train, certify and attack, then verify the proof::

    python examples/robust_by_construction.py runs/robust
    stability certify runs/robust/bounded_gain -o runs/robust/certificate.json
    stability verify runs/robust/certificate.json

A ``BoundedGainRNN`` moves its state by no more than its gain times the l2 norm of a change of the input sequence, for
every value of its parameters, so the margin of a decision is a certified radius. An Elman RNN of the same size is
trained beside it, and attacked as well.

The second part estimates the state of a damped pendulum from noisy measurements of its angle. A disturbance of the
measurements moves the estimate by at most the proven gain times its size. ``observer.svg`` shows the states, their
estimates, and those under the disturbance; ``observer.csv`` holds them.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from stability import incremental_gain
from stability.analysis import attack_sweep, certified_radius, make_task, train
from stability.models import BoundedGainRNN, ElmanRNN, SequenceModel

RADIUS = 0.5


def classify(folder: Path) -> None:
    """Measure clean, attacked and certified accuracy of both networks on digits."""
    task = make_task("digits", limit=1500, test_limit=200)
    x, y = task.test
    options = {"epochs": 8, "batch_size": 50, "lr": 5e-3, "schedule": "cosine", "warm_up": 0.3, "overwrite": True}
    layers = {"elman": ElmanRNN(task.input_size, 32), "bounded_gain": BoundedGainRNN(task.input_size, 32)}
    for name, layer in layers.items():
        model = SequenceModel(layer, task.output_size)
        own = {"temperature": 5.0, "objective": "certified", "target_radius": 0.3} if name == "bounded_gain" else {}
        train(model, task, out=folder / name, **options, **own)
        radii = certified_radius(model, x, y)
        attacked = attack_sweep(model, x, y, epsilons=[RADIUS], norm="l2", steps=10).accuracy[0]
        print(
            f"{name}: {radii.accuracy_at(0.0):.0%} clean, {attacked:.0%} under attacks of l2 radius {RADIUS}, "
            f"{radii.accuracy_at(RADIUS):.0%} certified there"
        )


def pendulum(steps: int, pushes: Tensor) -> Tensor:
    """Return angle and speed ``(batch, steps, 2)`` of damped pendulums under a torque ``(batch, steps)``."""
    angle, speed = torch.zeros(len(pushes)), torch.zeros(len(pushes))
    states = []
    for push in pushes.unbind(1)[:steps]:
        speed = speed + 0.1 * (-torch.sin(angle) - 0.5 * speed + push)
        angle = angle + 0.1 * speed
        states.append(torch.stack([angle, speed], 1))
    return torch.stack(states, 1)


def observe(folder: Path) -> None:
    """Train an observer of bounded gain on simulated pendulums; compare its measured gain with the proven one."""
    generator = torch.Generator().manual_seed(0)
    pushes = torch.randn(64, 12, generator=generator).repeat_interleave(10, 1)
    states = pendulum(120, pushes)
    measured = states[..., :1] + 0.1 * torch.randn(64, 120, 1, generator=generator)
    observer = SequenceModel(BoundedGainRNN(1, 16, gain=1.0, rate=0.95), 2, reduction="all")
    optimizer = torch.optim.Adam(observer.parameters(), 1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        loss = (observer(measured[:48]) - states[:48]).square().mean()
        loss.backward()
        optimizer.step()
    gain = incremental_gain(observer.layer, output=observer.head.weight.detach()).value
    with torch.no_grad():
        estimate = observer(measured[48:])
        left = (estimate - states[48:]).square().mean() / states[48:].var()
        disturbed = observer(measured[48:] + 0.5 * torch.sin(0.3 * torch.arange(120.0))[None, :, None])
        size = math.sqrt(sum(0.25 * math.sin(0.3 * t) ** 2 for t in range(120)))
        ratio = float((disturbed - estimate).flatten(1).norm(dim=1).max()) / size
    print(f"observer: {1 - left:.0%} of the variance; a sine on what it reads: ratio {ratio:.2f}, proved: {gain:.2f}")
    names = [f"{kind}{what}" for kind in ("", "estimated ", "disturbed ") for what in ("angle", "speed")]
    table = pd.DataFrame(torch.cat([states[48], estimate[0], disturbed[0]], 1).numpy().round(4), columns=names)
    table.to_csv(folder / "observer.csv", index_label="step")
    figure = Figure(figsize=(8, 5), layout="constrained")
    for axes, what in zip(figure.subplots(2, 1, sharex=True), ("angle", "speed")):
        for kind, style in (("", "k-"), ("estimated ", "C0--"), ("disturbed ", "C1:")):
            axes.plot(table.index, table[f"{kind}{what}"], style, label=f"{kind}{what}")
        axes.set_ylabel(what)
        axes.legend(loc="upper right")
    axes.set_xlabel("step")
    figure.savefig(folder / "observer.svg")


def main(folder: Path) -> None:
    """Run both parts."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    classify(folder)
    observe(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/robust"))
