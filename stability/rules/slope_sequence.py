r"""Rules of periodic slopes and periodic inputs: how slowly differences may shrink, proved from below.

``slope_sequence`` and ``slope_sequence_rate``, for a map ``x+ = A x + B w + p, z = C x + D w + v, w_i = phi_i(z_i)``
of which the slopes alone are known. Let ``K_0, ..., K_{q-1}`` be slopes in ``[alpha, beta]``. There are activations
that have each ``K_{t,i}`` on an interval of its own, and inputs ``v`` that keep a trajectory in the middle of these
intervals in turn. Two trajectories close enough to it (closer, for a longer look) differ by exactly

.. math:: d_{t+1} = J_t d_t, \qquad J_t = A + B K_t (I - D K_t)^{-1} C ,

and a bound ``|d_k| <= C rho^k |d_0|`` for every such pair asks for :math:`r(J_{q-1} \cdots J_0)^{1/q} \le \rho`, ``r``
the spectral radius. A root of one or more refutes exponential stability; one of ``rate`` limits what any proof that
knows the slopes alone can reach: it bounds the joint spectral radius from below.

``orbit_rate``, for a network itself: along a periodic orbit, proved to exist under a periodic input, the linearisation
is the difference of ever closer trajectories, and the same argument limits every rate, however it is proved.
"""

from __future__ import annotations

from typing import Annotated

from stability.certificate import Claim
from stability.rigor.balls import Ball
from stability.rigor.constants import EPS
from stability.rigor.eigenpairs import Matrix, closed_loop_orbit, enclose_eigenpair, inverse_iteration, is_near
from stability.rules.equilibria import smooth_slopes
from stability.rules.fields import Array, Datum, Inputs, Number, Pair, ProofData, Size, States, given, require
from stability.rules.named_eigenvalue import Unstable
from stability.rules.periodic_orbits import enclosed
from stability.rules.registry import certifies, refutes
from stability.statements import at_least, describe, interval_phrase, whom
from stability.systems import DrivenSystem, LureSystem

MAX_SIZE = 1600
"""Size of the eigenvalue problem of all steps together."""
SIZE = "K must hold 1 to 64 finite rows of {m} slopes"
Sequence = Annotated[Array, Datum("array", Size(("km",)))]


def no_map(subject: LureSystem | DrivenSystem) -> str | None:
    """Why slopes do not come step by step, or ``None`` where they do."""
    return None if subject.is_discrete else "slopes step by step are for maps"


def _of_steps(subject: LureSystem, K: Array) -> Matrix:
    """The pencil of all steps, for slopes inside their intervals.

    Raises:
        Refused: slopes outside, or too many steps.
    """
    inside = bool(((subject.alpha <= K) & (subject.beta >= K)).all())
    require(inside, "a slope in K lies outside [alpha, beta]")
    size = len(K) * (subject.states + (subject.channels if subject.D.any() else 0))
    require(size <= MAX_SIZE, f"slopes for {len(K)} steps are more than {MAX_SIZE} unknowns")
    return closed_loop_orbit(subject, Ball.exact(K))


def eigenvalue_at_least(matrix: Matrix, value: complex, rate: float) -> str:
    """That every matrix of the ball has an eigenvalue of modulus ``rate`` or more near the named one.

    Raises:
        Refused: it is not proved.
    """
    vector = given(inverse_iteration(matrix, value), "no eigenvector is found for the eigenvalue")
    pair = given(enclose_eigenpair(matrix, value, vector), "the eigenvalue is not proved")
    require(is_near(pair, value), "the proved eigenvalue is not the one of the proof")
    modulus = abs(pair.value) * (1 - 4 * EPS) - pair.radius * (1 + 4 * EPS)
    require(0.0 < rate <= modulus, f"the eigenvalue is proved to have modulus {modulus!r}, which is below the rate")
    return f"an eigenvalue of modulus {at_least(modulus)} or more"


@refutes("slope_sequence", subject=LureSystem, unfit=no_map, size=SIZE)
class SlopeSequence(Unstable):
    """``K`` (k, m): the slopes of each step of a period."""

    K: Sequence

    def sentence(self, subject: LureSystem, claim: Claim) -> str:
        value = self.phrase(True, strict=False)
        return (
            f"{describe(subject)} is not exponentially stable for every activation with its slopes: activations and an "
            f"input that give the slopes K of the proof in turn, period {len(self.K)}, leave differences a "
            f"linear map of each step, and step by step these have {value}."
        )

    def check(self, subject: LureSystem, claim: Claim) -> str:
        words = "no eigenvalue of the product of all steps is proved to lie outside the unit disc"
        return f"with the slopes K: {self.outside(_of_steps(subject, self.K), True, words, strict=False)}"


@certifies("slope_sequence_rate", subject=LureSystem, claim="rate_limit", value="rate", unfit=no_map, size=SIZE)
class SlopeSequenceRate(ProofData):
    """``K`` (k, m), ``eigenvalue``: a k-th root of one of the product's, ``rate``: at most its modulus."""

    K: Sequence
    eigenvalue: Pair
    rate: Number

    def sentence(self, subject: LureSystem, claim: Claim) -> str:
        return (
            f"For {whom(subject)} under every input: no bound |d| <= C r^k |d(0)| on the difference of two "
            f"trajectories holds with a rate r below {at_least(self.rate)}: activations and an input that give "
            f"the slopes K of the proof in turn, period {len(self.K)}, keep some differences at that rate or above."
        )

    def check(self, subject: LureSystem, claim: Claim) -> str:
        return f"step by step {eigenvalue_at_least(_of_steps(subject, self.K), complex(*self.eigenvalue), self.rate)}"


@certifies(
    "orbit_rate",
    subject=DrivenSystem,
    claim="rate_limit",
    value="rate",
    unfit=no_map,
    size="orbit and input must hold 1 to 64 finite rows of the network's sizes",
)
class OrbitRate(ProofData):
    """``orbit`` (k, n), ``input`` (q, p), ``q`` divides ``k``; ``eigenvalue``, ``rate`` as above."""

    orbit: States
    input: Inputs
    eigenvalue: Pair
    rate: Number

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        inputs = ""
        if subject.inputs:
            inputs = f" (entries in {interval_phrase(float(self.input.min()), float(self.input.max()))})"
        under = "the constant input" if len(self.input) == 1 else f"the input of period {len(self.input)}"
        return (
            f"{describe(subject)} forgets no faster than {at_least(self.rate)} a step: no bound |d| <= C r^k |d(0)| on "
            f"the difference of two trajectories holds with a smaller rate r, not even under {under} of the "
            f"proof{inputs} alone, along an orbit of period {len(self.orbit)}."
        )

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        box = enclosed(subject, self.orbit, self.input, "the orbit")
        matrix = closed_loop_orbit(subject.system, smooth_slopes(subject.activation, box.channels))
        return f"the orbit exists; step by step {eigenvalue_at_least(matrix, complex(*self.eigenvalue), self.rate)}"
