r"""Orbits of gated cells and stacks under inputs in a box along which differences are forgotten slowly: a search.

A population of inputs of short periods runs until it settles; of each orbit the multipliers of every layer are looked
at, and the inputs of the slowest are moved towards corners of the box and crossed, so many rounds. What is found is
exact to rounding (Newton's method) and proves nothing by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.gated.cell import GatedCell
from stability.refute.gated_equilibria import largest_eigenvalues
from stability.refute.inputs import InputRange
from stability.refute.runs import closed_path, polish_orbit
from stability.solve.deadline import Deadline
from stability.stacks.stack import LayerStack
from stability.systems.simulate import settle

Array = np.ndarray
PERIODS, COUNT, ROUNDS, KEPT, SETTLE = (1, 2), 12, 4, 3, 240


@dataclass(frozen=True, eq=False)
class SlowOrbit:
    """An orbit and its slowest multiplier.

    Attributes:
        inputs: ``(q, p)``.
        orbit: ``(k, n)``, ``k`` a multiple of ``q``.
        value: of the product of the ``k`` Jacobians of one layer.
        layer: that layer.
    """

    inputs: Array
    orbit: Array
    value: complex
    layer: int

    @property
    def radius(self) -> float:
        """Growth a step."""
        return abs(self.value) ** (1.0 / len(self.orbit))


def slow_orbits(
    subject: GatedCell | LayerStack, box: InputRange, *, rng: np.random.Generator, deadline: Deadline
) -> list[SlowOrbit]:
    """The slowest orbits that were found, the slowest first.

    Args:
        subject: a cell, or a discrete stack with one direction.
        box: of inputs, finite.
        rng: of the population.
        deadline: asked before each orbit.

    Returns:
        At most a few of each period; none where nothing settles.

    Example:
        >>> cell = GatedCell("gru", np.zeros((3, 1)), np.array([[0.0], [0.0], [0.5]]), input_low=-1.0, input_high=1.0)
        >>> box = InputRange(-np.ones(1), np.ones(1))
        >>> round(slow_orbits(cell, box, rng=np.random.default_rng(0), deadline=Deadline())[0].radius, 3)
        0.625
    """
    found: list[SlowOrbit] = []
    for period in PERIODS:
        inputs = box.draw(rng, (COUNT, period), subject.inputs)
        best: list[SlowOrbit] = []
        for _ in range(ROUNDS if subject.inputs else 1):
            best = sorted(best + _settled(subject, inputs, deadline), key=lambda f: -f.radius)[:KEPT]
            if deadline.over or not best:
                break
            inputs = _moved(np.stack([f.inputs for f in best]), box, rng)
        found += best
    return sorted(found, key=lambda f: -f.radius)


def _moved(parents: Array, box: InputRange, rng: np.random.Generator) -> Array:
    """``(COUNT, q, p)`` inputs: parents crossed, some entries sent to an end of the box, all a little aside."""
    shape = (COUNT, *parents.shape[1:])
    one, two = (parents[rng.integers(len(parents), size=COUNT)] for _ in range(2))
    u = np.where(rng.random(shape) < 0.5, one, two)
    ends = np.where(rng.random(shape) < 0.5, box.low, box.high)
    u = np.where(rng.random(shape) < 0.2, ends, u)
    return box.clip(u + 0.1 * (box.high - box.low) * rng.normal(size=shape) * (rng.random((COUNT, 1, 1)) < 0.7))


def _settled(subject: GatedCell | LayerStack, inputs: Array, deadline: Deadline) -> list[SlowOrbit]:
    """The orbits on which runs from zero settle, with the slowest multiplier of any layer."""
    count, period, _ = inputs.shape
    states, _ = settle(
        subject, np.zeros((count, subject.states)), np.swapaxes(inputs, 0, 1), SETTLE // period * period, deadline
    )
    out: list[SlowOrbit] = []
    for state, u in zip(states, inputs):
        if deadline.over or not np.isfinite(state).all():
            continue
        orbit = _orbit(subject, state, u, deadline)
        if orbit is not None:
            top = max(enumerate(multipliers(subject, orbit, u)), key=lambda item: abs(item[1]))
            out.append(SlowOrbit(np.ascontiguousarray(u), orbit, top[1], top[0]))
    return out


def _orbit(subject: GatedCell | LayerStack, state: Array, u: Array, deadline: Deadline) -> Array | None:
    path = closed_path(subject, state, u, 2 * len(u))
    if path is None or isinstance(subject, LayerStack):
        return path
    return polish_orbit(subject, path, u, deadline=deadline)


def multipliers(subject: GatedCell | LayerStack, orbit: Array, inputs: Array) -> list[complex]:
    """Of each layer the largest eigenvalue of the product of its Jacobians along an orbit.

    Args:
        subject: a cell or a stack.
        orbit: ``(k, n)``.
        inputs: ``(q, p)``, ``q`` divides ``k``.
    """
    k, at, out = len(orbit), 0, []
    signal = inputs[np.arange(k) % len(inputs)]
    for layer in subject.layers if isinstance(subject, LayerStack) else (subject,):
        own = orbit[:, at : at + layer.states]
        at += layer.states
        product = np.eye(layer.states)
        for x, u in zip(own, signal):
            product = layer.jacobian(x, u) @ product
        out.append(largest_eigenvalues(product)[0] if np.isfinite(product).all() else complex(0.0))
        signal = layer.output(np.roll(own, -1, axis=0))
    return out
