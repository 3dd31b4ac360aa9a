"""Speed of the linear scans, forward and backward, against loops over time and an FFT convolution.

    python -m benchmarks.scan                            # some minutes on a quiet machine
    python -m benchmarks.scan --lengths 1024 4096 --rounds 3
    python -m benchmarks.scan --device cuda

The state is 256 float32 numbers: 256 real factors (``real``), 128 complex ones (``complex``, as in LRU) or 128
rotations (``rotation``, as in RotRNN). Peers: the loop over time as one writes it (``loop``) and with one fused
operation a step (``fused loop``), both through autograd, an FFT convolution, and the general ``associative_scan``.

The script starts itself again with PyTorch's huge pages and with glibc keeping freed memory, for all variants alike:
fresh pages can take longer than the arithmetic on virtual machines. ``--fresh-pages`` leaves the allocator alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor

from stability.models import associative_scan, diagonal_convolution, diagonal_scan, rotation_scan

from .timing import arguments, keep

KEEP_PAGES = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
STATE = 256
LARGEST = 16 * 16384  # steps times batch
GENERAL = 70_000  # the same for associative_scan


def affine(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return a[0] * b[0], b[0] * a[1] + b[1]


def plain_loop(lam: Tensor, b: Tensor) -> Tensor:
    """The loop as one writes it; indexing ``b[:, t]`` instead would make its backward quadratic in time."""
    state, out = torch.zeros_like(b[:, 0]), []
    for drive in b.unbind(1):
        state = lam * state + drive
        out.append(state)
    return torch.stack(out, 1)


def fused_loop(lam: Tensor, b: Tensor) -> Tensor:
    """The loop with one fused operation a step: as fast as a loop of PyTorch operations gets."""
    state, out = torch.zeros_like(b[:, 0]), []
    for drive in b.unbind(1):
        state = torch.addcmul(drive, lam, state)
        out.append(state)
    return torch.stack(out, 1)


def rotation_loop(gamma: Tensor, theta: Tensor, b: Tensor) -> Tensor:
    """The loop of the paper's step in real numbers; cosines, sines and products with gamma once."""
    cos, sin = gamma[:, None] * torch.cos(theta), gamma[:, None] * torch.sin(theta)
    x, y, out = torch.zeros_like(b[:, 0, :, 0::2]), torch.zeros_like(b[:, 0, :, 1::2]), []
    for first, second in zip(b[..., 0::2].unbind(1), b[..., 1::2].unbind(1)):
        x, y = first + cos * x - sin * y, second + sin * x + cos * y
        out.append(torch.stack([x, y], -1))
    return torch.stack(out, 1).flatten(-2)


def rotation_convolution(gamma: Tensor, theta: Tensor, b: Tensor) -> Tensor:
    z = pairs(b)
    lam = torch.polar(gamma[:, None].expand_as(theta).contiguous(), theta)
    return torch.view_as_real(diagonal_convolution(lam, z)).flatten(-2)


def variants(kind: str) -> dict[str, Callable[..., Tensor]]:
    if kind == "rotation":
        return {"scan": rotation_scan, "loop": rotation_loop, "fft": rotation_convolution}
    return {
        "scan": diagonal_scan,
        "loop": plain_loop,
        "fused loop": fused_loop,
        "fft": diagonal_convolution,
        "associative_scan": lambda lam, b: associative_scan(affine, (lam.expand_as(b), b))[1],
    }


def inputs(kind: str, batch: int, steps: int, device: str) -> tuple[list[Tensor], Tensor]:
    generator = torch.Generator().manual_seed(0)
    gamma = 0.9 + 0.099 * torch.rand(STATE if kind == "real" else 1, generator=generator)
    theta = 3.0 * torch.rand(1, STATE // 2, generator=generator)
    shape = (batch, steps, 1, STATE) if kind == "rotation" else (batch, steps, STATE)
    b, weight = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    own = [gamma, theta, b] if kind == "rotation" else [gamma, b]
    if kind == "complex":
        own = [torch.polar(gamma.expand(STATE // 2).contiguous(), theta[0]), pairs(b)]
        weight = pairs(weight)
    return [t.to(device).requires_grad_() for t in own], weight.to(device)


def pairs(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def one_pass(run: Callable[..., Tensor], own: list[Tensor], weight: Tensor) -> float:
    """Return the seconds of one forward and backward pass."""
    if weight.is_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    torch.autograd.grad(run(*own), own, weight)
    if weight.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def fastest_pass(run: Callable[..., Tensor], own: list[Tensor], weight: Tensor) -> float:
    """Return the seconds of the fastest of the passes that fit into 30 ms."""
    began = time.perf_counter()
    best = one_pass(run, own, weight)
    while time.perf_counter() - began < 0.03:
        best = min(best, one_pass(run, own, weight))
    return best


def case(kind: str, batch: int, steps: int, device: str, rounds: int, budget: float) -> dict[str, Any]:
    """Time all variants in turns, each for at most ``budget`` seconds."""
    own, weight = inputs(kind, batch, steps, device)
    runs = {k: run for k, run in variants(kind).items() if k != "associative_scan" or batch * steps <= GENERAL}
    first = {name: fastest_pass(run, own, weight) for name, run in runs.items()}  # warm-up
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            if sum(times[name]) <= budget:
                times[name].append(fastest_pass(run, own, weight))
    best = {name: min(values or [first[name]]) for name, values in times.items()}
    faster = {name: seconds / best["scan"] for name, seconds in best.items() if name != "scan"}
    milliseconds = {name: 1e3 * seconds for name, seconds in best.items()}
    row = {"case": kind, "batch": batch, "steps": steps, "device": device}
    return {**row, "milliseconds": milliseconds, "faster_than": faster}


def main() -> None:
    parser = arguments(__doc__, "scan")
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096, 16384, 65536])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=4.0, help="seconds for each variant of a case")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--fresh-pages", action="store_true", help="leave the memory allocator alone")
    options = parser.parse_args()
    if not options.fresh_pages and not KEEP_PAGES.keys() <= os.environ.keys():
        os.execve(sys.executable, sys.orig_argv, {**KEEP_PAGES, **os.environ})
    torch.set_num_threads(options.threads)
    for kind, batch, steps in product(("real", "complex", "rotation"), options.batches, options.lengths):
        if batch * steps <= LARGEST:
            row = case(kind, batch, steps, options.device, options.rounds, options.budget)
            keep(options.out, row, "case", "batch", "steps", "device")


if __name__ == "__main__":
    main()
