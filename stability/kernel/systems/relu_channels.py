r"""Piecewise linear activations on pairs, rewritten as channels of ReLU.

.. math:: (\max(s, t), \min(s, t)) = (s, t) + (1, -1)\, \mathrm{relu}(t - s), \qquad |z| = z + 2\, \mathrm{relu}(-z),
          \qquad \sigma_\theta(z) = z + 2 v\, \mathrm{relu}(-v^T z) .

Therefore OPLU (MaxMin) and the Householder activation are Lur'e systems with one channel per pair, and the absolute
value is one with a channel per unit. The bias enters the state by one more channel, whose argument is always 1.
"""

from __future__ import annotations

import numpy as np

from stability.errors import UnsupportedError
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.systems.pair_activations import normals
from stability.kernel.systems.pairwise import PairwiseSystem


def relu_system(network: PairwiseSystem) -> DrivenSystem:
    """Return the same map as a Lur'e system with ReLU channels.

    The rows of the channels are combinations of two rows of the weights, with rounding errors of float64; for the
    absolute value they are exact.

    Args:
        network: network with a piecewise linear activation.

    Returns:
        ``x+ = W x + V u + B relu(z)``, with ``n/2`` channels (``n`` for ``abs``) and one for the bias.

    Raises:
        UnsupportedError: modReLU, which is not piecewise linear.

    Example:
        >>> pairs = PairwiseSystem([[0.0, 1.0], [0.5, 0.0]], [[1.0], [2.0]], [0.1, 0.2], "oplu")
        >>> x, u = np.array([0.3, -0.4]), np.array([0.7])
        >>> bool(np.allclose(relu_system(pairs).advance(x, u), pairs.advance(x, u)))
        True
    """
    if network.activation == "modrelu":
        raise UnsupportedError("modReLU is not piecewise linear, so that ReLU channels cannot represent it")
    n = network.states
    if network.activation == "abs":
        rows, into = -np.eye(n), 2.0 * np.eye(n)
    else:
        k, order = n // 2, np.arange(n // 2)
        rows, into = np.zeros((k, n)), np.zeros((n, k))
        first, second = network.pairs.T
        if network.activation == "oplu":
            rows[order, first], rows[order, second] = -1.0, 1.0
            into[first, order], into[second, order] = 1.0, -1.0
        else:
            v = normals(network.angles)
            rows[order, first], rows[order, second] = -v.T
            into[first, order], into[second, order] = 2.0 * v.T
    W, V, b = network.W, network.V, network.b
    C, E, bias = rows @ W, rows @ V, rows @ b
    if b.any():
        C, E = np.vstack([C, np.zeros((1, n))]), np.vstack([E, np.zeros((1, network.inputs))])
        bias, into = np.append(bias, 1.0), np.hstack([into, b[:, None]])
    system = LureSystem(W, into, C, slope=(0.0, 1.0), dt=1.0)
    return DrivenSystem(system, "relu", E, bias, V, network.name, part=network.part)
