r"""Theorem ``multiplier_lmi``: contraction from one matrix inequality with multipliers.

With :math:`\Pi = \begin{bmatrix} -2\alpha\beta L & (\alpha+\beta) L \\ (\alpha+\beta) L & -2 L \end{bmatrix}`,
``L >= 0`` diagonal and ``P > 0``, the inequality

.. math:: \begin{bmatrix} A^T P + P A + 2\lambda P & P B \\ B^T P & 0 \end{bmatrix}
          + \begin{bmatrix} C & D \\ 0 & I \end{bmatrix}^T \Pi \begin{bmatrix} C & D \\ 0 & I \end{bmatrix} < 0

(in discrete time the first block is ``[A B]^T P [A B] - rho^2 diag(P, 0)``) proves for any two trajectories
under one input that ``V = d^T P d`` decays at rate ``2 lambda`` (per step ``rho^2``).

Two more rules use it. ``attracting_equilibrium``: under a constant input the time-``t`` map of a contracting system
is a contraction in the norm of ``P``, so by Banach's theorem it has exactly one fixed point, the equilibrium, and every
trajectory converges to it at the rate of the inequality. ``growth_lmi``: a step multiplies distances by at most a
factor, in the Euclidean norm (``P = I``).

A *majorant* bounds the rounding errors: the same expression with every matrix replaced by entrywise absolute values and
every sign by plus. The error of a computed entry is at most ``gamma_k`` times its entry, where ``k`` counts the longest
chain of roundings, including those of ``I + dt A`` and of the other discretizations.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from stability.kernel.arithmetic.balls import diagonal_of
from stability.kernel.arithmetic.definiteness import (
    LARGEST,
    gamma,
    is_symmetric,
    prove_positive_definite,
    spectral_bounds,
)
from stability.kernel.arithmetic.discretization import step_matrices
from stability.kernel.arithmetic.fixed_point import integers
from stability.kernel.arithmetic.floating_point import UNIT
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Number, ProofData, require, require_definite
from stability.kernel.format.sentences import at_least, at_most, contraction, decays, nonexpansion, one_equilibrium
from stability.kernel.format.theorem_table import Outcome, certifies, reason_of
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.state_space import LureMatrices

Array = np.ndarray
UNDERFLOW = 1e-307  # times any gamma this is above half of the smallest float


class Majorant(NamedTuple):
    """Entrywise bounds: the stored matrix is within ``gamma_roundings`` times these of the exact one."""

    A: Array
    B: Array
    C: Array
    D: Array
    roundings: int


def majorant(system: LureSystem | LureMatrices) -> Majorant:
    """Return absolute values of a system's matrices, for a discretized one through its formula."""
    if system.origin is None:
        return Majorant(np.abs(system.A), np.abs(system.B), np.abs(system.C), np.abs(system.D), 0)
    base, dt, half = system.origin.base, system.origin.dt, 0.5 * system.origin.dt

    def product(x: Array, y: Array) -> Array:
        # no relative bound covers underflow, and the square of a long step may enlarge it: half an ulp for each term
        return x @ y + base.states * UNDERFLOW * np.outer(x.any(axis=1), y.any(axis=0))

    sizes = (np.abs(base.A), np.abs(base.B), np.abs(base.C), np.abs(base.D))
    method = system.origin.method
    roundings = 3 if method == "euler" else base.states + 8
    return Majorant(*step_matrices(method, sizes, dt, half, times=product), roundings)


def lmi_matrix(system: LureSystem | LureMatrices, P: Array, L: Array, rate: float) -> Array:
    """Return the left-hand side of the inequality, ``(n + m, n + m)``, symmetric to the last bit."""
    n, m = system.states, system.channels
    a, b, c, d = system.A, system.B, system.C, system.D
    out = np.empty((n + m, n + m))
    diagonal_b = diagonal_of(b)
    pa = P @ a
    if system.is_discrete:
        pb = P * diagonal_b if diagonal_b is not None else P @ b
        x = a.T @ pa
        out[:n, :n] = x + x.T
        out[:n, :n] *= 0.5
        out[:n, :n] -= (rate * rate) * P
        out[:n, n:] = pa.T * diagonal_b if diagonal_b is not None else pa.T @ b
        z = diagonal_b[:, None] * pb if diagonal_b is not None else b.T @ pb
        out[n:, n:] = 0.5 * (z + z.T)
    else:
        np.add(pa, pa.T, out=out[:n, :n])
        out[:n, :n] += (2.0 * rate) * P
        out[:n, n:] = P * diagonal_b if diagonal_b is not None else P @ b
        out[n:, n:] = 0.0
    del pa
    product, total = -2.0 * system.alpha * system.beta * L, (system.alpha + system.beta) * L
    if product.any():
        x = c.T @ (product[:, None] * c)
        out[:n, :n] += 0.5 * (x + x.T)
    out[:n, n:] += c.T * total
    out[n:, n:][np.diag_indices(m)] -= 2.0 * L
    if d.any():
        if product.any():
            out[:n, n:] += c.T @ (product[:, None] * d)
            z = d.T @ (product[:, None] * d)
            out[n:, n:] += 0.5 * (z + z.T)
        z = total[:, None] * d
        out[n:, n:] += z + z.T
    out[n:, :n] = out[:n, n:].T
    return out


def all_signs_plus(
    system: LureSystem | LureMatrices, big: Majorant | LureMatrices, P: Array, L: Array, rate: float
) -> Callable[[Array], Array]:
    """Return the majorant of ``lmi_matrix`` as an action ``s -> M s``, without its factor: it is never formed."""
    n = system.states
    p = np.abs(P)
    product, total = 2.0 * np.abs(system.alpha * system.beta) * L, np.abs(system.alpha + system.beta) * L

    def action(s: Array) -> Array:
        x, w = s[:n], s[n:]
        ax, bw, cx, dw = big.A @ x, big.B @ w, big.C @ x, big.D @ w
        if system.is_discrete:
            flow = p @ (ax + bw)
            top, bottom = big.A.T @ flow + (rate * rate) * (p @ x), big.B.T @ flow
        else:
            px = p @ x
            top, bottom = p @ (ax + bw) + big.A.T @ px + 2.0 * abs(rate) * px, big.B.T @ px
        z = cx + dw
        channel = product * z + total * w
        top = top + big.C.T @ channel
        bottom = bottom + big.D.T @ channel + total * z + 2.0 * L * w
        return np.concatenate([top, bottom])

    return action


def error_action(system: LureSystem | LureMatrices, P: Array, L: Array, rate: float) -> Callable[[Array], Array]:
    """Return the action ``s -> E s`` of an entrywise bound ``E`` of the rounding errors of ``lmi_matrix``."""
    big = majorant(system)
    factor = gamma(2 * (2 * system.states + 2 * system.channels + 2 * big.roundings) + 40)
    size = all_signs_plus(system, big, P, L, rate)
    return lambda s: factor * size(s)


EXACT_STATES = 64
"""Largest linear system whose inequality is recomputed exactly when only rounding prevents its proof."""


def exact_lmi_matrix(system: LureSystem | LureMatrices, P: Array, rate: float) -> Array:
    """Return ``lmi_matrix`` of a linear system by integer arithmetic, ``(n, n)``; every entry is rounded once."""
    (a, of_a), (p, of_p), (r, of_r) = integers(system.A), integers(P), integers(np.array([rate]))
    if system.is_discrete:
        terms = ((a.T @ (p @ a), 2 * of_a + of_p), (-r * r * p, 2 * of_r + of_p))
    else:
        terms = ((p @ a + (p @ a).T, of_a + of_p), (2 * r * p, of_r + of_p))
    places = max(each for _, each in terms)
    total: Any = sum(term << (places - each) for term, each in terms)
    return (total * Fraction(1, 2**places)).astype(np.float64)  # with one rounding


def check_lmi(system: LureSystem, P: Any, L: Any, rate: float, *, limit: float = 1.0) -> Outcome:
    """Prove ``P > 0`` and the inequality strictly at ``(P, L, rate)``; never raises on bad data.

    Args:
        system: the Lur'e system.
        P: ``(n, n)`` symmetric matrix.
        L: ``(m,)`` multipliers.
        rate: ``lambda >= 0`` (continuous) or ``0 < rho <= limit`` (discrete).
        limit: one for contraction; more for a bound on growth.

    Returns:
        Whether the inequality is proved, and the reason.

    Example:
        >>> system = LureSystem.recurrent([[-2.0]], [[1.0]])
        >>> check_lmi(system, np.eye(1), np.ones(1), 0.9)[0], check_lmi(system, np.eye(1), np.ones(1), 1.1)[0]
        (True, False)
    """
    n, m = system.states, system.channels
    P, L = np.asarray(P), np.asarray(L)  # pyright: ignore[reportConstantRedefinition]
    if P.dtype != np.float64 or L.dtype != np.float64 or P.shape != (n, n) or L.shape != (m,):
        return False, f"P must be ({n}, {n}) and L ({m},) in float64, got {P.shape} and {L.shape}"
    if not (np.isfinite(P).all() and np.isfinite(L).all()) or not is_symmetric(P):
        return False, "P must be finite and symmetric to the last bit, L finite"
    if (L < 0).any():
        return False, "a multiplier in L is negative"
    if system.is_discrete and not 0.0 < rate <= limit:
        return False, f"a rate per step must lie in (0, {limit:g}], got {rate}"
    if not system.is_discrete and not 0.0 <= rate < LARGEST:
        return False, f"a rate must be finite and not negative, got {rate}"
    parts = (system.A, system.B, system.C, system.D, P, L, system.alpha, system.beta)
    if max(float(np.abs(x).max(initial=0.0)) for x in parts) > LARGEST**0.5:
        return (
            False,
            f"an entry exceeds {LARGEST**0.5:.0e}, beyond which rounding is not bounded here: rescale the system",
        )
    positive = prove_positive_definite(P)
    if not positive.holds:
        return False, f"P is not proved positive definite: {positive.reason}"
    with np.errstate(all="ignore"):
        matrix = lmi_matrix(system, P, L, rate)
        np.negative(matrix, out=matrix)
        outcome = prove_positive_definite(matrix, error_action(system, P, L, rate), overwrite=True)
        if not outcome.holds and m == 0 and n <= EXACT_STATES and system.origin is None:
            matrix = -exact_lmi_matrix(system, P, rate)
            outcome = prove_positive_definite(matrix, lambda s: UNIT * (np.abs(matrix) @ s))
    if not outcome.holds:
        return False, f"the matrix inequality is not proved at this rate: {outcome.reason}"
    return True, "the matrix inequality holds, rounding errors included"


class Contraction(ProofData):
    """Exponential decay of all differences of trajectories, at ``rate`` with ``overshoot``."""

    rate: Number
    overshoot: Number

    def sentence(self, subject: Any, claim: Claim) -> str:
        return contraction(subject, self.rate, self.overshoot)


class Decay(Contraction):
    """Metric ``P`` and multipliers ``L`` at a rate; ``check_lmi`` checks their sizes, also for searches."""

    P: AnyArray
    L: AnyArray
    p_min: Number
    p_max: Number

    def decays_at_the_rate(self, system: LureSystem) -> str:
        """Prove ``|d(t)| <= overshoot * decay(t) |d(0)|``, with ``p_min I < P < p_max I``.

        Raises:
            Refused: the bound is not proved.
        """
        require(decays(self.rate, system.is_discrete), no_decay(self.rate))
        reason = reason_of(check_lmi(system, self.P, self.L, self.rate))
        require(0.0 < self.p_min <= self.p_max, "p_min and p_max must satisfy 0 < p_min <= p_max")
        self.require_metric()
        return f"{reason}; its matrix P lies between {at_least(self.p_min)} I and {at_most(self.p_max)} I"

    def require_metric(self) -> None:
        """Prove that ``p_min`` and ``p_max`` bound ``P``, and that the overshoot is at least ``sqrt(p_max / p_min)``.

        Raises:
            Refused: one of these is not proved.
        """
        require_definite(spectral_bounds(self.P, self.p_min, self.p_max), "P does not lie between p_min and p_max")
        fits = overshoot_fits(self.overshoot, self.p_min, self.p_max)
        require(fits, f"the overshoot {self.overshoot} is smaller than sqrt(p_max / p_min)")


def no_decay(rate: float) -> str:
    """Return the reason for refusing a rate without decay."""
    return f"the rate {rate} is no exponential decay: below one a step, above zero in continuous time"


@certifies("multiplier_lmi", subject=(LureSystem, DrivenSystem), claim="contraction", value="rate")
class MultiplierLmi(Decay):
    """Contraction at ``rate`` with ``overshoot`` (``docs/certificate-format.md``)."""

    def check(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        return self.decays_at_the_rate(subject.system)


def overshoot_fits(overshoot: float, p_min: float, p_max: float) -> bool:
    """Return True if an overshoot, at least one, is at least ``sqrt(p_max / p_min)``, roundings included."""
    return bool(overshoot >= 1.0 and overshoot * overshoot * p_min >= p_max * (1.0 + 1e-14))


@certifies("attracting_equilibrium", subject=(LureSystem, DrivenSystem), claim="equilibrium")
class AttractingEquilibrium(ProofData):
    """Data ``P`` (n, n), ``L`` (m,), ``rate`` of the multiplier inequality."""

    P: AnyArray
    L: AnyArray
    rate: Number

    def sentence(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        return one_equilibrium(subject)

    def check(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        require(decays(self.rate, subject.is_discrete), no_decay(self.rate))
        return reason_of(check_lmi(subject.system, self.P, self.L, self.rate))


LARGEST_FACTOR = 1.0 + 1e-6
"""Largest growth factor due to rounding orthogonal weights to float32 or float64."""


def why_not_a_map(subject: Any) -> str | None:
    """Return the reason for refusing a system in continuous time, or ``None`` for a map."""
    return None if subject.is_discrete else "this proof is about maps, not about flows"


@certifies("growth_lmi", subject=(LureSystem, DrivenSystem), claim="nonexpansive", value="factor", unfit=why_not_a_map)
class GrowthLmi(ProofData):
    """Multiplier inequality with ``P = I`` at ``rho = factor``, slightly above one."""

    L: AnyArray
    factor: Number

    def sentence(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        return nonexpansion(subject, self.factor)

    def check(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        words = f"the factor must lie in [1, {LARGEST_FACTOR!r}]: beyond it distances grow"
        require(1.0 <= self.factor <= LARGEST_FACTOR, words)
        return reason_of(check_lmi(subject.system, np.eye(subject.states), self.L, self.factor, limit=2.0))
