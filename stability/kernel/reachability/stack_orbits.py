r"""Equilibria and periodic orbits of stacks, proved to exist layer by layer.

The lowest layer reads the input of the proof. Every other layer reads the next states of the layer below, which lie in
a known ball. For each input sequence in that ball Krawczyk's test proves exactly one orbit of the layer in a box. The
stack then has exactly one orbit in the product of the boxes. The Jacobian of a stack is block triangular: its
eigenvalues are those of its layers, each along its own orbit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activation_bounds import activation_slopes, activation_values
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.checks import levels_of
from stability.kernel.reachability.gated_orbits import enclose, product_along, step_and_jacobian
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import Layer, LayerStack

Array = np.ndarray
DEPTH = 5  # most channels of a chain in which each feeds the next within one step


@dataclass(frozen=True, eq=False)
class LayerOrbit:
    """Enclosed orbit of one layer: ``points (k, n)``, and the ``jacobian (n, n)`` of the ``k`` steps along it."""

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
        Balls of ``(n,)`` and ``(n, n)``. ``None`` for a layer in continuous time, for a chain of more than ``DEPTH``
        channels, and for activations on pairs.
    """
    if isinstance(layer, DrivenSystem):
        return _driven(layer, state, u)
    return step_and_jacobian(layer, state, u) if isinstance(layer, GatedCell) else None


def _driven(layer: DrivenSystem, state: Ball, u: Ball) -> tuple[Ball, Ball] | None:
    """Enclose the step of a Lur'e network, whose channels are evaluated in the order in which they feed each other."""
    if not layer.system.is_discrete:
        return None
    A, B, C, D = system_balls(layer.system)
    base = C @ state + Ball.exact(layer.E) @ u + layer.b
    levels = levels_of((np.abs(D.mid) + D.rad) > 0)
    if levels is None or len(levels) > DEPTH:
        return None
    m = layer.system.channels
    w, dw = Ball.exact(np.zeros(m)), Ball.exact(np.zeros((m, layer.system.states)))
    for _ in levels:
        z = base + D @ w
        w, dw = activation_values(layer.activation, z), activation_slopes(layer.activation, z)[:, None] * (C + D @ dw)
    return A @ state + B @ w + Ball.exact(layer.F) @ u, A + B @ dw


def enclose_stack_orbit(stack: LayerStack, points: Array, inputs: Array) -> list[LayerOrbit] | None:
    """Enclose one orbit per layer near the given points.

    Args:
        stack: a discrete stack with one direction.
        points: ``(k, n)`` approximate orbit of all states.
        inputs: ``(q, p)`` exact periodic input; ``q`` divides ``k``.

    Returns:
        The layers' orbits, or ``None`` if the existence of one is not proved.
    """
    k = len(points)
    signal = Ball.exact(inputs[np.arange(k) % len(inputs)])
    first, orbits = 0, []
    for layer in stack.layers:
        layer_points = np.ascontiguousarray(points[:, first : first + layer.states])
        first += layer.states
        if layer_step(layer, Ball.exact(layer_points[0]), signal[0]) is None:
            return None

        def step(i: int, x: Ball, layer: Layer = layer, signal: Ball = signal) -> tuple[Ball, Ball]:
            enclosed = layer_step(layer, x, signal[i])
            assert enclosed is not None
            return enclosed

        box = enclose(step, layer_points)
        if box is None:
            return None
        orbits.append(LayerOrbit(box, product_along(step, box)))
        next_states = box[(np.arange(k) + 1) % k]  # the layer above reads the new states
        signal = layer.output(next_states)
    return orbits
