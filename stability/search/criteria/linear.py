r"""Criterion for linear systems: the exact rate by eigenvalues, and a quadratic Lyapunov function that attains it.

With :math:`A = V \Lambda V^{-1}`, :math:`P = V^{-H} V^{-1}` gives
:math:`A^T P + P A \le 2 \max \mathrm{Re} \Lambda\, P`, so that the rate is exact. For a defective A a Lyapunov (Stein)
equation at a slower rate gives P.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_continuous_lyapunov, solve_discrete_lyapunov

from stability.certificate import Finding
from stability.kernel.systems.lure import LureSystem
from stability.search.criteria.witness import Witness, guarded_criterion, prove_witness
from stability.search.solvers.loop_transformation import completed_multipliers
from stability.search.solvers.rates import Rate, margin_of, parse_rate, quadratic_rate, spectral_rate, start_rate
from stability.search.solvers.spectral_bounds import rate_proof

Array = np.ndarray
NEAR = 0.999
"""Share of the exact exponent that is accepted as the best rate."""
MOST_OVERSHOOT = 1e8
"""Largest useful overshoot."""
FINE, COARSE = (5e-4, 1e-5, 1e-6, 1e-7, 1e-10, 1e-13), (3e-3, 1e-2, 3e-2, 0.1, 0.3, 0.7)
"""Tried reductions of the exponent, as shares, which give the proof room for rounding errors."""


@guarded_criterion("linear")
def linear_criterion(system: LureSystem, *, rate: Rate = "best") -> Finding:
    r"""Evaluate the exact criterion for channels with a single slope, or without channels.

    Args:
        system: a Lur'e system; with channels, ``alpha = beta`` in all of them.
        rate: ``"best"``, ``"any"`` (stability) or a number: at least this rate.

    Returns:
        A finding with margin ``-max Re(eigenvalue)`` or ``1 - max |eigenvalue|`` and a witness ``{"P", "L"}`` proved at
        ``rate``. The best proved rate is within 1e-3 of that margin if the cube of the condition number of the
        eigenvectors times the ratio of the time scales is below 1e12; otherwise the detail states the proved share.

    Raises:
        ConfigurationError: an invalid rate.

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
    if abs(margin) <= 1e-12:
        words += ", on the boundary of stability up to rounding errors"
    if not margin > 0:
        return Finding("linear", False, margin, words)
    if isinstance(rate, float) and not (start >= rate > exact if discrete else start <= rate < exact):
        return Finding("linear", False, margin, f"{words}: the requested rate {rate:g} is not reached")
    target = start if rate == "any" else rate
    search = _fastest_witness if isinstance(target, str) else _least_overshoot_witness
    witness = search(system, A, exact if isinstance(target, str) else target)
    if not witness:
        return Finding("linear", True, margin, f"{words}; no quadratic Lyapunov function was proved")
    share = margin_of(float(witness.rate or 0.0), system) / margin
    if rate == "best" and share < NEAR:
        words += f"; nearly dependent eigenvectors limit the proved rate to {100 * share:.3g} % of the exponent"
    return Finding("linear", True, margin, words, witness.rate, witness.data)


def _eigenvector_form(A: Array) -> Array | None:
    """Return ``V^{-H} V^{-1}`` of the eigenvectors ``V``, or ``None`` if they are (nearly) dependent."""
    _, V = np.linalg.eig(A)
    try:
        inverse = np.linalg.inv(V)
    except np.linalg.LinAlgError:
        return None
    P = (inverse.conj().T @ inverse).real
    return P if np.isfinite(P).all() else None


def _lyapunov_solution(A: Array, rate: float, discrete: bool) -> Array | None:
    """Return P of the Lyapunov (Stein) equation of the shifted system; its right-hand side scales with A."""
    n = len(A)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about ill-conditioned equations, whose solution is checked
            if discrete:
                P = solve_discrete_lyapunov((A / rate).T, np.eye(n))
            else:
                P = solve_continuous_lyapunov((A + rate * np.eye(n)).T, -max(np.linalg.norm(A, 2), 1e-300) * np.eye(n))
    except (np.linalg.LinAlgError, ValueError):
        return None
    return P if np.isfinite(P).all() else None


@dataclass(frozen=True)
class _Proof:
    """Proved witness, its exponent (or one minus the radius), and its overshoot."""

    witness: Witness = field(default_factory=Witness)
    exponent: float = 0.0
    overshoot: float = np.inf


def _proof(system: LureSystem, P: Array, rate: float) -> _Proof:
    """Return the proof by P at a rate, or an empty one."""
    everywhere = np.ones(system.channels, dtype=bool)
    multipliers = completed_multipliers(system, P, np.zeros(system.channels), rate, everywhere)
    witness = next(filter(None, (prove_witness(system, P, L, rate) for L in multipliers)), Witness())
    data = rate_proof(witness.data, witness.rate)
    return _Proof() if data is None else _Proof(witness, margin_of(data["rate"], system), data["overshoot"])


def _fastest_proof(system: LureSystem, P: Array, attained: float) -> _Proof:
    """Return the proof by P with the fastest rate that rounding errors allow."""

    def proof(step: float) -> _Proof:
        return _proof(system, P, attained + step * (start_rate(system) - attained))

    fastest = proof(FINE[0])
    if not fastest.witness:
        return next((witness for witness in map(proof, COARSE) if witness.witness), fastest)
    for witness in map(proof, FINE[1:]):
        if not witness.witness:
            break
        fastest = witness
    return fastest


def _fastest_witness(system: LureSystem, A: Array, exact: float) -> Witness:
    """Return a witness with nearly the fastest rate, and the smallest overshoot among such witnesses.

    Candidates are the identity, the matrix of the eigenvectors, and solutions of Lyapunov equations. Overshoots above
    ``MOST_OVERSHOOT`` are used only if there is no other.
    """
    discrete, span = system.is_discrete, start_rate(system) - exact
    solutions = (_lyapunov_solution(A, exact + step * span, discrete) for step in 10.0 ** np.arange(-4.0, 0.0, 0.5))
    proofs, fastest = [_Proof()], 0.0
    for P in itertools.chain([np.eye(len(A)), _eigenvector_form(A)], solutions):
        attained = np.nan if P is None else quadratic_rate(A, P, discrete)
        if P is None or not margin_of(attained, system) > fastest:
            continue
        proofs.append(_fastest_proof(system, P, attained))
        if proofs[-1].overshoot <= MOST_OVERSHOOT:
            fastest = max(fastest, proofs[-1].exponent)
        if fastest >= NEAR * margin_of(exact, system):
            break
    useful = [proof for proof in proofs if proof.overshoot <= MOST_OVERSHOOT] or proofs
    enough = NEAR * max(proof.exponent for proof in useful)
    return min((proof for proof in useful if proof.exponent >= enough), key=lambda proof: proof.overshoot).witness


def _least_overshoot_witness(system: LureSystem, A: Array, rate: float) -> Witness:
    """Return a witness at a given rate with nearly the smallest overshoot.

    Candidates are the identity plus an increasing multiple of a solution of the Lyapunov equation.
    """
    discrete, identity = system.is_discrete, np.eye(len(A))
    solution = _lyapunov_solution(A, rate, discrete)
    blends = () if solution is None else (identity + share * solution for share in 10.0 ** np.arange(-12.0, 3.0))
    nearly = margin_of(rate, system) * (1.0 - 1e-6)
    for P in itertools.chain([identity], blends, [_eigenvector_form(A), solution]):
        if P is not None and margin_of(quadratic_rate(A, P, discrete), system) >= nearly:
            proof = _proof(system, P, rate)
            if proof.witness:
                return proof.witness
    return Witness()
