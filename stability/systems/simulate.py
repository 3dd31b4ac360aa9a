"""Plain simulation of a network in float64: the map itself, or Runge-Kutta steps of the flow."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["advance_many", "natural_step", "pair_gaps"]

Array = np.ndarray


def natural_step(driven: Any) -> float:
    """A step for the fastest motion there can be: ``0.2 / (|A| + |B| |K| |C|)``; 1 for a map."""
    system = driven.system
    if system.is_discrete:
        return 1.0
    speed = np.abs(system.A).sum(axis=1).max(initial=0.0)
    if system.channels:
        slope = float(np.maximum(np.abs(system.alpha), np.abs(system.beta)).max())
        speed += slope * np.linalg.norm(system.B, 2) * np.linalg.norm(system.C, 2)
    return float(0.2 / max(speed, 1e-12))


def advance_many(driven: Any, x: Array, u: Array, step: float) -> Array:
    """One step for a batch of states ``(..., n)`` with inputs ``(..., p)`` held constant."""
    if driven.system.is_discrete:
        return driven.advance(x, u)
    k1 = driven.advance(x, u)
    k2 = driven.advance(x + 0.5 * step * k1, u)
    k3 = driven.advance(x + 0.5 * step * k2, u)
    k4 = driven.advance(x + step * k3, u)
    return x + step / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)


def pair_gaps(driven: Any, first: Array, second: Array, u: Array, step: float, steps: int) -> Array:
    """Distances of two trajectories under one input ``(p,)``, or ``(k, p)`` repeated: ``(steps + 1,)``, from time 0."""
    x = np.stack([first, second])
    inputs = np.atleast_2d(u)
    gaps = np.empty(steps + 1)
    for i in range(steps + 1):
        difference = x[0] - x[1]
        gaps[i] = np.sqrt(difference @ difference)
        if not np.isfinite(gaps[i]):
            gaps[i:] = np.nan
            break
        if i < steps:
            x = advance_many(driven, x, np.broadcast_to(inputs[i % len(inputs)], (2, inputs.shape[1])), step)
    return gaps
