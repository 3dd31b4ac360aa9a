"""Gated linear recurrences: speed of a training step against the loop over time and against ``transformers``.

    python -m benchmarks.gated_linear

``training_step`` runs the mixer of Mamba-2 at width 256 (8 heads of 64 values, 128 state entries) on one sequence of
4,096 steps, forward and backward. Its peers are the same mixer with a loop over time for the state alone, through
autograd, and the mixer of ``transformers`` with the same weights, if it is installed.

The script starts itself again with glibc keeping freed memory, for all variants alike; see ``benchmarks.scan``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stability.models import Mamba2

from .scan import KEEP_PAGES
from .timing import arguments, in_turns, keep

WIDTH, STEPS = 256, 4096
SIZES = {"heads": 8, "groups": 1, "state_size": 128}


def loop_of_states(mixer: Any, u: Tensor) -> Tensor:
    """Run the mixer with everything in one piece except the recurrence, three fused operations a step."""
    z, new, gates = mixer.parts(mixer.project(u))
    convolved = nn.functional.silu(mixer.conv1d(new, mixer.conv1d.window(u))[0])
    q, k, v, log_decay, beta = mixer.terms(convolved, gates)
    values, decay = (beta.unsqueeze(-1) * v).unsqueeze(3), log_decay.exp()[..., None, None]
    state, read = u.new_zeros(len(u), *mixer.shape), []
    for query, key, value, factor in zip(*(x.unbind(1) for x in (q, k, values, decay))):
        state = torch.addcmul(key.unsqueeze(-1) * value, factor, state)
        read.append((query.unsqueeze(2) @ state).squeeze(2))
    return mixer.output(torch.stack(read, 1), v, z)


def transformers_mixer(mixer: nn.Module) -> nn.Module | None:
    """Return the mixer of ``transformers`` with the same weights, or ``None`` where it is not installed."""
    try:
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Config, Mamba2Mixer
    except ImportError:
        return None
    heads, groups, state = SIZES.values()
    sizes = {"num_heads": heads, "head_dim": 2 * WIDTH // heads, "n_groups": groups, "state_size": state}
    theirs = Mamba2Mixer(Mamba2Config(hidden_size=WIDTH, num_hidden_layers=1, **sizes), 0)
    theirs.load_state_dict(mixer.state_dict())
    return theirs


def training_step(rounds: int) -> dict[str, Any]:
    """Measure a forward and backward pass of each mixer; return processor seconds and ratios."""
    torch.manual_seed(0)
    mixer = Mamba2(WIDTH, WIDTH, **SIZES).mixer
    u = torch.randn(1, STEPS, WIDTH)
    runs: dict[str, Callable[[], Tensor]] = {"chunks": lambda: mixer(u)[0], "loop": lambda: loop_of_states(mixer, u)}
    theirs = transformers_mixer(mixer)
    if theirs is not None:
        runs["transformers"] = lambda: theirs(u)
    expected = runs["chunks"]().detach()
    apart = {name: float((run().detach() - expected).abs().max()) for name, run in runs.items()}
    steps = {name: lambda run=run: run().square().sum().backward() for name, run in runs.items()}
    best = {name: min(seconds) for name, seconds in in_turns(steps, rounds).items()}
    ratios = {name: seconds / best["chunks"] for name, seconds in best.items() if name != "chunks"}
    row = {"case": "training step of mamba2", "width": WIDTH, "steps": STEPS, **SIZES}
    return {**row, "seconds": best, "faster_than": ratios, "largest_difference": max(apart.values())}


def main() -> None:
    parser = arguments(__doc__, "gated_linear")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if not KEEP_PAGES.keys() <= os.environ.keys():
        os.execve(sys.executable, sys.orig_argv, {**KEEP_PAGES, **os.environ})
    torch.set_num_threads(options.threads)
    keep(options.out, training_step(options.rounds), "case")


if __name__ == "__main__":
    main()
