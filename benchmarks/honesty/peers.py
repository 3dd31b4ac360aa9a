"""What is answered where an SDP solver's status is taken at its word."""

from __future__ import annotations

import warnings

import numpy as np

from stability import LureSystem

__all__ = ["solver_says"]


def solver_says(system: LureSystem, margin: float = 0.0) -> bool:
    """Whether SCS reports the inequality (at margin zero, as a naive user writes it) as solved."""
    import cvxpy as cp

    n, m = system.states, system.channels
    P, L = cp.Variable((n, n), PSD=True), cp.Variable(m, nonneg=True)
    lam = cp.diag(L)
    low, high = np.diag(system.alpha), np.diag(system.beta)
    if system.is_discrete:
        top, off, bottom = system.A.T @ P @ system.A - P, system.A.T @ P @ system.B, system.B.T @ P @ system.B
    else:
        top, off, bottom = system.A.T @ P + P @ system.A, P @ system.B, np.zeros((m, m))
    lmi = cp.bmat(
        [
            [top - 2 * system.C.T @ (low @ lam @ high) @ system.C, off + system.C.T @ (low + high) @ lam],
            [off.T + lam @ (low + high) @ system.C, bottom - 2 * lam],
        ]
    )
    problem = cp.Problem(cp.Minimize(0), [0.5 * (lmi + lmi.T) << -margin * np.eye(n + m), cp.trace(P) == n])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=cp.SCS, max_iters=5000)
        except cp.error.SolverError:
            return False
    return problem.status in ("optimal", "optimal_inaccurate")
