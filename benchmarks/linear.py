"""Random stable and unstable linear systems: which are decided, how near to the spectral rate, in what time.

    python -m benchmarks.linear                   # 200 of each (about a minute)

Half are discrete. Time scales lie 1 to 1e6 apart, some eigenvalues are pairs, and the eigenvectors' condition number is
drawn so that its cube times the ratio of time scales is at most 1e12.
"""

from __future__ import annotations

import numpy as np

from stability import LureSystem, certify, verify

from .timing import arguments, keep, processor

SIZES = (2, 3, 5, 8, 12, 16, 20, 32, 64)


def draw(rng: np.random.Generator, stable: bool) -> tuple[LureSystem, float]:
    """Return a system and its distance from the boundary of stability, negative for unstable ones."""
    n, decades, discrete = int(rng.choice(SIZES)), rng.uniform(0.0, 6.0), bool(rng.integers(2))
    condition = 10.0 ** (rng.uniform() * (11.9 - decades) / 3.0)
    U, V = (np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(2))
    T = U @ np.diag(np.geomspace(1.0, 1.0 / condition, n)) @ V
    sizes = np.geomspace(10.0**-decades, 1.0, n) * (0.9 if discrete else 1.0)
    blocks = np.diag(1.0 - sizes if discrete else -sizes)
    for i in range(0, n - 1, 2):
        if rng.uniform() < 0.5:
            turn, size = rng.uniform(0.0, 3.0), blocks[i, i]
            pair = size * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
            blocks[i : i + 2, i : i + 2] = pair if discrete else [[size, turn], [-turn, size]]
    if not stable:
        blocks[0] = blocks[1] = 0.0
        blocks[:, :2] = 0.0
        gap = 10.0 ** -rng.uniform(0.0, decades)
        blocks[0, 0] = 1.0 + gap if discrete else gap
    A = T @ blocks @ np.linalg.inv(T)
    eigenvalues = np.linalg.eigvals(A)
    margin = 1.0 - np.abs(eigenvalues).max() if discrete else -eigenvalues.real.max()
    return LureSystem.linear(A, 1.0 if discrete else None), float(margin)


def main() -> None:
    parser = arguments(__doc__, "linear")
    parser.add_argument("--count", type=int, default=200)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    for stable in (True, False):
        right = wrong = near = invalid = 0
        small, large = [], []
        for _ in range(options.count):
            system, margin = draw(rng, stable)
            seconds, found = processor(lambda s=system: certify(s))
            (small if system.states <= 20 else large).append(seconds)
            right += found.verdict == ("certified" if stable else "refuted")
            wrong += found.verdict == ("refuted" if stable else "certified")
            invalid += found.verdict != "inconclusive" and not verify(found).valid
            if stable and found.rate is not None:
                near += (1.0 - found.rate if system.is_discrete else found.rate) >= 0.999 * margin
        row = {"kind": "stable" if stable else "unstable", "count": options.count, "right": right, "wrong": wrong}
        row |= {"invalid": invalid, "within a thousandth": near}
        keep(options.out, {**row, "seconds to 20": max(small), "seconds beyond": max(large)}, "kind")


if __name__ == "__main__":
    main()
