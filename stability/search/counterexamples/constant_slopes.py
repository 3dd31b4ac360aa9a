"""Search for constant slopes that destabilize, by ascent of the leading eigenvalue.

A vertex step moves every slope to the end of its interval to which the gradient points, and is shortened until the
excess of the eigenvalue grows. It costs a few eigenvalue problems and one eigenvector, O(n^3). With few channels every
vertex of the box of slopes is finally evaluated.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stability.kernel.systems.lure import LureSystem
from stability.search.counterexamples.eigenvalue_gradient import (
    Spectrum,
    leading_eigenvalue,
    leading_excess,
    stability_excess,
)
from stability.search.solvers.deadline import Deadline

Array = np.ndarray
ENUMERATE = 10  # channels up to which every vertex is tried
LENGTHS = (1.0, 0.5, 0.25, 0.1, 0.03, 0.003)  # tried lengths of a step, as shares of a vertex step
PATIENCE = 5  # ascents without progress after which the search ends
EIGENVALUES = 10.0
"""Operations of an eigenvalue problem, divided by n^3; it cannot be interrupted."""


@dataclass(frozen=True, eq=False)
class UnstableSlopes:
    """Most unstable slopes found.

    Attributes:
        K: ``(m,)`` slopes.
        excess: real part (continuous) or modulus less one (discrete) of the leading eigenvalue.
        value: that eigenvalue.
    """

    K: Array
    excess: float
    value: complex


def search_slopes(
    system: LureSystem,
    *,
    rng: np.random.Generator,
    deadline: Deadline,
    hint: Array | None = None,
    enough: float = 1e-7,
    starts: int = 12,
) -> UnstableSlopes:
    """Maximize the excess of the leading eigenvalue over ``alpha <= K <= beta``.

    Args:
        system: the system; its slopes are the box.
        rng: source of the random starts.
        deadline: time limit for new evaluations; normally the search ends after a fixed number of evaluations.
        hint: slopes to start from, clipped to the box.
        enough: the search ends after the first ascent with an excess above ``enough`` times the size of A.
        starts: number of random vertices to start from.

    Returns:
        The best slopes found, stable or not.
    """
    low, high = system.alpha, system.beta
    scale, most = max(1.0, float(np.abs(system.A).max())), eigenvalue_budget(system)
    tried: list[UnstableSlopes] = []
    for K in _fixed_starts(system, hint):
        if tried and not deadline.affords(EIGENVALUES * system.states**3):
            break
        tried.append(UnstableSlopes(K, *leading_excess(system, K)))
    tried.sort(key=lambda point: -point.excess)
    best, count, stale = tried[0], len(tried), 0
    if best.excess > enough * scale:
        return best
    starts_in_order = itertools.chain((point.K for point in tried), _random_starts(system, rng, starts))
    for start in starts_in_order:
        if stale >= PATIENCE or count >= most or deadline.over:
            break
        local, used = _ascend(system, start, deadline, most - count)
        count += used
        stale = stale + 1 if local.excess < best.excess + 1e-3 * abs(best.excess) else 0
        best = local if local.excess > best.excess else best
        if best.excess > enough * scale:
            break
    enumerable = 0 < system.channels <= ENUMERATE and (low < high).any()
    if enumerable and best.excess <= enough * scale and not deadline.over:
        best = _enumerate(system, best)
    return best


def _fixed_starts(system: LureSystem, hint: Array | None) -> list[Array]:
    low, high = system.alpha, system.beta
    out = [] if hint is None else [np.clip(np.where(np.isfinite(hint), hint, low), low, high)]
    out.append(low.copy())
    if system.channels and (low < high).any():
        out += [high.copy(), 0.5 * (low + high)]
    return out


def _random_starts(system: LureSystem, rng: np.random.Generator, count: int) -> Iterator[Array]:
    low, high = system.alpha, system.beta
    if system.channels == 0 or not (low < high).any():
        return
    for i in range(count):
        share = (0.5, 0.2, 0.8)[i % 3]
        yield np.where(rng.random(len(low)) < share, high, low)


def eigenvalue_budget(system: LureSystem) -> int:
    """Return the number of eigenvalue problems that one search may solve."""
    return int(min(2000.0, max(24.0, 6e8 / (system.states + system.channels) ** 3)))


def _ascend(
    system: LureSystem, start: Array, deadline: Deadline, most: int, steps: int = 40
) -> tuple[UnstableSlopes, int]:
    """Run one ascent; return its end and the number of eigenvalue problems."""
    low, high = system.alpha, system.beta
    K = start.copy()
    known = Spectrum.at(system, K)
    current = leading_eigenvalue(system, K, prior=known)
    top, value, count, rank = current.excess, current.value, 1, 0
    for _ in range(steps):
        if current.gradient is None or count >= most or deadline.over:
            break
        target = np.where(current.gradient > 0, high, np.where(current.gradient < 0, low, K))
        moved = False
        for length in LENGTHS if (target != K).any() else ():  # no step is left at a vertex
            trial = target.copy() if length == 1.0 else np.clip(K + length * (target - K), low, high)
            tried = Spectrum.at(system, trial)
            size, eigenvalue = tried.largest(system.is_discrete)
            count += 1
            if size > top + 1e-9 * (1.0 + abs(top)):
                K, top, value, known, moved = trial, size, eigenvalue, tried, True
                break
        if moved:
            rank = 0
            current = leading_eigenvalue(system, K, prior=known)
        elif rank < 2:  # two eigenvalues may be tied: follow the next one
            rank += 1
            current = leading_eigenvalue(system, K, rank, known)
        else:
            break
    return UnstableSlopes(K, top, value), count


def _enumerate(system: LureSystem, best: UnstableSlopes) -> UnstableSlopes:
    """Evaluate every vertex of the box: cheap for few channels."""
    low, high = system.alpha, system.beta
    free = np.flatnonzero(low < high)
    bits = np.array(list(itertools.product((False, True), repeat=len(free))))
    corners = np.tile(low, (len(bits), 1))
    corners[:, free] = np.where(bits, high[free], low[free])
    matrices = np.stack([system.jacobian(K) for K in corners])
    if not np.isfinite(matrices).all():
        return best
    values = np.linalg.eigvals(matrices)
    size = stability_excess(values, system.is_discrete)
    i, j = np.unravel_index(int(np.argmax(size)), size.shape)
    return UnstableSlopes(corners[i], float(size[i, j]), complex(values[i, j])) if size[i, j] > best.excess else best
