r"""Merging of a stack of Lur'e layers into one Lur'e network.

In continuous time layer ``k`` reads the state of the level below, in discrete time its *next* state
:math:`x_{k-1}^+ = A x + B w + F v`, so that products such as :math:`E_k B_{k-1}` enter the channels. The merged network
equals the stack only if these products are free of rounding errors. Other stacks have no merged network.
"""

from __future__ import annotations

import numpy as np

from stability.errors import IllPosedError
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem

Array = np.ndarray


def _exact_product(x: Array, y: Array) -> Array | None:
    """Return ``x @ y`` if each entry is a sum of at most one term and each term is free of rounding errors.

    A term is free of rounding errors if the entry of ``y`` is a power of two and the product does not underflow.
    """
    terms = (x != 0).astype(np.int64) @ (y != 0).astype(np.int64)
    two = bool((np.abs(np.frexp(y[y != 0])[0]) == 0.5).all())
    if terms.size and (int(terms.max()) > 1 or (not two and terms.any())):
        return None
    product = x @ y
    return product if bool((np.abs(product[terms > 0]) > 1e-290).all()) else None  # nothing underflows


def _block_triangular(merged: Array, coupling: Array, own: Array) -> Array:
    """Append a layer to a merged matrix: return ``[[merged, 0], [coupling, own]]``."""
    return np.block([[merged, np.zeros((len(merged), own.shape[1]))], [coupling, own]])


def merged_network(stack: LayerStack) -> DrivenSystem | None:
    """Return the stack as one network, if its matrices are free of rounding errors.

    Args:
        stack: the stack.

    Returns:
        The network whose state lists the states of all layers. ``None`` for stacks with gated layers, two directions,
        different activations or discretized layers, and for discrete stacks with rounding errors in a product.
        Products are exact for layers ``x+ = phi(W x + E u + b)`` and for all layers in continuous time.

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
    # the next layer's input as a linear function of the merged states, channels and inputs
    read = np.zeros((p, 0)), np.zeros((p, 0)), np.eye(p)
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
        merged = LureSystem(A, B, C, D, (alpha, beta), layers[0].system.dt)
    except IllPosedError:  # the sufficient test holds for each layer's D, but not for the merged one
        return None
    bias = np.concatenate([x.b for x in layers])
    return DrivenSystem(merged, layers[0].activation, E, bias, F, name=stack.name)
