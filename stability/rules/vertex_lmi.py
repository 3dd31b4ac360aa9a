r"""Rule ``vertex_lmi``: contraction from one metric for all vertices of a few slopes.

The multiplier inequality treats every slope of ``[alpha, beta]`` alike, and loses by it. Let ``S`` be a few channels of
a system without feedthrough, and ``v`` a vertex of their slopes. If for one ``P`` and each ``v`` there are multipliers
``L_v`` with which the multiplier inequality (rule ``multiplier_lmi``) holds for the system whose slopes in ``S`` are
``v``, then ``V = d^T P d`` decays at the rate for every slope: for fixed slopes of the others the change of ``V`` in
one step,

.. math:: |(A + B K C)\, d|_P^2 - \rho^2 |d|_P^2 \qquad
          (2\, d^T P (A + B K C)\, d + 2 \lambda |d|_P^2 \text{ in continuous time})

is convex (affine) in the slopes of ``S``, and largest at a vertex. This is a full-block multiplier for ``S``, without
loss there.
"""

from __future__ import annotations

import itertools

import numpy as np

from stability.certificate import Claim
from stability.rules.fields import AnyArray, require
from stability.rules.multiplier_lmi import Decay, check_lmi, no_decay
from stability.rules.regional_lmi import regional_system
from stability.rules.registry import certifies
from stability.statements import at_least, at_most, contraction, decays
from stability.systems import DrivenSystem, LureSystem

Array = np.ndarray
MOST_SPLIT = 8
"""Channels that are split: twice as many inequalities with each."""


def _no_vertices(subject: LureSystem | DrivenSystem) -> str | None:
    system = subject.system
    if system.D.any():
        return "this proof is about systems without feedthrough (D = 0)"
    return None if system.origin is None else "this proof is about systems given by their own matrices"


def vertex_system(system: LureSystem, split: Array, vertex: Array) -> LureSystem:
    """The system whose slopes in some channels are given numbers."""
    low, high = system.alpha.copy(), system.beta.copy()
    low[split] = high[split] = vertex
    return regional_system(system, low, high)


def vertices_of(system: LureSystem, split: Array) -> Array:
    """``(2^s, s)``: every choice of an end of each slope, the first channel's changing last."""
    ends = [(float(system.alpha[c]), float(system.beta[c])) for c in split]
    return np.array(list(itertools.product(*ends))).reshape(2 ** len(ends), len(ends))


@certifies("vertex_lmi", subject=(LureSystem, DrivenSystem), claim="contraction", value="rate", unfit=_no_vertices)
class VertexLmi(Decay):
    """``split`` (s,): channels, in rising order; ``L`` (2^s, m): multipliers of each vertex."""

    split: AnyArray

    def sentence(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        return contraction(subject, self.rate, self.overshoot)

    def check(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        system, m = subject.system, subject.system.channels
        flat = self.split.ndim == 1 and 0 < len(self.split) <= min(m, MOST_SPLIT)
        rising = flat and bool((np.diff(self.split) > 0).all() and (self.split == np.floor(self.split)).all())
        words = f"split must name 1 to {MOST_SPLIT} channels in rising order"
        require(rising and self.split[0] >= 0 and self.split[-1] < m, words)
        split = self.split.astype(int)
        vertices = vertices_of(system, split)
        require(self.L.shape == (len(vertices), m), f"L must be ({len(vertices)}, {m}), got {self.L.shape}")
        require(decays(self.rate, system.is_discrete), no_decay(self.rate))
        for vertex, L in zip(vertices, self.L):
            valid, reason = check_lmi(vertex_system(system, split, vertex), self.P, np.ascontiguousarray(L), self.rate)
            require(valid, f"at a vertex of the slopes: {reason}")
        require(0.0 < self.p_min <= self.p_max, "p_min and p_max must satisfy 0 < p_min <= p_max")
        self.require_metric()
        metric = f"{at_least(self.p_min)} I < P < {at_most(self.p_max)} I"
        return f"the matrix inequality holds at {len(vertices)} vertices; {metric}"
