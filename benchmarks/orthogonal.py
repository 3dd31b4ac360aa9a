"""Speed and memory of the orthogonal layers and of QR and LQ.

    python -m benchmarks.orthogonal                                          # about 7 minutes on one quiet core
    python -m benchmarks.orthogonal --sizes 64 --batches 1 16 --steps 200    # under a minute

Every variant runs the same cell, ``h+ = leaky_relu(W h + V x + b)``, over the same sequence; only the way to W differs.
Variants take turns; ratios are taken within a round, and the median over the rounds is reported. geotorch takes part if
it is installed.
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import stability.models as models
from stability.models.orthogonal import OrthogonalLayer
from stability.models.parametrizations.reflections import householder_apply
from stability.models.recurrent import RecurrentLayer

from .timing import arguments, in_turns, keep

try:
    import geotorch
except ImportError:
    geotorch = None

Rows = Iterator[dict[str, Any]]
TORCH = ("torch householder", "torch cayley", "torch matrix_exp")
PEERS = TORCH if geotorch is None else (*TORCH, "geotorch")


class FullLayer(OrthogonalLayer):
    """The same cell with W from elsewhere: free, or by another parametrization of ``square.weight``."""

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


def backward(layer: RecurrentLayer, x: Tensor) -> None:
    """Carry out one forward and backward pass over the sequence."""
    layer.zero_grad(set_to_none=True)
    layer(x)[0][:, -1].square().sum().backward()


def ratio(times: dict[str, list[float]], name: str, base: str) -> float:
    """Return the median over the rounds of the ratio of two times."""
    return statistics.median(a / b for a, b in zip(times[name], times[base]))


def layers(options: Namespace) -> Rows:
    """Compare with an unconstrained RNN and with other orthogonal parametrizations."""
    for n, batch in ((n, batch) for n in options.sizes for batch in options.batches):
        torch.manual_seed(0)
        x = torch.randn(batch, options.steps, 1)
        built = {kind: FullLayer(n, kind) for kind in ("unconstrained", *PEERS)}
        for m in sorted({min(16, n), n // 4, n // 2, n}):
            built[f"ours m={m}"] = models.HouseholderRNN(1, n, reflections=m)
        times = in_turns({name: partial(backward, layer, x) for name, layer in built.items()}, options.rounds)
        fastest = min(PEERS, key=lambda k: statistics.median(times[k]))
        for name in built:
            row = {"n": n, "batch": batch, "steps": options.steps, "variant": name, "fastest_peer": fastest}
            row["milliseconds"] = 1e3 * statistics.median(times[name])
            row["to_unconstrained"] = ratio(times, name, "unconstrained")
            yield {**row, "to_fastest_peer": ratio(times, name, fastest)}


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


def memory(options: Namespace, steps: int = 50, batch: int = 16) -> Rows:
    """Measure what is kept for the backward pass."""
    for n, m in ((units, m) for units in options.sizes for m in sorted({min(16, units), units // 2})):
        layer, x = models.HouseholderRNN(1, n, reflections=m), torch.randn(batch, steps, 1)
        runs: dict[str, Callable[..., object]] = {
            "recorded loop": partial(RecurrentLayer.forward, layer),
            "Algorithm 1, regenerating": partial(one_by_one, layer, product=householder_apply),
            "every H stored": partial(one_by_one, layer, product=recorded_reflections),
        }
        sizes = {name: saved_bytes(partial(run, x), list(layer.parameters())) for name, run in runs.items()}
        yield {"n": n, "m": m, "batch": batch, "steps": steps, "bytes": sizes}


def factorizations(options: Namespace) -> Rows:
    """Compare the backward passes of ``qr`` and ``lq`` with that of ``torch.linalg.qr``."""

    def grown(factorize: Callable[[Tensor], tuple[Tensor, Tensor]], A: Tensor, spent: list[float]) -> None:
        first, second = factorize(A)
        start = time.process_time()
        torch.autograd.grad(first.sum() + second.sum(), A)
        spent.append(time.process_time() - start)

    kinds = {"torch.linalg.qr": torch.linalg.qr, "qr": models.qr, "lq": models.lq}
    kinds["torch.linalg.qr of the transpose"] = lambda A: torch.linalg.qr(A.mH)
    for shape in ((64, 64), (256, 256), (256, 64), (64, 256), (32, 16, 16), (32, 64, 32)):
        for dtype in (torch.float32, torch.float64):
            A = torch.randn(shape, dtype=dtype).requires_grad_()
            back: dict[str, list[float]] = {name: [] for name in kinds}
            calls = {name: partial(grown, kind, A, back[name]) for name, kind in kinds.items()}
            times = in_turns(calls, 5 * options.rounds)
            for name, base in (("qr", "torch.linalg.qr"), ("lq", "torch.linalg.qr of the transpose")):
                row = {"shape": list(shape), "dtype": str(dtype), "factorization": name}
                yield {**row, "to_torch": ratio(times, name, base), "backward_to_torch": ratio(back, name, base)}


def main() -> None:
    parts = {part.__name__: part for part in (layers, memory, factorizations)}
    parser = arguments(__doc__, "orthogonal", parts)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 512], help="hidden sizes")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--steps", type=int, default=784, help="length of the sequence")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for part in options.only:
        for row in parts[part](options):
            key = ("part", "n", "m", "batch", "steps", "variant", "shape", "dtype", "factorization")
            keep(options.out, {"part": part, **row}, *key)


if __name__ == "__main__":
    main()
