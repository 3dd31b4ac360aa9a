"""Semidefinite programs: the one file that speaks to cvxpy, Clarabel and SCS.

A solver's word is never taken: who asks here evaluates the inequality at what comes back. What becomes of a solver's
status, exception or warning is decided in ``_solve`` and nowhere else.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from stability.solve.attempts import CLARABEL_STATES, solver_order
from stability.solve.coordinates import Coordinates
from stability.solve.deadline import Deadline
from stability.solve.forms import Blocks
from stability.solve.lyapunov import interpolant

__all__ = [
    "pose_bounded_real",
    "pose_combination",
    "pose_gain",
    "pose_multiplier",
    "pose_overshoot",
    "pose_positive_real",
]

Array = np.ndarray
_SCS_STEPS, _RANGE = 20_000, 1e14
_TOO_LARGE = "failed: the entries span too many orders of magnitude"


def _usable(*arrays: Array) -> bool:
    """Whether a solver can be trusted not to break down on these numbers."""
    return all(bool((np.abs(x) <= _RANGE).all()) for x in arrays)  # False for NaN


def _solve(problem: Any, solver: str, deadline: Deadline, accuracy: float = 1e-6) -> str:
    """Run a solver; the answer is ``solved``, ``infeasible``, ``time limit`` or ``failed: why``."""
    from cvxpy.error import SolverError

    if deadline.over:  # posing the problem takes time as well
        return "time limit"
    options: dict[str, Any] = {}
    if solver == "SCS":
        options = {"eps_abs": accuracy, "eps_rel": accuracy, "max_iters": _SCS_STEPS}
    if deadline.seconds is not None:
        options["time_limit_secs" if solver == "SCS" else "time_limit"] = deadline.seconds
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=solver, **options)
        except (SolverError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            return "time limit" if deadline.over else f"failed: {(str(error) or repr(error)).splitlines()[0]}"
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of compiled Rust, and no Exception
                raise
            return "failed: the solver broke down"
    if problem.status in ("infeasible", "infeasible_inaccurate"):
        return "infeasible"
    if problem.status in ("optimal", "optimal_inaccurate"):
        return "solved"
    return "time limit" if deadline.over else f"failed: {problem.status}"


def _symmetric(M: Any) -> Any:
    return 0.5 * (M + M.T)


Terms = tuple[Any, Any, Any]


def _supply(blocks: Blocks, L: Any) -> Terms:
    """The blocks (xx, xw, ww) of ``[C D; 0 I]^T [-2ab L, (a+b) L; (a+b) L, -2 L] [C D; 0 I]``."""
    import cvxpy as cp

    C, D = blocks.C, blocks.D
    n, m = blocks.B.shape
    if m == 0:
        return np.zeros((n, n)), None, None
    low, mid = -2 * blocks.alpha * blocks.beta, blocks.alpha + blocks.beta
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


def _negative(blocks: Blocks, P: Any, rate: float, supply: Terms, margin: Any) -> Any:
    """The constraint ``[A^T P + P A + 2 rate P, P B; B^T P, 0] + supply <= -margin I`` in its cheapest form.

    In discrete time the first matrix is ``[A B]^T P [A B] - rate^2 diag(P, 0)``; above 32 states a Schur
    complement keeps the number of coefficients at n^3 instead of n^4.
    """
    import cvxpy as cp

    A, B = blocks.A, blocks.B
    n, m = B.shape
    xx, xw, ww = supply
    xx = xx + margin * np.eye(n)
    if not blocks.is_discrete:
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
    flow = P @ step
    return _symmetric(cp.bmat([[-rest, flow.T], [flow, P]])) >> 0


def _value(variable: Any, shape: tuple[int, ...]) -> Array | None:
    value = getattr(variable, "value", None)
    if value is None:
        return None
    value = np.asarray(value, dtype=np.float64).reshape(shape)
    return value if np.isfinite(value).all() else None


def pose_multiplier(
    at: Coordinates,
    solver: str,
    deadline: Deadline,
    margin: float,
    fixed: Array | None,
    widest: bool,
    accuracy: float,
) -> tuple[str, Array | None, Array | None, float, Array | None]:
    """The multiplier inequality once: existence with ``P >= I``, or the widest margin at unit trace with its dual.

    Returns:
        What ``_solve`` says, P and L (unchecked), the margin reached, and the dual matrix.
    """
    import cvxpy as cp

    if not _usable(at.blocks.A, at.blocks.B, at.blocks.C, at.blocks.D, at.blocks.alpha, at.blocks.beta):
        return _TOO_LARGE, None, None, float("nan"), None
    n, m = at.blocks.B.shape
    P = cp.Variable((n, n), symmetric=True)
    L = cp.Variable(m, nonneg=True) if fixed is None else cp.Variable(nonneg=True) * fixed
    wide: Any = cp.Variable() if widest else margin
    main = _negative(at.blocks, P, at.rate, _supply(at.blocks, L), wide)
    constraints = [main]
    if widest:
        total = cp.trace(P) + (cp.sum(L) if m else 0.0)
        constraints += [P >> wide * np.eye(n), total == n + m, wide <= 1]
    else:
        constraints += [P >> np.eye(n)]
    status = _solve(cp.Problem(cp.Maximize(wide if widest else 0), constraints), solver, deadline, accuracy)
    if status != "solved":
        return status, None, None, float("nan"), None
    p = _value(P, (n, n))
    l = np.zeros(0) if m == 0 else _value(L, (m,))
    width = float(wide.value) if widest and wide.value is not None else margin
    dual = np.asarray(main.dual_value) if widest and fixed is None and main.dual_value is not None else None
    return status, p, l, width, dual


def pose_overshoot(
    at: Coordinates, box: Array, solver: str, deadline: Deadline, margin: float
) -> tuple[str, Array | None, Array | None]:
    """The least ``kappa`` with ``box <= P <= kappa box`` and the multiplier inequality, with ``margin``."""
    import cvxpy as cp

    if not _usable(at.blocks.A, at.blocks.B, at.blocks.C, at.blocks.D, box, 1.0 / np.diag(box)):
        return _TOO_LARGE, None, None
    n, m = at.blocks.B.shape
    P, L, kappa = cp.Variable((n, n), symmetric=True), cp.Variable(m, nonneg=True), cp.Variable()
    margin *= float(np.min(np.diag(box)))
    main = _negative(at.blocks, P, at.rate, _supply(at.blocks, L), margin)
    constraints = [main, P >> box, P << kappa * box]
    status = _solve(cp.Problem(cp.Minimize(kappa), constraints), solver, deadline)
    return status, _value(P, (n, n)), np.zeros(0) if m == 0 else _value(L, (m,))


def pose_bounded_real(
    A: Array,
    B: Array,
    C: Array,
    D: Array,
    discrete: bool,
    gamma: float | None,
    deadline: Deadline,
    margin: float = 1e-7,
) -> tuple[str, Array | None, float]:
    """``[A^T P + P A + C^T C, P B + C^T D; ., D^T D - gamma^2 I] <= -margin I``: P at a gamma, or the least
    gamma.

    Returns:
        What ``_solve`` says, P (unchecked), and gamma.
    """
    import cvxpy as cp

    n, m = B.shape
    order = solver_order(None, n, n + m)
    if not _usable(A, B, C, D, C.T @ C, D.T @ D):
        return _TOO_LARGE, None, np.inf
    P, square = cp.Variable((n, n), symmetric=True), cp.Variable()
    wide = cp.Variable()
    level: Any = square if gamma is None else gamma * gamma
    supply = (C.T @ C, C.T @ D, D.T @ D - level * np.eye(m))
    blocks = Blocks(A, B, C, D, np.zeros(m), np.zeros(m), discrete)
    rate = 1.0 if discrete else 0.0
    if gamma is None:
        goal = cp.Minimize(square)
        constraints = [_negative(blocks, P, rate, supply, margin), P >> margin * np.eye(n)]
    else:
        goal = cp.Maximize(wide)
        constraints = [_negative(blocks, P, rate, supply, wide), P >> wide * np.eye(n), wide <= 1]
    status = _solve(cp.Problem(goal, constraints), order[-1], deadline, 1e-8)
    reached = float(square.value) if gamma is None and square.value is not None else (gamma or 0.0) ** 2
    return status, _value(P, (n, n)), float(np.sqrt(max(reached, 0.0)))


def pose_positive_real(
    A: Array, B: Array, C: Array, D: Array, discrete: bool, deadline: Deadline
) -> tuple[str, Array | None, float]:
    """The widest ``t`` with ``[A^T P + P A, P B - C^T; ., -(D + D^T)] <= -t I`` and ``P >= t I``.

    Directions ``N`` of the input with ``(D + D^T) N = 0`` (continuous time) are met by the equality
    ``P B N = C^T N``, to which P is parametrised, so that rounding does not touch it.

    Returns:
        What ``_solve`` says, P (unchecked), and ``t``.
    """
    import cvxpy as cp

    n, m = B.shape
    order = solver_order(None, n, n + m)
    R = D + D.T
    if not _usable(A, B, C, R):
        return _TOO_LARGE, None, -np.inf
    values, vectors = np.linalg.eigh(R)
    null = np.abs(values) <= 64 * np.finfo(float).eps * max(1e-300, float(np.abs(R).max(initial=0.0)))
    N, keep = vectors[:, null], vectors[:, ~null]
    wide = cp.Variable()
    if discrete or not null.any():
        P: Any = cp.Variable((n, n), symmetric=True)
        keep = np.eye(m)
    else:
        pair = interpolant(B @ N, C.T @ N)
        if pair is None:
            return "infeasible", None, -np.inf
        fixed, free = pair
        Y = cp.Variable((free.shape[1], free.shape[1]), symmetric=True) if free.shape[1] else None
        P = cp.Constant(fixed) if Y is None else fixed + free @ Y @ free.T
    b, c = B @ keep, keep.T @ C
    blocks = Blocks(A, b, c, np.zeros((0, 0)), np.zeros(0), np.zeros(0), discrete)
    supply = (np.zeros((n, n)), -c.T, -(keep.T @ R @ keep))
    main = _negative(blocks, P, 1.0 if discrete else 0.0, supply, wide)
    constraints = [main, P >> wide * np.eye(n), wide <= 1]
    status = _solve(cp.Problem(cp.Maximize(wide), constraints), order[-1], deadline, 1e-8)
    width = float(wide.value) if wide.value is not None else -np.inf
    return status, _value(P, (n, n)), width


def pose_gain(
    at: Coordinates, E: Array, F: Array, H: Array, running: bool, solver: str, deadline: Deadline, margin: float
) -> tuple[str, Array | None, Array | None]:
    """The least ``g`` for the dissipation inequality of ``stability.solve.forms.gain_form``, with ``margin``.

    ``running`` puts ``|H x|^2`` into the inequality (l2 gain); otherwise ``P >= H^T H`` (gain to the last
    output).

    Returns:
        What ``_solve`` says, P and L (unchecked).
    """
    import cvxpy as cp

    blocks = at.blocks
    if not _usable(blocks.A, blocks.B, blocks.C, blocks.D, E, F, H, H.T @ H):
        return _TOO_LARGE, None, None
    n, m = blocks.B.shape
    p = F.shape[1]
    wide = blocks.with_input(E, F)
    P, L, square = cp.Variable((n, n), symmetric=True), cp.Variable(m, nonneg=True), cp.Variable()
    xx, xw, ww = _supply(wide, cp.hstack([L, np.zeros(p)]) if m else cp.Constant(np.zeros(p)))
    last = np.diag(np.concatenate([np.zeros(m), np.ones(p)]))
    supply = (xx + H.T @ H if running else xx, xw, ww - square * last)
    floor = margin * np.eye(n) if running else H.T @ H + margin * np.eye(n)
    constraints = [_negative(wide, P, at.rate, supply, margin), P >> floor]
    status = _solve(cp.Problem(cp.Minimize(square), constraints), solver, deadline, 1e-5)
    return status, _value(P, (n, n)), np.zeros(0) if m == 0 else _value(L, (m,))


def pose_combination(matrices: list[Array], deadline: Deadline) -> tuple[str, Array | None, float]:
    """Weights ``c >= 0`` of unit sum with ``sum c_k M_k >= t I`` for the largest ``t``.

    Returns:
        What ``_solve`` says, the weights (unchecked), and ``t``.
    """
    import cvxpy as cp

    n, k = matrices[0].shape[0], len(matrices)
    if not _usable(*matrices):
        return _TOO_LARGE, None, -np.inf
    order = solver_order(None, n, n)
    c, wide = cp.Variable(k, nonneg=True), cp.Variable()
    total = cp.reshape(np.stack([0.5 * (M + M.T).ravel() for M in matrices], axis=1) @ c, (n, n), order="C")
    constraints: Any = [_symmetric(total) - wide * np.eye(n) >> 0, cp.sum(c) == 1]
    problem = cp.Problem(cp.Maximize(wide), constraints)
    status = _solve(problem, order[-1], deadline, 1e-8)
    return status, _value(c, (k,)), float(wide.value) if wide.value is not None else -np.inf
