"""Forward and backward pass of a bounded-gain layer against an Elman RNN of its size.

    python -m benchmarks.bounded_gain

Medians of processor seconds on one thread.
"""

from __future__ import annotations

import statistics

import torch
from torch import Tensor, nn

from stability.models import BoundedGainRNN, ElmanRNN

from .timing import arguments, in_turns, keep

SIZES = ((64, 28, 28, 128), (128, 28, 28, 256), (256, 28, 28, 256))
"""Hidden units, features, steps and batch."""


def backward(layer: nn.Module, x: Tensor) -> None:
    """Carry out one forward and one backward pass."""
    layer(x)[0].square().sum().backward()


def main() -> None:
    parser = arguments(__doc__, "bounded_gain")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for hidden, features, steps, batch in SIZES:
        torch.manual_seed(0)
        x, layers = torch.randn(batch, steps, features), {"elman": ElmanRNN(features, hidden)}
        layers["torch.nn.RNN"] = nn.RNN(features, hidden, batch_first=True)
        layers |= {a: BoundedGainRNN(features, hidden, activation=a) for a in ("maxmin", "abs", "householder")}
        calls = {name: (lambda layer=layer, x=x: backward(layer, x)) for name, layer in layers.items()}
        median = {name: statistics.median(times) for name, times in in_turns(calls, options.rounds).items()}
        row = {"hidden": hidden, "features": features, "steps": steps, "batch": batch}
        row["milliseconds"] = {name: 1e3 * value for name, value in median.items()}
        keep(options.out, {**row, "of_elman": {k: v / median["elman"] for k, v in median.items()}}, "hidden")


if __name__ == "__main__":
    main()
