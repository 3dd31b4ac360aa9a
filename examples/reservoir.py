"""What a spectral radius does not tell: one echo state network, refuted at .85 and certified at 1.0.

    python examples/reservoir.py runs/reservoir
    stability certify runs/reservoir/reservoir.npz --input-box -1 1

At a spectral radius of .85 the bare system, every activation with slopes in [0, 1] under every input, is not stable:
there is a proof. At 1.0 the network with its biases forgets whatever it began with under every input in [-1, 1]: there
is a proof as well. Beside them stands the largest Lyapunov exponent that was measured along random inputs.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

from stability import certify, refute
from stability.systems import DrivenSystem, reservoir_system

UNITS, SEED = 100, 10


def draw(radius: float) -> dict[str, np.ndarray]:
    """W of 10 % connectivity and a spectral radius, biases +-1, one input into every tenth unit."""
    rng = np.random.default_rng(SEED)
    W = rng.normal(size=(UNITS, UNITS)) * (rng.random((UNITS, UNITS)) < 0.1)
    W *= radius / np.abs(np.linalg.eigvals(W)).max()
    Win = np.zeros((UNITS, 1))
    Win[: UNITS // 10] = 1.0
    return {"W": W, "Win": Win, "bias": rng.choice([-1.0, 1.0], size=UNITS)}


def largest_exponent(network: DrivenSystem, steps: int = 2000) -> float:
    """Mean growth a step of a tangent vector, inputs -1 and 1 at random."""
    rng = np.random.default_rng(0)
    h, v, total = np.zeros(network.states), rng.normal(size=network.states), 0.0
    for _ in range(steps):
        u = rng.choice([-1.0, 1.0], size=1)
        v, h = network.jacobian(h, u) @ v, network.advance(h, u)
        size = float(np.linalg.norm(v))
        v, total = v / size, total + math.log(size)
    return total / steps


def main(folder: Path) -> None:
    """Ask both questions."""
    bare = reservoir_system(**draw(0.85)).system
    witness = refute(bare)
    kind = witness.proof.kind if witness.proof is not None else "no witness"
    print(f"spectral radius 0.85, nothing known of inputs: refuted {witness.found} ({kind})")
    network = reservoir_system(**draw(1.0))
    certificate = certify(network, input_box=(-1.0, 1.0), refute=False)
    print(f"spectral radius 1.0, inputs in [-1, 1]: {certificate.verdict}")
    if certificate.rate is not None:
        recovery = certificate.recovery_time(1.0, 1e-3)
        print(f"rate {certificate.rate:.3f} a step; a difference of 1 is below 0.001 after {recovery.time} steps")
    print(f"measured along random inputs: {math.exp(largest_exponent(network)):.3f} a step")
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "reservoir.npz", **draw(1.0))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/reservoir"))
