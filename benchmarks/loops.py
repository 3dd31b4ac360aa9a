"""Margins of control loops, beside the same margins by other means.

    python -m benchmarks.loops                                       # all tables; the random loops take an hour
    python -m benchmarks.loops --only gain_margins
    python -m benchmarks.loops --only random_loops --count 2000 --seed 1

``gain_margins``: certified factors of 30 textbook loops against the circle criterion on a dense grid of frequencies,
and the proved destabilizing factors against eigenvalues. With constant gains the criterion is about eigenvalues, too.
``random_loops``: gain and disk margins of random loops with 1 or 2 channels against eigenvalues at constant gains.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

import numpy as np

from stability import LureSystem, disk_margin, gain_margin

from .textbook_loops import LOOPS, plant
from .timing import arguments, keep, processor

FARTHEST = 1e3
"""Factors beyond this one, and below its inverse, count as unlimited."""


def edge(holds: Callable[[float], bool], up: bool) -> float:
    """Return the first factor above or below 1 at which a property fails: a scan in steps of 1 %, then bisection."""
    step = 1.01 if up else 1.0 / 1.01
    good = 1.0
    while 1.0 / FARTHEST < good < FARTHEST:
        bad = good * step
        if not holds(bad):
            for _ in range(40):
                middle = np.sqrt(good * bad)
                good, bad = (middle, bad) if holds(middle) else (good, middle)
            return float(good)
        good = bad
    return np.inf if up else 0.0


def excess(system: LureSystem, slopes: np.ndarray) -> np.ndarray:
    """Return real part, or modulus less 1, of the largest eigenvalue at many constant slopes ``(K, m)``."""
    inner = np.eye(system.channels) - system.D * slopes[:, None, :]
    closed = system.A + (system.B * slopes[:, None, :]) @ np.linalg.solve(
        inner, np.broadcast_to(system.C, (len(slopes), *system.C.shape))
    )
    values = np.linalg.eigvals(closed)
    return (np.abs(values) - 1.0 if system.is_discrete else values.real).max(axis=1)


def frequency_response(matrices: tuple, dt: float | None) -> np.ndarray:
    """Return the plant's response on a dense grid, refined around its poles and zeros."""
    A, B, C, D = matrices[:4]
    found = np.linalg.eigvals(A)
    speeds = np.abs(np.log(found + 1e-300) / dt if dt else found)
    speeds = speeds[speeds > 1e-9] if (speeds > 1e-9).any() else np.ones(1)
    omega = np.geomspace(1e-3 * min(1.0, speeds.min()), np.pi / dt if dt else 1e3 * max(1.0, speeds.max()), 60000)
    near = [np.abs(p.imag) + np.abs(p) * np.linspace(-0.3, 0.3, 4001) for p in (found if dt is None else ())]
    omega = np.concatenate([omega, *near])
    omega = omega[omega > 0]
    s = np.exp(1j * omega * dt) if dt else 1j * omega
    values, vectors = np.linalg.eig(A)
    if np.linalg.cond(vectors) < 1e8:
        left, right = C @ vectors, np.linalg.solve(vectors, B.astype(complex))
        return (left / (s[:, None] - values)) @ right[:, 0] + D[0, 0]
    parts = [np.linalg.solve(x[:, None, None] * np.eye(len(A)) - A, B)[:, :, 0] @ C[0] for x in np.array_split(s, 30)]
    return np.concatenate(parts) + D[0, 0]


def other_margins(matrices: tuple, slope: tuple[float, float]) -> tuple[list[float], list[float]]:
    """Return the ends of the factors for which the circle criterion holds, and of those with stable eigenvalues."""
    system, dt = LureSystem.from_state_space(matrices, slope=slope), matrices[4] if len(matrices) > 4 else None
    G, (alpha, beta) = frequency_response(matrices, dt), slope

    def constant(gain: float) -> bool:
        return bool(excess(system, np.array([[gain]]))[0] < 0.0)

    def circle(k: float) -> bool:
        """Return True if the loop is stable with slope ``k beta`` and the curve avoids the disk of the sector."""
        return constant(k * beta) and bool((((1 + k * beta * G) * (1 + k * alpha * G).conj()).real > 0).all())

    by_circle = [edge(circle, up) for up in (False, True)] if circle(1.0) else [1.0, 1.0]
    return by_circle, [edge(lambda k: constant(k * alpha), False), edge(lambda k: constant(k * beta), True)]


def gain_margins(options: Namespace) -> None:
    """Compare the margins of the textbook loops."""
    worst, beyond, destabilizing, seconds = 0.0, 0, 0.0, []
    for name in options.loops or LOOPS:
        matrices, slope = plant(name)
        system = LureSystem.from_state_space(matrices, slope=slope)
        time, found = processor(lambda s=system: gain_margin(s))
        seconds.append(time)
        circle, stable = other_margins(matrices, slope)
        own = [max(found.certified_low, 1.0 / FARTHEST), float(np.clip(found.certified, 1.0 / FARTHEST, FARTHEST))]
        excesses = [own[0] / max(circle[0], 1.0 / FARTHEST) - 1.0, min(circle[1], FARTHEST) / own[1] - 1.0]
        beyond += min(excesses) < -1e-6
        worst = max(worst, *excesses)
        low, high = found.destabilising_low, found.destabilising
        near = [stable[0] / low - 1.0 if low > 1e-6 else 0.0, high / stable[1] - 1.0 if np.isfinite(high) else 0.0]
        destabilizing = max(destabilizing, *near)
        row = {"loop": name, "n": system.states, "slope": slope, "certified": [found.certified_low, found.certified]}
        row |= {"circle criterion": circle, "shortfall": excesses, "destabilizing": [low, high], "eigenvalues": stable}
        keep(options.out, {**row, "seconds": time}, "loop")
    total = {"loop": "all", "loops": len(seconds), "worst shortfall": worst, "beyond": beyond}
    keep(options.out, {**total, "destabilizing beyond eigenvalues": destabilizing, "seconds": sum(seconds)}, "loop")


def draw(rng: np.random.Generator) -> LureSystem:
    """Return a random loop whose slopes of size 1 leave it stable in half of all cases or more."""
    n, m, discrete = int(rng.integers(1, 5)), int(rng.choice([1, 1, 1, 2])), bool(rng.integers(2))
    A = rng.normal(size=(n, n)) / np.sqrt(n)
    A = A * rng.uniform(0.3, 1.3) if discrete else A - rng.uniform(-0.2, 2.0) * np.eye(n)
    B, C = rng.normal(size=(n, m)), rng.normal(size=(m, n))
    low = float(rng.choice([0.0, 1.0, rng.uniform(0.1, 0.9), -rng.uniform(0.0, 1.0)]))
    return LureSystem(A, B * rng.uniform(0.1, 1.0), C, slope=(low, 1.0), dt=1.0 if discrete else None)


def beyond_truth(system: LureSystem, rng: np.random.Generator) -> tuple[bool, bool]:
    """Return whether the gain margin and the disk margin exceed what eigenvalues at constant gains allow."""
    found = gain_margin(system, tol=0.02, refute=False)
    disk = disk_margin(system, tol=0.02)
    wrong = [False, False]
    if found.certificate is not None:
        top = min(found.certified, FARTHEST)
        ends = np.geomspace(max(found.certified_low, 1e-3 * top), top, 200)
        shares = np.concatenate(
            [np.zeros((1, system.channels)), np.ones((1, system.channels)), rng.random((8, system.channels))]
        )
        low, high = system.alpha, system.beta
        slopes = (ends[:, None, None] * (low + shares * (high - low))).reshape(-1, system.channels)
        worst = slopes[np.argsort(-excess(system, slopes))[:3]]
        slopes = np.concatenate([worst, *(worst * (1 + 1e-9 * k) for k in (-1, 1))]) if top < FARTHEST else worst
        wrong[0] = bool((excess(system, slopes) > 1e-9).any())
    if disk.alpha > 0.0:
        delta = disk.alpha * np.exp(2j * np.pi * rng.random((400, system.channels)))
        wrong[1] = bool((excess(system, (1 + 0.5 * delta) / (1 - 0.5 * delta)) > 1e-9).any())
    return wrong[0], wrong[1]


def random_loops(options: Namespace) -> None:
    """Count margins of random loops beyond the truth."""
    rng = np.random.default_rng(options.seed)
    totals = np.zeros(2, dtype=int)
    for k in range(1, options.count + 1):
        system = draw(rng)
        totals += beyond_truth(system, rng)
        if k % 500 == 0 or k == options.count:
            row = {"loop": "random", "seed": options.seed, "loops": k, "gain margins beyond": int(totals[0])}
            keep(options.out, {**row, "disk margins beyond": int(totals[1])}, "loop", "seed")


PARTS = {"gain_margins": gain_margins, "random_loops": random_loops}


def main() -> None:
    parser = arguments(__doc__, "loops", PARTS)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loops", nargs="*", help="names of textbook loops; all by default")
    options = parser.parse_args()
    for name in options.only:
        PARTS[name](options)


if __name__ == "__main__":
    main()
