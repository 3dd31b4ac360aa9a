r"""Gain of a plain map :math:`x^+ = \phi(W x + E u + b)` from the norms of its weights.

With :math:`P = L = I` the dissipation inequality reads :math:`|w|^2 - |x|^2 - g^2 |u|^2 + 2 w^T (v - w) < 0` for slopes
in [0, 1]; its maximum over ``w`` is :math:`|v|^2 - |x|^2 - g^2 |u|^2`, negative where :math:`|[W\; E / g]| < 1`.
"""

from __future__ import annotations

import math

import numpy as np

from stability.kernel.format.claims import Proof
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.gain_lmi import bound, check_gain
from stability.search.gains.gain import Gain

SLACK = (1e-10, 1e-8, 1e-6)


def norm_gain(subject: DrivenSystem, gain: float) -> Gain:
    """Whether the norms prove a gain to the state at any time, over every horizon.

    Args:
        subject: a discrete network.
        gain: the bound that is asked for.

    Returns:
        The bound with its proof; infinite where the norms do not prove it.

    Example:
        >>> from stability.systems import LureSystem
        >>> half = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.6]], dt=1.0), "tanh", [[0.7]])
        >>> norm_gain(half, 1.0).value <= 1.0, norm_gain(half, 0.8).value
        (True, inf)
    """
    system = subject.system
    n, m, p = system.states, system.channels, subject.inputs
    H, F = np.eye(n), np.zeros((n, p))
    for slack in SLACK if system.is_discrete and m and not subject.F.any() else ():
        data = {"P": (1.0 + slack) * np.eye(n), "L": (1.0 + slack) * np.ones(m), "E": subject.E, "F": F, "H": H}
        inner = gain * (1.0 - 2e-12)  # the bound below is rounded up
        if check_gain(system, *data.values(), gain=inner, growth=1.0, mode="terminal")[0]:
            value = bound("terminal", "final", inner, 1.0, None, True)
            rest = {"gain": inner, "growth": 1.0, "horizon": None, "measure": "final", "mode": "terminal"}
            return Gain(value, "final", None, subject, Proof("gain_lmi", {**data, **rest}), "norms of the weights")
    return Gain(math.inf, "final", None, subject, None, "the norms of the weights do not prove it")
