"""Speed of the linear scans, forward and backward, as ratios measured in one run.

    python -m benchmarks.scan                            # some minutes on a quiet machine
    python -m benchmarks.scan --quick                    # short sequences only
    python -m benchmarks.scan --jax-python PATH/python   # with JAX from another environment
    python -m benchmarks.scan --device cuda

Cases: a state of 256 float32 numbers as 256 real factors (``real``), as 128 complex ones (``complex``, the recurrence
of LRU) and as 128 real rotations (``rotation``, that of RotRNN). Against: the loop over time as one writes it
(``loop``) and with one fused operation a step (``fused loop``), both through autograd, an FFT convolution, our general
``associative_scan``, and ``jax.lax.associative_scan`` under ``jit``, with the operator of the RotRNN paper for
rotations. At batch 16 each step of a loop is 16 KB long and the scan is bound by memory: ``floor`` is the time in which
this machine only reads and writes the same arrays. All in one run on
the same inputs' sizes, in turn, round after round; the ratio is that of the medians' smallest times. Everything runs
on one thread (``--threads``); JAX runs in a process of its own that is bound to as many cores.

Fresh pages can take longer than the arithmetic (on virtual machines above all). This script starts itself again with
PyTorch's huge pages (``THP_MEM_ALLOC_ENABLE``) and with glibc keeping freed memory (``MALLOC_MMAP_MAX_=0`` and two
more), for all variants and JAX alike, as an allocator made for training does; ``--fresh-pages`` leaves both alone.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from stability.models import associative_scan, diagonal_convolution, diagonal_scan, rotation_scan

RESULTS = Path(__file__).parent / "results"
KEEP_PAGES = {
    "THP_MEM_ALLOC_ENABLE": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 33),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
STATE = 256
PATIENCE = 45.0  # seconds for JAX to compile a case and to run it once

JAX_SERVER = r"""
import json, sys, time
try:
    import jax, numpy as np
    from jax import numpy as jnp
except ImportError as error:
    print(json.dumps({"absent": str(error)}), flush=True)
    sys.exit()

def real(a, b):
    return a[0] * b[0], b[0] * a[1] + b[1]

def rotation(a, b):
    g1, t1, x1 = a
    g2, t2, x2 = b
    turned = jnp.stack([-x1[..., 1::2], x1[..., 0::2]], -1).reshape(x1.shape)
    t = jnp.repeat(t2, 2, -1)
    return g1 * g2, t1 + t2, g2 * (jnp.cos(t) * x1 + jnp.sin(t) * turned) + x2

def run_real(lam, b):
    return jax.lax.associative_scan(real, (jnp.broadcast_to(lam, b.shape), b), axis=1)[1]

def run_rotation(gamma, theta, b):
    g = jnp.broadcast_to(gamma, b.shape[:2] + (1,))
    t = jnp.broadcast_to(theta, b.shape[:2] + theta.shape)
    return jax.lax.associative_scan(rotation, (g, t, b), axis=1)[2]

def run_complex(gamma, theta, b):
    z = jax.lax.complex(b[..., 0::2], b[..., 1::2])
    lam = jnp.broadcast_to(gamma * jnp.exp(1j * theta), z.shape)
    y = jax.lax.associative_scan(real, (lam, z), axis=1)[1]
    return jnp.stack([y.real, y.imag], -1).reshape(b.shape)

print(json.dumps({"version": jax.__version__}), flush=True)
kept = (None, None)
for line in sys.stdin:
    kind, batch, steps = json.loads(line)
    if kept[0] != (kind, batch, steps):
        rng = np.random.default_rng(0)
        b = jnp.asarray(rng.normal(size=(batch, steps, 256)).astype(np.float32))
        w = jnp.asarray(rng.normal(size=(batch, steps, 256)).astype(np.float32))
        gamma = jnp.asarray(rng.uniform(0.9, 0.999, 256).astype(np.float32))
        theta = jnp.asarray(rng.uniform(0, 3, 128).astype(np.float32))
        run, args = {
            "real": (run_real, (gamma, b)),
            "rotation": (run_rotation, (gamma[:1], theta, b)),
            "complex": (run_complex, (gamma[:1], theta, b)),
        }[kind]
        step = jax.jit(lambda w, *args: (lambda y, back: (y, back(w)))(*jax.vjp(run, *args)))
        jax.block_until_ready(step(w, *args))
        kept = ((kind, batch, steps), lambda: jax.block_until_ready(step(w, *args)))
    best = spent = float("inf")
    began = time.perf_counter()
    while spent == float("inf") or spent < 0.03:
        started = time.perf_counter()
        kept[1]()
        best, spent = min(best, time.perf_counter() - started), time.perf_counter() - began
    print(json.dumps(best), flush=True)
"""


class Jax:
    """JAX in a process of its own, on as many cores as we have threads."""

    def __init__(self, python: str, threads: int) -> None:
        self.python, self.threads = python, threads
        self._start()

    def _start(self) -> None:
        flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1" if self.threads == 1 else ""
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[: self.threads]))
        self.process = subprocess.Popen(
            ["taskset", "-c", cores, self.python, "-c", JAX_SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        )
        answer = self._read()
        self.version = answer.get("version") if isinstance(answer, dict) else None

    def _read(self) -> Any:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.process.kill()
            self.process.wait()
            self._start()
            return math.inf
        line = self.process.stdout.readline()
        return json.loads(line) if line else {}

    def seconds(self, kind: str, batch: int, steps: int) -> float:
        """Infinite where compiling and one pass take longer than the patience."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([kind, batch, steps]) + "\n")
        self.process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


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


def floor(b: Tensor) -> float:
    """Seconds to read b, the gradient and the states once and to write two fresh arrays, with nothing computed."""
    started = time.perf_counter()
    one = b.clone()
    one.sum()
    one.clone()
    if b.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def a_turn(run: Callable[..., Tensor], own: list[Tensor], weight: Tensor) -> float:
    """Seconds of the fastest of the passes that fit into 30 ms: short ones would time the caches' state else."""
    began = time.perf_counter()
    best = one_pass(run, own, weight)
    while time.perf_counter() - began < 0.03:
        best = min(best, one_pass(run, own, weight))
    return best


def one_pass(run: Callable[..., Tensor], own: list[Tensor], weight: Tensor) -> float:
    """Seconds of one forward and backward pass."""
    if weight.is_cuda:
        torch.cuda.synchronize()
    started = time.perf_counter()
    torch.autograd.grad(run(*own), own, weight)
    if weight.is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def case(kind: str, batch: int, steps: int, args: argparse.Namespace, jax: Jax | None) -> dict[str, Any]:
    own, weight = inputs(kind, batch, steps, args.device)
    jobs: dict[str, Callable[[], float]] = {}
    for name, run in variants(kind).items():
        if name == "associative_scan" and batch * steps > 70_000:
            continue
        jobs[name] = lambda run=run: a_turn(run, own, weight)
    if jax is not None and jax.version:
        for name in ("rotation", "complex") if kind == "rotation" else (kind,):
            label = "jax" if name == kind else "jax complex"
            jobs[label] = lambda name=name: jax.seconds(name, batch, steps)
    if args.device == "cpu":
        jobs["floor"] = lambda: floor(own[-1].detach())
    times: dict[str, list[float]] = {name: [job()] for name, job in jobs.items()}  # warm-up, and a first estimate
    jobs = {name: job for name, job in jobs.items() if times[name][0] < math.inf}
    spent = dict.fromkeys(jobs, 0.0)
    for _ in range(args.rounds):
        for name, job in jobs.items():
            if spent[name] > args.budget:
                continue
            times[name].append(job())
            spent[name] += times[name][-1]
    best = {name: min(values[1:] or values) for name, values in times.items() if name in jobs}
    row: dict[str, Any] = {
        "given_up": sorted(set(times) - set(jobs)),
        "case": kind,
        "batch": batch,
        "steps": steps,
        "milliseconds": {},
        "faster_than": {},
    }
    for name, seconds in best.items():
        row["milliseconds"][name] = round(1e3 * seconds, 3)
        if name != "scan":
            row["faster_than"][name] = round(seconds / best["scan"], 2)
    moved = 5 * weight.numel() * weight.element_size()  # b, x and the gradient read, x and the gradient written
    row["gigabytes_per_second"] = round(moved / best["scan"] / 1e9, 2)
    ratios = "  ".join(f"{name} {ratio:.1f}x" for name, ratio in row["faster_than"].items())
    print(
        f"{kind:9} batch {batch:3} T {steps:6}  scan {row['milliseconds']['scan']:9.2f} ms  faster than: {ratios}",
        flush=True,
    )
    return row


def processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096, 16384, 65536])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--budget", type=float, default=4.0, help="seconds for each variant of a case")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--quick", action="store_true", help="lengths 1,024 and 4,096, fewer rounds")
    parser.add_argument("--fresh-pages", action="store_true", help="leave the memory allocator alone")
    parser.add_argument("--jax-python", default=sys.executable, help="an interpreter that has JAX")
    parser.add_argument("--largest", type=int, default=16 * 16384, help="leave out cases with more steps times batch")
    parser.add_argument("--out", type=Path, default=RESULTS / "scan.json")
    args = parser.parse_args()
    if not args.fresh_pages and not KEEP_PAGES.keys() <= os.environ.keys():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**KEEP_PAGES, **os.environ})
    if args.quick:
        args.lengths, args.rounds = [1024, 4096], 3
    torch.set_num_threads(args.threads)
    jax = Jax(args.jax_python, args.threads) if args.device == "cpu" else None
    print(f"JAX {jax.version}" if jax and jax.version else "JAX is absent: no comparison with it", flush=True)
    rows = [
        case(kind, batch, steps, args, jax)
        for kind in ("real", "complex", "rotation")
        for batch in args.batches
        for steps in args.lengths
        if batch * steps <= args.largest
    ]
    if jax is not None:
        jax.close()
    report = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "threads": args.threads,
            "load_at_end": list(os.getloadavg()),
            "device": torch.cuda.get_device_name(0) if args.device != "cpu" else "cpu",
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "jax": jax.version if jax else None,
        },
        "settings": {
            k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items() if k not in ("out", "jax_python")
        },
        "allocator": {name: os.environ.get(name) for name in KEEP_PAGES},
        "peak_memory_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "rows": rows,
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
