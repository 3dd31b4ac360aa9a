r"""The circle criterion for a centred sector: the linear part's gain is below ``1/M``.

With :math:`|\phi_i(s) - \phi_i(t)| \le M |s - t|` and ``A`` Hurwitz (Schur),
:math:`\|C (s I - A)^{-1} B + D\|_\infty < 1/M` proves incremental exponential stability; equivalently
``Z(s) = [I + M G][I - M G]^{-1}`` is strictly positive real. Two independent ways decide it: the H-infinity
norm by level sets, and the bounded real lemma as a semidefinite program.

Source: H. K. Khalil, Nonlinear Systems, 3rd ed., section 7.1; bounded real lemma: B. D. O. Anderson,
S. Vongpanitlerd, Network Analysis and Synthesis, 1973.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stability.certificate import Finding
from stability.criteria.witness import (
    Witness,
    answering,
    best_rate,
    climb_by_riccati,
    nested_multiplier,
    prove,
    prove_by_riccati,
    retreat,
    shift_factor,
    start_rate,
)
from stability.errors import ConfigurationError
from stability.solve.attempts import check_rate
from stability.solve.deadline import STOPPED, TOO_LATE, Deadline, TimeLimit, TimeOverError
from stability.solve.forms import definite_slack
from stability.solve.hinf import hinf_peak
from stability.solve.lmi import pose_bounded_real
from stability.solve.loop import Loop
from stability.solve.response import clean_matrices
from stability.systems import LureSystem

__all__ = ["bounded_real_lmi", "circle_criterion", "decide_by_gain"]

Array = np.ndarray
_EXACT_STATES = 64


@answering("circle")
def circle_criterion(
    system: LureSystem,
    *,
    method: str = "frequency",
    M: float | None = None,
    rate: str | float = "best",
    time_limit: TimeLimit = None,
) -> Finding:
    r"""Decide the circle criterion in one of two ways.

    Args:
        system: continuous or discrete, any ``B``, ``C``, ``D``.
        method: ``"frequency"`` (H-infinity norm, any size) or ``"lmi"`` (bounded real lemma by cvxpy, small
            sizes).
        M: Lipschitz constant of the nonlinearities; by default ``max(|alpha_i|, |beta_i|)``, channel by
            channel.
        rate: ``"best"`` looks for the fastest rate at which the shifted system meets the criterion,
            ``"any"`` asks for stability only, a number for this rate.
        time_limit: seconds; the best rate until then is the answer.

    Returns:
        A finding with margin ``1/M - ||G||`` (for an unstable linear part: minus its distance from
        stability) and a witness ``{"P", "L"}`` of the multiplier inequality in the system's own slopes,
        proved at ``rate``.

    Raises:
        ConfigurationError: an unknown method, a bad rate, an M below the slopes, or a size too large for an
            SDP.

    Example:
        >>> finding = circle_criterion(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> finding.holds, round(finding.margin, 9), round(finding.rate, 6)
        (True, 0.5, 1.0)
        >>> circle_criterion(LureSystem.recurrent([[-2.0]], [[2.5]]), method="lmi").holds
        False
    """
    if method not in ("frequency", "lmi"):
        raise ConfigurationError(f'unknown method {method!r}; the known ones are "frequency", "lmi"')
    deadline = Deadline.after(time_limit).named("circle")
    own = np.maximum(np.abs(system.alpha), np.abs(system.beta))
    reach = own if M is None else np.full(system.channels, _lipschitz(M, own))
    scale = float(reach.max(initial=0.0)) or 1.0
    loop = Loop(system.A, system.B, reach[:, None] * system.C, reach[:, None] * system.D, system.is_discrete)

    def multiplier(cap: float) -> Array:
        return 0.5 * nested_multiplier((-reach, reach), (system.alpha, system.beta), cap)

    def words(gain: float) -> str:
        return f"||G||_inf = {gain / scale:.6g}, 1/M = {1.0 / scale:.6g}"

    return decide_by_gain("circle", system, loop, multiplier, words, 1.0 / scale, method, rate, deadline)


def _lipschitz(M: Any, own: Array) -> float:
    if isinstance(M, bool) or not isinstance(M, (int, float, np.number)) or not (np.isfinite(M) and M > 0):
        raise ConfigurationError(f"M must be a positive number, got {M!r}")
    if own.size and float(M) < own.max():
        raise ConfigurationError(f"M = {M:g} is below the slopes, which reach {own.max():g}")
    return float(M)


def decide_by_gain(
    name: str,
    system: LureSystem,
    loop: Loop,
    multiplier: Callable[[float], Array],
    words: Callable[[float], str],
    unit: float,
    method: str,
    rate: str | float,
    deadline: Deadline,
) -> Finding:
    """A criterion of the form ``||loop||_inf < 1``: gain, best rate, witness.

    Args:
        name: of the finding.
        system: the system it is about.
        loop: its gain below one is the criterion.
        multiplier: multipliers in the system's slopes, given the cap of ``nested_multiplier``.
        words: the numbers in words, given the gain.
        unit: the margin is ``unit * (1 - gain)``.
        method: ``frequency`` or ``lmi``.
        rate: ``best``, ``any`` or a number.
        deadline: asked between factorisations; the best rate until then is the answer.

    Returns:
        The finding.
    """
    if rate not in ("best", "any"):
        rate = check_rate(rate, system.is_discrete)
    start = start_rate(system)
    eigenvalues = np.linalg.eigvals(loop.A)
    limit = float(np.abs(eigenvalues).max()) if system.is_discrete else -float(eigenvalues.real.max())
    room = start - limit if system.is_discrete else limit
    if not room > 0:
        return Finding(name, False, room, f"A is not {'Schur' if system.is_discrete else 'Hurwitz'}")

    def gain(at: float) -> float:
        shifted = loop.shifted(at)
        if method == "frequency":
            dt = 1.0 if system.is_discrete else None
            return hinf_peak(shifted.A, shifted.B, shifted.C, shifted.D, dt, deadline=deadline).norm
        deadline.require()
        status, _, value = pose_bounded_real(
            shifted.A, shifted.B, shifted.C, shifted.D, system.is_discrete, None, deadline
        )
        return value if status == "solved" else np.inf

    level, margin = np.nan, None
    try:
        level = gain(start)
        margin = unit * (1.0 - level) if np.isfinite(level) else None
        if not level < 1.0:
            return Finding(name, False, margin, words(level))
        if isinstance(rate, float) and not gain(rate) < 1.0:
            return Finding(name, False, margin, f"{words(level)}, but not at rate {rate:g}")
    except TimeOverError:
        return Finding(name, False, margin, TOO_LATE if margin is None else f"{words(level)}; {TOO_LATE}")
    if isinstance(rate, float):
        targets = [rate]
    elif rate == "any":
        targets = [start]
    else:
        targets = []
        if method == "lmi" or system.states <= _EXACT_STATES:
            best = best_rate(gain, limit, system.is_discrete, 1e-9 if method == "frequency" else 1e-4)
            targets = list(retreat(system, best, [1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 0.1, 0.5]))
    if method == "frequency" and not targets:
        witness = climb_by_riccati(system, loop, multiplier, limit, level, deadline)
    elif method == "frequency":
        witness = prove_by_riccati(system, loop, multiplier, targets, level, deadline)
    else:
        witness = _by_program(system, loop, multiplier, targets, deadline)
    note = "" if witness else "; no witness was proved at this rate"
    if rate != "any" and deadline.cut:
        note += f"; {STOPPED}"
    return Finding(name, True, margin, words(level) + note, witness.rate, witness.data)


def _by_program(
    system: LureSystem, loop: Loop, multiplier: Callable[[float], Array], rates: list[float], deadline: Deadline
) -> Witness:
    for rate in rates:
        at = loop.shifted(rate)
        _, P, _ = pose_bounded_real(at.A, at.B, at.C, at.D, system.is_discrete, 1.0, deadline)
        if P is None:
            continue
        for cap in (4.0, 1e3, 1e6):
            witness = prove(system, P, shift_factor(system, rate) * multiplier(cap), rate)
            if witness or deadline.over:
                return witness
    return Witness()


@answering("bounded_real")
def bounded_real_lmi(
    A: Any,
    B: Any,
    C: Any,
    D: Any = None,
    gamma: float = 1.0,
    dt: float | None = None,
    *,
    time_limit: TimeLimit = None,
) -> Finding:
    r"""The bounded real lemma: ``||C (s I - A)^{-1} B + D||_inf < gamma`` by a semidefinite program.

    .. math:: \begin{bmatrix} A^T P + P A + C^T C & P B + C^T D \\ \cdot & D^T D - \gamma^2 I \end{bmatrix} <
              0, \quad P > 0

    Args:
        A: ``(n, n)``.
        B: ``(n, m)``.
        C: ``(p, n)``.
        D: ``(p, m)``, zero by default.
        gamma: the bound.
        dt: ``None`` for continuous time.
        time_limit: seconds.

    Returns:
        A finding; its witness is ``{"P"}``, its margin the slack of the inequality beyond rounding errors.

    Raises:
        StabilityError: bad matrices or options.

    Example:
        >>> bounded_real_lmi([[-2.0]], [[1.0]], [[1.0]], gamma=0.51).holds
        True
        >>> bounded_real_lmi([[-2.0]], [[1.0]], [[1.0]], gamma=0.49).holds
        False
    """
    a, b, c, d = clean_matrices(A, B, C, D)
    if isinstance(gamma, bool) or not isinstance(gamma, (int, float, np.number)) or not gamma > 0:
        raise ConfigurationError(f"gamma must be a positive number, got {gamma!r}")
    c, d = c / float(gamma), d / float(gamma)
    status, P, _ = pose_bounded_real(a, b, c, d, dt is not None, 1.0, Deadline.after(time_limit))
    if P is None:
        return Finding("bounded_real", False, None, f"no P was found ({status})")
    P = 0.5 * (P + P.T)
    form, magnitude = (_bounded_real_form(a, b, c, d, P, dt is not None, x) for x in (False, True))
    slack = min(definite_slack(P), definite_slack(-form, magnitude))
    if not slack > 0:
        words = "the best P found does not satisfy the inequality"
        return Finding("bounded_real", False, max(slack, -1.0), words)
    return Finding("bounded_real", True, slack, "P satisfies the inequality", None, {"P": P})


def _bounded_real_form(A: Array, B: Array, C: Array, D: Array, P: Array, discrete: bool, absolute: bool) -> Array:
    sign = -1.0
    if absolute:
        A, B, C, D, P, sign = np.abs(A), np.abs(B), np.abs(C), np.abs(D), np.abs(P), 1.0
    n, m = B.shape
    step = np.hstack([A, B])
    if discrete:
        out = step.T @ P @ step
        out[:n, :n] += sign * P
    else:
        flow = P @ step
        out = np.vstack([flow, np.zeros((m, n + m))])
        out = out + out.T
    output = np.hstack([C, D])
    out += output.T @ output
    out[n:, n:] += sign * np.eye(m)
    return 0.5 * (out + out.T)
