"""Errors of tanh, sigmoid and exp of torch and numpy in float32, in units in the last place.

    python -m benchmarks.function_errors
    python -m benchmarks.function_errors --stride 1

The arguments are the finite float32 numbers whose bit patterns are multiples of the stride; stride 1 takes all of
them, which is an hour. The reference is numpy in float64. A unit in the last place is that of float32 at the
reference, at least the smallest subnormal number. ``ExecutionModel`` allows four units by default. torch runs a
vectorized function on contiguous arrays, and is measured on strided ones too. Subnormal results are reported apart: a
library may lose them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from .timing import arguments, keep

Array = np.ndarray
CHUNK = 1 << 22
NORMAL = 2.0**-126


def sigmoid64(x: Array) -> Array:
    """Return the logistic function with a small relative error at both tails."""
    tail = np.exp(-np.abs(x))
    return np.where(x >= 0.0, 1.0, tail) / (1.0 + tail)


def in_torch(function: Callable[[torch.Tensor], torch.Tensor], strided: bool) -> Callable[[Array], Array]:
    """Return a function of torch on numpy arrays, with every second entry of a tensor if ``strided``."""

    def run(x: Array) -> Array:
        tensor = torch.from_numpy(x)
        if strided:
            tensor = torch.stack([tensor, tensor], dim=1)[:, 0]
        return function(tensor).numpy()

    return run


EXACT: dict[str, Callable[[Array], Array]] = {"tanh": np.tanh, "sigmoid": sigmoid64, "exp": np.exp}
LIBRARIES: dict[str, dict[str, Callable[[Array], Array]]] = {
    "torch": {name: in_torch(getattr(torch, name), False) for name in EXACT},
    "torch, strided": {name: in_torch(getattr(torch, name), True) for name in EXACT},
    "numpy": {"tanh": np.tanh, "sigmoid": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)), "exp": np.exp},
}


def chunks(stride: int) -> Iterator[Array]:
    """Yield the finite float32 numbers whose bit patterns are multiples of ``stride``."""
    for first in range(0, 1 << 32, CHUNK * stride):
        patterns = np.arange(first, min(first + CHUNK * stride, 1 << 32), stride, dtype=np.uint64)
        x = patterns.astype(np.uint32).view(np.float32)
        x = np.ascontiguousarray(x[np.isfinite(x)])
        if len(x):
            yield x


@np.errstate(all="ignore")
def measure(stride: int) -> list[dict[str, object]]:
    """Return one row per library and function: largest error and where, largest subnormal error, arguments."""
    worst = {(library, name): [0.0, 0.0, 0.0, 0] for library in LIBRARIES for name in EXACT}
    for x in chunks(stride):
        for name, exact in EXACT.items():
            y = exact(x.astype(np.float64))
            inside = (np.abs(y) <= float(np.finfo(np.float32).max)) & np.isfinite(y)
            at, y = x[inside], y[inside]
            if not len(at):
                continue
            exponent = np.maximum(np.frexp(np.abs(y))[1] - 24, -149)
            unit = np.ldexp(1.0, exponent)
            normal = np.abs(y) >= NORMAL
            for library, functions in LIBRARIES.items():
                error = np.abs(functions[name](at).astype(np.float64) - y) / unit
                row = worst[library, name]
                row[3] += len(at)
                for k, part in ((0, normal), (2, ~normal)):
                    if part.any():
                        index = int(np.argmax(np.where(part, error, -1.0)))
                        if error[index] > row[k]:
                            row[k] = float(error[index])
                            if k == 0:
                                row[1] = float(at[index])
    return [
        {"library": library, "function": name, "ulps": row[0], "at": row[1], "subnormal_ulps": row[2],
         "arguments": row[3], "stride": stride}
        for (library, name), row in worst.items()
    ]  # fmt: skip


def main() -> None:
    """Measure all functions and store a row for each."""
    parser = arguments(__doc__, "function_errors")
    parser.add_argument("--stride", type=int, default=17)
    options = parser.parse_args()
    torch.set_num_threads(1)
    versions = {"torch_version": torch.__version__, "numpy_version": np.__version__}
    for row in measure(options.stride):
        keep(options.out, {**row, **versions}, "library", "function", "stride")


if __name__ == "__main__":
    main()
