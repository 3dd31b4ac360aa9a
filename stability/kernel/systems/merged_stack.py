r"""Merging of a stack of Lur'e layers into one Lur'e network.

In continuous time layer ``k`` reads the state of the level below, in discrete time its *next* state
:math:`x_{k-1}^+ = A x + B w + F v`, so that products such as :math:`E_k B_{k-1}` enter the channels. The merged network
is the stack itself only where they are free of rounding; elsewhere there is none.
"""

from __future__ import annotations

import numpy as np

from stability.errors import IllPosedError
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem

Array = np.ndarray


def _exact_product(x: Array, y: Array) -> Array | None:
    """Return ``x @ y`` if no entry is rounded: sums of at most one term, one factor of each a power of two."""
    terms = (x != 0).astype(np.int64) @ (y != 0).astype(np.int64)
    two = bool((np.abs(np.frexp(y[y != 0])[0]) == 0.5).all())
    if terms.size and (int(terms.max()) > 1 or (not two and terms.any())):
        return None
    product = x @ y
    return product if bool((np.abs(product[terms > 0]) > 1e-290).all()) else None  # nothing underflows


def _block_triangular(whole: Array, read: Array, own: Array) -> Array:
    """Return ``[[whole, 0], [read, own]]``: a layer's states and channels below those that it reads."""
    return np.block([[whole, np.zeros((len(whole), own.shape[1]))], [read, own]])


def merged_network(stack: LayerStack) -> DrivenSystem | None:
    """Return the stack as one network, if this takes no rounding.

    Args:
        stack: the stack.

    Returns:
        The network whose state is the states of the layers one after the other, or ``None`` for stacks with gated
        layers, two directions, different activations or discretized layers, and for discrete ones whose products
        round: exact are layers ``x+ = phi(W x + E u + b)``, and all layers in continuous time.

    Example:
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[2.0]])
        >>> merged_network(LayerStack([cell, cell])).system.D
        array([[0., 0.],
               [2., 0.]])
    """
    layers = [x for x in stack.layers if isinstance(x, DrivenSystem) and x.system.origin is None]
    if stack.directions != 1 or len(layers) != len(stack.layers) or len({x.activation for x in layers}) > 1:
        return None
    p = layers[0].inputs
    A, B, F = np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, p))
    C, D, E = A, B, F
    read = np.zeros((p, 0)), np.zeros((p, 0)), np.eye(p)  # what the next layer reads, of states, channels and input
    for layer in layers:
        system = layer.system
        products = [_exact_product(matrix, part) for matrix in (layer.F, layer.E) for part in read]
        exact = [product for product in products if product is not None]
        if len(exact) < len(products):
            return None
        a, b, f, c, d, e = exact
        A, B, F = _block_triangular(A, a, system.A), _block_triangular(B, b, system.B), np.vstack([F, f])
        C, D, E = _block_triangular(C, c, system.C), _block_triangular(D, d, system.D), np.vstack([E, e])
        rows = slice(len(A) - system.states, None)
        read = (
            (A[rows], B[rows], F[rows]) if stack.is_discrete else (np.eye(len(A))[rows], 0.0 * B[rows], 0.0 * F[rows])
        )
    alpha, beta = (np.concatenate([getattr(x.system, side) for x in layers]) for side in ("alpha", "beta"))
    try:
        whole = LureSystem(A, B, C, D, (alpha, beta), layers[0].system.dt)
    except IllPosedError:  # each layer's D is well-posed by a bound that the whole one misses
        return None
    bias = np.concatenate([x.b for x in layers])
    return DrivenSystem(whole, layers[0].activation, E, bias, F, name=stack.name)
