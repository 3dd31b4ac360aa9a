r"""Search for periodic inputs along which differences of trajectories grow.

Gradient ascent of :math:`\log r(J_{q-1} \cdots J_0) / q`, with the spectral radius r, over the inputs
:math:`u_0, \dots, u_{q-1}`. The Jacobians are those along the orbit that the network converges to under these inputs;
the adjoint of the orbit gives the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.systems.driven import DrivenSystem
from stability.search.counterexamples.eigenvalue_gradient import eigenvectors
from stability.search.counterexamples.limit_cycles import orbit_multiplier, refine_orbit
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import InputRange

Array = np.ndarray
SETTLE, AROUND = 30, 8
"""Periods of the run that reaches the orbit, and periods of the adjoint."""


@dataclass(frozen=True, eq=False)
class PeriodicInput:
    """Periodic input, the orbit under it and its growth per step.

    Attributes:
        inputs: ``(q, p)``.
        orbit: ``(q, n)``.
        radius: ``q``-th root of the modulus of the leading multiplier.
    """

    inputs: Array
    orbit: Array
    radius: float


def ascend_periodic_inputs(
    driven: DrivenSystem,
    region: InputRange,
    *,
    rng: np.random.Generator,
    deadline: Deadline,
    periods: tuple[int, ...],
    starts: int,
    steps: int = 12,
) -> Iterator[PeriodicInput]:
    """Yield the result of each ascent.

    Args:
        driven: a map without feedthrough, its activation smooth.
        region: bounds of the inputs, finite.
        rng: generator of the starts.
        deadline: checked before every step.
        periods: periods of the inputs.
        starts: number of starts of each period.
        steps: steps of each ascent.

    Yields:
        The last input of the ascent, its orbit and growth; nothing if the network converges to no such orbit.
    """
    for q in periods:
        for u in region.draw(rng, (starts, q), driven.inputs):
            if deadline.over:
                return
            periodic = _ascend(driven, region, u, steps, deadline)
            if periodic is not None:
                yield periodic


def _ascend(driven: DrivenSystem, region: InputRange, u: Array, steps: int, deadline: Deadline) -> PeriodicInput | None:
    current, length = _settled(driven, u, np.zeros(driven.states), deadline), 0.5
    for _ in range(steps):
        if current is None or deadline.over or length < 1e-3:
            break
        gradient = _gradient(driven, current)
        size = 0.0 if gradient is None else float(np.abs(gradient).max())
        if gradient is None or not 0.0 < size < np.inf:
            break
        reach = 1.0 + float(np.abs(current.inputs).max())
        trial = region.clip(current.inputs + length * reach / size * gradient)
        settled = _settled(driven, trial, current.orbit[0], deadline)
        if settled is not None and settled.radius > current.radius * (1 + 1e-9):
            current, length = settled, min(1.5 * length, 1.0)
        else:
            length *= 0.4
    return current


def _settled(driven: DrivenSystem, u: Array, state: Array, deadline: Deadline) -> PeriodicInput | None:
    """Return the orbit under an input, or ``None`` if the network converges to none of its period."""
    q = len(u)
    for t in range(SETTLE * q):
        state = driven.advance(state, u[t % q])
    points = [state]
    for t in range(q - 1):
        points.append(driven.advance(points[-1], u[t]))
    orbit = np.array(points)
    if not np.isfinite(orbit).all():
        return None
    if np.abs(driven.advance(orbit[-1], u[-1]) - orbit[0]).max() > 1e-9:
        polished = refine_orbit(driven, orbit, u, deadline=deadline)
        if polished is None:
            return None
        orbit = polished
    return PeriodicInput(u, orbit, abs(orbit_multiplier(driven, orbit, u)))


def _gradient(driven: DrivenSystem, periodic: PeriodicInput) -> Array | None:
    """Return the derivative of the logarithm of the product's leading eigenvalue by the inputs, ``(q, p)``."""
    system, phi, q = driven.system, activation(driven.activation), len(periodic.inputs)
    z = np.array([driven.channel(x, u) for x, u in zip(periodic.orbit, periodic.inputs)])
    slopes, bends = np.asarray(phi.derivative(z)), phi.second_derivative(z)
    steps = [system.jacobian(k) for k in slopes]
    product = steps[0]
    for step in steps[1:]:
        product = step @ product
    values = np.linalg.eigvals(product)
    value = complex(values[int(np.argmax(np.abs(values)))])
    pair = eigenvectors(product, value) if value else None
    if pair is None or abs(pair[1] @ pair[0]) < 1e-14 * float(np.linalg.norm(pair[1])):
        return None
    right, left = [pair[0]], [pair[1]]
    for step in steps[:-1]:
        right.append(step @ right[-1])
    for step in steps[:0:-1]:
        left.append(step.T @ left[-1])
    overlap = value * (pair[1] @ pair[0])
    by_slope = np.array([np.real((y @ system.B) * (system.C @ x) / overlap) for x, y in zip(right, reversed(left))])
    by_channel = by_slope * bends
    state, gradient = np.zeros(driven.states), np.zeros_like(periodic.inputs)
    for t in reversed(range(AROUND * q)):
        k = t % q
        channel = by_channel[k] + slopes[k] * (system.B.T @ state)
        gradient[k] = driven.E.T @ channel + driven.F.T @ state
        state = system.C.T @ by_channel[k] + steps[k].T @ state
    return gradient if np.isfinite(gradient).all() else None
