"""Speed and memory of the orthogonal layers and of QR and LQ, as ratios measured in one run.

    python -m benchmarks.orthogonal                 # everything, about 7 minutes on one quiet core
    python -m benchmarks.orthogonal --quick         # small sizes, under a minute

Every variant runs the same cell, ``h+ = leaky_relu(W h + V x + b)``, over the same sequence; only the way to
W differs. Variants are timed in turn, round after round; the ratio is taken within each round, and the median
over rounds is reported, so that a busy machine slows both sides of a ratio. One thread, unless ``--threads``
says otherwise; with one, processor time is measured. geotorch takes part where it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import stability.models as models
from stability.models.orthogonal import OrthogonalLayer
from stability.models.parametrizations.reflections import householder_apply
from stability.models.recurrent import RecurrentLayer

try:
    import geotorch
except ImportError:
    geotorch = None

RESULTS = Path(__file__).parent / "results"


class FullLayer(OrthogonalLayer):
    """The same cell with W from elsewhere: free, or by another parametrisation of ``square.weight``."""

    def __init__(self, n: int, kind: str) -> None:
        super().__init__(1, n, activation="leaky_relu")
        self.square = nn.Linear(n, n, bias=False)
        nn.init.orthogonal_(self.square.weight)
        if kind.startswith("torch "):
            parametrizations.orthogonal(self.square, "weight", orthogonal_map=kind.split()[1])
        elif kind == "geotorch" and geotorch is not None:
            geotorch.orthogonal(self.square, "weight")

    def weight(self, double: bool = False) -> Tensor:
        return self.square.weight

    def config(self) -> dict[str, object]:
        return {}


NOISE = 0.03  # differences below this are not told
FREE, FREE_RECORDED = "unconstrained", "unconstrained, recorded loop"
TORCH = ("torch householder", "torch cayley", "torch matrix_exp")
PEERS = TORCH if geotorch is None else (*TORCH, "geotorch")


def clock() -> float:
    """Processor seconds with one thread: other processes do not count. Seconds on the wall with several."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def pass_through(layer: RecurrentLayer, x: Tensor, forward: Callable) -> float:
    """Seconds of one forward and backward pass over the sequence."""
    layer.zero_grad(set_to_none=True)
    started = clock()
    outputs, _ = forward(layer, x)
    outputs[:, -1].square().sum().backward()
    return clock() - started


def in_turn(jobs: dict[str, Callable[[], float]], rounds: int, budget: float) -> dict[str, list[float]]:
    """Time the jobs round-robin after one warm-up round; stops early when the budget in seconds is spent."""
    for job in jobs.values():
        job()
    times: dict[str, list[float]] = {name: [] for name in jobs}
    started = time.perf_counter()
    for done in range(rounds):
        for name, job in jobs.items():
            times[name].append(job())
        if done >= 2 and time.perf_counter() - started > budget:
            break
    return times


def ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    return statistics.median(a / b for a, b in zip(times[name], times[base]))


def layers(args: argparse.Namespace) -> list[dict]:
    rows = []
    for n in args.sizes:
        for batch in args.batches:
            torch.manual_seed(0)
            x = torch.randn(batch, args.steps, 1)
            counts = sorted({min(16, n), n // 4, n // 2, n})
            built: dict[str, tuple[RecurrentLayer, Callable]] = {
                FREE: (FullLayer(n, "free"), lambda layer, x: layer(x)),
                FREE_RECORDED: (FullLayer(n, "free"), RecurrentLayer.forward),
            }
            for kind in PEERS:
                built[kind] = (FullLayer(n, kind), lambda layer, x: layer(x))
            for m in counts:
                layer = models.HouseholderRNN(1, n, reflections=m)
                built[f"ours m={m}"] = (layer, lambda layer, x: layer(x))
                if m == counts[0]:
                    built[f"ours m={m}, recorded loop"] = (layer, RecurrentLayer.forward)
            jobs = {
                name: (lambda layer=layer, forward=forward, x=x: pass_through(layer, x, forward))
                for name, (layer, forward) in built.items()
            }
            times = in_turn(jobs, args.rounds, args.budget)
            best_peer = min(PEERS, key=lambda k: statistics.median(times[k]))
            for name in jobs:
                same_loop = FREE_RECORDED if name.endswith("recorded loop") else FREE
                rows.append(
                    {
                        "n": n,
                        "batch": batch,
                        "steps": args.steps,
                        "variant": name,
                        "milliseconds": 1e3 * statistics.median(times[name]),
                        "best_milliseconds": 1e3 * min(times[name]),
                        "to_unconstrained_same_loop": ratio(times, name, same_loop),
                        "to_fastest_peer": ratio(times, name, best_peer),
                        "fastest_peer": best_peer,
                        "rounds": len(times[name]),
                    }
                )
                row = rows[-1]
                print(
                    f"n={n:4d} batch={batch:4d}  {name:34s} {row['milliseconds']:9.1f} ms   "
                    f"x{row['to_unconstrained_same_loop']:5.2f} unconstrained (same loop)   "
                    f"x{row['to_fastest_peer']:5.2f} {best_peer}",
                    flush=True,
                )
    return rows


def saved_bytes(run: Callable[[], object], parameters: list[Tensor]) -> int:
    """Bytes kept for the backward pass, each storage once, parameters not counted."""
    own = {p.untyped_storage().data_ptr() for p in parameters}
    kept: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        storage = t.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = run()  # alive until the count is taken: addresses must not be used twice
    total = sum(kept.values())
    del result
    return total


def one_by_one(layer: models.HouseholderRNN, x: Tensor, product: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The sequence with ``W h`` computed anew at every step by ``product(U, h)``."""
    h = layer.h0.expand(len(x), -1)
    for d in layer.drive(x, layer.prepare()).unbind(1):
        h = nn.functional.leaky_relu(product(layer.U, h) + d, 0.1)
    return h


def recorded_reflections(U: Tensor, h: Tensor) -> Tensor:
    """Every intermediate state recorded: what Algorithm 1 with stored H keeps."""
    for k in reversed(range(U.shape[1])):
        u = U[:, k]
        h = h - torch.outer(h @ u * (2.0 / u.square().sum()), u)
    return h


def memory(args: argparse.Namespace) -> list[dict]:
    rows = []
    steps, batch = 50, 16
    for n in args.sizes:
        for m in sorted({min(16, n), n // 2}):
            layer = models.HouseholderRNN(1, n, reflections=m)
            x = torch.randn(batch, steps, 1)
            runs: dict[str, Callable[..., object]] = {
                "recorded loop": layer,
                "two thin factors": partial(one_by_one, layer, product=householder_apply),
                "every H stored": partial(one_by_one, layer, product=recorded_reflections),
            }
            own = list(layer.parameters())
            sizes = {name: saved_bytes(partial(run, x), own) for name, run in runs.items()}
            for name, size in sizes.items():
                share = size / sizes["every H stored"]
                rows.append({"n": n, "m": m, "batch": batch, "steps": steps, "variant": name, "bytes": size})
                megabytes = size / 2**20
                print(f"n={n:4d} m={m:4d}  {name:28s} {megabytes:9.2f} MiB   x{share:.3f} of stored H", flush=True)
    return rows


def there_and_back(factorise: Callable[[Tensor], tuple[Tensor, Tensor]], A: Tensor, backward: list[float]) -> float:
    """Seconds of a factorisation and its backward pass; those of the backward pass alone go to ``backward``."""
    started = clock()
    first, second = factorise(A)
    between = clock()
    torch.autograd.grad(first.sum() + second.sum(), A)
    ended = clock()
    backward.append(ended - between)
    return ended - started


def transposed_qr(A: Tensor) -> tuple[Tensor, Tensor]:
    return torch.linalg.qr(A.mH)


def factorizations(args: argparse.Namespace) -> list[dict]:
    shapes = [(64, 64), (256, 256), (256, 64), (64, 256), (32, 16, 16), (32, 64, 32)]
    rows = []
    for shape in shapes[2:] if args.quick else shapes:
        for dtype in (torch.float32, torch.float64):
            A = torch.randn(shape, dtype=dtype).requires_grad_()

            kinds = {
                "torch.linalg.qr": torch.linalg.qr,
                "qr": models.qr,
                "lq": models.lq,
                "torch.linalg.qr of the transpose": transposed_qr,
            }
            back: dict[str, list[float]] = {name: [] for name in kinds}  # the warm-up round included
            jobs = {name: partial(there_and_back, kind, A, back[name]) for name, kind in kinds.items()}
            times = in_turn(jobs, 5 * args.rounds, args.budget / 2)
            back = {name: seconds[1:] for name, seconds in back.items()}
            for name in ("qr", "lq"):
                base = "torch.linalg.qr" if name == "qr" else "torch.linalg.qr of the transpose"
                rows.append(
                    {
                        "shape": list(shape),
                        "dtype": str(dtype).removeprefix("torch."),
                        "factorisation": name,
                        "milliseconds": 1e3 * statistics.median(times[name]),
                        "to_torch": ratio(times, name, base),
                        "backward_milliseconds": 1e3 * statistics.median(back[name]),
                        "backward_to_torch": ratio(back, name, base),
                    }
                )
                row = rows[-1]
                print(
                    f"{name} {shape!s:14s} {row['dtype']:8s} {row['milliseconds']:8.2f} ms   "
                    f"x{row['to_torch']:.2f} {base} (backward alone x{row['backward_to_torch']:.2f})",
                    flush=True,
                )
    return rows


def findings(rows: list[dict]) -> list[str]:
    """The goals against the figures, in words."""
    out = []
    ours = [r for r in rows if r["variant"].startswith("ours") and not r["variant"].endswith("recorded loop")]

    def where(r: dict) -> str:
        return f"n={r['n']}, batch {r['batch']}, {r['variant'].removeprefix('ours ')}"

    few = [r for r in ours if 4 * int(r["variant"].split("=")[1]) <= r["n"] and r["batch"] >= 16]
    if few:
        worst = max(few, key=lambda r: r["to_unconstrained_same_loop"])
        out.append(
            f"m <= n/4, batch >= 16: at most {worst['to_unconstrained_same_loop']:.2f} times the "
            f"unconstrained RNN with the same loop ({where(worst)})"
        )
    slower = [r for r in ours if r["to_fastest_peer"] > 1.0 + NOISE]
    for r in slower:
        out.append(f"{where(r)}: {r['to_fastest_peer']:.2f} times the fastest peer ({r['fastest_peer']})")
    if not slower:
        out.append(
            f"never slower (by more than {NOISE:.0%}) than torch's orthogonal (householder, cayley, matrix_exp)"
            + (", geotorch is not installed" if geotorch is None else " or geotorch")
        )
    for n, batch in sorted({(r["n"], r["batch"]) for r in ours}):
        case = [r for r in ours if (r["n"], r["batch"]) == (n, batch)]
        faster = [r for r in case if r["to_unconstrained_same_loop"] < 1.0]
        level = [r for r in case if r["to_fastest_peer"] <= 1.0 + NOISE]
        cheap = [r for r in case if r["to_unconstrained_same_loop"] <= 1.2]
        out.append(
            f"n={n}, batch {batch}: faster than the unconstrained RNN {crossover(faster, case)}, within 1.2 times "
            f"{crossover(cheap, case)}; as fast as the fastest peer {crossover(level, case)}"
        )
    return out


def crossover(rows: list[dict], case: list[dict]) -> str:
    """For which numbers of reflections, in words: up to where, if those rows are the first ones of the case."""
    held, tried = (sorted(int(r["variant"].split("=")[1]) for r in part) for part in (rows, case))
    if not held:
        return "for no m"
    return f"up to m={held[-1]}" if held == tried[: len(held)] else "for m=" + ", ".join(map(str, held))


def processor() -> str:
    """Name of the processor."""
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
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 512], help="hidden sizes")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--steps", type=int, default=784, help="length of the sequence")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for each case")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="sizes 64 and 128, 200 steps, no batch of 128")
    parser.add_argument("--only", choices=["layers", "memory", "factorizations"], help="one section")
    parser.add_argument("--out", type=Path, default=RESULTS / "orthogonal.json")
    args = parser.parse_args()
    if args.quick:
        args.sizes, args.batches, args.steps, args.rounds, args.budget = [64, 128], [1, 16], 200, 5, 10.0
    torch.set_num_threads(args.threads)
    if geotorch is None:
        print("geotorch is not installed: left out of the comparison")
    report: dict[str, object] = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "threads": args.threads,
            "clock": "processor time" if args.threads == 1 else "wall-clock time",
            "load_at_start": list(os.getloadavg()),
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "geotorch": "not installed" if geotorch is None else geotorch.__version__,
        },
        "settings": {k: v for k, v in vars(args).items() if k not in ("out", "only")},
    }
    sections = {"layers": layers, "memory": memory, "factorizations": factorizations}
    for name, section in sections.items():
        if args.only in (None, name):
            print(f"\n== {name}", flush=True)
            report[name] = section(args)
    if "layers" in report:
        report["findings"] = findings(report["layers"])
        print("\n" + "\n".join(report["findings"]))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"\nwritten to {args.out}")


if __name__ == "__main__":
    main()
