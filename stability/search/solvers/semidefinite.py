"""Semidefinite programs by cvxpy with Clarabel and SCS.

A solver's status is never trusted: the caller evaluates the inequality at the returned values. ``_solve`` alone
interprets a solver's status, exceptions and warnings.
"""

from __future__ import annotations

import warnings
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.checks import as_choice
from stability.kernel.systems.state_space import LureMatrices, Matrices, with_input
from stability.search.solvers.deadline import Deadline
from stability.search.solvers.positive_real import interpolant, null_directions
from stability.search.solvers.scaling import Coordinates
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
MAX_STATES = 160
"""Most states of a system: with more, the dense program needs more memory than a workstation has."""
MAX_SIZE = 400  # most rows of the inequality
CLARABEL_STATES = 32
"""Most states for Clarabel: with more, an interior-point method takes minutes."""
_SCS_STEPS, _RANGE = 20_000, 1e14  # most steps of SCS, and largest absolute entry that solvers handle
_TOO_LARGE = "failed: the entries span too many orders of magnitude"


def solver_order(solver: str | None, n: int, size: int) -> list[str]:
    """Return the solvers to try, in order.

    Args:
        solver: a name, or ``None`` to choose by size.
        n: size of P.
        size: size of the inequality.

    Returns:
        Names of solvers.

    Raises:
        ConfigurationError: an unknown solver, or a problem too large for a dense program.

    Example:
        >>> solver_order(None, 8, 16), solver_order("scs", 8, 16)
        (['CLARABEL'], ['SCS'])
    """
    if n > MAX_STATES or size > MAX_SIZE:
        raise ConfigurationError(
            f"a semidefinite program with {n} states and an inequality of size {size} needs too much memory "
            f'(limits {MAX_STATES} and {MAX_SIZE}); use solver="riccati", which has no such limit'
        )
    if solver is None:
        if n <= 12 and size <= 40:
            return ["CLARABEL"]
        return ["SCS", "CLARABEL"] if n <= CLARABEL_STATES and size <= 2 * CLARABEL_STATES else ["SCS"]
    name = solver.upper() if isinstance(solver, str) else solver
    return [as_choice("semidefinite solver", name, ("CLARABEL", "SCS"))]


def _usable(system: Matrices, *more: Array) -> bool:
    """Return True if the entries are in the range that solvers handle."""
    return all(bool((np.abs(x) <= _RANGE).all()) for x in (*system.matrices, *more))  # False for NaN


def _solve(problem: Any, solver: str, deadline: Deadline, accuracy: float = 1e-6, steps: int = _SCS_STEPS) -> str:
    """Run a solver; return ``solved``, ``infeasible``, ``time limit`` or ``failed: REASON``."""
    from cvxpy.error import SolverError

    if deadline.over:  # posing the problem takes time as well
        return "time limit"
    options: dict[str, Any] = {}
    if solver == "SCS":
        options = {"eps_abs": accuracy, "eps_rel": accuracy, "max_iters": steps}
    if deadline.seconds is not None:
        options["time_limit_secs" if solver == "SCS" else "time_limit"] = deadline.seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=solver, **options)
        except (SolverError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            return "time limit" if deadline.over else f"failed: {(str(error) or repr(error)).splitlines()[0]}"
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # raised by compiled Rust code; not a subclass of Exception
                raise
            return "failed: the solver crashed"
    if problem.status in ("infeasible", "infeasible_inaccurate"):
        return "infeasible"
    if problem.status in ("optimal", "optimal_inaccurate"):
        return "solved"
    return "time limit" if deadline.over else f"failed: {problem.status}"


def _symmetric(M: Any) -> Any:
    return 0.5 * (M + M.T)


Terms = tuple[Any, Any, Any]


def _supply(system: LureMatrices, L: Any) -> Terms:
    """Return the blocks (xx, xw, ww) of ``[C D; 0 I]^T [-2ab L, (a+b) L; (a+b) L, -2 L] [C D; 0 I]``."""
    import cvxpy as cp

    C, D = system.C, system.D
    n, m = system.B.shape
    if m == 0:
        return np.zeros((n, n)), None, None
    low, mid = -2 * system.alpha * system.beta, system.alpha + system.beta
    row = cp.reshape(L, (1, m), order="C")
    xx, xw, ww = np.zeros((n, n)), cp.multiply(C.T * mid, row), -2 * cp.diag(L)
    if low.any():
        xx = cp.multiply(C.T * low, row) @ C
    if D.any():
        DL = cp.multiply(D.T * mid, row)
        ww = ww + DL + DL.T
        if low.any():
            xw = xw + cp.multiply(C.T * low, row) @ D
            ww = ww + cp.multiply(D.T * low, row) @ D
    return xx, xw, ww


def _negative(system: Matrices, P: Any, rate: float, supply: Terms, margin: Any) -> Any:
    """Return the constraint ``[A^T P + P A + 2 rate P, P B; B^T P, 0] + supply <= -margin I`` in its cheapest form.

    In discrete time the first matrix is ``[A B]^T P [A B] - rate^2 diag(P, 0)``; above 32 states a Schur
    complement keeps the number of coefficients at n^3 instead of n^4.
    """
    import cvxpy as cp

    A, B = system.A, system.B
    n, m = B.shape
    xx, xw, ww = supply
    xx = xx + margin * np.eye(n)
    if not system.is_discrete:
        xx = xx + _symmetric(2 * (A.T @ P)) + 2 * rate * P
        if m == 0:
            return -_symmetric(xx) >> 0
        xw = xw + P @ B
        return -_symmetric(cp.bmat([[xx, xw], [xw.T, ww + margin * np.eye(m)]])) >> 0
    rest = xx - (rate * rate) * P
    if m:
        rest = cp.bmat([[rest, xw], [xw.T, ww + margin * np.eye(m)]])
    step = np.hstack([A, B])
    if n <= CLARABEL_STATES:
        return -_symmetric(step.T @ P @ step + rest) >> 0
    image = P @ step
    return _symmetric(cp.bmat([[-rest, image.T], [image, P]])) >> 0


def _solved_values(
    goal: Any, constraints: list[Any], solver: str, deadline: Deadline, accuracy: float, *variables: Any
) -> tuple[Any, ...]:
    """Solve a program; return its status and the values of its variables, ``None`` unless finite."""
    import cvxpy as cp

    status = _solve(cp.Problem(goal, constraints), solver, deadline, accuracy)
    out: list[Any] = [status]
    for variable in variables:
        value = np.zeros(0) if variable.shape == (0,) else getattr(variable, "value", None)
        value = None if value is None else np.asarray(value, dtype=np.float64).reshape(variable.shape)
        out.append(value if value is not None and np.isfinite(value).all() else None)
    return tuple(out)


def pose_multiplier(
    at: Coordinates, solver: str, deadline: Deadline, margin: float, accuracy: float
) -> tuple[str, Array | None, Array | None, float]:
    """Solve the multiplier inequality once: with ``P >= I`` for existence, or by Clarabel with the largest margin.

    For the margin the traces of P and L sum to ``n + m``.

    Returns:
        The result of ``_solve``, P and L (unchecked), and the margin.
    """
    import cvxpy as cp

    if not _usable(at.system, at.system.alpha, at.system.beta):
        return _TOO_LARGE, None, None, np.nan
    n, m = at.system.B.shape
    P, L, wide = cp.Variable((n, n), symmetric=True), cp.Variable(m, nonneg=True), cp.Variable()
    supply = _supply(at.system, L)
    if solver != "CLARABEL":
        constraints = [_negative(at.system, P, at.rate, supply, margin), P >> np.eye(n)]
        status, p, l = _solved_values(cp.Maximize(0), constraints, solver, deadline, accuracy, P, L)
        return (status, p, l, margin) if status == "solved" else (status, None, None, np.nan)
    total = cp.trace(P) + (cp.sum(L) if m else 0.0)
    main = _negative(at.system, P, at.rate, supply, wide)
    constraints = [main, P >> wide * np.eye(n), total == n + m, wide <= 1]
    status, p, l, width = _solved_values(cp.Maximize(wide), constraints, solver, deadline, accuracy, P, L, wide)
    if status != "solved":
        return status, None, None, np.nan
    return status, p, l, margin if width is None else float(width)


def pose_overshoot(
    at: Coordinates, box: Array, solver: str, deadline: Deadline, margin: float
) -> tuple[str, Array | None, Array | None]:
    """Minimize ``kappa`` with ``box <= P <= kappa box`` and the multiplier inequality, with ``margin``."""
    import cvxpy as cp

    if not _usable(at.system, box, 1.0 / np.diag(box)):
        return _TOO_LARGE, None, None
    n, m = at.system.B.shape
    P, L, kappa = cp.Variable((n, n), symmetric=True), cp.Variable(m, nonneg=True), cp.Variable()
    main = _negative(at.system, P, at.rate, _supply(at.system, L), margin * float(np.min(np.diag(box))))
    return _solved_values(cp.Minimize(kappa), [main, P >> box, P << kappa * box], solver, deadline, 1e-6, P, L)


def pose_positive_real(system: StateSpace, deadline: Deadline) -> tuple[str, Array | None]:
    """Return P of the largest ``t``: ``[A^T P + P A, P B - C^T; ., -(D + D^T)] <= -t I`` and ``P >= t I``.

    Input directions ``N`` with ``(D + D^T) N = 0`` (continuous time) require ``P B N = C^T N``. ``P`` is parametrized
    so that this equality holds up to rounding.

    Returns:
        The result of ``_solve``, and P (unchecked).
    """
    import cvxpy as cp

    n, m = system.B.shape
    order = solver_order(None, n, n + m)
    if not _usable(system):
        return _TOO_LARGE, None
    R = system.D + system.D.T
    null = null_directions(system)
    wide = cp.Variable()
    if null.N.shape[1] == 0:
        P: Any = cp.Variable((n, n), symmetric=True)
    else:
        pair = interpolant(system.B @ null.N, system.C.T @ null.N)
        if pair is None:
            return "infeasible", None
        fixed, free = pair
        Y = cp.Variable((free.shape[1], free.shape[1]), symmetric=True) if free.shape[1] else None
        P = cp.Constant(fixed) if Y is None else fixed + free @ Y @ free.T
    b, c = system.B @ null.keep, null.keep.T @ system.C
    loop = StateSpace(system.A, b, c, np.zeros((0, 0)), system.is_discrete)
    supply = (np.zeros((n, n)), -c.T, -(null.keep.T @ R @ null.keep))
    main = _negative(loop, P, 1.0 if system.is_discrete else 0.0, supply, wide)
    constraints = [main, P >> wide * np.eye(n), wide <= 1]
    return _solved_values(cp.Maximize(wide), constraints, order[-1], deadline, 1e-8, P)


class SolverAnswer(NamedTuple):
    """Answer of a solver about a strict inequality.

    Attributes:
        status: the solver's own status, or the reason why there is none.
        P: the returned matrix, unchecked, or ``None``.
        t: the returned margin, or ``None``.
        seconds: time of solver and cvxpy.
        stopped: whether a limit of steps or seconds ended the search, so that the status is preliminary.
    """

    status: str
    P: Array | None = None
    t: float | None = None
    seconds: float = 0.0
    stopped: bool = False


def pose_strictly(
    system: StateSpace, supply: Terms, solver: str, deadline: Deadline, *, strictness: float, steps: int = _SCS_STEPS
) -> SolverAnswer:
    """Solve ``[A^T P + P A, P B; B^T P, 0] + supply <= -t I``, ``P >= t I`` for the largest ``t >= strictness``.

    A program that trusts a solver's status would read ``optimal`` as existence of such a P, and ``infeasible`` as
    non-existence.

    Args:
        system: A, B and the time base.
        supply: the blocks (xx, xw, ww) of the supply rate, with ``ww`` for the columns of B.
        solver: SCS or CLARABEL.
        deadline: time limit of the solver.
        strictness: smallest accepted ``t``.
        steps: most steps of SCS.

    Returns:
        The answer of the solver.
    """
    import cvxpy as cp

    if not _usable(system, *supply):
        return SolverAnswer(_TOO_LARGE)
    started, n = monotonic(), len(system.A)
    P, wide = cp.Variable((n, n), symmetric=True), cp.Variable()
    main = _negative(system, P, 1.0 if system.is_discrete else 0.0, supply, wide)
    problem = cp.Problem(cp.Maximize(wide), [main, P >> wide * np.eye(n), wide >= strictness, wide <= 1])
    status = _solve(problem, solver, deadline, 1e-6, steps)
    status, seconds = problem.status or status, monotonic() - started
    taken = getattr(problem.solver_stats, "num_iters", None) or 0
    stopped = deadline.over or (solver == "SCS" and taken >= steps)
    if P.value is None or wide.value is None or not np.isfinite(P.value).all():
        return SolverAnswer(status, None, None, seconds, stopped)
    return SolverAnswer(status, np.asarray(P.value, dtype=np.float64), float(np.asarray(wide.value)), seconds, stopped)


def pose_gain(
    at: Coordinates, E: Array, F: Array, H: Array, running: bool, solver: str, deadline: Deadline, margin: float
) -> tuple[str, Array | None, Array | None]:
    """Minimize ``g`` in the dissipation inequality of ``stability.kernel.theorems.gain_lmi``, with ``margin``.

    With ``running`` the inequality contains ``|H x|^2`` (l2 gain); otherwise ``P >= H^T H`` (gain to the last
    output).

    Returns:
        The result of ``_solve``, P and L (unchecked).
    """
    import cvxpy as cp

    if not _usable(at.system, E, F, H, H.T @ H):
        return _TOO_LARGE, None, None
    n, m = at.system.B.shape
    p = F.shape[1]
    wide = with_input(at.system, E, F)
    P, L, square = cp.Variable((n, n), symmetric=True), cp.Variable(m, nonneg=True), cp.Variable()
    xx, xw, ww = _supply(wide, cp.hstack([L, np.zeros(p)]) if m else cp.Constant(np.zeros(p)))
    last = np.diag(np.concatenate([np.zeros(m), np.ones(p)]))
    supply = (xx + H.T @ H if running else xx, xw, ww - square * last)
    floor = margin * np.eye(n) if running else H.T @ H + margin * np.eye(n)
    constraints = [_negative(wide, P, at.rate, supply, margin), P >> floor]
    return _solved_values(cp.Minimize(square), constraints, solver, deadline, 1e-5, P, L)


def pose_attraction(
    system: LureMatrices, rate: float, clipped: list[int], swing: Array, plane: Array, deadline: Deadline
) -> tuple[Array, Array, Array] | None:
    r"""Maximize an ellipsoid ``x^T Q^{-1} x <= 1`` in the inequality of ``attraction_lmi``, in the variables ``Q``.

    With :math:`\psi = \beta z - w` the inequality is linear in ``Q``, ``S = L^{-1}`` and ``Y = G Q``. The objective is
    the volume of the ellipsoid's section by a subspace. Some regions are unbounded: ``Q <= I`` limits the half axes.

    Args:
        system: the loop, with its sectors in the ellipsoid as slopes, [0, 1] for saturated channels.
        rate: rate of the decay.
        clipped: saturated channels.
        swing: ``(m,)`` largest entries of ``C x`` that the sectors allow.
        plane: ``(n, k)`` basis of the subspace.
        deadline: time limit of the solver.

    Returns:
        ``P``, the multipliers of all channels and ``G`` (unchecked), or ``None``.
    """
    import cvxpy as cp

    (n, m), k, low, high = system.B.shape, plane.shape[1], system.alpha, system.beta
    inner = np.linalg.solve(np.eye(m) - system.D * high, np.hstack([system.C, -system.D]))
    C, D = inner[:, :n], inner[:, n:]
    A, B = system.A + (system.B * high) @ C, system.B @ (high[:, None] * D - np.eye(m))
    Q, s, Y = cp.Variable((n, n), symmetric=True), cp.Variable(m), cp.Variable((len(clipped), n))
    S, wide = cp.diag(s), (high - low)[:, None]
    supply = (wide * C) @ Q - np.eye(m)[:, clipped] @ Y
    coupled = (2 - 1e-4) * S - (wide * D) @ S - ((wide * D) @ S).T  # strict, as is the rate below
    if system.is_discrete:
        fixed = (1.01 * rate - 0.01) ** 2 * Q
        M = cp.bmat([[fixed, -supply.T, Q @ A.T], [-supply, coupled, (B @ S).T], [A @ Q, B @ S, Q]])
    else:
        flow = A @ Q + Q @ A.T + 2.02 * rate * Q
        M = cp.bmat([[-flow, -supply.T - B @ S], [-supply - (B @ S).T, coupled]])
    limits = [system.C[i] @ Q @ system.C[i] <= swing[i] ** 2 for i in range(m) if i not in clipped]
    rows = [cp.reshape(Y[row], (1, n), order="C") for row in range(len(clipped))]
    limits += [_symmetric(cp.bmat([[np.ones((1, 1)), g], [g.T, Q]])) >> 0 for g in rows]
    section, root = cp.Variable((k, k), symmetric=True), cp.Variable((k, k))
    corner = cp.bmat([[cp.diag(cp.diag(root)), root.T], [root, section]])  # det(section) >= product of root's diagonal
    limits += [_symmetric(M) >> 0, Q << np.eye(n), _symmetric(Q - plane @ section @ plane.T) >> 0]
    limits += [_symmetric(corner) >> 0, *([cp.upper_tri(root) == 0] if k > 1 else [])]
    goal = cp.Maximize(cp.geo_mean(cp.diag(root)))
    _, q, l, y = _solved_values(goal, limits, "CLARABEL", deadline, 1e-7, Q, s, Y)
    if q is None or l is None or y is None or not ((l > 0).all() and np.linalg.eigvalsh(q)[0] > 0):
        return None
    P = np.linalg.inv(q)
    return 0.5 * (P + P.T), 1.0 / l, y @ P
