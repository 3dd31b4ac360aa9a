r"""Strict positive realness by the Kalman-Yakubovich-Popov lemma.

For slopes in ``[alpha, beta]`` move ``alpha`` into the linear part; what remains is a sector ``[0, k]``,
``k = beta - alpha``, and the loop is stable when :math:`T(s) = \mathrm{diag}(1/k) - G_\alpha(s)` is strictly
positive real. The P of its KYP inequality, with ``L = 1/k``, is a witness of the multiplier inequality.

Source: H. K. Khalil, Nonlinear Systems, 3rd ed., lemmas 6.3 and 7.1; A. Rantzer, On the
Kalman-Yakubovich-Popov lemma, Systems & Control Letters 28 (1996).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.errors import DimensionError
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.state_space import LureMatrices
from stability.search.criteria.small_gain import GainTest
from stability.search.criteria.witness import guarded_criterion
from stability.search.solvers.deadline import STOPPED, TOO_LATE, Deadline, TimeLimit, TimeOverError
from stability.search.solvers.inequality_slack import multiplier_slack
from stability.search.solvers.loop_transformation import as_lure, centered_loop
from stability.search.solvers.positive_real import null_directions, positivity_margin
from stability.search.solvers.rates import Rate, start_rate
from stability.search.solvers.scaling import power_of_two
from stability.search.solvers.semidefinite import pose_positive_real
from stability.search.solvers.state_space import StateSpace
from stability.search.solvers.transfer_function import state_space

Array = np.ndarray


@guarded_criterion("circle")
def kyp_lmi(A: Any, B: Any, C: Any, D: Any = None, dt: float | None = None, *, time_limit: TimeLimit = None) -> Finding:
    r"""Decide strict positive realness of ``G(s) = C (s I - A)^{-1} B + D`` in two ways that must agree.

    .. math:: \begin{bmatrix} A^T P + P A + \epsilon P & P B - C^T \\ \cdot & -(D + D^T) \end{bmatrix} \le 0,
              \quad P > 0, \quad \epsilon > 0

    (in discrete time ``A^T P A - P``, ``A^T P B - C^T``, ``B^T P B - (D + D^T)``). For ``D = 0``, and in
    every direction that ``D + D^T`` does not see, the inequality becomes the equality ``P B = C^T``, which
    is solved exactly.

    Args:
        A: ``(n, n)``.
        B: ``(n, m)``.
        C: ``(m, n)``.
        D: ``(m, m)``, zero by default.
        dt: ``None`` for continuous time.
        time_limit: seconds.

    Returns:
        A finding: it holds where P satisfies the inequality beyond rounding errors *and* ``G + G^H > 0`` at
        every frequency (``margin``, see ``Positivity``); the witness is ``{"P"}``. Where the two ways
        disagree, which happens on the boundary, it does not hold and says so.

    Raises:
        DimensionError: not as many outputs as inputs, or none.
        StabilityError: bad matrices, or a size too large for a semidefinite program.

    Example:
        >>> kyp_lmi([[-1.0]], [[1.0]], [[1.0]]).holds
        True
        >>> kyp_lmi([[-1.0]], [[1.0]], [[-1.0]]).holds
        False
    """
    system = state_space(A, B, C, D, dt)
    n, m = system.B.shape
    if m != len(system.C):
        raise DimensionError("C", f"({m}, n) with one row per column of B", system.C.shape)
    if not m or not n:
        raise DimensionError("B", "(n, m) with n, m >= 1", system.B.shape)
    deadline = Deadline.from_limit(time_limit).named("circle")
    try:
        frequency = positivity_margin(system, deadline=deadline)
    except TimeOverError:
        return Finding("circle", False, None, TOO_LATE)
    status, P = pose_positive_real(system, deadline)
    P = np.full((n, n), np.nan) if P is None else 0.5 * (P + P.T)
    by_lmi, by_frequency = positive_real_slack(system, P) > 0, frequency.margin > 0
    where = "infinity" if np.isinf(frequency.omega) else f"omega = {frequency.omega:.4g}"
    words = f"lambda_min(G + G^H) = {frequency.margin:.6g} at {where}"
    if np.isnan(frequency.omega):
        words = f"A is not {'Schur' if system.is_discrete else 'Hurwitz'}"
    lmi_words = "P satisfies the inequality" if by_lmi else f"no P satisfies the inequality ({status})"
    margin = frequency.margin if np.isfinite(frequency.margin) else None
    if by_lmi != by_frequency:
        return Finding("circle", False, margin, f"undecided, the two tests disagree: {words}; {lmi_words}")
    if not by_lmi:
        return Finding("circle", False, margin, words)
    return Finding("circle", True, margin, f"{words}; {lmi_words}", None, {"P": P})


def positive_real_slack(system: StateSpace, P: Array) -> float:
    r"""Return the slack of ``P > 0`` and of the KYP inequality, without the directions in which it is an equality.

    In the others, with :math:`R = D + D^T` and a number s, it is the multiplier inequality of the slopes [0, 1/s] and
    multipliers s for ``C_l = -C`` and ``D_l = s I - R/2``.

    Args:
        system: the system that is to be strictly positive real.
        P: ``(n, n)`` symmetric.

    Returns:
        Positive only where both hold beyond rounding errors; see ``multiplier_slack``.
    """
    null = null_directions(system)
    output = system.C.T @ null.N
    gap, size = (float(np.abs(x).max(initial=0.0)) for x in (P @ system.B @ null.N - output, output))
    if not gap <= 1e-8 * max(size, 1e-300):
        return -np.inf
    k, R = null.keep.shape[1], null.keep.T @ (system.D + system.D.T) @ null.keep
    s = power_of_two(float(np.abs(R).max(initial=0.0)))
    D, ones = s * np.eye(k) - 0.25 * (R + R.T), np.ones(k)
    b, c = system.B @ null.keep, null.keep.T @ system.C
    loop = LureMatrices(system.A, b, -c, D, system.is_discrete, 0.0 * ones, ones / s)
    return multiplier_slack(loop, P, s * ones, start_rate(system))


def transformed_loop(system: LureSystem) -> tuple[StateSpace, Array]:
    """Return ``T = diag(1/k) - G_alpha``, ``k = beta - alpha``, strictly positive real iff the criterion holds.

    Args:
        system: continuous or discrete.

    Returns:
        ``T`` between the channels with ``k > 0``, and which those are, ``(m,)`` booleans.

    Example:
        >>> T, wide = transformed_loop(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> T.C.item(), T.D.item(), wide
        (-1.0, 1.0, array([ True]))
    """
    k = system.beta - system.alpha
    wide = k > 0
    inverse = np.linalg.inv(np.eye(system.channels) - system.D * system.alpha)
    c, d = inverse @ system.C, inverse @ system.D
    b = system.B * system.alpha
    A, B = system.A + b @ c, system.B + b @ d
    D = np.diag(1.0 / k[wide]) - d[np.ix_(wide, wide)]
    return StateSpace(A, B[:, wide], -c[wide], D, system.is_discrete), wide


@guarded_criterion("circle")
def kyp_criterion(system: LureSystem, *, rate: Rate = "best", time_limit: TimeLimit = None) -> Finding:
    r"""Evaluate the circle criterion for the sector ``[alpha, beta]``, as strict positive realness.

    Stronger than the centered sector of ``circle_criterion``, weaker than free multipliers.

    Args:
        system: continuous or discrete, any ``B``, ``C``, ``D``.
        rate: ``"best"``, ``"any"`` or a number.
        time_limit: seconds; the best rate until then is the answer.

    Returns:
        A finding with margin ``min lambda_min(T + T^H)`` over all frequencies and a witness ``{"P", "L"}``
        proved at ``rate``.

    Raises:
        ConfigurationError: a bad rate.

    Example:
        >>> finding = kyp_criterion(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> finding.holds, round(finding.rate, 6)
        (True, 1.0)
    """
    system = as_lure(system)
    deadline = Deadline.from_limit(time_limit).named("circle")
    finding = kyp_margin(system, time_limit=deadline)
    if not finding.holds:
        return finding
    wide, words = transformed_loop(system)[1], finding.detail
    k = (system.beta - system.alpha)[wide]
    loop = centered_loop(system).restricted(wide).scaled(np.sqrt(2.0 / k))

    def multiplier(cap: float) -> Array:
        out = np.full(system.channels, cap * (1.0 / k).max())
        out[wide] = 1.0 / k
        return out

    proved = GainTest("circle", system, loop, multiplier, words, 1.0, deadline).decide(rate)
    words += "" if proved.witness else "; no proof was found"
    if rate != "any" and deadline.cut:
        words += f"; {STOPPED}"
    return Finding("circle", True, finding.margin, words, proved.rate, proved.witness)


@guarded_criterion("circle")
def kyp_margin(system: LureSystem, *, time_limit: TimeLimit = None) -> Finding:
    """Return the margin of ``kyp_criterion`` alone, in the frequency domain, without rate and witness.

    Args:
        system: continuous or discrete, any ``B``, ``C``, ``D``.
        time_limit: seconds.

    Returns:
        The finding, without a witness.

    Example:
        >>> finding = kyp_margin(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> finding.holds, round(finding.margin, 6), finding.rate
        (True, 1.0, None)
    """
    transformed, wide = transformed_loop(system)
    if not wide.any():
        return Finding("circle", False, None, "does not apply: every channel has a single slope")
    try:
        frequency = positivity_margin(transformed, deadline=Deadline.from_limit(time_limit).named("circle"))
    except TimeOverError:
        return Finding("circle", False, None, TOO_LATE)
    margin = frequency.margin if np.isfinite(frequency.margin) else None
    words = f"T + T^H >= {frequency.margin:.6g} for the transformed transfer function T"
    return Finding("circle", frequency.margin > 0, margin, words)
