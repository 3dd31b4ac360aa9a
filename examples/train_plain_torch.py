"""Train a tanh RNN with plain PyTorch, without this toolkit, and save its weights.

Train, certify, verify::

    python examples/train_plain_torch.py runs/plain
    stability certify runs/plain/rnn.pt --cell rnn_tanh -o runs/plain/certificate.json
    stability verify runs/plain/certificate.json

The task: the running mean of a noisy signal. After every step of the optimizer the recurrent matrix is scaled back
to a norm of 0.95, so the network contracts. Without this scaling it usually does not.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn


class Smoother(nn.Module):
    """A tanh RNN with a linear head at every step."""

    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        self.rnn = nn.RNN(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, time, 1)`` to ``(batch, time, 1)``."""
        return self.head(self.rnn(x)[0])


def main(folder: Path) -> None:
    """Train the network and save its weights."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Smoother()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for step in range(301):
        x = torch.randn(64, 30, 1) + torch.randn(64, 1, 1)
        mean = x.cumsum(1) / torch.arange(1, 31).view(1, 30, 1)
        loss = nn.functional.mse_loss(model(x), mean)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            W = model.rnn.weight_hh_l0
            W.mul_((0.95 / torch.linalg.matrix_norm(W, 2)).clamp(max=1.0))
        if step % 100 == 0:
            print(f"step {step}: mean squared error {loss.item():.4f}")
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "rnn.pt")
    print(f"wrote {folder / 'rnn.pt'}; norm of the recurrent matrix {torch.linalg.matrix_norm(W, 2).item():.6f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/plain"))
