"""Rules that refute the contraction of a stack by orbits of its own, proved to exist level by level.

``stack_orbits``: two different points on periodic orbits of the whole stack under one constant or periodic input, or
one orbit that is longer than the input's period. Their distance comes back for ever.

``stack_unstable``: an orbit or equilibrium of the whole stack with a multiplier proved to lie outside the unit circle.
The Jacobian of a stack is block triangular, so a multiplier of one layer is one of the stack; what that layer reads is
what the levels below put out on the orbit itself.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim
from stability.rigor.balls import Ball
from stability.rigor.eigenpairs import Matrix
from stability.rules.fields import Index, given, require
from stability.rules.gated_orbits import OrbitsApart, UnstableOrbit, input_phrase, inputs_of, orbit_of
from stability.rules.registry import refutes
from stability.stacks.cascade import Cascade
from stability.stacks.orbits import enclose_stack_orbit
from stability.statements import describe

Array = np.ndarray
KINKED = ("relu", "leaky_relu")


def _not_one_way(subject: Cascade) -> str | None:
    one_way = subject.directions == 1 and subject.is_discrete
    return None if one_way else "orbits are proved for discrete stacks with one direction"


@refutes("stack_orbits", subject=Cascade, unfit=_not_one_way)
class StackOrbits(OrbitsApart):
    """Two orbits of a whole stack."""

    def read(self, subject: Cascade) -> Array:
        return inputs_of(subject.layers[0], self.input)

    def enclose(self, subject: Cascade, orbit: Array, inputs: Array) -> Ball | None:
        parts = enclose_stack_orbit(subject, orbit, inputs)
        if parts is None:
            return None
        return Ball(np.hstack([p.points.mid for p in parts]), np.hstack([p.points.rad for p in parts]))

    def check(self, subject: Cascade, claim: Claim) -> str:
        return self.proved(subject, "stack")


@refutes("stack_unstable", subject=Cascade, unfit=_not_one_way)
class StackUnstable(UnstableOrbit):
    """An orbit or equilibrium of a whole stack, and the layer with the multiplier."""

    layer: Index

    def sentence(self, subject: Cascade, claim: Claim) -> str:
        return (
            f"{describe(subject)} does not contract: under the {input_phrase(self.input)} it has "
            f"{self.orbit_phrase()} (that of layer {self.layer}), so runs that start next to it leave it."
        )

    def check(self, subject: Cascade, claim: Claim) -> str:
        inputs = inputs_of(subject.layers[0], self.input)
        points = orbit_of(self.state, subject.states, len(inputs))
        words = "state must be of the stack's size, one point or an orbit, and layer one of its layers"
        require(self.layer < len(subject.layers), words)
        points = given(points, words)
        smooth = getattr(subject.layers[self.layer], "activation", "") not in KINKED
        require(smooth, "that layer's activation has a kink, where there is no Jacobian")
        parts = given(
            enclose_stack_orbit(subject, points, inputs),
            "no equilibrium or orbit is proved to exist at the stored states and input",
        )
        jacobian = parts[self.layer].jacobian
        proved = self.outside(
            Matrix(jacobian, np.ones(jacobian.shape[0])),
            True,
            "no multiplier of that layer outside the unit circle is proved near the stored one",
        )
        what = "an equilibrium" if len(points) == 1 else "an orbit"
        return f"{what} proved level by level; for the Jacobian of layer {self.layer}: {proved}"
