"""Networks of one unit whose activation has kinks: certified radii against the true ones, found piece by piece.

    python -m benchmarks.kinks                    # 100 random networks for each activation and norm
    python -m benchmarks.kinks --networks 20      # fewer
    python -m benchmarks.kinks --only deadzone    # of one activation

A network of one unit on ``T`` steps is affine on each of the ``pieces ** T`` polyhedra on which every step's argument
stays on one piece of the activation. The least perturbation that another class needs is the least one over these
polyhedra: a least distance problem each (by nonnegative least squares, Lawson and Hanson, Solving Least Squares
Problems, 1974, chapter 23) in l2, a linear program in l_inf. Networks: normal weights, ``T`` of 3 to 5 (the dead zone
and the saturation: 3 or 4), one or two features, the last state or the mean of all, with leaks of 0, 0.5 or -0.3.
Rows are kept in ``benchmarks/results/kinks.json``, each with its command. ``short``: how many are certified at less
than .999999 of the true radius; ``over``: at more than the true one (none ever should be).
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from pathlib import Path

import numpy as np
from scipy.optimize import linprog, nnls

from stability.local import balls
from stability.local.balls import largest_balls
from stability.local.classifier import Classifier
from stability.systems import DrivenSystem, LureSystem
from stability.systems.activations import activation

RESULTS = Path(__file__).parent / "results" / "kinks.json"
NAMES = ("relu", "leaky_relu", "saturation", "deadzone")
Array = np.ndarray


def affine_runs(net: Classifier, x: Array, pattern: tuple[int, ...]) -> tuple[Array, Array, Array, Array]:
    """Logits ``V d + v`` of the perturbations ``d`` with ``G d >= g``: those whose arguments are on given pieces.

    Of a midpoint map, which has two channels, a step has two pieces in ``pattern``.
    """
    cell, size = net.recurrent, x.size
    phi = activation(cell.activation)
    A, B, C, D = cell.system.A.item(), cell.system.B[0], cell.system.C[:, 0], cell.system.D
    ends, m = [-np.inf, *phi.kinks, np.inf], len(cell.E)
    h, dh, rows, least = float(net.start[0]), np.zeros(size), [], []
    total, moved = np.zeros(size), 0.0
    for t in range(len(x)):
        own, a, da = slice(t * x.shape[1], (t + 1) * x.shape[1]), np.zeros(m), np.zeros((m, size))
        for j, piece in enumerate(pattern[t * m : (t + 1) * m]):
            z, dz = C[j] * h + float(cell.E[j] @ x[t] + cell.b[j] + D[j] @ a), C[j] * dh + D[j] @ da
            dz[own] += cell.E[j]
            for sign, end in ((1.0, ends[piece]), (-1.0, ends[piece + 1])):
                if np.isfinite(end):
                    rows.append(sign * dz)
                    least.append(sign * (end - z))
            kink = ends[max(piece, 1)]
            a[j] = float(phi.function(np.array(kink))) + phi.pieces[piece] * (z - kink)
            da[j] = phi.pieces[piece] * dz
        h, dh = A * h + float(B @ a + cell.F[0] @ x[t]), A * dh + B @ da
        dh[own] += cell.F[0]
        total, moved = total + dh, moved + h
    if net.reduction == "last":
        total, moved = dh, h
    scale = len(x) if net.reduction == "mean" else 1
    V, v = np.outer(net.weight[:, 0], total) / scale, net.weight[:, 0] * moved / scale + net.bias
    return V, v, np.array(rows).reshape(len(rows), size), np.array(least)


def least_distance(G: Array, g: Array, norm: str) -> float:
    """The least norm of a ``d`` with ``G d >= g``; infinite where there is none."""
    size = G.shape[1]
    if norm == "linf":
        both = np.concatenate([np.eye(size), -np.eye(size)])
        upper = np.concatenate([np.c_[-G, np.zeros(len(G))], np.c_[both, -np.ones(len(both))]])
        found = linprog(np.eye(size + 1)[-1], upper, np.r_[-g, np.zeros(len(both))], bounds=(None, None))
        return float(found.fun) if found.success else np.inf
    E, f = np.vstack([G.T, g]), np.eye(size + 1)[-1]
    u, away = nnls(E, f)
    rest = E @ u - f
    if away < 1e-9:
        return np.inf
    return float(np.linalg.norm(rest[:-1] / rest[-1]))


def true_radius(net: Classifier, x: Array, label: int, norm: str) -> float:
    """The least perturbation that gives another class at least as large a logit, over all patterns of pieces."""
    best, pieces = np.inf, len(activation(net.recurrent.activation).pieces)
    for pattern in itertools.product(range(pieces), repeat=len(x) * len(net.recurrent.E)):
        V, v, G, g = affine_runs(net, x, pattern)
        for other in set(range(net.classes)) - {label}:
            best = min(best, least_distance(np.vstack([G, V[other] - V[label]]), np.r_[g, v[label] - v[other]], norm))
    return best


def network(name: str, seed: int) -> tuple[Classifier, Array]:
    """A network of one unit, and an input."""
    rng = np.random.default_rng(seed)
    features, leak = int(rng.integers(1, 3)), float(rng.choice([0.0, 0.5, -0.3]))
    own = LureSystem([[leak]], [[1.0]], [[rng.normal()]], slope=activation(name).slope, dt=1.0)
    cell = DrivenSystem(own, name, rng.normal(size=(1, features)), [0.5 * rng.normal()])
    reduction = "mean" if rng.random() < 0.5 else "last"
    net = Classifier(cell, 3.0 * rng.normal(size=(3, 1)), 0.3 * rng.normal(size=3), reduction)
    steps = int(rng.integers(3, 6 if len(activation(name).pieces) < 3 else 5))
    return net, 0.7 * rng.normal(size=(steps, features))


def measured(name: str, norm: str, count: int) -> dict[str, object]:
    """What is certified of the true radius, over many networks."""
    shares, spent, kinds = list[float](), list[float](), list[str]()
    seed = 0
    while len(shares) < count:
        net, x = network(name, seed)
        seed += 1
        label = int(net.logits(x).argmax())
        true = true_radius(net, x, label, norm)
        if not 1e-6 < true < 1e3:
            continue
        begun = time.process_time()
        (claim,) = largest_balls(net, x[None], [label], norm=norm)
        spent.append(time.process_time() - begun)
        shares.append(0.0 if claim is None or claim.value is None else claim.value / true)
        kinds.append("none" if claim is None or claim.proof is None else claim.proof.kind)
    share = np.array(shares)
    return {
        "name": name,
        "norm": norm,
        "networks": count,
        "short": int((share < 1.0 - 1e-6).sum()),
        "over": int((share > 1.0 + 1e-9).sum()),
        "share_mean": round(float(share.mean()), 7),
        "share_tenth": round(float(np.quantile(share, 0.1)), 7),
        "share_least": round(float(share.min()), 4),
        "by_hessians": kinds.count("local_hessians"),
        "seconds_mean": round(float(np.mean(spent)), 3),
        "seconds_most": round(float(np.max(spent)), 3),
    }


def main() -> None:
    """Measure what was asked for, and keep the rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--only", default=",".join(NAMES), help="activations, with commas between them")
    parser.add_argument("--norm", default="l2,linf", help="norms, with a comma between them")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--all", action="store_true", help="with every rule, not those by boxes alone")
    told = parser.parse_args()
    if not told.all:
        balls.covers = lambda *_: False
    rows = json.loads(told.out.read_text(encoding="utf-8")) if told.out.is_file() else []
    for name, norm in itertools.product(told.only.split(","), told.norm.split(",")):
        row = measured(name, norm, told.networks)
        row["command"] = " ".join(["python -m benchmarks.kinks", *sys.argv[1:]])
        print(json.dumps(row), flush=True)
        rows = [r for r in rows if (r["name"], r["norm"]) != (name, norm)] + [row]
        told.out.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
