"""What stands between echo state networks of 500 units and a certificate for inputs in [-1, 1].

    python -m benchmarks.driven_limits --seeds 0 1 2 3 4

The networks of ``benchmarks.driven`` (spectral radius .9, no leak). ``seen``: how wide the pre-activations range in
runs, on average: no set can be narrower. ``local``: the widest of the multiples of these ranges
over whose slopes the multiplier inequality holds: a set of that width would prove contraction. ``rate``: the best one
on those ranges themselves. ``terms`` and ``off``: runs are a function of their last inputs, and a polynomial of so many
terms in ten of them is off by so much, in norm, where it is farthest off of 4,000 runs it was not fitted to.
``entry``: the margin of the same inequality between *any* state and one of a run within these ranges, which would bring
every trajectory there without sets in between (negative: it fails). ``still``: the rate of the same for one constant
input, the run being its equilibrium.
Nothing here is a proof: ranges are those of runs, and secants are taken on a grid.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.driven import network
from stability.kernel.theorems.driven_lmi import slopes_on
from stability.kernel.theorems.regional_lmi import regional_system
from stability.search.criteria.multiplier import multiplier_criterion
from stability.systems import DrivenSystem

Array = np.ndarray
WEIGHTS = (0.7, 0.8, 1.0, 1.3, 1.6, 2.0, 2.4, 2.8, 3.2, 3.6)
"""What a degree in each of the last inputs counts."""
FACTORS = (1.0, 1.2, 1.5, 2.0, 3.0)


def seen(driven: DrivenSystem, steps: int = 600, runs: int = 200) -> tuple[Array, Array]:
    """Ends of the pre-activations in runs under random, extreme, constant and periodic inputs."""
    rng = np.random.default_rng(1)
    x, kind = rng.uniform(-1, 1, (runs, driven.states)), np.arange(runs) % 4
    low, high = np.full(driven.states, np.inf), np.full(driven.states, -np.inf)
    level, half = np.zeros(runs), np.ones(runs, dtype=int)
    for t in range(steps):
        if t % 50 == 0:
            level, half = rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], runs), rng.integers(1, 6, runs)
        u = np.where(rng.random(runs) < 0.3, rng.choice([-1.0, 1.0], runs), rng.uniform(-1, 1, runs))
        u = np.where(kind == 0, level, np.where(kind == 1, np.where((t // half) % 2 == 0, 1.0, -1.0), u))[:, None]
        z, x = driven.channel(x, u), driven.advance(x, u)
        if t >= 50:
            low, high = np.minimum(low, z.min(axis=0)), np.maximum(high, z.max(axis=0))
    return low, high


def secants(low: Array, high: Array, least: Array, most: Array) -> tuple[Array, Array]:
    """Ends of the slopes of tanh between a point of ``[low, high]`` and one of ``[least, most]``, on a grid."""
    z = least + (most - least) * np.linspace(0, 1, 400)[:, None]
    bottom, top = np.full(len(low), np.inf), np.full(len(low), -np.inf)
    for share in np.linspace(0, 1, 9):
        start = low + (high - low) * share
        gap = z - start
        near = np.abs(gap) < 1e-6
        slope = np.where(near, 1 - np.tanh(z) ** 2, (np.tanh(z) - np.tanh(start)) / np.where(near, 1.0, gap))
        bottom, top = np.minimum(bottom, slope.min(axis=0)), np.maximum(top, slope.max(axis=0))
    return bottom, np.minimum(top, 1.0)


def described(driven: DrivenSystem, most: float = 4.0) -> tuple[int, float]:
    """Terms of a polynomial in the last inputs, of lower degree the older they are, and how far runs are from it."""
    rng, weights, lags = np.random.default_rng(2), np.array(WEIGHTS), len(WEIGHTS)
    degrees = [range(int(most / weight) + 1) for weight in weights]
    powers: list[tuple[int, ...]] = [()]
    for own in degrees:  # only what can still be afforded is kept: all products would be millions
        grown = ((*p, d) for p in powers for d in own)
        powers = [p for p in grown if float(np.dot(p, weights[: len(p)])) <= most]

    def drawn(count: int) -> tuple[Array, Array]:
        u = rng.uniform(-1, 1, (lags + 6, count))
        u = np.where(rng.random(u.shape) < 0.3, np.sign(u), u)
        x = np.zeros((count, driven.states))
        for now in u[::-1]:
            x = driven.advance(x, now[:, None])
        values = [np.polynomial.chebyshev.chebvander(u[k], len(degrees[k]) - 1) for k in range(lags)]
        return np.stack([np.prod([values[k][:, d] for k, d in enumerate(p)], axis=0) for p in powers], axis=1), x

    terms, x = drawn(3000)
    fitted = np.linalg.lstsq(terms, x)[0]
    terms, x = drawn(4000)
    return len(powers), float(np.linalg.norm(terms @ fitted - x, axis=1).max())


def limits(driven: DrivenSystem) -> dict:
    """The figures of one network."""
    low, high = seen(driven)
    terms, off = described(driven)
    middle, half = 0.5 * (low + high), 0.5 * (high - low)
    local = None
    for factor in FACTORS:
        inner = slopes_on(driven, middle - factor * half, middle + factor * half)
        if not multiplier_criterion(inner, rate="any", solver="riccati").holds:
            break
        local = factor
    every = np.abs(driven.system.C).sum(axis=1) + np.abs(driven.E).sum(axis=1)
    every = driven.b - every, driven.b + every
    entry = regional_system(driven.system, *secants(low, high, *every))
    x, u = np.zeros(driven.states), np.zeros(driven.inputs)
    for _ in range(300):
        x = driven.advance(x, u)
    z = driven.channel(x, u)
    still = regional_system(driven.system, *secants(z, z, *every))
    return {
        "seen": float(np.mean(high - low)),
        "local": local,
        "rate": multiplier_criterion(slopes_on(driven, low, high), tol=1e-2).rate,
        "terms": terms,
        "off": off,
        "entry": multiplier_criterion(entry, rate="any", solver="riccati").margin,
        "still": multiplier_criterion(still, solver="riccati", tol=1e-2).rate,
    }


def main() -> None:
    """Measure, print and keep: rows of other networks stay in the file as they are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(5)))
    parser.add_argument("--size", type=int, default=500)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "driven_limits.json")
    options = parser.parse_args()
    for seed in options.seeds:
        row = {"n": options.size, "seed": seed, **limits(network(options.size, 0.9, 1.0, seed))}
        print(json.dumps(row), flush=True)
        kept = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
        rows = [r for r in kept if (r["n"], r["seed"]) != (options.size, seed)] + [row]
        rows.sort(key=lambda r: (r["n"], r["seed"]))
        options.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
