"""Gain of a network that carries its own storage and multipliers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from stability.kernel.checks import as_matrix
from stability.kernel.format.claims import Proof
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.gain_lmi import bound, check_gain
from stability.search.gains.gain import Gain

SLACK = (1e-10, 1e-8, 1e-6, 1e-5)
"""Relative room for the rounding of the proof."""


def carried_gain(subject: DrivenSystem, P: Any, L: Any, gain: float, *, output: Any = None) -> Gain:
    """The gain to an output at any time, over every horizon, from a known storage and multipliers.

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
    system, n = subject.system, subject.states
    P, L = np.asarray(P, dtype=np.float64), np.asarray(L, dtype=np.float64)
    H = np.eye(n) if output is None else np.array(as_matrix("output", output, (None, n)))
    nothing = Gain(math.inf, "final", None, subject, None, "the storage that is carried does not prove it")
    try:
        root = np.linalg.cholesky(P)
    except np.linalg.LinAlgError:
        return nothing
    size = float(np.linalg.norm(solve_triangular(root, H.T, lower=True), 2)) ** 2  # P size >= H^T H
    for slack in SLACK:
        scale = max(size, 1e-300) * (1.0 + slack)
        data = {"P": scale * P, "L": scale * L, "E": subject.E, "F": subject.F, "H": H}
        inner = gain * math.sqrt(scale) * (1.0 + slack)
        if check_gain(system, *data.values(), gain=inner, growth=1.0, mode="terminal")[0]:
            rest = {"gain": inner, "growth": 1.0, "horizon": None, "measure": "final", "mode": "terminal"}
            value = bound("terminal", "final", inner, 1.0, None, True)
            return Gain(value, "final", None, subject, Proof("gain_lmi", {**data, **rest}), "the storage it carries")
    return nothing
