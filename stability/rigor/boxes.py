"""Boxes of states, and where a network takes them: enclosures that contain every rounding error."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.rigor.balls import Ball, activation_values, system_balls
from stability.systems.activations import activation

Array = np.ndarray


def _ball(low: Array, high: Array) -> Ball:
    mid = 0.5 * low + 0.5 * high  # wherever rounding puts it, the radius reaches both ends
    return Ball(mid, np.nextafter(np.maximum(high - mid, mid - low), np.inf))


def _values(name: str, z: Ball) -> Ball:
    """Range of a rising activation over an interval, from its two ends."""
    low, high = (activation_values(name, Ball.exact(end)).ends() for end in z.ends())
    return _ball(low[0], high[1])


def _activated(driven: Any, x: Ball, u: Array, C: Ball, D: Ball) -> Ball | None:
    """Range of ``phi(z)`` over a box of states: through the channel loop by sweeps from the activation's own range.

    ``None`` for a loop through an activation that has no such range.
    """
    name, m = driven.activation, driven.system.channels
    free = C @ x + Ball.exact(driven.E) @ u + driven.b
    if not (D.mid.any() or D.rad.any()):
        return _values(name, free)
    bound = activation(name).bound
    if not np.isfinite(bound):
        return None
    w = Ball(np.zeros(m), np.full(m, bound))
    for _ in range(min(m, 24) + 1):
        w = _values(name, free + D @ w)
    return w


def box_image(driven: Any, low: Array, high: Array, u: Array) -> tuple[Array, Array] | None:
    """A box around the next states of all states in a box, for a map.

    Args:
        driven: a ``DrivenSystem`` in discrete time.
        low: ``(n,)``.
        high: ``(n,)``, not below ``low``.
        u: ``(p,)`` the input, taken as exact.

    Returns:
        Its two corners, rounded outwards; ``None`` where no enclosure is known (an unbounded activation in a loop).

    Example:
        >>> from stability import DrivenSystem, LureSystem
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[2.0]], dt=1.0), "tanh", [[0.0]])
        >>> low, high = box_image(cell, np.array([0.5]), np.array([1.0]), np.zeros(1))
        >>> bool(low[0] <= np.tanh(1.0) and high[0] >= np.tanh(2.0) and high[0] - low[0] < 0.2025)
        True
    """
    A, B, C, D = system_balls(driven.system)
    x = _ball(low, high)
    w = _activated(driven, x, u, C, D)
    if w is None:
        return None
    return (A @ x + B @ w + Ball.exact(driven.F) @ u).ends()


def is_left_nowhere(driven: Any, low: Array, high: Array, u: Array) -> bool:
    """Whether no trajectory of a flow leaves a box: on every side the right-hand side does not point outwards (Nagumo).

    Args:
        driven: a ``DrivenSystem`` in continuous time.
        low: ``(n,)``.
        high: ``(n,)``.
        u: ``(p,)`` the input, taken as exact.

    Returns:
        Whether that is proved.
    """
    A, B, C, D = system_balls(driven.system)
    push = Ball.exact(driven.F) @ u
    for i in range(len(low)):
        for side, end in ((-1.0, low), (1.0, high)):
            bottom, top = low.copy(), high.copy()
            bottom[i] = top[i] = end[i]
            x = _ball(bottom, top)
            w = _activated(driven, x, u, C, D)
            if w is None:
                return False
            speed = A[i] @ x + B[i] @ w + push[i]
            if not side * float(speed.mid) + float(speed.rad) <= 0.0:
                return False
    return True
