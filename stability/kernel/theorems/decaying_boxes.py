r"""Absorbing boxes of networks with a piecewise linear activation, by the signs of their weights.

An activation with :math:`\phi(0) = 0` whose slopes are at most :math:`s_+` right of zero and :math:`s_-` left of it (of
ReLU one and zero) keeps :math:`\phi(z) \le s_+ \max(z, 0)` and :math:`-\phi(z) \le s_- \max(-z, 0)`. With positive and
negative parts of matrices apart, :math:`M = M^+ - M^-`, states in :math:`-v \le x \le p` give

.. math:: x^+ \le A^+ p + A^- v + B^+ s_+ \zeta_+ + B^- s_- \zeta_- + F u, \qquad
          \zeta_+ = C^+ p + C^- v + (E u + b)^+, \quad \zeta_- = C^+ v + C^- p + (E u + b)^-,

and the like from below: a map of the pair ``(p, v)`` that is affine with non-negative entries, ``K (p, v) + S``. Where
:math:`K (p, v) \le q (p, v)` and :math:`K (p, v) + S \le (p, v)`, :math:`V = \max(x_i / p_i, -x_i / v_i)` obeys
:math:`V^+ - 1 \le q (V - 1)` above one. Negative weights between units of ReLU do not make these boxes wider, so that
they exist for networks whose steps are not contracting in any norm of sizes.
"""

from __future__ import annotations

import numpy as np

from stability.kernel.arithmetic.activations import Activation, activation
from stability.kernel.arithmetic.balls import Ball, system_balls
from stability.kernel.arithmetic.intervals import upper_product
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
    """Bound the positive and the negative part of every matrix in a ball above."""
    low, high = ball.endpoints() if ball.rad.any() else (ball.mid, ball.mid)
    return np.maximum(high, 0.0), np.maximum(-low, 0.0)


def _both(ball: Ball, up: Array, down: Array) -> tuple[Array, Array]:
    """Bound ``M v`` and ``-M v`` for non-negative ``-down <= v <= up``."""
    plus, minus = _parts(ball)
    joined, turned = np.hstack([plus, minus]), np.hstack([minus, plus])
    both = np.concatenate([up, down])
    return upper_product(joined, both), upper_product(turned, both)


def _endpoints(matrix: Array, low: Array, high: Array, offset: Array) -> tuple[Array, Array]:
    """Bound ``M u + offset`` and its negative for inputs in a box, both non-negative."""
    ball, still = Ball.exact(matrix), np.zeros_like(offset)
    middle = 0.5 * (low + high)
    reach = np.nextafter(np.maximum(high - middle, middle - low), np.inf)
    centre = ball @ middle + offset if matrix.size else Ball.exact(offset)
    swing = upper_product(np.abs(matrix), reach) if matrix.size else still
    least, most = centre.endpoints()
    top, bottom = np.nextafter(most + swing, np.inf), np.nextafter(swing - least, np.inf)
    return np.maximum(top, 0.0), np.maximum(bottom, 0.0)


def signed_balance(
    subject: DrivenSystem, up: Array, down: Array, low: Array, high: Array
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Bound ``K (p, v)`` and ``S`` above, each by its part from above and from below.

    Args:
        subject: a map without feedthrough, its activation piecewise linear.
        up: ``(n,)`` ``p``.
        down: ``(n,)`` ``v``.
        low: ``(p,)`` least inputs.
        high: ``(p,)`` largest inputs.

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
    seen = _both(C, up, down)
    given = _endpoints(subject.E, low, high, subject.b)
    own, through = _both(A, up, down), _both(B, right * seen[0], left * seen[1])
    kept = tuple(np.nextafter(a + b, np.inf) for a, b in zip(own, through))
    entered = _endpoints(subject.F, low, high, np.zeros(len(subject.F), dtype=np.float64))
    pushed = _both(B, right * given[0], left * given[1])
    added = tuple(np.nextafter(a + b, np.inf) for a, b in zip(entered, pushed))
    return (kept[0] * (1 + 1e-15), kept[1] * (1 + 1e-15)), (added[0] * (1 + 1e-15), added[1] * (1 + 1e-15))
