"""Train an LSTM to remember one bit, with plain PyTorch; a lasting memory excludes contraction.

Train, certify, verify::

    python examples/remember_a_bit.py runs/bit
    stability certify runs/bit/lstm.pt --input-box -1 1 -o runs/bit/certificate.json    # refuted, exit code 3
    stability verify runs/bit/certificate.json                                            # the witness is proved

The first input is +1 or -1, all others are 0; at the end the network outputs the first one. To hold the bit, the
trained cell has two equilibria under the input 0: two trajectories that never approach each other.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn


def main(folder: Path) -> None:
    """Train the network and save its weights."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    lstm, head = nn.LSTM(1, 8, batch_first=True), nn.Linear(8, 1)
    optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()], lr=2e-2)
    for step in range(401):
        steps = 3 + step // 12  # the memory grows with the distance that it has to bridge
        bit = torch.randint(0, 2, (64, 1)).float()
        x = torch.zeros(64, steps, 1)
        x[:, 0] = 2 * bit - 1
        logit = head(lstm(x)[0][:, -1])
        loss = nn.functional.binary_cross_entropy_with_logits(logit, bit)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(lstm.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 0:
            right = ((logit > 0) == (bit > 0)).float().mean().item()
            print(f"step {step}, {steps} steps to remember: right in {right:.0%}")
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(lstm.state_dict(), folder / "lstm.pt")
    print(f"wrote {folder / 'lstm.pt'}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/bit"))
