"""LSTM and GRU of one unit, cells of their states, and runs of another class that are as near as descents find."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from stability.certificate import Claim
from stability.gated.cell import GatedCell
from stability.local.cells import Cells
from stability.local.classifier import Classifier
from stability.local.gates import gates
from stability.local.request import request
from stability.solve.deadline import Deadline

Array = np.ndarray
GATES = {"gru": 3, "lstm": 4}


def drawn(
    kind: str, steps: int, seed: int, features: int = 1, scale: float = 1.0, **more: Any
) -> tuple[Classifier, Array]:
    """A network and an input."""
    rng, count = np.random.default_rng(seed), GATES[kind]
    parts = [scale * rng.uniform(-1.5, 1.5, size) for size in ((count, features), (count, 1), count, count)]
    head = rng.uniform(-1.5, 1.5, (3, 1)), rng.uniform(-0.5, 0.5, 3)
    return Classifier(GatedCell(kind, *parts, **more), *head), rng.normal(size=(steps, features))


def label_of(net: Classifier, x: Array) -> int:
    return int(net.logits(x).argmax())


def searched(
    net: Classifier, x: Array, seconds: float | None = None, norm: str = "l2", **told: Any
) -> tuple[Claim | None, bool]:
    """What the search says about an input and its own class."""
    return gates(request(net, x[None], [label_of(net, x)], **told), 0, norm, Deadline.after(seconds))


def nearest(net: Classifier, x: Array, mask: Array | None = None, bounds: tuple[float, float] | None = None) -> float:
    """The least radius of another class that descents find."""
    rng, label, best = np.random.default_rng(1), label_of(net, x), np.inf
    free = np.flatnonzero(np.ones(x.size) if mask is None else mask)
    low, high = (-np.inf, np.inf) if bounds is None else bounds
    limits = [(low - u, high - u) for u in x.ravel()[free]]

    def moved(y: Array) -> Array:
        d = np.zeros((len(y), x.size))
        d[:, free] = y
        return x + d.reshape(-1, *x.shape)

    for other in set(range(net.classes)) - {label}:

        def lost(y: Array, other: int = other) -> float:
            logits = net.logits(moved(y[None]))[0]
            return float(logits[other] - logits[label])

        def rise(y: Array, other: int = other) -> Array:
            way = 1e-5 * np.eye(len(y))
            logits = net.logits(moved(np.concatenate([y + way, y - way]))).reshape(2, len(y), -1)
            return (logits[0] - logits[1])[:, [other, label]] @ np.array([0.5e5, -0.5e5])

        for size in (0.1, 0.3, 1.0, 3.0):
            start = np.clip(size * rng.normal(size=len(free)), *np.transpose(limits))
            found = minimize(
                lambda y: (float(y @ y), 2.0 * y), start, jac=True, method="SLSQP", bounds=limits,
                constraints=[{"type": "ineq", "fun": lost, "jac": rise}], options={"maxiter": 100, "ftol": 1e-15},
            )  # fmt: skip
            if lost(found.x) >= -1e-11:
                best = min(best, float(np.linalg.norm(found.x)))
    return best


def cells_of(rng: np.random.Generator, low: Array, high: Array, rounds: int, size: float = 1.0) -> Cells:
    """Cells cut at random, with planes at random."""
    made = Cells(low, high)
    for _ in range(rounds):
        leaves = made.leaves
        made.cut(rng.choice(leaves, size=1 + len(leaves) // 3, replace=False))
    made.value = rng.uniform(-1.0, 3.0, len(made))
    made.slope = size * rng.normal(size=made.slope.shape)
    made.lift()
    return made


def planes_of(data: dict[str, Any]) -> list[slice]:
    """Where the planes of each box of states are, of one part after the other."""
    out, at, done, d = list[slice](), 0, 0, data["slopes"].shape[1]
    for _ in range(data["low"].size // d):
        width, first = 1, done
        while width:
            own = data["cut"][at : at + width]
            at, done, width = at + width, done + int((own == 0).sum()), int(own.sum()) * 2**d
        out.append(slice(first, done))
    assert done == len(data["values"])
    return out
