"""Simulation of networks in float64: iterated maps, Runge-Kutta steps of flows."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.kernel.systems.gated_cell import GatedCell

Array = np.ndarray


def draw_states(subject: Any, rng: np.random.Generator, count: int) -> Array:
    """Draw initial states ``(count, n)`` of the size that a layer reaches."""
    shape = count, subject.states
    if isinstance(subject, GatedCell):
        return rng.uniform(-1.0, 1.0, shape)
    return getattr(subject, "natural_size", 2.0) * rng.normal(size=shape)


def natural_step(driven: Any) -> float:
    """Return the integration step of a flow, ``0.2 / (|A| + |B| |K| |C|)`` by its fastest motion; 1 for a map."""
    if driven.is_discrete:
        return 1.0
    system = driven.system
    speed = np.abs(system.A).sum(axis=1).max(initial=0.0)
    if system.channels:
        slope = float(np.maximum(np.abs(system.alpha), np.abs(system.beta)).max())
        speed += slope * np.linalg.norm(system.B, 2) * np.linalg.norm(system.C, 2)
    return float(0.2 / max(speed, 1e-12))


def advance_batch(driven: Any, x: Array, u: Array, step: float) -> Array:
    """Advance states ``(..., n)`` by one step (Runge-Kutta for a flow) with inputs ``(..., p)`` held constant."""
    k1 = driven.advance(x, u)
    if driven.is_discrete:
        return k1
    k2 = driven.advance(x + 0.5 * step * k1, u)
    k3 = driven.advance(x + 0.5 * step * k2, u)
    k4 = driven.advance(x + step * k3, u)
    return x + step / 6.0 * (k1 + 2.0 * (k2 + k3) + k4)


def simulate_to_limit(
    subject: Any, states: Array, inputs: Array, steps: int, deadline: Any, tail: int = 0
) -> tuple[Array, Array]:
    """Return states after some steps, and averages of the states over the last steps.

    Args:
        subject: subject with ``advance`` and ``is_discrete``; a flow takes Runge-Kutta steps of ``natural_step``.
        states: ``(..., n)`` initial states.
        inputs: ``(q, ..., p)`` periodic inputs.
        steps: number of steps; fewer at the deadline.
        deadline: checked every five steps.
        tail: number of last steps over which states are averaged.

    Returns:
        The states and the averages, each ``(..., n)``.
    """
    step, total = natural_step(subject), np.zeros_like(states)
    inputs = np.broadcast_to(inputs, (len(inputs), *states.shape[:-1], inputs.shape[-1]))
    for t in range(steps):
        states = advance_batch(subject, states, inputs[t % len(inputs)], step)
        if t >= steps - tail:
            total = total + states
        if t % 5 == 4 and deadline.over:
            break
    return states, total / max(min(tail, steps), 1)


def simulate_path(subject: Any, state: Array, inputs: Array, steps: int, deadline: Any = None) -> Array:
    """Return the run ``(steps, n)`` from ``state``, under periodic ``inputs (q, p)``; shorter at the deadline."""
    path, step = [state], natural_step(subject)
    for t in range(steps - 1):
        if deadline is not None and deadline.over:
            break
        path.append(advance_batch(subject, path[-1], inputs[t % len(inputs)], step))
    return np.array(path)
