r"""Strict positive realness by the Kalman-Yakubovich-Popov lemma, with the frequency domain as its
cross-check.

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
from stability.criteria.circle import decide_by_gain
from stability.criteria.witness import answering, prove, start_rate
from stability.errors import ConfigurationError, DimensionError
from stability.solve.attempts import CLARABEL_STATES
from stability.solve.deadline import STOPPED, TOO_LATE, Deadline, TimeLimit, TimeOverError
from stability.solve.forms import definite_slack
from stability.solve.lmi import pose_positive_real
from stability.solve.loop import Loop, centre
from stability.solve.positive_real import positivity
from stability.solve.response import clean_matrices
from stability.systems import LureSystem

__all__ = ["kyp_criterion", "kyp_lmi"]

Array = np.ndarray


@answering("kyp")
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
        StabilityError: bad matrices, or a size too large for a semidefinite program.

    Example:
        >>> kyp_lmi([[-1.0]], [[1.0]], [[1.0]]).holds
        True
        >>> kyp_lmi([[-1.0]], [[1.0]], [[-1.0]]).holds
        False
    """
    a, b, c, d = clean_matrices(A, B, C, D)
    if b.shape[1] != c.shape[0]:
        raise DimensionError("C", f"({b.shape[1]}, n), as many outputs as inputs", c.shape)
    if not b.shape[1] or not len(a):
        raise DimensionError("B", "(n, m) with n, m >= 1", b.shape)
    discrete = dt is not None
    deadline = Deadline.after(time_limit).named("kyp")
    try:
        frequency = positivity(a, b, c, d, discrete, deadline=deadline)
    except TimeOverError:
        return Finding("kyp", False, None, TOO_LATE)
    status, P, _ = pose_positive_real(a, b, c, d, discrete, deadline)
    slack = -np.inf if P is None else _slack(a, b, c, d, 0.5 * (P + P.T), discrete)
    by_lmi, by_frequency = slack > 0, frequency.margin > 0
    where = "infinity" if np.isinf(frequency.omega) else f"omega = {frequency.omega:.4g}"
    words = f"lambda_min(G + G^H) = {frequency.margin:.6g} at {where}"
    if np.isnan(frequency.omega):
        words = f"A is not {'Schur' if discrete else 'Hurwitz'}"
    lmi_words = "P satisfies the inequality" if by_lmi else f"no P satisfies the inequality ({status})"
    margin = frequency.margin if np.isfinite(frequency.margin) else None
    if by_lmi != by_frequency:
        return Finding("kyp", False, margin, f"undecided, the two ways disagree: {words}; {lmi_words}")
    if not by_lmi or P is None:
        return Finding("kyp", False, margin, words)
    return Finding("kyp", True, margin, f"{words}; {lmi_words}", None, {"P": 0.5 * (P + P.T)})


def _slack(A: Array, B: Array, C: Array, D: Array, P: Array, discrete: bool) -> float:
    """Slack of ``P > 0`` and of the inequality, after removing the directions in which it is an equality."""
    R = D + D.T
    keep = np.eye(len(R))
    if not discrete:
        values, vectors = np.linalg.eigh(R)
        null = np.abs(values) <= 64 * np.finfo(float).eps * max(float(np.abs(R).max(initial=0.0)), 1e-300)
        keep, N = vectors[:, ~null], vectors[:, null]
        gap = float(np.abs(P @ B @ N - C.T @ N).max(initial=0.0))
        if gap > 1e-8 * max(float(np.abs(C.T @ N).max(initial=0.0)), 1e-300):
            return -np.inf
    b, c, r = B @ keep, keep.T @ C, keep.T @ R @ keep

    def form(a: Array, b: Array, c: Array, r: Array, p: Array, sign: float) -> Array:
        if discrete:
            top, cross, low = a.T @ p @ a + sign * p, a.T @ p @ b + sign * c.T, b.T @ p @ b + sign * r
        else:
            top, cross, low = a.T @ p + p @ a, p @ b + sign * c.T, sign * r
        return np.block([[0.5 * (top + top.T), cross], [cross.T, 0.5 * (low + low.T)]])

    magnitude = form(np.abs(A), np.abs(b), np.abs(c), np.abs(r), np.abs(P), 1.0)
    return min(definite_slack(P), definite_slack(-form(A, b, c, r, P, -1.0), magnitude))


def _transformed(system: LureSystem) -> tuple[Array, Array, Array, Array, Array, Array]:
    """``(A, B, C, D)`` of ``T = diag(1/k) - G_alpha``, ``k``, and which channels have ``k > 0``."""
    k = system.beta - system.alpha
    open_ = k > 0
    inverse = np.linalg.inv(np.eye(system.channels) - system.D * system.alpha)
    c, d = inverse @ system.C, inverse @ system.D
    b = system.B * system.alpha
    A, B = system.A + b @ c, system.B + b @ d
    D = np.diag(1.0 / k[open_]) - d[np.ix_(open_, open_)]
    return A, B[:, open_], -c[open_], D, k, open_


@answering("kyp")
def kyp_criterion(
    system: LureSystem, *, method: str = "auto", rate: str | float = "best", time_limit: TimeLimit = None
) -> Finding:
    r"""The circle criterion for the sector ``[alpha, beta]`` itself, as strict positive realness.

    Stronger than the centred sector of ``circle_criterion``, weaker than free multipliers.

    Args:
        system: continuous or discrete, any ``B``, ``C``, ``D``.
        method: ``"lmi"`` adds the KYP inequality by cvxpy as a second opinion, ``"frequency"`` does not,
            ``"auto"`` does for small systems.
        rate: ``"best"``, ``"any"`` or a number.
        time_limit: seconds; the best rate until then is the answer.

    Returns:
        A finding with margin ``min lambda_min(T + T^H)`` over all frequencies and a witness ``{"P", "L"}``
        proved at ``rate``.

    Raises:
        ConfigurationError: an unknown method, a bad rate, or a size too large for a semidefinite program.

    Example:
        >>> finding = kyp_criterion(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> finding.holds, round(finding.rate, 6)
        (True, 1.0)
    """
    if method not in ("auto", "frequency", "lmi"):
        raise ConfigurationError(f'unknown method {method!r}; the known ones are "auto", "frequency", "lmi"')
    A, B, C, D, k, open_ = _transformed(system)
    if not open_.any():
        return Finding("kyp", False, None, "does not apply: every channel has a single slope")
    deadline = Deadline.after(time_limit).named("kyp")
    try:
        frequency = positivity(A, B, C, D, system.is_discrete, deadline=deadline)
    except TimeOverError:
        return Finding("kyp", False, None, TOO_LATE)
    words = f"lambda_min(T + T^H) = {frequency.margin:.6g}"
    if not frequency.margin > 0:
        margin = frequency.margin if np.isfinite(frequency.margin) else None
        return Finding("kyp", False, margin, words)
    wide = centre(system)
    delta = np.sqrt(2.0 / k[open_])
    inner = wide.D[np.ix_(open_, open_)]
    loop = Loop(wide.A, wide.B[:, open_], wide.C[open_], inner, system.is_discrete).scaled(delta)

    def multiplier(cap: float) -> Array:
        level = 1.0 / np.where(open_, k, 1.0)
        return np.where(open_, level, cap * level[open_].max())

    found = decide_by_gain("kyp", system, loop, multiplier, lambda _: words, 1.0, "frequency", rate, deadline)
    note = "" if found.holds and found.witness else "; no witness was proved"
    data, reached = found.witness, found.rate
    if method == "lmi" or (method == "auto" and system.states <= CLARABEL_STATES // 2 and not data):
        opinion = kyp_lmi(A, B, C, D, 1.0 if system.is_discrete else None, time_limit=deadline)
        words += "; the KYP inequality agrees" if opinion.holds else f"; KYP inequality: {opinion.detail}"
        start = start_rate(system)
        if opinion.holds and not data:
            for cap in (4.0, 1e3, 1e6):
                proof = prove(system, opinion.witness["P"], multiplier(cap), start)
                if proof:
                    data, reached, note = proof.data, proof.rate, ""
                    break
    if rate != "any" and deadline.cut:
        note += f"; {STOPPED}"
    return Finding("kyp", True, frequency.margin, words + note, reached, data)
