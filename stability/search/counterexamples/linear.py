"""Counterexamples by one eigenvalue problem: unstable linear parts, equilibria unstable for every input."""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.eigenpairs import closed_loop_orbit
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.equilibria import why_not_everywhere
from stability.search.counterexamples.eigenvalue_gradient import leading_excess, stability_excess
from stability.search.counterexamples.limit_cycles import refined_eigenvalue


def unstable_linear_data(driven: DrivenSystem, *, boundary: bool = False) -> dict[str, Any] | None:
    """Return the data of an ``unstable_linear`` proof, or ``None`` for a stable linear part or an unbounded activation.

    Args:
        driven: the network.
        boundary: accept eigenvalues on the boundary of the stability region, which refute a uniform rate
            only.

    Returns:
        The data; the rule decides whether they prove anything.
    """
    system = driven.system
    bound = 0.0 if system.channels == 0 else activation(driven.activation).bound
    if not np.isfinite(bound):
        return None
    values, vectors = np.linalg.eig(system.A.T)
    size = stability_excess(values, system.is_discrete)
    i = int(np.argmax(size))
    value, growth = complex(values[i]), float(size[i])
    scale = max(1.0, float(np.abs(system.A).max()))
    pair = [value.real, abs(value.imag)]
    if boundary:
        return {"eigenvalue": pair} if growth > -1e-12 * scale * system.states else None
    if growth <= 1e-13 * scale:
        return None
    w = vectors[:, i]
    push = 2.0 * bound * float(np.abs(w @ system.B).sum())
    direction = np.conj(w) / np.linalg.norm(w) ** 2  # w @ direction = 1
    real = direction.real if abs(w @ direction.real) >= abs(w @ direction.imag) else direction.imag
    first = 2.0 * max(push / growth, 1.0) / abs(w @ real) * real
    return {"eigenvalue": pair, "difference": np.ascontiguousarray(first)}


def unstable_everywhere_data(driven: DrivenSystem) -> dict[str, Any] | None:
    """Return the data of an ``unstable_everywhere`` proof, or ``None``.

    Args:
        driven: the network.

    Returns:
        The data; the rule decides whether they prove anything.
    """
    slopes = np.ones(driven.system.channels)
    if why_not_everywhere(driven) is not None:
        return None
    size, value = leading_excess(driven.system, slopes)
    if not size > 0.0:
        return None
    return {"eigenvalue": refined_eigenvalue(closed_loop_orbit(driven.system, Ball.exact(slopes[None])), value)}
