"""Random networks of one unit: certified radius over that of the nearest attack which many descents find.

    python -m benchmarks.single                # all families
    python -m benchmarks.single --samples 9    # networks of each
    python -m benchmarks.single --means 12     # heads on the mean in l2 in total, longer ones: what cuts are for
    python -m benchmarks.single --long 12      # heads on the last output in l2 in total, 20 and 100 steps
    python -m benchmarks.single --gated 8      # LSTM and GRU of one unit, three steps of two features or six of one
    python -m benchmarks.single --gated 6 --numbers 8,14   # the same with more numbers, heads on the last output

A row is a family: what the head reads, an activation, a norm and a budget; its networks have 6 steps of two features,
the input of every other one goes to the state itself, too (of all of those whose inputs are clipped, to just beyond
their own range; these have 4 steps). Where descents miss the nearest attack, the share is less
than it should be. Of piecewise linear activations the true
radius is known, see ``benchmarks.kinks --all``. Results are kept in ``benchmarks/results/single.json``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from stability.gated.cell import GatedCell
from stability.gated.equations import GATES
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import activation

RESULTS = Path(__file__).parent / "results" / "single.json"
NAMES = ("tanh", "sigmoid")
NORMS = (("linf", "total"), ("l2", "step"), ("l2", "total"))
BALLS = (*((*ball, False) for ball in NORMS), ("l2", "step", True), ("l2", "total", True))
Bounds = tuple[float, float] | None
Attack = Callable[[Classifier, np.ndarray, int, float], float]
_LONG_STARTS = 30
"""Of descents, for each class."""


def network(name: str, seed: int, reduction: str = "last", clipped: bool = False) -> tuple[Classifier, np.ndarray]:
    """One of a family, and an input."""
    rng = np.random.default_rng(seed)
    A, B, C = rng.normal(size=3) * [0.5, 1.0, 1.0]
    own = LureSystem([[A]], [[B]], [[C]], slope=activation(name).slope, dt=1.0)
    F = (clipped or seed % 2) * rng.normal(size=(1, 2))
    cell = DrivenSystem(own, name, rng.normal(size=(1, 2)), rng.normal(size=1), F)
    head = rng.normal(size=(3, 1)), 0.3 * rng.normal(size=3)
    return Classifier(cell, *head, reduction), rng.normal(size=(4 if clipped else 6, 2))


def thrown(
    net: Classifier, x: np.ndarray, label: int, other: int, norm: str, budget: str, radius: float, bounds: Bounds
) -> np.ndarray:
    """A point of the unit ball at which random changes of the best points of many found a margin to be least."""
    rng, d = np.random.default_rng(2), np.random.default_rng(3).normal(size=(4000, *x.shape))
    for turn in range(36):
        if norm == "linf":
            d = np.clip(d, -1.0, 1.0)
        else:
            size = np.sqrt((d * d).sum(axis=2 if budget == "step" else (1, 2), keepdims=True))
            d = d / np.maximum(size, 1.0)
        d = d if bounds is None else (np.clip(x + radius * d, *bounds) - x) / radius
        logits = net.logits(x + radius * d)
        best = d[np.argsort(logits[:, label] - logits[:, other])[:40]]
        moved = 0.5 ** (turn % 12) * rng.normal(size=(40, 100, *x.shape)) * (rng.random((40, 100, *x.shape)) < 0.25)
        moved[:, 0] = 0.0
        d = (best[:, None] + moved).reshape(-1, *x.shape)
    return best[0].ravel()


def attacked(
    net: Classifier, x: np.ndarray, label: int, norm: str, budget: str, near: float, bounds: Bounds = None
) -> float:
    """The least radius at which descents from many places find another class."""
    rng, best, count = np.random.default_rng(1), np.inf, x.size
    ends = [(None, None)] * count if bounds is None else [(bounds[0] - u, bounds[1] - u) for u in x.ravel()]

    def room(z: np.ndarray) -> np.ndarray:
        if norm == "linf":
            return np.concatenate([z[-1] - z[:-1], z[-1] + z[:-1]])
        squares = (z[:-1] ** 2).reshape(x.shape)
        return z[-1] ** 2 - (squares.sum(axis=1) if budget == "step" else squares.sum(keepdims=True)[0])

    for other in set(range(net.classes)) - {label}:

        def lost(z: np.ndarray, other: int = other) -> float:
            logits = net.logits(x + z[:-1].reshape(x.shape))
            return float(logits[other] - logits[label])

        drawn = [near * rng.normal(size=count) / np.sqrt(count) for _ in range(4)]
        drawn.append(near * thrown(net, x, label, other, norm, budget, near, bounds))
        for start in (np.append(d, near) for d in drawn):
            limits = [{"type": "ineq", "fun": lost}, {"type": "ineq", "fun": room}]
            found = minimize(
                lambda z: z[-1], start, jac=lambda z: np.eye(len(z))[-1], method="SLSQP", constraints=limits,
                bounds=[*ends, (1e-9, None)], options={"maxiter": 100, "ftol": 1e-13},
            )  # fmt: skip
            if lost(found.x) >= -1e-11:
                d = found.x[:-1].reshape(x.shape)
                steps = np.sqrt((d * d).sum(axis=1))
                whole = steps.max() if budget == "step" else np.sqrt((d * d).sum())
                best = min(best, float(np.abs(d).max() if norm == "linf" else whole))
    return best


@dataclass
class Row:
    """A row: shares of the attacked radius that are certified, and what that took.

    Attributes:
        name: of the row.
        norm: of its balls.
        budget: of these.
        most: attacks beyond are none.
        shares: of the networks of which an attack is found; zero where no radius is certified.
        spent: seconds.
        cut: how many proofs have cuts.
    """

    name: str
    norm: str
    budget: str
    most: float = 100.0
    shares: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)
    cut: int = 0

    def add(self, seed: int, net: Classifier, x: np.ndarray, attack: Attack, bounds: Bounds = None) -> None:
        """One network; ``attack`` finds a radius from the network, the input, its class and the certified radius."""
        label, begun = int(net.logits(x).argmax()), time.process_time()
        (claim,) = largest_balls(net, x[None], [label], norm=self.norm, budget=self.budget, bounds=bounds)
        seconds, radius = time.process_time() - begun, 0.0 if claim is None else claim.value or 0.0
        true = attack(net, x, label, radius)
        if radius > true * (1.0 + 1e-9):
            raise SystemExit(f"{self.name}, {seed}: an attack of {true} within a radius of {radius}")
        if true < self.most:
            self.shares.append(radius / true)
            self.spent.append(seconds)
            self.cut += claim is not None and claim.proof is not None and "cuts" in claim.proof.data
            print(self.name, seed, self.shares[-1], seconds, file=sys.stderr, flush=True)

    def told(self) -> dict[str, object]:
        """As it is kept."""
        shares, spent = self.shares, self.spent
        out: dict[str, object] = {"name": self.name, "networks": len(shares)}
        if shares:
            out |= {
                "to_1e-6": sum(share >= 1.0 - 1e-6 for share in shares),
                "share_median": round(float(np.median(shares)), 9), "share_least": round(float(np.min(shares)), 4),
                "seconds_mean": round(float(np.mean(spent)), 2), "seconds_most": round(float(np.max(spent)), 2),
            }  # fmt: skip
        out["command"] = " ".join(["python -m benchmarks.single", *sys.argv[1:]])
        return out | ({"with_cuts": self.cut} if self.cut else {})


def descents(norm: str, budget: str, bounds: Bounds = None) -> Attack:
    """``attacked`` from starts of the size of the certified radius."""
    return lambda net, x, label, radius: attacked(net, x, label, norm, budget, min(radius, 5.0) or 1.0, bounds)


def family(reduction: str, name: str, norm: str, budget: str, clipped: bool, count: int) -> dict[str, object]:
    """A row."""
    row = Row(f"{reduction}, {name}, {norm}, {budget}" + ", clipped" * clipped, norm, budget)
    for seed in range(count):
        net, x = network(name, seed, reduction, clipped)
        bounds = (float(x.min()) - 0.1, float(x.max()) + 0.2) if clipped else None
        row.add(seed, net, x, descents(norm, budget, bounds), bounds)
    return row.told()


def drawn(steps: int, seed: int, reduction: str = "mean", name: str = "tanh") -> tuple[Classifier, np.ndarray]:
    """A network of one feature, and an input."""
    rng = np.random.default_rng(seed)
    own = LureSystem([[0.0]], [[1.0]], [[rng.uniform(-1.5, 1.5)]], slope=activation(name).slope, dt=1.0)
    cell = DrivenSystem(own, name, rng.normal(size=(1, 1)), 0.5 * rng.normal(size=1))
    head = rng.normal(size=(3, 1)), 0.3 * rng.normal(size=3)
    return Classifier(cell, *head, reduction), rng.normal(size=(steps, 1))


def means(steps: int, count: int) -> dict[str, object]:
    """A row of heads on the mean in l2 in total: how many have cuts in their proof, and are true."""
    row = Row(f"mean, tanh, l2, total, {steps} steps of one feature", "l2", "total")
    for seed in range(count):
        row.add(seed, *drawn(steps, seed), descents("l2", "total"))
    return row.told()


def gated(kind: str, seed: int, reduction: str, numbers: int = 6) -> tuple[Classifier, np.ndarray]:
    """An LSTM or GRU of one unit, and an input of some numbers, in steps of one feature or two."""
    rng, gates, features = np.random.default_rng(seed), len(GATES[kind]), 1 + seed % 2
    parts = [rng.uniform(-1.5, 1.5, size) for size in ((gates, features), (gates, 1), gates, gates)]
    head = rng.uniform(-1.5, 1.5, (3, 1)), rng.uniform(-0.5, 0.5, 3)
    return Classifier(GatedCell(kind, *parts), *head, reduction), rng.normal(size=(numbers // features, features))


def of_gates(kind: str, norm: str, budget: str, count: int) -> dict[str, object]:
    """A row of networks of gates; those of whose class no attack within ten is found are left out."""
    row = Row(f"gates, {kind}, {norm}, {budget}", norm, budget, most=10.0)
    for seed in range(count):
        row.add(seed, *gated(kind, seed, ("last", "mean")[seed // 2 % 2]), descents(norm, budget))
    return row.told()


def of_more_gates(kind: str, norm: str, budget: str, numbers: int, count: int) -> dict[str, object]:
    """A row of networks of gates with inputs of more numbers and heads on the last output."""
    row = Row(f"gates, {kind}, {norm}, {budget}, {numbers} numbers", norm, budget, most=10.0)
    for seed in range(count):
        row.add(seed, *gated(kind, seed, "last", numbers), descents(norm, budget))
    return row.told()


def long(steps: int, count: int) -> dict[str, object]:
    """A row of heads on the last output in l2 in total: the nearest run of another class that descents find."""
    row = Row(f"last, tanh, l2, total, {steps} steps of one feature", "l2", "total")
    for seed in range(count):
        row.add(seed, *drawn(steps, seed, "last"), nearest_run)
    return row.told()


def nearest_run(net: Classifier, x: np.ndarray, label: int, near: float) -> float:
    """The least radius at which descents in float64 find another class, with slopes by hand: no part of the search."""
    (w,), (e,), size = net.recurrent.system.C, net.recurrent.E, len(x)
    base, best, rng = (x @ e.reshape(-1, 1)).ravel() + net.recurrent.b[0], np.inf, np.random.default_rng(1)
    near = min(near, 100.0) or 1.0

    def run(d: np.ndarray) -> tuple[float, np.ndarray]:
        h, states = float(net.start[0]), []
        for t in range(size):
            h = float(np.tanh(w[0] * h + base[t] + e[0] * d[t]))
            states.append(h)
        slope, back = np.zeros(size), 1.0
        for t in range(size - 1, -1, -1):
            back *= 1.0 - states[t] ** 2
            slope[t], back = back * e[0], back * w[0]
        return h, slope

    def out(d: np.ndarray, other: int) -> float:
        steep, least = net.weight[other] - net.weight[label], net.bias[other] - net.bias[label]
        return float(steep[0] * run(d)[0] + least)

    def rise(d: np.ndarray, other: int) -> np.ndarray:
        return (net.weight[other, 0] - net.weight[label, 0]) * run(d)[1]

    for other in set(range(net.classes)) - {label}:
        for k in range(_LONG_STARTS):  # moves of all steps, and of the last ones alone
            d, last = rng.normal(size=size) * 0.1 ** (k % 3), np.arange(size) >= size - 1 - k // 2
            d = d if k % 5 == 4 else last * (-1.0) ** k * np.exp(0.3 * rng.normal(size=size))
            d *= near / np.linalg.norm(d)
            limit = {"type": "ineq", "fun": out, "jac": rise, "args": (other,)}
            found = minimize(
                lambda d: (float(d @ d), 2.0 * d), d, jac=True, method="SLSQP", constraints=[limit],
                options={"maxiter": 300, "ftol": 1e-15},
            ).x  # fmt: skip
            if out(found, other) >= -1e-11:
                best = min(best, float(np.linalg.norm(found)))
    return best


def main() -> None:
    """All families."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=6, help="networks of each family")
    parser.add_argument("--means", type=int, default=0, help="networks for each of --steps, instead of the families")
    parser.add_argument("--steps", default="4,8", help="with --means: how many steps, with commas between them")
    parser.add_argument("--long", type=int, default=0, help="networks of 20 and of 100 steps, instead of these")
    parser.add_argument("--gated", type=int, default=0, help="networks of gates for each ball, instead of these")
    parser.add_argument("--numbers", default="", help="with --gated: how many of an input, with commas between them")
    told = parser.parse_args()
    rows = list[dict[str, object]]()
    if told.means:
        rows = [means(int(steps), told.means) for steps in told.steps.split(",")]
    elif told.long:
        rows = [long(steps, told.long) for steps in (20, 100)]
    elif told.gated and told.numbers:
        sizes = [int(size) for size in told.numbers.split(",")]
        cases = itertools.product(sizes, ("lstm", "gru"), NORMS)
        rows = [of_more_gates(kind, *ball, size, told.gated) for size, kind, ball in cases]
    elif told.gated:
        rows = [of_gates(kind, *ball, told.gated) for kind in ("lstm", "gru") for ball in NORMS]
    else:
        for reduction, ball, name in itertools.product(("last", "mean"), BALLS, NAMES):
            rows.append(family(reduction, name, *ball, told.samples))
            print(json.dumps(rows[-1]), flush=True)
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    new = {row["name"]: row for row in rows}
    out = [new.pop(row["name"], row) for row in kept]
    RESULTS.write_text(json.dumps([*out, *new.values()], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
