r"""Search for periodic slopes along which differences grow, or shrink as slowly as can be found.

With slopes :math:`K_0, \dots, K_{q-1}` in turn, differences of a map go through the product of
:math:`J_t = A + B K_t (I - D K_t)^{-1} C`; the ``q``-th root of its spectral radius bounds the joint spectral radius of
all slopes from below. From each start the search goes to the ends of the slopes that the gradient

.. math:: \partial \lambda / \partial K_{t,i} = [(I - K_t D)^{-T} B^T y_{t+1}]_i \, [(I - D K_t)^{-1} C x_t]_i

points to (``x_t`` and ``y_t`` the right and left eigenvector carried to step ``t``), all of them or those that promise
most, as long as the radius grows. One step costs a few eigenvalue problems of the product: O(q n^3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stability.refute.spectrum import eigenvectors
from stability.rigor.balls import Ball
from stability.rigor.eigenpairs import closed_loop_orbit, enclose_eigenpair, inverse_iteration
from stability.solve.deadline import Deadline
from stability.systems import LureSystem

Array = np.ndarray
PERIODS = (2, 3, 4, 6, 8)
SHARES = (1.0, 0.5, 0.25, 0.1, 0.03, 0.0)
"""Of the slopes that would change, how many do in a trial; the last changes a single one."""


@dataclass(frozen=True, eq=False)
class SequenceSearch:
    """The slowest decay (or fastest growth) found.

    Attributes:
        K: ``(q, m)`` slopes, one row a step.
        radius: ``q``-th root of the spectral radius of the product.
        value: a ``q``-th root of the leading eigenvalue.
    """

    K: Array
    radius: float
    value: complex


def search_sequences(
    system: LureSystem,
    *,
    rng: np.random.Generator,
    deadline: Deadline,
    first: Array,
    enough: float = np.inf,
    starts: int = 3,
    periods: tuple[int, ...] = PERIODS,
    most: int = 10**9,
) -> SequenceSearch:
    """Maximise the growth a step over periodic slopes of a map.

    Args:
        system: a discrete system.
        rng: source of the starts.
        deadline: asked before every ascent; ascents are counted.
        first: ``(m,)`` constant slopes to begin with, the best known.
        enough: stop at the end of the first ascent whose radius is above this.
        starts: ascents a period.
        periods: the periods to try, in order; each begins at what the shorter ones found, too.
        most: eigenvalue problems that it may solve; each period has an equal share of what is left.

    Returns:
        The best slopes found.
    """
    best = _at(system, np.asarray(first, dtype=np.float64)[None]).found
    for k, q in enumerate(periods):
        share = most // (len(periods) - k)
        for K in _starts(system, best.K, q, starts, rng):
            if deadline.over or best.radius > enough:
                return best
            if share < 1:
                break
            found, used = _ascend(system, K, deadline, share)
            share, most = share - used, most - used
            best = found if found.radius > best.radius * (1 + 1e-12) else best
    return best


def _starts(system: LureSystem, best: Array, q: int, count: int, rng: np.random.Generator) -> Iterator[Array]:
    """The best sequence so far with some slopes flipped, and random vertices, by turns."""
    low, high, m = system.alpha, system.beta, system.channels
    near = best[np.arange(q) % len(best)]
    for k in range(count):
        if k % 2:
            yield np.where(rng.random((q, m)) < 0.6, high, low)
        else:
            flipped = np.where(near == high, low, high)
            yield np.where(rng.random((q, m)) < 0.15, flipped, near)


class _Point(NamedTuple):
    """A sequence, its steps, their product, and the leading eigenvalue of that."""

    found: SequenceSearch
    steps: list[Array]
    product: Array
    value: complex


def _at(system: LureSystem, K: Array) -> _Point:
    steps = [system.jacobian(k) for k in K]
    product = _product(steps)
    value, q = _leading(product), len(K)
    root = value ** (1.0 / q) if value.imag or value.real >= 0 else complex(value) ** (1.0 / q)
    return _Point(SequenceSearch(K, abs(value) ** (1.0 / q), complex(root)), steps, product, value)


def _product(steps: list[Array]) -> Array:
    out = steps[0]
    for step in steps[1:]:
        out = step @ out
    return out


def _leading(product: Array) -> complex:
    if not np.isfinite(product).all():
        return complex(0.0)
    values = np.linalg.eigvals(product)
    return complex(values[int(np.argmax(np.abs(values)))])


def _ascend(
    system: LureSystem, start: Array, deadline: Deadline, most: int, steps: int = 40
) -> tuple[SequenceSearch, int]:
    """The end of one ascent, and the eigenvalue problems that it took."""
    point, count = _at(system, start), 1
    for _ in range(steps):
        here = point.found
        gradient = None if deadline.over or count >= most else _gradient(system, point)
        if gradient is None:
            break
        target = np.where(gradient > 0, system.beta, np.where(gradient < 0, system.alpha, here.K))
        promise = np.abs(gradient * (target - here.K)).ravel()
        order = np.argsort(-promise, kind="stable")
        useful = int((promise > 0).sum())
        moved = None
        for share in SHARES if useful else ():
            if count >= most:
                break
            count += 1
            trial = here.K.ravel().copy()
            some = order[: max(1, int(share * useful))]
            trial[some] = target.ravel()[some]
            tried = _at(system, trial.reshape(here.K.shape))
            if tried.found.radius > here.radius * (1 + 1e-9):
                moved = tried
                break
        if moved is None:
            break
        point = moved
    return point.found, count


def _gradient(system: LureSystem, point: _Point) -> Array | None:
    """Derivative of the modulus of the product's leading eigenvalue by all slopes, ``(q, m)``, but for its scale."""
    steps, product, value, K = point.steps, point.product, point.value, point.found.K
    pair = eigenvectors(product, value) if value else None
    if pair is None:
        return None
    x, y = pair
    overlap = y @ x
    if abs(overlap) < 1e-14 * float(np.linalg.norm(y)):
        return None
    right, left = [x], [y]
    for step in steps[:-1]:
        right.append(step @ right[-1])
    for step in steps[:0:-1]:
        left.append(step.T @ left[-1])
    rows = []
    eye = np.eye(system.channels)
    for k, before, after in zip(K, right, reversed(left)):
        p, q = after @ system.B, system.C @ before
        if system.D.any():
            p = np.linalg.solve(eye - (k[:, None] * system.D).T, p)
            q = np.linalg.solve(eye - system.D * k, q)
        rows.append(np.real(np.conj(value) * p * q / overlap))
    gradient = np.array(rows)
    return gradient if np.isfinite(gradient).all() else None


def sequence_data(system: LureSystem, found: SequenceSearch) -> dict[str, Any]:
    """Data of a ``slope_sequence`` proof, the eigenvalue as precisely as floating point gives it."""
    pencil = closed_loop_orbit(system, Ball.exact(found.K))
    value = found.value if abs(found.value.imag) > 1e-9 * abs(found.value) else complex(found.value.real)
    vector = inverse_iteration(pencil, value)
    pair = None if vector is None else enclose_eigenpair(pencil, value, vector)
    best = value if pair is None or abs(pair.value - value) > 1e-3 * abs(value) else pair.value
    data: dict[str, Any] = {"K": found.K, "eigenvalue": [float(best.real), abs(float(best.imag))]}
    return data if pair is None else data | {"rate": abs(pair.value) * (1 - 1e-12) - 2 * pair.radius}
