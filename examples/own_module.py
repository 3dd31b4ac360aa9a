"""Certify a module class of your own through an adapter that states its equations.

Run it with ``python examples/own_module.py``.
"""

from __future__ import annotations

import torch
from torch import nn

from stability import certify, verify
from stability.models import as_array, from_rows, register_adapter
from stability.systems import DrivenSystem, LureSystem


class RowRNN(nn.Module):
    """A Lipschitz RNN in row-vector convention: ``h + eps (h @ A + tanh(h @ W + encoder(x)))``."""

    def __init__(self, inputs: int, hidden: int, eps: float) -> None:
        super().__init__()
        self.encoder, self.eps = nn.Linear(inputs, hidden), eps
        self.A = nn.Parameter(0.3 * torch.randn(hidden, hidden) - 1.5 * torch.eye(hidden))
        self.W = nn.Parameter(0.15 * torch.randn(hidden, hidden))

    def step(self, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """Return the next state for an input ``(batch, inputs)`` and a state ``(batch, hidden)``."""
        return h + self.eps * (h @ self.A + torch.tanh(h @ self.W + self.encoder(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(batch, time, inputs)`` to the last state."""
        h = x.new_zeros(x.shape[0], self.A.shape[0])
        for u in x.unbind(1):
            h = self.step(u, h)
        return h


@register_adapter(RowRNN, step=RowRNN.step)  # certify runs the step beside the system
def row_rnn(m: RowRNN) -> DrivenSystem:
    """Return the map of ``forward``: transposed matrices, and its continuous part under Euler's rule."""
    flow = LureSystem.recurrent(from_rows(m.A), from_rows(m.W))
    return DrivenSystem(flow.euler(m.eps), "tanh", as_array(m.encoder.weight), as_array(m.encoder.bias))


def main() -> None:
    """Certify and verify."""
    torch.manual_seed(0)
    model = nn.ModuleDict({"rnn": RowRNN(3, 10, 0.1), "head": nn.Linear(10, 2)})  # found inside a bigger module
    certificate = certify(model)
    print(f"{certificate.verdict}: rate {certificate.rate:.4f} a step, overshoot {certificate.overshoot:.2f}")
    print("checked again by the verifier:", verify(certificate).reason)


if __name__ == "__main__":
    main()
