"""Function ``fixed_points``: the equilibria of a network under a constant input."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import schur
from scipy.optimize import minimize

from stability.arguments import as_vector
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, DimensionError, UnsupportedError
from stability.kernel.arithmetic.balls import Ball, row_sum_norm
from stability.kernel.arithmetic.eigenpairs import inverse_or_none
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.merged_stack import merged_network
from stability.search.counterexamples.equilibrium_manifold import equilibrium_residual, newton_equilibrium
from stability.search.equilibria.branch_and_bound import Enumeration, Proved, meet
from stability.search.equilibria.equations import GatedEquation, LureEquation
from stability.search.equilibria.result import FixedPoint, FixedPoints
from stability.search.solvers.deadline import Deadline
from stability.search.trajectories.input_range import input_range
from stability.search.trajectories.simulation import draw_states, simulate_to_limit

Array = np.ndarray
SETTLING = 300  # steps of the simulations whose final states are starts
SAME = 1e-6  # relative speed below which a slow point is an equilibrium; a hundredth of the distance of two of them


def fixed_points(
    subject: Any,
    input: Any = None,
    *,
    box: Any = None,
    max_boxes: int | None = None,
    starts: int = 200,
    states: Any = None,
    slow: int = 0,
    seed: int = 0,
) -> FixedPoints:
    r"""List the equilibria of a network under a constant input, and prove that there are no others where possible.

    An equilibrium is a state with ``h = F(h, u)`` for a map, ``0 = f(x, u)`` for a flow. Newton's method looks for them
    from many starts, and Krawczyk's test proves each. Branch and bound then examines the whole box: a box is dropped
    when its linear relaxation has no solution, or when a known equilibrium is proved to be the only one near it.

    Args:
        subject: a ``DrivenSystem``, a ``GatedCell``, a stack of Lur'e layers, or anything that converts to one.
        input: ``(p,)`` constant input; zero by default.
        box: ``(low, high)`` of the states, numbers or ``(n,)``; by default a box that is proved to contain every
            equilibrium. There is none for unbounded activations and for networks with integrators.
        max_boxes: most boxes to examine; by default 400,000, fewer for more than 8 unknowns.
        starts: number of random and simulated states from which Newton's method starts.
        states: ``(k, n)`` further starts, for example states that the network visits on its data.
        slow: number of starts from which the speed is minimized, to find slow points; those of ``states`` come first.
        seed: seed of the random starts.

    Returns:
        The equilibria with eigenvalues, types and time constants. ``complete`` says whether the list is proved.

    Raises:
        UnsupportedError: no constant input has a meaning for the subject, or it has no such equations.
        DimensionError: an input, box or start of another size.
        ConfigurationError: values that are no finite numbers, or counts that are not whole.

    Source:
        A. Neumaier, *Interval Methods for Systems of Equations* (1990); D. Sussillo, O. Barak, "Opening the black box",
        Neural Computation 25 (2013), for slow points.

    Example:
        >>> from stability import DrivenSystem, LureSystem
        >>> memory = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[2.0]], dt=1.0), "tanh", [[1.0]])  # h+ = tanh(2 h + u)
        >>> found = fixed_points(memory)
        >>> found.points.ravel().round(3).tolist(), found.types, found.complete
        ([-0.958, 0.958, 0.0], ['stable', 'stable', 'unstable'], True)
    """
    network = _network(subject)
    n, p = network.states, network.inputs
    u = as_vector("input", np.zeros(p) if input is None else input, p, f"input must be a vector of {p} numbers")
    for name, count in (("max_boxes", max_boxes or 0), ("starts", starts), ("slow", slow), ("seed", seed)):
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 0:
            raise ConfigurationError(f"{name} must be a whole number >= 0, got {count!r}")
    region = None if box is None else input_range(box, n, "box")
    corners = None if region is None else (region.low, region.high)
    with np.errstate(all="ignore"):
        equation = GatedEquation(network, u) if isinstance(network, GatedCell) else LureEquation(network, u, corners)
        if corners is None and equation.start is not None:
            low, high = equation.states(*equation.start)
            corners = low[0], high[0]
        points = _starts(network, u, corners, starts, np.random.default_rng(seed), states)
        search = Enumeration(equation, lambda x: newton_equilibrium(network, x, u), np.zeros((0, 2, n)))
        for point in points:
            search.offer(point)
        reason = search.run(max_boxes, corners)
        inside = [p for p in search.equilibria if corners is None or meet(p.state, Ball.around(*corners))]
        slow_points, speeds = _slow_points(network, u, points[:slow])
        listed = sorted((_linearized(p, network, u) for p in inside), key=_order)
    examined = None if corners is None else np.stack(corners)
    effort = search.boxes, len(points)
    return FixedPoints(tuple(listed), not reason, reason, examined, search.undecided, *effort, slow_points, speeds)


def _network(subject: Any) -> DrivenSystem | GatedCell:
    """Return the network behind a subject.

    Raises:
        UnsupportedError: there is none with known equations.
    """
    target = as_subject(subject)
    merged = merged_network(target) if isinstance(target, LayerStack) else target
    if isinstance(merged, DrivenSystem | GatedCell):
        return merged
    advice = "pass a DrivenSystem, a GatedCell or a torch module that converts to one"
    if isinstance(target, LayerStack):
        advice = "pass its layers one by one, each with the output of the layer below as its input"
    raise UnsupportedError(f"the equilibria of a {type(target).__name__} are not listed: {advice}")


def _starts(
    network: Any, u: Array, corners: tuple[Array, ...] | None, count: int, rng: np.random.Generator, states: Any
) -> Array:
    """Return states ``(k, n)``: the given ones, then half random ones, half after a simulation."""
    random = draw_states(network, rng, count)
    if corners is not None:
        random = rng.uniform(*corners, size=random.shape)
    final = random[: count // 2]
    if len(final):
        final, _ = simulate_to_limit(network, final, u[None], SETTLING, Deadline.from_limit(None))
    given = np.zeros((0, network.states)) if states is None else np.asarray(states, dtype=np.float64)
    if given.ndim != 2 or given.shape[1] != network.states:
        raise DimensionError("states", f"(k, {network.states})", given.shape)
    points = np.concatenate([given, random[count // 2 :], final])
    return points[np.isfinite(points).all(axis=1)]


def enclose_eigenvalues(matrix: Ball) -> tuple[Array, Array]:
    """Return disks that contain all eigenvalues of every matrix in a ball, by Gershgorin's theorem in a better basis.

    The bases are the eigenvectors, and for multiple eigenvalues scaled Schur vectors.

    Returns:
        Centers ``(n,)``, complex, and radii ``(n,)``; as many eigenvalues as disks lie in each connected union of them.

    Example:
        >>> centres, radii = enclose_eigenvalues(Ball.exact(np.array([[0.5, 1.0], [0.0, 0.5]])))
        >>> bool((np.abs(centres - 0.5) <= radii).all()), bool(radii.max() < 0.1)
        (True, True)
    """
    n = len(matrix.mid)
    values, vectors = np.linalg.eig(matrix.mid)
    unitary = np.asarray(schur(matrix.mid, output="complex")[1])
    best = values, np.full(n, np.inf)
    for basis in (vectors, *(unitary * scale ** np.arange(n) for scale in (1.0, 0.1, 0.01))):
        inverse = inverse_or_none(basis)
        if inverse is None:
            continue
        factor = Ball.exact(inverse)
        rest, similar = row_sum_norm(np.eye(n) - factor @ basis), factor @ matrix @ basis
        if not rest < 0.5:  # similar is (1 - E) times the exact similar matrix, |E| <= rest
            continue
        size = similar.upper()
        slack = rest / (1.0 - rest) * size.max(axis=0) * (1 + 8 * EPS)
        radii = similar.rad + slack + np.where(np.eye(n, dtype=bool), 0.0, size)
        radii = radii.sum(axis=1) * (1 + (n + 8) * EPS)
        if radii.max() < best[1].max():
            best = np.diagonal(similar.mid).astype(complex), radii
    return best


def _linearized(proved: Proved, network: Any, u: Array) -> FixedPoint:
    """Return an equilibrium with its eigenvalues, the least stable first, and the number of unstable ones."""
    discrete = network.is_discrete
    if proved.jacobian is None or not np.isfinite(proved.jacobian.mid).all():
        values, radii = np.linalg.eigvals(network.jacobian(proved.state.mid, u)), np.full(network.states, np.inf)
    else:
        values, radii = enclose_eigenvalues(proved.jacobian)
    measure = np.abs(values) - 1.0 if discrete else np.real(values)
    order, width = np.argsort(-measure, kind="stable"), radii * (1 + 8 * EPS) + 4 * EPS * (1.0 + np.abs(values))
    decided = (np.abs(measure) > width).all()
    unstable = int((measure > 0).sum()) if decided else None
    radius = float(np.nextafter(proved.state.rad.max(), np.inf))
    return FixedPoint(proved.state.mid, radius, values[order].astype(complex), float(radii.max()), unstable, discrete)


def _order(point: FixedPoint) -> tuple[Any, ...]:
    count = len(point.state) + 1 if point.unstable is None else point.unstable
    return (count, *point.state.tolist())


def _slow_points(network: Any, u: Array, points: Array) -> tuple[Array, Array]:
    """Return local minima ``(k, n)`` of the speed that are no equilibria, and the speeds ``(k,)``, slowest first."""
    shift = np.eye(network.states) if network.is_discrete else 0.0
    found: list[tuple[float, Array]] = []

    def energy(x: Array) -> tuple[float, Array]:
        change = equilibrium_residual(network, x, u)
        return 0.5 * float(change @ change), (network.jacobian(x, u) - shift).T @ change

    for point in points:
        x = minimize(energy, point, jac=True, method="BFGS", options={"gtol": 1e-9}).x
        speed, scale = (2.0 * energy(x)[0]) ** 0.5, SAME * (1.0 + float(np.abs(x).max()))
        if speed > scale and all(np.abs(x - other).max() > 100 * scale for _, other in found):
            found.append((speed, x))
    found.sort(key=lambda pair: pair[0])
    rows = np.array([x for _, x in found]).reshape(len(found), network.states)
    return rows, np.array([speed for speed, _ in found])
