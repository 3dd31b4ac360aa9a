r"""Search for an unstable equilibrium, or two equilibria under one constant input.

Equilibria ``(x, u)`` solve ``g(x, u) = A x + B phi(z) + F u (- x) = 0``: a manifold as large as the input.
The search draws points on it (from slopes that destabilize, from states where simulations settle or circle,
at random), corrects each by Newton's method, and climbs the leading eigenvalue's excess along the manifold:
the gradient through ``phi''``, projected on the kernel of ``[g_x, g_u]``, followed by a Gauss-Newton step
back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stability.kernel.arithmetic.activations import Activation, activation
from stability.kernel.systems.driven import DrivenSystem
from stability.search.counterexamples.eigenvalue_gradient import LeadingEigenvalue, leading_eigenvalue
from stability.search.counterexamples.equilibrium_manifold import (
    equilibrium_at_input,
    equilibrium_residual,
    project_to_manifold,
    residual_jacobians,
    slopes_at,
)
from stability.search.counterexamples.refutation import RefutationTask
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import InputRange
from stability.search.trajectories.simulation import simulate_to_limit

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Equilibrium:
    """Equilibrium: state, constant input, excess of the leading eigenvalue of its Jacobian."""

    x: Array
    u: Array
    excess: float


@dataclass(frozen=True, eq=False)
class EquilibriumResult:
    """Result of the search: an unstable equilibrium, two equilibria under one input, or neither.

    Attributes:
        unstable: the equilibrium with the largest excess, stable or not; ``None`` when no equilibrium was
            found.
        pair: two equilibria under one input, or ``None``.
    """

    unstable: Equilibrium | None
    pair: tuple[Equilibrium, Equilibrium] | None


def _evaluate(driven: DrivenSystem, x: Array, u: Array) -> tuple[Equilibrium, LeadingEigenvalue]:
    _, k = slopes_at(driven, x, u)
    top = leading_eigenvalue(driven.system, k)
    return Equilibrium(x, u, top.excess), top


def steep_points(phi: Activation, K: Array, signs: Array) -> Array:
    """Return pre-activations with slopes close to ``K``, on the side of ``signs``.

    Of a piecewise linear one: a point on the piece of the nearest slope, of several such pieces the one on that side.
    """
    if phi.width is not None:
        return signs * np.arctanh(np.sqrt(np.clip(1.0 - K / phi.slope[1], 0.0, 1.0 - 1e-7))) / phi.width
    interval = (min(phi.kinks, default=0.0) - 1.0, *phi.kinks, max(phi.kinks, default=-2.0) + 1.0)
    inner = [0.5 * (a + b) for a, b in zip(phi.kinks, phi.kinks[1:])]
    points = np.array([interval[0], *inner, interval[-1]][: len(phi.pieces)])
    apart = np.abs(np.asarray(K)[..., None] - np.array(phi.pieces))
    first, last = apart.argmin(axis=-1), len(phi.pieces) - 1 - apart[..., ::-1].argmin(axis=-1)
    return points[np.where(signs > 0, last, first)]


def _from_slopes(driven: DrivenSystem, K: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return the state and input whose pre-activations come closest to these slopes at an equilibrium."""
    system = driven.system
    phi = activation(driven.activation)
    z = steep_points(phi, K, np.where(rng.random(system.channels) < 0.5, -1.0, 1.0))
    w = phi.function(z)
    drift = system.A - np.eye(system.states) if system.is_discrete else system.A
    matrix = np.block([[drift, driven.F], [system.C, driven.E]])
    target = np.concatenate([-system.B @ w, z - system.D @ w - driven.b])
    both = np.linalg.lstsq(matrix, target, rcond=None)[0]
    return both[: system.states], both[system.states :]


def _from_simulation(
    driven: DrivenSystem, rng: np.random.Generator, count: int, region: InputRange, deadline: Deadline
) -> list[tuple[Array, Array]]:
    """Simulate random trajectories under constant inputs; return their final and mean states."""
    n, p = driven.system.states, driven.inputs
    u = region.draw(rng, (count,), p)
    x = rng.normal(size=(count, n))
    x, mean = simulate_to_limit(driven, x, u[None], 900, deadline, 300)
    if deadline.over:
        return []
    points = []
    for i in range(count):
        if np.isfinite(x[i]).all() and np.isfinite(mean[i]).all() and np.abs(x[i]).max() < 1e12:
            points += [(x[i], u[i]), (mean[i], u[i])]
    return points


def _candidates(
    driven: DrivenSystem,
    rng: np.random.Generator,
    slopes: Array | None,
    draws: int,
    region: InputRange,
    deadline: Deadline,
) -> Iterator[tuple[Array, Array, bool]]:
    """Yield points to correct; the flag allows the input to move in the correction."""
    n, p = driven.system.states, driven.inputs
    if slopes is not None:
        for _ in range(4):
            x, u = _from_slopes(driven, slopes, rng)
            yield x, region.clip(u), not region.bounded
    yield np.zeros(n), region.clip(np.zeros(p)), False
    for x, u in _from_simulation(driven, rng, 8, region, deadline):
        yield x, u, False
    last = np.zeros(p)
    for i in range(draws):
        if i % 3 == 0:  # a new input; then two more states under it, in search of a second equilibrium
            free = rng.normal(size=p) * 10.0 ** rng.uniform(-1.5, 1.0)
            last = region.draw(rng, (3,), p)[1 + i // 3 % 2] if region.bounded else free
        yield rng.normal(size=n) * driven.natural_size * 10.0 ** rng.uniform(-1.0, 0.5), last, False


def _climb(
    driven: DrivenSystem, start: Equilibrium, deadline: Deadline, enough: float, steps: int, region: InputRange
) -> Equilibrium:
    """Ascend along the manifold of equilibria, along the faces of a bounded range."""
    system = driven.system
    n = system.states
    best, length = start, 0.5
    point, top = _evaluate(driven, start.x, start.u)
    for _ in range(steps):
        if best.excess > enough or top.gradient is None or length < 1e-4 or deadline.over:
            break
        z, k = slopes_at(driven, point.x, point.u)
        dz = top.gradient * activation(driven.activation).second_derivative(z)
        if system.D.any():
            dz = np.linalg.solve((np.eye(system.channels) - system.D * k).T, dz)
        direction = np.concatenate([system.C.T @ dz, driven.E.T @ dz])
        both = np.hstack(residual_jacobians(driven, point.x, point.u))
        basis = np.linalg.qr(both.T)[0]
        direction = direction - basis @ (basis.T @ direction)
        norm = float(np.abs(direction).max(initial=0.0))
        if not norm > 1e-12:
            break
        move = direction / norm * length * (1.0 + float(np.abs(point.u).max(initial=0.0)))
        x, u = point.x + move[:n], point.u + move[n:]
        result = (
            equilibrium_at_input(driven, x, region.clip(u), 20, deadline)
            if region.bounded
            else project_to_manifold(driven, x, u, 8, deadline=deadline)
        )
        if result is None:
            length *= 0.3
            continue
        trial, trial_top = _evaluate(driven, *result)
        if trial.excess > best.excess:
            best, point, top, length = trial, trial, trial_top, min(2.0 * length, 2.0)
        else:
            length *= 0.3
    return best


def search_equilibria(
    search: RefutationTask,
    rng: np.random.Generator,
    *,
    slopes: Array | None = None,
    thorough: bool = True,
    enough: float = 1e-6,
) -> EquilibriumResult:
    """Search for the equilibrium with the largest excess, and for two equilibria under one input.

    Args:
        search: the question about a network; inputs are looked for in its region.
        rng: source of random points.
        slopes: destabilizing slopes to aim at, when known.
        thorough: climb from the best points, and draw more of them (for where instability is to be expected).
        enough: the search ends at an excess above this.

    Returns:
        The best point, and a pair where one was met.
    """
    driven, deadline, region = search.subject, search.deadline, search.region
    size = driven.system.states + driven.system.channels
    share = search.effort * min(1.0, (128.0 / size) ** 2)  # of the points drawn
    draws = max(6, round((60 if thorough else 18) * share))
    points: list[Equilibrium] = []
    pair = None
    with np.errstate(all="ignore"):
        for point in _equilibria_near(driven, _candidates(driven, rng, slopes, draws, region, deadline), deadline):
            if pair is None:
                pair = next(((q, point) for q in points if _are_distinct(q, point)), None)
            points.append(point)
            if point.excess > enough:
                return EquilibriumResult(point, pair)
        points.sort(key=lambda q: -q.excess)
        best = points[0] if points else None
        climbs = max(2, round(6 * share)) if thorough and (driven.E.any() or driven.F.any()) else 0
        for start in points[:climbs]:
            if deadline.over or (best is not None and best.excess > enough):
                break
            climbed = _climb(driven, start, deadline, enough, max(10, round(60 * share)), region)
            best = climbed if best is None or climbed.excess > best.excess else best
    return EquilibriumResult(best, pair)


def _equilibria_near(
    driven: DrivenSystem, candidates: Iterator[tuple[Array, Array, bool]], deadline: Deadline
) -> Iterator[Equilibrium]:
    """Yield the equilibria near the candidates; the flag allows the input to move."""
    for k, (x, u, movable) in enumerate(candidates):
        if k and deadline.over:
            return
        equilibria = (
            project_to_manifold(driven, x, u, deadline=deadline)
            if movable
            else equilibrium_at_input(driven, x, u, 40, deadline)
        )
        if equilibria is not None and _is_equilibrium(driven, *equilibria):
            point, _ = _evaluate(driven, *equilibria)
            if np.isfinite(point.excess):
                yield point


def _is_equilibrium(driven: DrivenSystem, x: Array, u: Array) -> bool:
    if not (np.isfinite(x).all() and np.isfinite(u).all()):
        return False
    scale = 1.0 + float(np.abs(x).max()) * (1.0 + float(np.abs(driven.system.A).sum(axis=1).max()))
    return float(np.abs(equilibrium_residual(driven, x, u)).max()) <= 1e-8 * scale


def _are_distinct(first: Equilibrium, second: Equilibrium) -> bool:
    scale = 1.0 + float(np.abs(first.x).max())
    return bool(np.array_equal(first.u, second.u) and float(np.abs(first.x - second.x).max()) > 1e-4 * scale)
