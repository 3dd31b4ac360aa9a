r"""The loop transformation that turns slope intervals into a unit ball.

With the centre slope :math:`c = (\alpha + \beta)/2` and radius :math:`r = (\beta - \alpha)/2` of every channel,
:math:`w = c z + \delta`, :math:`|\delta| \le r |z|`. After it the multiplier inequality at ``(P, L)`` *is* the bounded
real lemma of a scaled system, with the same ``P``:

.. math:: \| \Delta\, M\, \Delta^{-1} \|_\infty < 1, \qquad \Delta^2 = 2 L,

where ``M`` is the transfer matrix of the centred loop, its output rows multiplied by ``r``. The rate moves the axis:
``A + lambda I`` in continuous time, ``A / rho`` and ``B / rho`` in discrete time.
"""

from __future__ import annotations

import numpy as np

from stability.systems import LureSystem
from stability.systems.channels import closed
from stability.systems.statespace import StateSpace

__all__ = ["centre", "state_scales", "times"]

Array = np.ndarray


def state_scales(loop: StateSpace, sweeps: int = 30) -> Array:
    """Powers of two ``t (n,)`` that balance rows against columns of the states; channels are left as they are.

    Args:
        loop: the scaled loop.
        sweeps: of Osborne's balancing, all states at once.

    Returns:
        The scales; in the coordinates ``x = t y`` the loop is ``loop.rescaled(t)``.
    """
    inner = loop.A**2
    np.fill_diagonal(inner, 0.0)
    into, out = (loop.B**2).sum(axis=1), (loop.C**2).sum(axis=0)
    x = np.zeros(len(inner))
    for _ in range(sweeps):
        squares = np.exp(2.0 * x)
        rows = (inner @ squares + into) / squares + 1e-200
        columns = (inner.T @ (1.0 / squares) + out) * squares + 1e-200
        move = np.clip(0.125 * np.log(rows / columns), -2.0, 2.0)
        x += move
        if np.abs(move).max(initial=0.0) < 0.05:
            break
    return np.exp2(np.clip(np.round((x - x.mean()) / np.log(2.0)), -200, 200))


def times(left: Array, right: Array) -> Array:
    """``left @ right``, by rows where ``left`` is square and diagonal: for most networks ``B`` is the identity."""
    if left.shape[0] == left.shape[1]:
        diagonal = np.diagonal(left)
        if np.count_nonzero(left) == np.count_nonzero(diagonal):
            return diagonal[:, None] * right
    return left @ right


def centre(system: LureSystem) -> StateSpace:
    """Move the slopes to a unit ball around their centre.

    Args:
        system: any well-posed Lur'e system.

    Returns:
        The centred loop; a channel with a single slope keeps a zero row.

    Example:
        >>> loop = centre(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> loop.A.item(), loop.C.item()
        (-1.5, 0.5)
    """
    middle, radius = 0.5 * (system.alpha + system.beta), 0.5 * (system.beta - system.alpha)
    c, d = (closed(system.D, middle, x) for x in (system.C, system.D)) if system.D.any() else (system.C, system.D)
    bm = system.B * middle
    B = system.B + bm @ d if d.any() else system.B
    return StateSpace(system.A + times(bm, c), B, radius[:, None] * c, radius[:, None] * d, system.is_discrete)
