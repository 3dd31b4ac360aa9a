"""Block-diagonal composition of independent networks into one network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import block_diag

from stability.errors import UnsupportedError
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem

Array = np.ndarray


def block_diagonal_network(networks: Sequence[DrivenSystem]) -> DrivenSystem:
    """Join networks side by side into one; it contracts where every part does, at the slowest rate.

    Args:
        networks: at least one; all flows or all maps of one step, with one activation among those that have channels.

    Returns:
        The network, its matrices block-diagonal. Where the parts are the Euler or midpoint maps of differential
        equations, it is the map of those side by side.

    Raises:
        UnsupportedError: networks that are no one network together.

    Example:
        >>> slow = DrivenSystem(LureSystem.linear([[0.9]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
        >>> fast = DrivenSystem(LureSystem.linear([[0.1]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
        >>> block_diagonal_network([slow, fast]).system.A
        array([[0.9, 0. ],
               [0. , 0.1]])
    """
    origins = {None if n.system.origin is None else (n.system.origin.method, n.system.origin.dt) for n in networks}
    steps = {n.system.dt for n in networks}
    activations = {n.activation for n in networks if n.system.channels}
    if len(origins) != 1 or len(steps) != 1 or len(activations) > 1:
        raise UnsupportedError(
            "networks are only combined with the same step size, integrator and activation: certify each by itself"
        )
    (origin,) = origins
    systems = [n.system if n.system.origin is None else n.system.origin.base for n in networks]
    A, B, C, D = (_diagonal([getattr(system, name) for system in systems]) for name in "ABCD")
    alpha, beta = (np.concatenate([getattr(system, side) for system in systems]) for side in ("alpha", "beta"))
    joint = LureSystem(A, B, C, D, (alpha, beta), systems[0].dt)
    activation = next(iter(activations), networks[0].activation)
    E, F = _diagonal([_first_stage_rows(n, n.E) for n in networks]), _diagonal([n.F for n in networks])
    bias = np.concatenate([_first_stage_rows(n, n.b[:, None])[:, 0] for n in networks])
    if origin is None:
        return DrivenSystem(joint, activation, E, bias, F)
    discrete = joint.discretise(*origin)
    stages = discrete.channels // max(joint.channels, 1)
    return DrivenSystem(discrete, activation, np.tile(E, (stages, 1)), np.tile(bias, stages), F)


def _diagonal(blocks: Sequence[Array]) -> Array:
    joint: Array = np.asarray(block_diag(*blocks))
    return joint.reshape(sum(len(b) for b in blocks), sum(b.shape[1] for b in blocks))


def _first_stage_rows(network: DrivenSystem, rows: Array) -> Array:
    """Return the rows of an integrator's first stage: every stage reads the same input.

    Raises:
        UnsupportedError: where they do not.
    """
    if network.system.origin is None:
        return rows
    m = network.system.origin.base.channels
    if any(not np.array_equal(rows[k : k + m], rows[:m]) for k in range(m, len(rows), max(m, 1))):
        raise UnsupportedError("networks can only be combined if every stage of an integrator reads the same input")
    return rows[:m]
