r"""Loop transformation of slope intervals to a unit ball.

With the center slope :math:`c = (\alpha + \beta)/2` and radius :math:`r = (\beta - \alpha)/2` of every channel,
:math:`w = c z + \delta`, :math:`|\delta| \le r |z|`. The multiplier inequality at ``(P, L)`` is then the bounded real
lemma of a scaled system, with the same ``P``:

.. math:: \| \Delta\, M\, \Delta^{-1} \|_\infty < 1, \qquad \Delta^2 = 2 L,

where ``M`` is the transfer matrix of the centered loop, with output rows multiplied by ``r``. A rate shifts the loop:
to ``A + lambda I`` in continuous time, to ``A / rho`` and ``B / rho`` in discrete time.

Channels without uncertainty are left out of the search, and their multipliers are determined afterwards. A channel with
a single slope (``alpha = beta = c``) is linear, and its row in the centered loop is zero, as is the row of a channel
that no state reaches. For such a channel no finite multiplier is optimal, so that a search would diverge. With
:math:`w_s = c z_s + e` the multiplier inequality is

.. math:: \begin{bmatrix} N_{11} & N_{12} \\ N_{12}^T & N_{22} - 2 L_s \end{bmatrix} < 0,

where :math:`N_{11}` is the inequality of the loop without these channels. If that holds, every diagonal ``L_s`` with
:math:`2 L_s > N_{22} - N_{12}^T N_{11}^{-1} N_{12}` completes the witness.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.systems.channels import close_loop
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.multiplier_lmi import lmi_matrix
from stability.search.solvers.inequality_slack import schur_complement
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_SINGLE = 1e-8
"""Relative width of a sector that counts as a single slope in the search; the check uses the full sector."""


def state_scales(loop: StateSpace, sweeps: int = 30) -> Array:
    """Return powers of two ``t (n,)`` that balance rows against columns of the states; channels are unchanged.

    Args:
        loop: the scaled loop.
        sweeps: sweeps of Osborne's balancing over all states at once.

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


def multiply_diagonal(left: Array, right: Array) -> Array:
    """Return ``left @ right``, in fewer operations if ``left`` is diagonal, as ``B`` is for most networks."""
    if left.shape[0] == left.shape[1]:
        diagonal = np.diagonal(left)
        if np.count_nonzero(left) == np.count_nonzero(diagonal):
            return diagonal[:, None] * right
    return left @ right


def centered_loop(system: LureSystem) -> StateSpace:
    """Move the slopes to a unit ball around their center.

    Args:
        system: any well-posed Lur'e system.

    Returns:
        The centered loop; a channel with a single slope keeps a zero row.

    Example:
        >>> loop = centered_loop(LureSystem.recurrent([[-2.0]], [[1.0]]))
        >>> loop.A.item(), loop.C.item()
        (-1.5, 0.5)
    """
    middle, radius = 0.5 * (system.alpha + system.beta), 0.5 * (system.beta - system.alpha)
    c, d = (close_loop(system.D, middle, x) for x in (system.C, system.D)) if system.D.any() else (system.C, system.D)
    bm = system.B * middle
    B = system.B + bm @ d if d.any() else system.B
    return StateSpace(
        system.A + multiply_diagonal(bm, c), B, radius[:, None] * c, radius[:, None] * d, system.is_discrete
    )


def fixed_channels(system: LureSystem) -> Array:
    """Select the channels without uncertainty: a single slope, or a zero row of ``[C, D]``.

    Args:
        system: the system.

    Returns:
        ``(m,)`` of booleans.

    Example:
        >>> fixed_channels(LureSystem([[-1.0]], [[1.0, 1.0]], [[0.5], [0.5]], slope=([0.0, 0.3], [1.0, 0.3])))
        array([False,  True])
    """
    reach = np.maximum(np.abs(system.alpha), np.abs(system.beta))
    reached = system.C.any(axis=1) | system.D.any(axis=1)
    return (system.beta - system.alpha <= _SINGLE * reach) | ~reached


def completed_multipliers(system: LureSystem, P: Array, L: Array, rate: float, fixed: Array) -> Iterator[Array]:
    """Yield multipliers of the fixed channels that complete a witness of the smaller loop, with increasing slack.

    Args:
        system: the system.
        P: ``(n, n)`` that satisfies the smaller loop's inequality strictly.
        L: ``(m,)`` multipliers; the entries of fixed channels are ignored.
        rate: ``lambda`` or ``rho``.
        fixed: ``(m,)`` booleans, the fixed channels.

    Yields:
        ``(m,)``; nothing if the inequality of the smaller loop does not hold.
    """
    multipliers = np.where(fixed, 0.0, L)
    if not fixed.any():
        yield multipliers
        return
    n, c = system.states, 0.5 * (system.alpha + system.beta)[fixed]
    keep = np.concatenate([np.ones(n, dtype=bool), ~fixed])
    # (x, w) as a linear function of (x, w of the other channels, e)
    change = np.eye(n + system.channels)
    inverse = np.linalg.inv(np.eye(int(fixed.sum())) - c[:, None] * system.D[np.ix_(fixed, fixed)])
    change[np.ix_(~keep, keep)] = inverse @ (c[:, None] * np.hstack([system.C, system.D[:, ~fixed]])[fixed])
    change[np.ix_(~keep, ~keep)] = inverse
    change = change[:, np.argsort(~keep, kind="stable")]
    needed = schur_complement(change.T @ lmi_matrix(system, P, multipliers, rate) @ change, int(keep.sum()))
    if needed is None:
        return
    least = np.abs(needed).sum(axis=1)  # a dominating diagonal, tight for matrices of rank one
    least = np.maximum(least, 1e-12 * float(np.abs(P).max()) + 1e-6 * float(least.max()))
    for factor in (2.0, 32.0):  # slack
        full = multipliers.copy()
        full[fixed] = 0.5 * factor * least
        yield full


def as_lure(value: Any) -> Any:
    """Return a system with matrices and slopes, as criteria take it.

    Args:
        value: a ``LureSystem``, or an object with its fields.

    Returns:
        ``value``, unchanged.

    Raises:
        ConfigurationError: any other object.
    """
    if not all(hasattr(value, field) for field in ("A", "B", "C", "alpha", "beta")):
        hint = "; pass its attribute .system" if isinstance(getattr(value, "system", None), LureSystem) else ""
        raise ConfigurationError(f"system must be a LureSystem, got {type(value).__name__}{hint}")
    return value
