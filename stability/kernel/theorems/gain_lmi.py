r"""Theorem ``gain_lmi``: incremental gain from one matrix inequality.

With ``V = x^T P x``, a multiplier ``L >= 0`` and the difference of two trajectories from one state, the
inequality

.. math:: V(x^+) - \rho^2 V(x) \;(\text{or } \dot V + 2 \lambda V) + [\,|H x|^2\,] - g^2 |u|^2
          + 2 (w - \alpha v)^T L (\beta v - w) < 0

proves, summed over time,

* ``running`` (with ``|H x|^2``, ``rho = 1`` or ``lambda = 0``, ``P > 0``): ``|y|_2 <= g |u|_2`` over every
  horizon; in discrete time hence ``|y_T| <= g |u|_2``, too;
* ``terminal`` (without it, ``P > H^T H``): ``|y_T|^2 <= V(x_T) <= g^2 sum_t rho^{2 (T - 1 - t)} |u_t|^2``,
  hence ``|y_T| <= g max(1, rho^{T - 1}) |u|_2`` and, summed once more, a bound of ``|y|_2`` over T steps.

All rounding errors are inside the proof, as in rule ``multiplier_lmi``.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from stability.kernel.arithmetic.definiteness import (
    LARGEST,
    Definiteness,
    gamma,
    is_symmetric,
    prove_positive_definite,
    round_up,
)
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Number, NumberOrNull, ProofData, Text, is_float64, require
from stability.kernel.format.sentences import gain_bound
from stability.kernel.format.theorem_table import BY_CHECK, Outcome, certifies, reason_of
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.state_space import LureMatrices, with_input
from stability.kernel.theorems.multiplier_lmi import Majorant, all_signs_plus, lmi_matrix, majorant

Array = np.ndarray


THEOREMS = set(product(("running", "terminal"), ("l2", "final"), (True, False))) - {("running", "final", False)}
"""Mode, measure and time base (``True``: discrete) of every bound.

In continuous time the integral of a running cost bounds the output at no single instant. In discrete time one more step
without an input difference puts the last output under the sum.
"""


def bound(mode: str, measure: str, gain: float, growth: float, horizon: float | None, discrete: bool) -> float:
    """Return the number that the inequality proves, rounded up.

    Args:
        mode: ``running`` or ``terminal``.
        measure: ``l2`` (the whole output) or ``final`` (the output at the end).
        gain: ``g``.
        growth: ``rho`` or ``lambda``.
        horizon: steps or time; ``None`` for every horizon.
        discrete: time base.

    Returns:
        The bound; infinite where nothing follows.

    Example:
        >>> round(bound("terminal", "final", 2.0, 1.1, 3, True), 9)
        2.42
    """
    if (mode, measure, discrete) not in THEOREMS:
        return math.inf
    if mode == "running":
        return gain if growth == (1.0 if discrete else 0.0) else math.inf
    factor = _largest(growth, horizon, discrete)
    if measure == "final":  # |y_T|^2 <= V(x_T) <= g^2 sum_t rho^(2 (T - 1 - t)) |u_t|^2
        return round_up(gain * factor * (1.0 + 1e-12))
    if horizon is None or factor == math.inf:
        return math.inf
    total, r = horizon * factor * factor, growth * growth
    if not discrete:  # int_0^T |y|^2 dt <= T sup |y|^2
        return round_up(gain * math.sqrt(total) * (1.0 + 1e-9))
    if abs(r - 1.0) > 1e-6:  # sum_k |y_k|^2 <= sum_k r^(k - 1) g^2 |u|^2
        total = min(total, (1.0 - r**horizon) / (1.0 - r))
    # error of r: half a unit in the last place; of its power: horizon such units; of the quotient: 2e-10 more
    return round_up(gain * math.sqrt(total) * (1.0 + 1e-9 + 2.0 * horizon * 2.0**-52))


def _largest(growth: float, horizon: float | None, discrete: bool) -> float:
    """Return ``max(1, rho^(T - 1))`` or ``exp(max(0, -lambda) T)``; infinite beyond ``exp(300)``."""
    if growth <= 1.0 if discrete else growth >= 0.0:
        return 1.0
    if horizon is None or horizon * (math.log(growth) if discrete else -growth) > 300.0:
        return math.inf
    return growth ** (horizon - 1) if discrete else math.exp(-growth * horizon)


def gain_matrix(system: LureSystem, P: Array, L: Array, E: Array, F: Array, H: Array | None, growth: float) -> Array:
    r"""Return the quadratic form of the inequality without its term ``-g^2 |u|^2``, in ``s = (x, w, u)``.

    With ``x' = A x + B w + F u`` and ``v = C x + D w + E u``.

    Args:
        system: the system, ``n`` states and ``m`` channels.
        P: ``(n, n)`` symmetric.
        L: ``(m,)`` diagonal of the multiplier.
        E: ``(m, p)`` input to channel.
        F: ``(n, p)`` input to state.
        H: ``(k, n)`` state to output, or ``None`` to leave ``|H x|^2`` out.
        growth: ``lambda`` or ``rho``; 0 (1) for the l2 gain.

    Returns:
        ``(n + m + p, n + m + p)`` symmetric matrix.

    Example:
        >>> lag = LureSystem.linear([[-1.0]])
        >>> gain_matrix(lag, np.eye(1), np.zeros(0), np.zeros((0, 1)), np.eye(1), np.eye(1), 0.0)
        array([[-1.,  1.],
               [ 1.,  0.]])
    """
    n = system.states
    matrix = lmi_matrix(with_input(system, E, F), P, np.concatenate([L, np.zeros(F.shape[1])]), growth)
    if H is not None:
        square = H.T @ H
        matrix[:n, :n] += 0.5 * (square + square.T)
    return matrix


def check_gain(
    system: LureSystem, P: Any, L: Any, E: Any, F: Any, H: Any, *, gain: float, growth: float, mode: str
) -> Outcome:
    """Prove the inequality strictly; never raises on bad data.

    Args:
        system: the Lur'e system.
        P: ``(n, n)``.
        L: ``(m,)``.
        E: ``(m, p)`` input to channel.
        F: ``(n, p)`` input to state.
        H: ``(k, n)`` state to output.
        gain: ``g``.
        growth: ``rho`` or ``lambda``.
        mode: ``running`` or ``terminal``.

    Returns:
        Whether the inequality is proved, and the reason.

    Example:
        >>> lag = LureSystem.linear([[-1.0]])
        >>> data = np.eye(1), np.zeros(0), np.zeros((0, 1)), np.eye(1), np.eye(1)
        >>> check_gain(lag, *data, gain=1.01, growth=0.0, mode="running")[0]
        True
        >>> check_gain(lag, *data, gain=0.99, growth=0.0, mode="running")[0]
        False
    """
    problem = bad_data(system, P, L, E, F, H) or out_of_range(system, (P, L, E, F, H), gain, growth, mode)
    if problem is not None:
        return False, problem
    with np.errstate(all="ignore"):
        outcome = dissipation(system, P, L, (E, F), H if mode == "running" else None, gain, growth)
        if not outcome.holds:
            return False, f"the gain inequality is not proved: {outcome.reason}"
        floor = prove_positive_definite(P) if mode == "running" else above_output(P, H)
    if not floor.holds:
        low = "zero" if mode == "running" else "H^T H"
        return False, f"P is not proved to exceed {low}: {floor.reason}"
    return True, "the gain inequality holds, rounding errors included"


def bad_data(system: LureSystem, P: Any, L: Any, E: Any, F: Any, H: Any) -> str | None:
    """Return the reason why the arrays are no proof about the system, or ``None``."""
    n, m = system.states, system.channels
    arrays = (P, L, E, F, H)
    if not all(is_float64(x) for x in arrays):
        return "P, L, E, F and H must be float64 arrays"
    p = F.shape[1] if F.ndim == 2 else -1
    shapes = (P.shape, L.shape, E.shape, F.shape, H.shape[1:])
    if shapes != ((n, n), (m,), (m, p), (n, p), (n,)):
        return "P, L, E, F or H has a shape that does not fit the system"
    if not all(np.isfinite(x).all() for x in arrays) or not is_symmetric(P):
        return "P must be finite and symmetric to the last bit, the others finite"
    return "a multiplier in L is negative" if (L < 0).any() else None


def out_of_range(system: LureSystem, arrays: tuple[Array, ...], gain: float, growth: float, mode: str) -> str | None:
    """Return the reason why the rounding of these numbers is not bounded, or ``None``."""
    if mode not in ("running", "terminal"):
        return f"unknown mode {mode!r}"
    if not (0.0 <= gain < LARGEST**0.25 and np.isfinite(growth)) or (system.is_discrete and not growth > 0):
        return "the gain or the growth is out of range"
    parts = (*arrays, system.A, system.B, system.C, system.D, system.alpha, system.beta)
    if max(float(np.abs(x).max(initial=0.0)) for x in parts) > LARGEST**0.25 or abs(growth) > LARGEST**0.25:
        return f"an entry exceeds {LARGEST**0.25:.0e}, beyond which rounding is not bounded here"
    return None


def dissipation(
    system: LureSystem,
    P: Array,
    L: Array,
    inputs: tuple[Array, Array],
    H: Array | None,
    gain: float,
    growth: float = 0.0,
    *,
    before: Array | None = None,
    from_rest: bool = False,
    big: Majorant | None = None,
) -> Definiteness:
    """Prove the inequality: ``gain_matrix`` with ``-g^2 |u|^2``, in the system whose input is appended as channels.

    Args:
        system: the system.
        P: ``(n, n)``, the storage; the one after the step if ``before`` is given.
        L: ``(m,)`` multipliers.
        inputs: ``E (m, p)`` and ``F (n, p)``.
        H: ``(k, n)`` state to output, or ``None`` to leave ``|H x|^2`` out.
        gain: ``g``.
        growth: ``lambda`` or ``rho``; zero if ``before`` is given.
        before: ``(n, n)``, the storage before the step, subtracted as it is.
        from_rest: whether the step starts at ``x = 0``, so that the inequality is needed only there.
        big: ``majorant(system)``, if it is computed already.

    Returns:
        The outcome.
    """
    E, F = inputs
    n, p = F.shape
    matrix = gain_matrix(system, P, L, E, F, H, growth)
    index = range(len(matrix) - int(p), len(matrix))
    matrix[index, index] -= gain * gain
    if before is not None:
        matrix[:n, :n] -= before
    big, slopes = big or majorant(system), (system.is_discrete, system.alpha, system.beta)
    wide = with_input(LureMatrices(big.A, big.B, big.C, big.D, *slopes), np.abs(E), np.abs(F))
    whole = all_signs_plus(wide, wide, P, np.concatenate([L, np.zeros(p)]), growth)
    size = np.zeros((0, n)) if H is None else np.abs(H)
    factor = gamma(2 * (2 * len(matrix) + 2 * big.roundings + len(size)) + 60)

    def action(s: Array) -> Array:
        out = whole(s)
        out[:n] += size.T @ (size @ s[:n])
        if before is not None:
            out[:n] += np.abs(before) @ s[:n]
        out[index] += gain * gain * s[index]
        return factor * out

    if not from_rest:
        return prove_positive_definite(-matrix, action)
    rest = np.zeros(n)  # the principal block without the state: its errors are those of the same entries
    return prove_positive_definite(-matrix[n:, n:], lambda s: action(np.concatenate([rest, s]))[n:])


def above_output(P: Array, H: Array) -> Definiteness:
    """Prove ``P > H^T H``."""
    square, mass, size = H.T @ H, np.abs(H), np.abs(P)
    factor = gamma(2 * H.shape[0] + 20)
    return prove_positive_definite(P - 0.5 * (square + square.T), lambda s: factor * (mass.T @ (mass @ s) + size @ s))


def gain_sentence(subject: LureSystem | DrivenSystem, claim: Claim, measure: str, horizon: float | None) -> str:
    """State a gain over a horizon."""
    value = float(claim.value if claim.value is not None else math.inf)
    output = "The output is H x, with H of the proof."
    if not isinstance(subject, DrivenSystem):
        output += " The inputs enter by E and F of the proof."
    return gain_bound(subject, value, measure, horizon, output)


def require_own_inputs(subject: LureSystem | DrivenSystem, E: Array, F: Array) -> None:
    """Require that a network's input matrices are its own.

    Raises:
        Refused: they are others.
    """
    if isinstance(subject, DrivenSystem):
        same = np.array_equal(E, subject.E) and np.array_equal(F, subject.F)
        require(same, "the input matrices are not those of the network")


@certifies("gain_lmi", subject=(LureSystem, DrivenSystem), claim="gain", value=BY_CHECK)
class GainLmi(ProofData):
    """Incremental gain (``docs/certificate-format.md``); ``check_gain`` checks the sizes, also for searches."""

    P: AnyArray
    L: AnyArray
    E: AnyArray
    F: AnyArray
    H: AnyArray
    gain: Number
    growth: Number
    mode: Text
    measure: Text
    horizon: NumberOrNull

    def sentence(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        return gain_sentence(subject, claim, self.measure, self.horizon)

    def check(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        mode, measure, horizon, discrete = self.mode, self.measure, self.horizon, subject.is_discrete
        time = "discrete" if discrete else "continuous"
        known = (mode, measure, discrete) in THEOREMS
        require(known, f"no theorem bounds the measure {measure!r} by the mode {mode!r} in {time} time")
        whole = horizon is None or ((isinstance(horizon, int) or not discrete) and 0 < horizon < 2**31)
        require(whole, "the horizon must be positive, and a whole number of steps in discrete time")
        require_own_inputs(subject, self.E, self.F)
        arrays = self.P, self.L, self.E, self.F, self.H
        reason = reason_of(check_gain(subject.system, *arrays, gain=self.gain, growth=self.growth, mode=mode))
        least = bound(mode, measure, self.gain, self.growth, horizon, discrete)
        enough = claim.value is not None and claim.value >= least
        require(enough, f"the claim says {claim.value}, the proof supports {least}")
        return reason
