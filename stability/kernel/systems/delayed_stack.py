r"""Stack of maps as one map without feedthrough: each layer delayed by one step.

Layer ``j`` of a stack reads what the layer below puts out at the same step,
:math:`h^j_{t+1} = f_j(h^j_t, h^{j-1}_{t+1})`. In the skewed state :math:`y_k = (h^1_k, h^2_{k-1}, \dots, h^l_{k-l+1})`
this reads :math:`y^j_{k+1} = f_j(y^j_k, y^{j-1}_k)`: one network, whose weights are those of the layers, none of them
multiplied; what enters a layer's state directly, ``F``, is a part of its linear part. What is proved of its
trajectories is proved of the stack's, from step ``l - 1`` on, where all of ``y`` is there.
"""

from __future__ import annotations

import numpy as np

from stability.errors import IllPosedError
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.lure import LureSystem


def delayed_network(stack: LayerStack) -> DrivenSystem | str:
    """Return the stack as one network in its skewed state.

    Args:
        stack: maps ``x+ = A x + B phi(z) + F u``, ``z = C x + D phi(z) + E u + b``, with one activation.

    Returns:
        The network, its states those of the layers one after the other; or why there is none.

    Example:
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[2.0]])
        >>> delayed_network(LayerStack([cell, cell])).system.C
        array([[0.5, 0. ],
               [2. , 0.5]])
    """
    layers = [layer for layer in stack.layers if isinstance(layer, DrivenSystem)]
    if stack.directions != 1 or not stack.is_discrete or len(layers) < len(stack.layers):
        return "this proof is about stacks of maps with one direction, without gates or pairs"
    if len({layer.activation for layer in layers}) > 1:
        return "this proof is about stacks with one activation"
    systems = [layer.system for layer in layers]
    if any(s.origin is not None for s in systems):
        return "this proof is about layers that no integrator's step made"
    ends = np.cumsum([0] + [s.states for s in systems])
    rows = np.cumsum([0] + [s.channels for s in systems])
    A, D = np.zeros((ends[-1], ends[-1])), np.zeros((rows[-1], rows[-1]))
    B, C = np.zeros((ends[-1], rows[-1])), np.zeros((rows[-1], ends[-1]))
    E, F = np.zeros((rows[-1], stack.inputs)), np.zeros((ends[-1], stack.inputs))
    for k, layer in enumerate(layers):
        states, channels = slice(ends[k], ends[k + 1]), slice(rows[k], rows[k + 1])
        A[states, states], D[channels, channels] = layer.system.A, layer.system.D
        B[states, channels], C[channels, states] = layer.system.B, layer.system.C
        if k:
            C[channels, ends[k - 1] : ends[k]], A[states, ends[k - 1] : ends[k]] = layer.E, layer.F
        else:
            E[channels], F[states] = layer.E, layer.F
    slope = tuple(np.concatenate([getattr(s, side) for s in systems]) for side in ("alpha", "beta"))
    try:
        whole = LureSystem(A, B, C, D, slope, systems[0].dt)
    except IllPosedError:  # each layer's D is well-posed by a bound that the whole one misses
        return "no bound shows that the channels of all layers together have one solution"
    bias = np.concatenate([layer.b for layer in layers])
    return DrivenSystem(whole, layers[0].activation, E, bias, F, name=stack.name)
