r"""Claims of contraction: the fastest rate, and slower rates with a smaller overshoot.

The bound :math:`C e^{-\lambda t}` of the fastest rate may start far above one. Two further bounds say more about the
first steps: one in the metric :math:`P = I`, where differences shrink from the start (``C = 1``), and, if the overshoot
of the fastest rate is large, one whose exponent is a fixed share of the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from stability.certificate import Certificate, Finding
from stability.errors import ConfigurationError
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.sentences import undecided
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.multiplier_lmi import check_lmi
from stability.proposals import propose
from stability.search.criteria.linear import linear_criterion
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.criteria.schur import schur_criterion
from stability.search.criteria.witness import Witness, prove_witness, rates_towards_start
from stability.search.solvers.deadline import TOO_LATE, Deadline, TimeLimit, TimeOverError
from stability.search.solvers.loop_transformation import centered_loop, completed_multipliers, fixed_channels
from stability.search.solvers.overshoot import min_overshoot
from stability.search.solvers.rates import Rate, minimize_on_grid, parse_rate, reaches_rate, slow_rate
from stability.search.solvers.spectral_bounds import rate_proof, spectrum_bracket
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
LARGE_OVERSHOOT = 10.0
"""Overshoot of the fastest rate above which a slower rate is searched, too."""
SHARES = (0.9, 0.7, 0.5, 0.25)  # shares of the fastest exponent that are tried for a slower rate
_MOST_STATES = 512  # largest system for which a rate without overshoot is searched


def contraction_claim(subject: LureSystem | DrivenSystem, witness: Witness) -> Claim | None:
    """Return the claim of a proved witness with its overshoot; ``None`` if the eigenvalues of ``P`` have no bounds."""
    data = rate_proof(witness.data, witness.rate)
    return None if data is None else propose(subject, "multiplier_lmi", data)


def overshoot_of(claim: Claim) -> float:
    """Return the overshoot of a claim's proof; infinite without one."""
    return float(claim.proof.data["overshoot"]) if claim.proof is not None else np.inf


def fastest_claim(
    subject: LureSystem | DrivenSystem, findings: Iterable[Finding], target: Rate, tol: float
) -> tuple[Claim, Finding] | None:
    """Select the fastest finding whose witness the verifier accepts.

    Args:
        subject: system of the findings.
        findings: outcomes of criteria.
        target: requested rate; slower findings are left out.
        tol: among rates whose relative difference is at most this, the claim with the smallest overshoot is selected.

    Returns:
        The certified claim with the finding behind it, or ``None``.
    """
    system = subject.system
    discrete = system.is_discrete
    sign = 1.0 if discrete else -1.0
    usable = [f for f in findings if f.holds and f.rate is not None and "P" in f.witness]
    claims: list[tuple[Claim, Finding, float]] = []
    for finding in sorted(usable, key=lambda f: sign * round(float(f.rate or 0.0), 9)):
        rate = float(finding.rate or 0.0)
        if not reaches_rate(rate, target, discrete):
            continue
        if claims and abs(rate - claims[0][2]) > tol * (1.0 - claims[0][2] if discrete else claims[0][2]):
            break
        p = np.ascontiguousarray(finding.witness["P"], dtype=np.float64)
        multipliers = np.ascontiguousarray(finding.witness["L"], dtype=np.float64)
        if finding.criterion not in ("multiplier", "construction") and not check_lmi(system, p, multipliers, rate)[0]:
            continue
        claim = contraction_claim(subject, Witness(rate, {"P": p, "L": multipliers}))
        if claim is not None:
            claims.append((claim, finding, rate))
    return min(claims, key=lambda x: round(overshoot_of(x[0]), 9))[:2] if claims else None


def open_claim(subject: Any) -> Claim:
    """Return the claim of contraction with neither a proof nor a counterexample."""
    return Claim("contraction", undecided(subject), Verdict.INCONCLUSIVE)


def identity_witness(system: LureSystem, *, deadline: Deadline | None = None) -> Witness:
    r"""Find a rate without overshoot from the multiplier inequality with ``P = I`` and equal multipliers.

    With the scale :math:`s` of the centered loop's channels, the best rate in continuous time is

    .. math:: -2 \lambda = \min_s \lambda_{\max}\bigl(A + A^T + s^2 C^T C
              + (B/s + s\, C^T D) (I - D^T D)^{-1} (B/s + s\, C^T D)^T\bigr)

    In discrete time a similar formula holds for :math:`\rho^2`.

    Args:
        system: the system.
        deadline: checked before each evaluation.

    Returns:
        A proved witness with ``P = I``; an empty one if there is none or the time is over.

    Example:
        >>> system = LureSystem(np.zeros((2, 2)), np.eye(2), [[0.0, 0.9], [0.1, 0.0]], dt=1.0)
        >>> round(identity_witness(system).rate, 6)  # the norm of the weights
        0.9
    """
    fixed = fixed_channels(system)
    loop = centered_loop(system).restricted(~fixed)
    b, c = float(np.linalg.norm(loop.B)), float(np.linalg.norm(loop.C))
    middle = 0.5 * np.log(b / c) if b > 0 and c > 0 else 0.0

    deadline = deadline or Deadline()

    def exponent(log_s: float) -> float:
        deadline.require()
        return _identity_exponent(loop, float(np.exp(middle + log_s)))

    log_s = 0.0
    try:
        if loop.B.shape[1]:
            log_s = minimize_on_grid(exponent, np.linspace(-6.0, 6.0, 13))
        value = exponent(log_s)
    except TimeOverError:
        return Witness()
    best = float(np.sqrt(max(value, 0.0))) if system.is_discrete else -0.5 * value
    if not np.isfinite(value) or (best >= 1.0 if system.is_discrete else best <= 0.0):
        return Witness()
    identity, multipliers = np.eye(system.states), np.zeros(system.channels)
    multipliers[~fixed] = 0.5 * np.exp(2.0 * (middle + log_s))
    for rate in rates_towards_start(system, best, (1e-9, 1e-7, 1e-5, 1e-3)):
        if deadline.over:
            break
        for full in completed_multipliers(system, identity, multipliers, rate, fixed):
            witness = prove_witness(system, identity, full, rate)
            if witness:
                return witness
    return Witness()


def _identity_exponent(loop: StateSpace, s: float) -> float:
    """Return ``-2 lambda`` or ``rho^2`` of the loop at ``P = I`` and scale ``s``; 1e300 if there is none."""
    B, C, D = loop.B / s, s * loop.C, loop.D
    inner = np.eye(B.shape[1]) - D.T @ D
    if loop.is_discrete:
        inner = inner - B.T @ B
        whole, cross = loop.A.T @ loop.A + C.T @ C, loop.A.T @ B + C.T @ D
    else:
        whole, cross = loop.A + loop.A.T + C.T @ C, B + C.T @ D
    try:
        half = np.linalg.solve(np.linalg.cholesky(inner), cross.T)
    except np.linalg.LinAlgError:
        return 1e300
    return float(np.linalg.eigvalsh(whole + half.T @ half)[-1])


def slower_rate_claims(
    subject: LureSystem | DrivenSystem, claim: Claim, *, time_limit: TimeLimit = None
) -> list[Claim]:
    """Return claims of slower rates whose overshoot is clearly smaller than that of the fastest rate.

    Args:
        subject: system of the claim.
        claim: the certified claim of the fastest rate, proved by the multiplier inequality.
        time_limit: seconds.

    Returns:
        At most two claims. The first has the largest exponent in ``SHARES`` whose overshoot is at most
        ``LARGE_OVERSHOOT``, or the smallest overshoot if all are larger. The second has no overshoot.
    """
    system = subject.system
    deadline = Deadline.from_limit(time_limit).named("slower rates")
    out: list[Claim] = []
    least = overshoot_of(claim)
    for witness in _slower_witnesses(system, claim, deadline):
        slower = contraction_claim(subject, witness) if witness else None
        if slower is not None and overshoot_of(slower) < 0.5 * least + 0.5:
            out.append(slower)
            least = overshoot_of(slower)
    return out


def _slower_witnesses(system: LureSystem, claim: Claim, deadline: Deadline) -> Iterator[Witness]:
    """Yield witnesses of slower rates, in the order of the claims of ``slower_rate_claims``."""
    rate = float(claim.value or 0.0)
    if overshoot_of(claim) > LARGE_OVERSHOOT:
        best: Witness | None = None
        for share in SHARES:
            if deadline.over:
                return
            slower = rate**share if system.is_discrete else share * rate
            best = min(_witnesses_at_rate(system, slower, best, deadline), key=_witness_overshoot)
            if _witness_overshoot(best) <= LARGE_OVERSHOOT:
                break
        if best is not None and best:  # even if its overshoot is above LARGE_OVERSHOOT
            yield best
    if system.states <= _MOST_STATES and not deadline.over:
        with np.errstate(all="ignore"):
            yield identity_witness(system, deadline=deadline)


def _witnesses_at_rate(system: LureSystem, rate: float, best: Witness | None, deadline: Deadline) -> Iterator[Witness]:
    """Yield witnesses of one rate, starting with the best known one; later ones cost more."""
    yield best or Witness()
    linear = linear_criterion(system, rate=rate)
    finding = linear if linear.holds else schur_criterion(system, rate=rate, time_limit=deadline)
    cheap = Witness(finding.rate, dict(finding.witness)) if finding.witness else Witness()
    yield cheap
    if _witness_overshoot(cheap) > LARGE_OVERSHOOT:
        finding = multiplier_criterion(system, rate=rate, solver="riccati", time_limit=deadline)
        yield Witness(finding.rate, dict(finding.witness)) if finding.witness else Witness()


def _witness_overshoot(witness: Witness) -> float:
    """Return the overshoot of a witness, infinite for an empty one or one that cannot be bracketed."""
    bracket = spectrum_bracket(witness.data["P"]) if witness else None
    return np.inf if bracket is None else bracket[2]


def smallest_overshoot(system: LureSystem, rate: float, *, time_limit: TimeLimit = None) -> Certificate:
    """Certify a given rate with the smallest overshoot that a quadratic metric gives (an SDP: small systems).

    Args:
        system: the system.
        rate: ``lambda`` or ``rho`` to certify.
        time_limit: seconds.

    Returns:
        The certificate; inconclusive, with the reason in its finding, where the rate could not be certified.

    Raises:
        ConfigurationError: an invalid rate, or a system too large for a dense SDP.

    Example:
        >>> round(smallest_overshoot(LureSystem.recurrent([[-2.0]], [[1.0]]), 0.5).overshoot, 4)
        1.0
    """
    value = parse_rate(rate, system)
    if isinstance(rate, str):
        raise ConfigurationError(f"rate must be a number for smallest_overshoot, got {rate!r}")
    value = slow_rate(system) if isinstance(value, str) else value
    deadline = Deadline.from_limit(time_limit).named("overshoot")
    result = min_overshoot(system, value, time_limit=deadline)
    claim = None
    if result.P is not None and result.L is not None:
        witness = prove_witness(system, result.P, result.L, value)
        claim = contraction_claim(system, witness) if witness else None
    if claim is None or claim.proof is None:
        words = TOO_LATE if deadline.cut else f"the rate {value:g} could not be certified: {result.detail}"
        finding = Finding("multiplier", False, None, words)
        return Certificate(system, open_claim(system), None, None, None, (finding,), meta=deadline.meta)
    return Certificate(system, claim, "multiplier", claim.value, claim.proof.data["overshoot"], meta=deadline.meta)
