"""Gains with a known storage function: the network's own, or the identity."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from stability.kernel.checks import as_matrix
from stability.kernel.format.claims import Proof
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.gain_lmi import bound, check_gain
from stability.search.gains.gain import Gain

Array = np.ndarray
SLACK = (1e-10, 1e-8, 1e-6, 1e-5)
"""Relative allowances for the rounding of the proof."""


def carried_gain(subject: DrivenSystem, P: Any, L: Any, gain: float, *, output: Any = None) -> Gain:
    """Bound the gain to an output at any time, over every horizon, from a known storage and multipliers.

    Args:
        subject: a discrete network.
        P: ``(n, n)`` storage.
        L: ``(m,)`` multipliers.
        gain: ``g`` of the inequality ``V(x+) <= V(x) + g^2 |u|^2``.
        output: ``H (k, n)``; the state by default.

    Returns:
        The bound with its proof; infinite where these do not prove it.

    Raises:
        DimensionError: ``H`` has another number of columns than there are states.

    Example:
        >>> from stability.systems import LureSystem
        >>> half = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.6]], dt=1.0), "tanh", [[0.7]])
        >>> [round(carried_gain(half, [[1.0]], [1.0], gain).value, 6) for gain in (0.9, 0.8)]
        [0.9, inf]
    """
    P, L = np.asarray(P, dtype=np.float64), np.asarray(L, dtype=np.float64)
    H = np.eye(subject.states) if output is None else np.array(as_matrix("output", output, (None, subject.states)))
    with contextlib.suppress(np.linalg.LinAlgError):
        root = np.linalg.cholesky(P)
        size = max(float(np.linalg.norm(solve_triangular(root, H.T, lower=True), 2)) ** 2, 1e-300)  # P size >= H^T H
        for slack in SLACK:
            scale = size * (1.0 + slack)
            inner = gain * math.sqrt(scale) * (1.0 + slack)
            bound = _proved(subject, scale * P, scale * L, H, inner, "storage function of the model")
            if bound is not None:
                return bound
    return Gain(math.inf, "final", None, subject, None, "the storage function of the model does not prove it")


def weight_norm_gain(subject: DrivenSystem, gain: float) -> Gain:
    r"""Prove a gain of a map :math:`x^+ = \phi(W x + E u + b)` to the state at any time from the norms of its weights.

    With :math:`P = L = I` the dissipation inequality reads :math:`|w|^2 - |x|^2 - g^2 |u|^2 + 2 w^T (v - w) < 0` for
    slopes in [0, 1]; its maximum over ``w`` is :math:`|v|^2 - |x|^2 - g^2 |u|^2`, negative where
    :math:`|[W\; E / g]| < 1`.

    Args:
        subject: a discrete network.
        gain: the bound to prove.

    Returns:
        The bound with its proof; infinite where the norms do not prove it.

    Example:
        >>> from stability.systems import LureSystem
        >>> half = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.6]], dt=1.0), "tanh", [[0.7]])
        >>> weight_norm_gain(half, 1.0).value <= 1.0, weight_norm_gain(half, 0.8).value
        (True, inf)
    """
    n, m = subject.states, subject.system.channels
    for slack in SLACK if subject.is_discrete and m and not subject.F.any() else ():
        inner = gain * (1.0 - 2e-12)  # the bound of the proof is rounded up
        scale = 1.0 + slack
        bound = _proved(subject, scale * np.eye(n), scale * np.ones(m), np.eye(n), inner, "norms of the weights")
        if bound is not None:
            return bound
    return Gain(math.inf, "final", None, subject, None, "the norms of the weights do not prove it")


def _proved(subject: DrivenSystem, P: Array, L: Array, H: Array, gain: float, words: str) -> Gain | None:
    """Return the gain of a storage and multipliers if the checker accepts them, else ``None``."""
    data: dict[str, Any] = {"P": P, "L": L, "E": subject.E, "F": subject.F, "H": H}
    if not check_gain(subject.system, P, L, subject.E, subject.F, H, gain=gain, growth=1.0, mode="terminal")[0]:
        return None
    data |= {"gain": gain, "growth": 1.0, "horizon": None, "measure": "final", "mode": "terminal"}
    value = bound("terminal", "final", gain, 1.0, None, True)
    return Gain(value, "final", None, subject, Proof("gain_lmi", data), words)
