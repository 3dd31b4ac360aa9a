r"""Linear systems: the exact rate by eigenvalues, and a quadratic Lyapunov function that attains it.

With :math:`A = V \Lambda V^{-1}`, :math:`P = V^{-H} V^{-1}` gives
:math:`A^T P + P A \le 2 \max \mathrm{Re} \Lambda\, P`, so the rate is exact. A defective A attains no such
bound; then a Lyapunov (Stein) equation at a rate just inside gives P.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from scipy.linalg import solve_continuous_lyapunov, solve_discrete_lyapunov

from stability.certificate import Finding
from stability.kernel.systems.lure import LureSystem
from stability.search.criteria.witness import Witness, guarded_criterion, prove_witness, rates_towards_start
from stability.search.solvers.loop_transformation import completed_multipliers
from stability.search.solvers.overshoot import condition_number
from stability.search.solvers.rates import Rate, margin_of, parse_rate, spectral_rate, start_rate

Array = np.ndarray
_DEFECTIVE = 1e13
"""A P from eigenvectors more ill-conditioned than this says nothing: A is defective, or as good as that."""


@guarded_criterion("linear")
def linear_criterion(system: LureSystem, *, rate: Rate = "best") -> Finding:
    r"""The exact criterion where every channel has a single slope, or there is no channel.

    Args:
        system: a Lur'e system; with channels, ``alpha = beta`` in all of them.
        rate: ``"best"``, ``"any"`` (stability) or a number: at least this rate.

    Returns:
        A finding with margin ``-max Re(eigenvalue)`` or ``1 - max |eigenvalue|`` and a witness ``{"P", "L"}`` proved at
        ``rate``: exact to about 1e-9 where A is diagonalisable, a little inside where it is not.

    Raises:
        ConfigurationError: a bad rate.

    Example:
        >>> finding = linear_criterion(LureSystem.linear([[-1.0, 5.0], [0.0, -2.0]]))
        >>> finding.holds, round(finding.rate, 6)
        (True, 1.0)
        >>> linear_criterion(LureSystem.linear([[1.0]], dt=1.0)).holds
        False
    """
    rate = parse_rate(rate, system)
    if (system.alpha < system.beta).any():
        return Finding("linear", False, None, "does not apply: the system is nonlinear")
    A = np.array(system.jacobian(system.alpha))
    discrete, start = system.is_discrete, start_rate(system)
    exact = spectral_rate(np.linalg.eigvals(A), discrete)
    margin = margin_of(exact, system)
    words = f"spectral radius {exact:.9g}" if discrete else f"spectral abscissa {-exact:.9g}"
    if not margin > 0:
        return Finding("linear", False, margin, words)
    if isinstance(rate, float):
        if not (start >= rate > exact if discrete else start <= rate < exact):
            return Finding("linear", False, margin, f"{words}, not at rate {rate:g}")
        targets = [rate]
    elif rate == "any":
        targets = [start]
    else:
        targets = [exact, *rates_towards_start(system, exact, 10.0 ** np.arange(-14.0, 0.0, 0.5))]
    witness = _search(system, A, targets)
    note = "" if witness else "; no witness was proved at this rate"
    return Finding("linear", True, margin, words + note, witness.rate, witness.data)


def _candidates(A: Array) -> Iterator[Array]:
    """Matrices P that do not depend on the rate: the identity, then one from the eigenvectors."""
    n = len(A)
    yield np.eye(n)
    _, V = np.linalg.eig(A)
    try:
        inverse = np.linalg.inv(V)
    except np.linalg.LinAlgError:
        return
    if np.isfinite(inverse).all():
        P = (inverse.conj().T @ inverse).real
        P = 0.5 * (P + P.T)
        if condition_number(P) < _DEFECTIVE:
            yield P


def _lyapunov_solution(A: Array, rate: float, discrete: bool) -> Array | None:
    """P of the Lyapunov (Stein) equation of the shifted system; its right-hand side follows the size of A."""
    n = len(A)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an ill-conditioned equation: the check decides
            if discrete:
                return solve_discrete_lyapunov((A / rate).T, np.eye(n))
            return solve_continuous_lyapunov((A + rate * np.eye(n)).T, -np.eye(n))
    except (np.linalg.LinAlgError, ValueError):
        return None


def _search(system: LureSystem, A: Array, targets: list[float]) -> Witness:
    """The fixed candidates first, a little inside the exact rate if need be: an equation solved at the rate itself
    gives a P so ill-conditioned that its overshoot says nothing.
    """
    near_enough = 1e-8 if system.channels == 0 else 1e-5  # to fix channels by L costs half the digits
    near = [rate for rate in targets if abs(rate - targets[0]) <= near_enough * max(abs(targets[0]), 1e-300)]
    candidates = list(_candidates(A))
    all_of_them = np.ones(system.channels, dtype=bool)
    fixed = [(rate, P) for rate in near for P in candidates]
    for rate, given in fixed + [(rate, None) for rate in targets]:
        P = _lyapunov_solution(A, rate, system.is_discrete) if given is None else given
        if P is None or not np.isfinite(P).all():
            continue
        P = 0.5 * (P + P.T)
        for L in completed_multipliers(system, P, np.zeros(system.channels), rate, all_of_them):
            witness = prove_witness(system, P, L, rate)
            if witness:
                return witness
    return Witness()
