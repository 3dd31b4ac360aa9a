r"""Equilibria and periodic orbits of stacks, proved to exist layer by layer.

The lowest level reads the input of the proof, every other level the next states of the level below, which are known to
lie in a ball. For each input sequence in that ball Krawczyk's test gives exactly one orbit of the upper level in a box,
so the whole stack has exactly one in the product of the boxes. The Jacobian of a stack is block triangular: its
multipliers are those of its levels, each along its own orbit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.kernel.arithmetic.activation_bounds import activation_slopes, activation_values
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.reachability.gated_orbits import enclose, product_along, step_and_jacobian
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import Layer, LayerStack
from stability.kernel.systems.pairwise import PairwiseSystem

Array = np.ndarray
DEPTH = 4  # channels of a layer may feed channels that feed channels so often


@dataclass(frozen=True, eq=False)
class LayerOrbit:
    """Orbit of one layer: a ball ``(k, n)`` of states, and the Jacobian ``(n, n)`` of ``k`` steps along it."""

    points: Ball
    jacobian: Ball


def layer_step(layer: Layer, state: Ball, u: Ball) -> tuple[Ball, Ball] | None:
    """Enclose a layer's next state and its Jacobian, for all states and inputs in balls.

    Args:
        layer: a gated cell, a map ``x+ = A x + B phi(z) + F u``, ``z = C x + D phi(z) + E u + b``, or a network with an
            activation on pairs.
        state: ball of ``(n,)``.
        u: ball of ``(p,)``.

    Returns:
        Balls of ``(n,)`` and ``(n, n)``; ``None`` for a layer in continuous time, channels that feed each other more
        often than four times in a row, and activations on pairs, which are not enclosed here.
    """
    return _STEPS[type(layer)](layer, state, u)


def _driven(layer: DrivenSystem, state: Ball, u: Ball) -> tuple[Ball, Ball] | None:
    if not layer.system.is_discrete:
        return None
    A, B, C, D = system_balls(layer.system)
    base = C @ state + Ball.exact(layer.E) @ u + layer.b
    pattern = (np.abs(D.mid) + D.rad) > 0
    feeds, rounds = pattern.astype(float), 1
    while feeds.any() and rounds <= DEPTH:
        feeds, rounds = (feeds @ pattern > 0).astype(float), rounds + 1
    if feeds.any():
        return None
    m = layer.system.channels
    w, dw = Ball.exact(np.zeros(m)), Ball.exact(np.zeros((m, layer.system.states)))
    for _ in range(rounds):
        z = base + D @ w
        w, dw = activation_values(layer.activation, z), activation_slopes(layer.activation, z)[:, None] * (C + D @ dw)
    return A @ state + B @ w + Ball.exact(layer.F) @ u, A + B @ dw


_STEPS: dict[type, Callable[[Any, Ball, Ball], tuple[Ball, Ball] | None]] = {
    DrivenSystem: _driven,
    GatedCell: step_and_jacobian,
    PairwiseSystem: lambda layer, state, u: None,
}


def enclose_stack_orbit(stack: LayerStack, points: Array, inputs: Array) -> list[LayerOrbit] | None:
    """Enclose one orbit per layer near the given points.

    Args:
        stack: a discrete stack with one direction.
        points: ``(k, n)`` approximate orbit of all states.
        inputs: ``(q, p)`` input, repeated, taken as exact; ``q`` divides ``k``.

    Returns:
        The layers' orbits, or ``None`` where one is not proved.
    """
    k = len(points)
    signal = Ball.exact(inputs[np.arange(k) % len(inputs)])
    at, boxes = 0, []
    for layer in stack.layers:
        layer_points = np.ascontiguousarray(points[:, at : at + layer.states])
        at += layer.states
        if layer_step(layer, Ball.exact(layer_points[0]), signal[0]) is None:
            return None

        def step(i: int, x: Ball, layer: Layer = layer, signal: Ball = signal) -> tuple[Ball, Ball]:
            done = layer_step(layer, x, signal[i])
            assert done is not None
            return done

        box = enclose(step, layer_points)
        if box is None:
            return None
        boxes.append(LayerOrbit(box, product_along(step, box)))
        next_boxes = box[(np.arange(k) + 1) % k]  # the level above reads what this one has just become
        signal = layer.output(next_boxes)
    return boxes
