"""Train a small recurrent network on the flip-flop task and list all its fixed points.

    python examples/flip_flop.py runs/flip_flop

Each of two inputs is a rare pulse of +1 or -1; each output is the last pulse of its input. Two bits have four values,
so the trained network needs four stable fixed points under the input 0. Saddles between them decide which memory a
disturbed state returns to. With four units the list is proved complete: there are no other fixed points.

Source of the task: D. Sussillo, O. Barak, "Opening the black box", Neural Computation 25 (2013).
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from matplotlib import pyplot
from torch import Tensor, nn

import stability.models  # noqa: F401  (lets fixed_points read torch modules)
from stability import fixed_points

BITS, UNITS, STEPS = 2, 4, 30


def flip_flop(batch: int) -> tuple[Tensor, Tensor]:
    """Return pulses and the values to remember, both ``(batch, steps, bits)``."""
    pulses = (torch.rand(batch, STEPS, BITS) < 0.1).float() * (2.0 * torch.randint(0, 2, (batch, STEPS, BITS)) - 1.0)
    pulses[:, 0] = 2.0 * torch.randint(0, 2, (batch, BITS)) - 1.0
    last = torch.where(pulses != 0, torch.arange(STEPS)[None, :, None], 0).cummax(dim=1).values
    return pulses, pulses.gather(1, last)


def main(folder: Path) -> None:
    """Train the network, print its fixed points and draw them."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rnn, head = nn.RNN(BITS, UNITS, batch_first=True), nn.Linear(UNITS, BITS)
    optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=2e-2)
    for step in range(601):
        pulses, values = flip_flop(64)
        outputs = head(rnn(pulses)[0])
        loss = nn.functional.mse_loss(outputs, values)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)
        optimizer.step()
        if step % 200 == 0:
            right = (outputs.sign() == values).float().mean().item()
            print(f"step {step}: {right:.1%} of the values right")
    found = fixed_points(rnn)
    print(f"{len(found.points)} fixed points, no others: {found.complete}")
    for point in found.equilibria:
        value = head(torch.tensor(point.state, dtype=torch.float32)).detach()
        slowest = float(abs(point.time_constants).max())
        print(f"{point.type:9s} remembers ({value[0]:+.2f}, {value[1]:+.2f}), slowest mode {slowest:.1f} steps")
    stable = found.types.count("stable")
    if stable < 2**BITS:
        raise SystemExit(f"{stable} stable fixed points cannot hold {BITS} bits: train longer")
    folder.mkdir(parents=True, exist_ok=True)
    states = rnn(flip_flop(20)[0])[0].detach().numpy()
    found.plot(trajectories=states).figure.savefig(folder / "fixed_points.png", dpi=150)
    pyplot.close()
    print(f"wrote {folder / 'fixed_points.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/flip_flop"))
