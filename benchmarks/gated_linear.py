"""Gated linear recurrences: speed of a training step against loops over time and against ``transformers``.

    python -m benchmarks.gated_linear
    python -m benchmarks.gated_linear --fresh-pages

``training_step`` runs a block of Mamba-2 at width 256 on one sequence of 4,096 steps, forward and backward, with the
published sizes (8 heads of 64 values, 128 state entries) and with the default ones (4 heads of 128 values, 16 state
entries). Its peers: the block step by step, as ``RecurrentLayer`` runs every layer without a scan (``loop``); the block
with a loop for the recurrence alone, three fused operations a step (``fused loop``); and the block with the mixer of
``transformers`` and the same weights, if it is installed. Loops keep every state for the backward pass, here 1 GiB.

The script starts itself again with glibc keeping freed memory, for all variants alike; see ``benchmarks.scan``.
``--fresh-pages`` leaves the allocator alone, as most programs do: fresh pages then cost the loops most of their time on
virtual machines.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from stability.models import Mamba2, RecurrentLayer

from .scan import KEEP_PAGES
from .timing import arguments, in_turns, keep

WIDTH, STEPS = 256, 4096
SIZES = {
    "published": {"heads": 8, "groups": 1, "state_size": 128},
    "default": {"heads": 4, "groups": 1, "state_size": 16},
}


def fused_loop(mixer: Any, u: Tensor) -> Tensor:
    """Run the mixer with everything in one piece except the recurrence."""
    z, new, gates = mixer.parts(mixer.project(u))
    convolved = nn.functional.silu(mixer.conv1d(new, mixer.conv1d.window(u))[0])
    q, k, v, log_decay, beta = mixer.terms(convolved, gates)
    values, decay = (beta.unsqueeze(-1) * v).unsqueeze(3), log_decay.exp()[..., None, None]
    state, read = u.new_zeros(len(u), *mixer.shape), []
    for query, key, value, factor in zip(*(x.unbind(1) for x in (q, k, values, decay))):
        state = torch.addcmul(key.unsqueeze(-1) * value, factor, state)
        read.append((query.unsqueeze(2) @ state).squeeze(2))
    return mixer.output(torch.stack(read, 1), v, z)


def transformers_mixer(mixer: nn.Module, heads: int, groups: int, state_size: int) -> nn.Module | None:
    """Return the mixer of ``transformers`` with the same weights, or ``None`` where it is not installed."""
    try:
        from transformers.models.mamba2.modeling_mamba2 import Mamba2Config, Mamba2Mixer
    except ImportError:
        return None
    sizes = {"num_heads": heads, "head_dim": 2 * WIDTH // heads, "n_groups": groups, "state_size": state_size}
    theirs = Mamba2Mixer(Mamba2Config(hidden_size=WIDTH, num_hidden_layers=1, **sizes), 0)
    theirs.load_state_dict(mixer.state_dict())
    return theirs


def training_step(sizes: str, rounds: int) -> dict[str, Any]:
    """Measure a forward and backward pass of each variant; return processor seconds and ratios."""
    torch.manual_seed(0)
    layer, x = Mamba2(WIDTH, WIDTH, **SIZES[sizes]), torch.randn(1, STEPS, WIDTH)
    runs: dict[str, Callable[[], Tensor]] = {
        "chunks": lambda: layer(x)[0],
        "loop": lambda: RecurrentLayer.forward(layer, x)[0],
        "fused loop": lambda: x + fused_loop(layer.mixer, layer.norm(x)),
    }
    theirs = transformers_mixer(layer.mixer, **SIZES[sizes])
    if theirs is not None:
        runs["transformers"] = lambda: x + theirs(layer.norm(x))
    expected = runs["chunks"]().detach()
    apart = max(float((run().detach() - expected).abs().max()) for run in runs.values())
    steps = {name: lambda run=run: run().square().sum().backward() for name, run in runs.items()}
    best = {name: min(seconds) for name, seconds in in_turns(steps, rounds).items()}
    ratios = {name: seconds / best["chunks"] for name, seconds in best.items() if name != "chunks"}
    row = {"case": f"training step of mamba2, {sizes} sizes", "width": WIDTH, "steps": STEPS, **SIZES[sizes]}
    return {**row, "seconds": best, "faster_than": ratios, "largest_difference": apart}


def main() -> None:
    parser = arguments(__doc__, "gated_linear")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--fresh-pages", action="store_true", help="leave the memory allocator alone")
    options = parser.parse_args()
    if not options.fresh_pages and not KEEP_PAGES.keys() <= os.environ.keys():
        os.execve(sys.executable, sys.orig_argv, {**KEEP_PAGES, **os.environ})
    torch.set_num_threads(options.threads)
    for sizes in SIZES:
        row = training_step(sizes, options.rounds)
        keep(options.out, {**row, "fresh_pages": options.fresh_pages}, "case", "fresh_pages")


if __name__ == "__main__":
    main()
