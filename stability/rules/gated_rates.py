r"""Rules of gated cells and stacks: how slowly differences may shrink, proved from below along periodic orbits.

``gated_orbit_rate`` and ``stack_orbit_rate``: along an orbit of period ``k``, proved to exist under a constant or
periodic input, the linearisation is the difference of ever closer trajectories. With an eigenvalue :math:`\mu` of the
product of the ``k`` Jacobians (of a stack: of one layer's, for its Jacobian is block triangular) a bound
:math:`|d_t| \le C \rho^t |d_0|` asks for :math:`\rho \ge |\mu|^{1/k}`, however it is proved.
"""

from __future__ import annotations

import numpy as np

from stability.certificate import Claim
from stability.gated.cell import GatedCell
from stability.gated.orbits import enclose_orbit, orbit_jacobian
from stability.rigor.balls import Ball
from stability.rigor.constants import EPS
from stability.rigor.eigenpairs import Matrix
from stability.rules.fields import AnyArray, Index, Number, Pair, ProofData, given, require
from stability.rules.gated_orbits import UNPROVED, input_phrase, inputs_of, orbit_of
from stability.rules.registry import certifies
from stability.rules.slope_sequence import eigenvalue_at_least
from stability.rules.stack_orbits import KINKED, not_one_way
from stability.stacks.orbits import enclose_stack_orbit
from stability.stacks.stack import LayerStack
from stability.statements import at_least, describe


class RateAlong(ProofData):
    """``orbit`` (k, n), ``input`` (q, p), ``q`` divides ``k``; ``eigenvalue`` of the product of the ``k`` Jacobians,
    and ``rate``, at most the ``k``-th root of its modulus.
    """

    orbit: AnyArray
    input: AnyArray
    eigenvalue: Pair
    rate: Number

    def sentence(self, subject: GatedCell | LayerStack, claim: Claim) -> str:
        length = len(np.atleast_2d(self.orbit))
        where = "at an equilibrium" if length == 1 else f"along an orbit of period {length}"
        return (
            f"{describe(subject)} forgets no faster than {at_least(self.rate)} a step: no bound |d| <= C r^k |d(0)| on "
            f"the difference of two trajectories holds with a smaller rate r, not even under the "
            f"{input_phrase(self.input)} alone, {where}."
        )

    def slow(self, jacobian: Ball, length: int) -> str:
        """What is proved of the named eigenvalue of a product of ``length`` Jacobians.

        Raises:
            Refused: it is not proved, or its root is below the rate.
        """
        require(0.0 < self.rate < 1e6, "the rate must be positive")
        whole = self.rate**length * (1.0 + 4 * (length + 2) * EPS)
        return eigenvalue_at_least(Matrix(jacobian, np.ones(len(jacobian.mid))), complex(*self.eigenvalue), whole)


@certifies("gated_orbit_rate", subject=GatedCell, claim="rate_limit", value="rate")
class GatedOrbitRate(RateAlong):
    """An orbit of a cell, under inputs of its box."""

    def check(self, subject: GatedCell, claim: Claim) -> str:
        inputs = inputs_of(subject, self.input)
        words = "orbit must be of the cell's size, as long as the input or a multiple of it"
        points = given(orbit_of(self.orbit, subject.states, len(inputs)), words)
        box = given(enclose_orbit(subject, points, inputs), UNPROVED)
        return f"the orbit exists; of all its steps {self.slow(orbit_jacobian(subject, box, inputs), len(points))}"


@certifies("stack_orbit_rate", subject=LayerStack, claim="rate_limit", value="rate", unfit=not_one_way)
class StackOrbitRate(RateAlong):
    """An orbit of all layers, and the ``layer`` with the eigenvalue."""

    layer: Index

    def check(self, subject: LayerStack, claim: Claim) -> str:
        inputs = inputs_of(subject, self.input)
        words = (
            "orbit must be of the stack's size, as long as the input or a multiple of it, and layer one of its layers"
        )
        require(self.layer < len(subject.layers), words)
        points = given(orbit_of(self.orbit, subject.states, len(inputs)), words)
        smooth = getattr(subject.layers[self.layer], "activation", "") not in KINKED
        require(smooth, "that layer's activation has a kink, where there is no Jacobian")
        parts = given(enclose_stack_orbit(subject, points, inputs), UNPROVED)
        return f"the orbit exists; of layer {self.layer}: {self.slow(parts[self.layer].jacobian, len(points))}"
