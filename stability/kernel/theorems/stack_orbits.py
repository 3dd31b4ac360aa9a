"""Theorems that refute contraction of a stack by its own periodic orbits.

``stack_orbits``: two different periodic orbits of the whole stack under one constant or periodic input, or one orbit
whose period is longer than the input's. The distance of two trajectories on them is periodic and does not decay.

``stack_unstable``: an orbit or equilibrium of the whole stack with a Floquet multiplier outside the unit circle. The
Jacobian of a stack is block triangular, so that a multiplier of one layer is a multiplier of the stack. The input of
that layer is the output of the levels below on the orbit.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.activations import ACTIVATIONS
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Index, require, required
from stability.kernel.format.theorem_table import refutes
from stability.kernel.reachability.stack_orbits import enclose_stack_orbit
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.gated_orbits import UNPROVED, OrbitsApart, UnstableOrbit, inputs_of, orbit_of
from stability.kernel.theorems.multiplier_lmi import why_not_a_map
from stability.kernel.theorems.stack_contraction import two_ways

Array = np.ndarray
KINKED = tuple(name for name, phi in ACTIVATIONS.items() if phi.kinks)


def not_one_way(subject: LayerStack) -> str | None:
    """Return the reason why these theorems do not cover a stack, or ``None``."""
    return two_ways(subject) or why_not_a_map(subject)


@refutes("stack_orbits", subject=LayerStack, unfit=not_one_way)
class StackOrbits(OrbitsApart):
    """Two orbits of a whole stack."""

    def enclose(self, subject: LayerStack, orbit: Array, inputs: Array) -> Ball | None:
        parts = enclose_stack_orbit(subject, orbit, inputs)
        if parts is None:
            return None
        return Ball(np.hstack([p.points.mid for p in parts]), np.hstack([p.points.rad for p in parts]))

    def check(self, subject: LayerStack, claim: Claim) -> str:
        return self.proved(subject, "stack")


@refutes("stack_unstable", subject=LayerStack, unfit=not_one_way)
class StackUnstable(UnstableOrbit):
    """Unstable orbit or equilibrium of a whole stack, and the layer with the multiplier."""

    layer: Index

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        return self.diverges(subject, f" (that of layer {self.layer})")

    def check(self, subject: LayerStack, claim: Claim) -> str:
        inputs = inputs_of(subject, self.input)
        points = orbit_of(self.state, subject.states, len(inputs))
        words = "state must be of the stack's size, one point or an orbit, and layer one of its layers"
        require(self.layer < len(subject.layers), words)
        points = required(points, words)
        smooth = getattr(subject.layers[self.layer], "activation", "") not in KINKED
        require(smooth, "that layer's activation has a kink, where there is no Jacobian")
        parts = required(enclose_stack_orbit(subject, points, inputs), UNPROVED)
        proved = self.multiplier(parts[self.layer].jacobian)
        return f"{self.what} proved level by level; for the Jacobian of layer {self.layer}: {proved}"
