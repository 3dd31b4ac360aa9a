r"""Absorbing boxes of networks with a piecewise linear activation, by the signs of their weights.

Let an activation with :math:`\phi(0) = 0` have slopes of at most :math:`s_+` right of zero and :math:`s_-` left of it
(one and zero for ReLU). Then :math:`\phi(z) \le s_+ \max(z, 0)` and :math:`-\phi(z) \le s_- \max(-z, 0)`. With the
positive and negative parts of matrices, :math:`M = M^+ - M^-`, states in :math:`-v \le x \le p` give

.. math:: x^+ \le A^+ p + A^- v + B^+ s_+ \zeta_+ + B^- s_- \zeta_- + F u, \qquad
          \zeta_+ = C^+ p + C^- v + (E u + b)^+, \quad \zeta_- = C^+ v + C^- p + (E u + b)^-,

and a similar lower bound. Together they are an affine map ``K (p, v) + S`` with non-negative entries. If
:math:`K (p, v) \le q (p, v)` and :math:`K (p, v) + S \le (p, v)`, then :math:`V = \max(x_i / p_i, -x_i / v_i)` obeys
:math:`V^+ - 1 \le q (V - 1)` above one. Negative weights between ReLU units do not widen these boxes. Therefore they
exist also for networks whose matrix of absolute weights does not contract.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.activations import Activation, activation
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.arithmetic.intervals import midpoint_radius, upper_product
from stability.kernel.systems.driven import DrivenSystem

Array = np.ndarray


def is_unbounded(name: str) -> bool:
    """Return True for an unbounded activation, whose box needs signs and sizes of the weights.

    Example:
        >>> is_unbounded("relu"), is_unbounded("saturation")
        (True, False)
    """
    return not np.isfinite(activation(name).bound)


def steepest_sides(phi: Activation) -> tuple[float, float]:
    """Return the largest slopes right and left of zero of a piecewise linear activation.

    Example:
        >>> steepest_sides(activation("leaky_relu"))
        (1.0, 0.1)
    """
    edges = (-np.inf, *phi.kinks, np.inf)
    right = max(piece for piece, end in zip(phi.pieces, edges[1:]) if end > 0.0)
    return right, max(piece for piece, start in zip(phi.pieces, edges) if start < 0.0)


def _parts(ball: Ball) -> tuple[Array, Array]:
    """Return upper bounds of the positive and the negative parts of all matrices in a ball."""
    low, high = ball.endpoints() if ball.rad.any() else (ball.mid, ball.mid)
    return np.maximum(high, 0.0), np.maximum(-low, 0.0)


def _both(ball: Ball, up: Array, down: Array) -> tuple[Array, Array]:
    """Return upper bounds of ``M v`` and ``-M v`` for ``-down <= v <= up``, with ``up`` and ``down`` non-negative."""
    plus, minus = _parts(ball)
    both = np.concatenate([up, down])
    return upper_product(np.hstack([plus, minus]), both), upper_product(np.hstack([minus, plus]), both)


def _endpoints(matrix: Array, low: Array, high: Array, offset: Array) -> tuple[Array, Array]:
    """Return non-negative upper bounds of ``M u + offset`` and of its negative for inputs in a box."""
    ball, zeros = Ball.exact(matrix), np.zeros_like(offset)
    middle, reach = midpoint_radius(low, high)
    centre = ball @ middle + offset if matrix.size else Ball.exact(offset)
    radius = upper_product(np.abs(matrix), reach) if matrix.size else zeros
    least, most = centre.endpoints()
    top, bottom = np.nextafter(most + radius, np.inf), np.nextafter(radius - least, np.inf)
    return np.maximum(top, 0.0), np.maximum(bottom, 0.0)


def signed_balance(
    subject: DrivenSystem, up: Array, down: Array, low: Array, high: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Return upper bounds of ``K (p, v)`` and of ``S``, each as a pair of its parts for ``p`` and ``v``.

    Args:
        subject: a map without feedthrough, with a piecewise linear activation.
        up: ``p (n,)``.
        down: ``v (n,)``.
        low: ``(p,)`` lower bounds of the inputs.
        high: ``(p,)`` upper bounds of the inputs.

    Example:
        >>> from stability.systems import LureSystem
        >>> system = LureSystem([[0.0]], [[1.0]], [[-3.0]], None, (0.0, 1.0), 1.0)
        >>> network = DrivenSystem(system, "relu", [[1.0]], [0.5])
        >>> kept, added = signed_balance(network, np.ones(1), np.full(1, 1e-3), -np.ones(1), np.ones(1))
        >>> kept[0].round(6), added[0].round(6)
        (array([0.003]), array([1.5]))
    """
    A, B, C, _ = system_balls(subject.system)
    right, left = steepest_sides(activation(subject.activation))
    from_state = _both(C, up, down)
    from_input = _endpoints(subject.E, low, high, subject.b)
    linear, activated = _both(A, up, down), _both(B, right * from_state[0], left * from_state[1])
    kept = tuple(np.nextafter(a + b, np.inf) for a, b in zip(linear, activated))
    entered = _endpoints(subject.F, low, high, np.zeros(len(subject.F), dtype=np.float64))
    activated = _both(B, right * from_input[0], left * from_input[1])
    added = tuple(np.nextafter(a + b, np.inf) for a, b in zip(entered, activated))
    return (kept[0] * (1 + 1e-15), kept[1] * (1 + 1e-15)), (added[0] * (1 + 1e-15), added[1] * (1 + 1e-15))
