r"""Theorem ``gain_steps``: incremental gain over a fixed number of steps, with multipliers for each step.

With ``V_t = x^T P_t x``, multipliers ``L_t >= 0`` and the difference of two trajectories from one state, so that
``x_0 = 0``, the inequalities

.. math:: V_{t+1}(x_{t+1}) - V_t(x_t) + [\,|H x_t|^2\,] - g^2 |u_t|^2 + 2 (w_t - \alpha v_t)^T L_t (\beta v_t - w_t)
          < 0, \qquad t = 0, \dots, T - 1,

the first of them asked for ``x_0 = 0`` only, and ``P_T > H^T H`` prove, added up, ``|y_T| <= g |u|_2`` (measure
``final``, without the bracket) or ``(|y_1|^2 + ... + |y_T|^2)^{1/2} <= g |u|_2`` (measure ``l2``, with it for t >= 1).
A difference that begins later has fewer steps to grow in: the bound holds at every step up to ``T``.

A proof holds the multipliers. The storages are found from them, one after the other, as the least that admit the next
step, a little ``slack`` more, and it is for these that every inequality is proved, rounding errors included. How they
were found is nobody's concern then: any for which the inequalities hold would do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from stability.kernel.arithmetic.definiteness import LARGEST
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Count, Number, ProofData, Text, is_float64, require
from stability.kernel.format.theorem_table import Outcome, certifies, reason_of
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.gain_lmi import (
    above_output,
    dissipation,
    gain_sentence,
    out_of_range,
    require_own_inputs,
)
from stability.kernel.theorems.multiplier_lmi import majorant, why_not_a_map

Array = np.ndarray
MOST_STEPS, MOST_NUMBERS = 4096, 2**22
"""Longest horizon, and most multipliers of a proof; a longer one is one inequality with one P."""


def storages(
    system: LureSystem, L: Array, inputs: tuple[Array, Array], H: Array | None, gain: float, slack: float
) -> Iterator[Array]:
    r"""Yield the storages ``P_1, ..., P_T`` of a sequence of multipliers as candidates, each to be proved.

    The least set that step t can reach from ``x^T P_t x <= 1`` is, with ``W_t`` the quadratic form
    ``diag(P_t, 0, g^2)`` minus output and multiplier terms and ``M = [A B F]``,

    .. math:: P_{t+1}^{-1} = M W_t^{-1} M^T.

    Args:
        system: the map, ``n`` states and ``m`` channels.
        L: ``(T, m)`` positive multipliers.
        inputs: ``E (m, p)`` and ``F (n, p)``.
        H: ``(k, n)`` output that is paid for at every step, or ``None``.
        gain: ``g``.
        slack: relative enlargement of a set beyond the smallest one.

    Yields:
        ``(n, n)`` symmetric matrices, finite; fewer than ``T`` where the next does not exist.

    Example:
        >>> lag = LureSystem.linear([[0.5]], dt=1.0)
        >>> data = np.zeros((3, 0)), (np.zeros((0, 1)), np.eye(1)), None, 1.0, 0.0
        >>> [round(1.0 / P.item(), 4) for P in storages(lag, *data)]
        [1.0, 1.25, 1.3125]
    """
    E, F = inputs
    n, m, p = *system.B.shape, F.shape[1]
    moved = np.hstack([system.A, system.B, F])
    seen = np.hstack([system.C, system.D, E])
    below, above = -system.alpha[:, None] * seen, system.beta[:, None] * seen
    below[range(m), range(n, n + m)] += 1.0  # w - alpha v
    above[range(m), range(n, n + m)] -= 1.0  # beta v - w
    square = None if H is None else H.T @ H
    last = np.zeros((n, n))  # the storage of the step before
    for t, weights in enumerate(L):
        half = below.T @ (weights[:, None] * above)
        form = -(half + half.T)
        form[range(n + m, n + m + p), range(n + m, n + m + p)] += gain * gain
        if t == 0:  # from rest
            form, rows = form[n:, n:], moved[:, n:]
        else:
            form[:n, :n] += last
            if square is not None:
                form[:n, :n] -= square
            rows = moved
        try:
            solved = cast(Array, np.linalg.solve(form, rows.T))
            product = rows @ solved
            reach = 0.5 * (product + product.T)
            sizes = np.diagonal(reach)
            reach += slack * (reach + np.diag(np.maximum(sizes, 1e-8 * sizes.mean())))
            inverse: Array = np.linalg.inv(reach)
        except np.linalg.LinAlgError:
            return
        last = 0.5 * (inverse + inverse.T)
        if not np.isfinite(last).all():
            return
        yield last


def check_steps(
    system: LureSystem, L: Array, E: Array, F: Array, H: Array, *, gain: float, slack: float, measure: str
) -> Outcome:
    """Prove every step strictly; never raises on bad data.

    Args:
        system: the map.
        L: ``(T, m)`` positive multipliers.
        E: ``(m, p)`` input to channel.
        F: ``(n, p)`` input to state.
        H: ``(k, n)`` state to output.
        gain: ``g``.
        slack: slack of the storages, in ``[0, 1]``.
        measure: ``final`` or ``l2``.

    Returns:
        Whether it is proved, and why not.

    Example:
        >>> lag = LureSystem.linear([[0.5]], dt=1.0)  # the largest output after three steps: sqrt(1 + 1/4 + 1/16)
        >>> data = np.zeros((3, 0)), np.zeros((0, 1)), np.eye(1), np.eye(1)
        >>> check_steps(lag, *data, gain=1.1457, slack=1e-9, measure="final")[0]
        True
        >>> check_steps(lag, *data, gain=1.1456, slack=1e-9, measure="final")[0]
        False
    """
    problem = _bad_data(system, (L, E, F, H), gain, slack, measure)
    if problem is not None:
        return False, problem
    running, big, before, largest = H if measure == "l2" else None, majorant(system), None, 0.0
    with np.errstate(all="ignore"):
        sequence = storages(system, L, (E, F), running, gain, slack)
        for t, weights in enumerate(L):
            P = next(sequence, None)
            if P is None or not np.abs(P).max(initial=0.0) <= LARGEST**0.5:
                return False, f"step {t + 1} has no storage: the multipliers, or the gain, are too small"
            paid = running if t else None
            outcome = dissipation(system, P, weights, (E, F), paid, gain, before=before, from_rest=t == 0, big=big)
            if not outcome.holds:
                return False, f"the gain inequality of step {t + 1} is not proved: {outcome.reason}"
            before, largest = P, max(largest, outcome.shift)
        assert before is not None
        floor = above_output(before, H)
    if not floor.holds:
        return False, f"the last P is not proved to exceed H^T H: {floor.reason}"
    return True, f"the gain inequality holds at all {len(L)} steps, rounding errors included"


def _bad_data(system: LureSystem, arrays: tuple[Array, ...], gain: float, slack: float, measure: str) -> str | None:
    """Return the reason why the data are no proof about the system, or ``None``."""
    if not all(is_float64(x) and np.isfinite(x).all() for x in arrays):
        return "L, E, F and H must be finite float64 arrays"
    L, E, F, H = arrays
    n, m = system.states, system.channels
    p = F.shape[1] if F.ndim == 2 else -1
    if (L.shape[1:], E.shape, F.shape, H.shape[1:]) != ((m,), (m, p), (n, p), (n,)) or not len(L):
        return "L, E, F or H has a shape that does not fit the system"
    if len(L) > MOST_STEPS or L.size > MOST_NUMBERS:
        return f"L may hold {MOST_STEPS} steps and {MOST_NUMBERS} numbers"
    if not system.is_discrete or measure not in ("final", "l2"):
        return "this proof is about maps, and about the measures 'final' and 'l2'"
    if not (L > 0).all() or not (L <= LARGEST**0.5).all():
        return "a multiplier in L is not positive, or too large"
    if not 0.0 <= slack <= 1.0:
        return "the slack must lie in [0, 1]"
    return out_of_range(system, (E, F, H), gain, 1.0, "terminal")


@certifies("gain_steps", subject=(LureSystem, DrivenSystem), claim="gain", value="gain", unfit=why_not_a_map)
class GainSteps(ProofData):
    """Gain over ``horizon`` steps (``docs/certificate-format.md``); ``check_steps`` checks the sizes."""

    L: AnyArray
    E: AnyArray
    F: AnyArray
    H: AnyArray
    gain: Number
    slack: Number
    measure: Text
    horizon: Count

    def sentence(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        return gain_sentence(subject, claim, self.measure, self.horizon)

    def check(self, subject: LureSystem | DrivenSystem, claim: Claim) -> str:
        require_own_inputs(subject, self.E, self.F)
        require(len(self.L) == self.horizon, "L must have one row a step of the horizon")
        arrays = self.L, self.E, self.F, self.H
        return reason_of(check_steps(subject.system, *arrays, gain=self.gain, slack=self.slack, measure=self.measure))
