"""Certify one echo state network at two spectral radii: refuted at 0.85, certified at 1.0 for bounded inputs.

    python examples/reservoir.py runs/reservoir
    stability certify runs/reservoir/reservoir.npz --input-box -1 1

At a spectral radius of 0.85, the system with every activation of slopes in [0, 1] is proven not stable. At 1.0, the
network with its biases is proven stable under every input in [-1, 1]. The script also measures the largest Lyapunov
exponent along random inputs.
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
    """Return W of 10 % connectivity and a spectral radius, biases +-1, and one input into every tenth unit."""
    rng = np.random.default_rng(SEED)
    W = rng.normal(size=(UNITS, UNITS)) * (rng.random((UNITS, UNITS)) < 0.1)
    W *= radius / np.abs(np.linalg.eigvals(W)).max()
    Win = np.zeros((UNITS, 1))
    Win[: UNITS // 10] = 1.0
    return {"W": W, "Win": Win, "bias": rng.choice([-1.0, 1.0], size=UNITS)}


def largest_exponent(network: DrivenSystem, steps: int = 2000) -> float:
    """Return the mean growth per step of a tangent vector under random inputs -1 and 1."""
    rng = np.random.default_rng(0)
    h, v, total = np.zeros(network.states), rng.normal(size=network.states), 0.0
    for _ in range(steps):
        u = rng.choice([-1.0, 1.0], size=1)
        v, h = network.jacobian(h, u) @ v, network.advance(h, u)
        size = float(np.linalg.norm(v))
        v, total = v / size, total + math.log(size)
    return total / steps


def main(folder: Path) -> None:
    """Certify both networks and measure."""
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
