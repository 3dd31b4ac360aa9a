r"""Boundedness of all trajectories: search for a ball or a box that they enter.

The claims are ordered: *bounded* < *one globally attracting equilibrium per constant input* < *contracting*.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from scipy.linalg import solve_continuous_lyapunov, solve_discrete_lyapunov

from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import euclidean_norms
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.bounded import forcing_bounds
from stability.proposals import accepted_claim, propose
from stability.search.solvers.deadline import Deadline, TimeLimit

Array = np.ndarray
Candidate = tuple[str, Mapping[str, Any]]


def bounded(subject: Any, *, input_bound: float | None = None, time_limit: TimeLimit = None) -> Claim:
    r"""Prove that every trajectory ends in a ball of known radius, for all inputs.

    A bounded activation and a stable linear part suffice. Two sets are tried, a box (from :math:`|A|`) and an
    ellipsoid (:math:`A Y + Y A^T + \mu Y + \mu^{-1} G T^{-1} G^T < 0`, the best of several ``mu``, weights
    ``T`` in closed form), and the smaller radius is claimed. An unstable linear part refutes the claim.

    Args:
        subject: a network, or anything that ``stability.conversion.subjects.as_subject`` turns into one.
        input_bound: bound on every input entry, needed (and 1 when not given) only where inputs enter the
            state directly.
        time_limit: seconds; the smallest radius proved until then is the answer.

    Returns:
        The claim ``bounded``; its value is the radius.

    Raises:
        ConfigurationError: an input bound that is no number >= 0.

    Source:
        Boyd, El Ghaoui, Feron, Balakrishnan (1994), section 6.1.3.

    Example:
        >>> from stability.systems import LureSystem
        >>> cell = LureSystem([[0.0]], [[1.0]], [[3.0]], dt=1.0)
        >>> claim = bounded(DrivenSystem(cell, "tanh", [[1.0]]))
        >>> str(claim.verdict), round(claim.value, 6)
        ('certified', 1.0)
    """
    if input_bound is not None:
        check_input_bound(input_bound)
    target = as_subject(subject)
    if not isinstance(target, DrivenSystem):
        method: Callable[[], Claim] | None = getattr(target, "bounded", None)
        if method is not None:
            return method()
        return _open("Boundedness is open: the system has no named activation, so its channels have no known bound.")
    with np.errstate(all="ignore"):
        return _bounded(target, input_bound, Deadline.from_limit(time_limit).named("bounded"))


def check_input_bound(value: Any) -> None:
    """Check a bound of inputs.

    Raises:
        ConfigurationError: for anything but a number >= 0.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e100:
        raise ConfigurationError(f"input_bound must be a number >= 0, got {value!r}")


def _open(statement: str) -> Claim:
    return Claim("bounded", statement, Verdict.INCONCLUSIVE)


def _bounded(driven: DrivenSystem, input_bound: float | None, deadline: Deadline) -> Claim:
    system = driven.system
    if system.channels and not math.isfinite(activation(driven.activation).bound):
        return _open(f"Boundedness is open: {driven.activation} is unbounded, and contraction is not proved.")
    from stability.search.counterexamples.linear import (
        unstable_linear_data,  # with the rules of orbits; for networks alone
    )

    growth = unstable_linear_data(driven)
    if growth is not None:
        refuted = accepted_claim(driven, "unstable_linear", growth, name="bounded")
        if refuted is not None:
            return refuted
    extra: dict[str, Any] = {}
    if driven.F.any():
        extra["input_bound"] = 1.0 if input_bound is None else float(input_bound)
    push, bounds = forcing_bounds(driven, extra.get("input_bound"))
    candidates = [_box(driven, push.mid, bounds), *ball_candidates(driven, push.mid, bounds, deadline)]
    proofs = [(kind, {**data, **extra}) for kind, data in (c for c in candidates if c is not None)]
    for kind, data in sorted(proofs, key=lambda item: item[1]["radius"]):
        claim = accepted_claim(driven, kind, data)
        if claim is not None:
            return claim
    return _open("Boundedness is open: the linear part is not proved stable.")


def _box(driven: DrivenSystem, push: Array, bounds: Array) -> Candidate | None:
    """Return the box ``(I - |A|)^{-1} s`` or its continuous counterpart."""
    A = driven.system.A
    absolute = np.abs(A)
    if not driven.system.is_discrete:
        absolute = np.eye(len(A)) + absolute + np.diag(np.diagonal(A) - np.diagonal(absolute))
    solution = positive_solutions(absolute, np.abs(push) @ bounds + 1e-300)
    if solution is None or not (solution[0] > 0).all():
        return None
    r, lift = solution
    r = np.maximum(r * (1 + 1e-10) + 1e-10 * float(r.max()) / float(lift.max()) * lift, 1e-200)
    return "box", {"r": r, "radius": float(np.linalg.norm(r)) * (1 + 1e-10)}


def positive_solutions(matrix: Array, right: Array) -> tuple[Array, Array] | None:
    """Return ``(I - K)^-1 s`` and ``(I - K)^-1 1`` for ``K >= 0`` off the diagonal.

    ``None`` where the spectral radius of ``K`` is one or more (the second is not positive there), or next to one.
    """
    try:
        both = np.linalg.solve(np.eye(len(matrix)) - matrix, np.column_stack([right, np.ones(len(matrix))])).T
    except np.linalg.LinAlgError:
        return None
    return (both[0], both[1]) if np.isfinite(both).all() and (both[1] > 0.0).all() and both[1].max() < 1e9 else None


def ball_candidates(driven: DrivenSystem, push: Array, bounds: Array, deadline: Deadline) -> list[Candidate]:
    """Return data of rule ``ball``: the best few of a line search in ``mu``, five shares of the largest, then four
    near the best.
    """
    active = np.flatnonzero(np.any(push != 0, axis=0) & (bounds > 0))
    edge = _largest_mu(driven.system)
    if not edge > 0 or len(active) == 0:
        return []

    def at(shares: Iterable[float]) -> Iterator[tuple[float, Mapping[str, Any]]]:
        for share in shares:
            if deadline.over:
                return
            data = _ellipsoid(driven, push, bounds, active, min(max(share, 0.01), 0.99) * edge)
            if data is not None:
                yield share, data

    balls = list(at((0.5,) if driven.states > 400 else (0.1, 0.3, 0.5, 0.7, 0.9)))
    if len(balls) > 1 and not deadline.over:
        best = min(balls, key=lambda item: item[1]["radius"])[0]
        balls += at((best - 0.1, best + 0.1, best + 0.05, best - 0.05))
    return [("ball", data) for data in sorted((data for _, data in balls), key=lambda data: data["radius"])[:3]]


def _largest_mu(system: LureSystem) -> float:
    """Return the ``mu`` at which the linear part is as stable as the inequality needs; zero for an unstable one."""
    values = np.linalg.eigvals(system.A)
    largest = float(np.abs(values).max())
    if not largest < 1e100:
        return 0.0
    return 1.0 - largest**2 if system.is_discrete else -2.0 * float(values.real.max())


def _ellipsoid(driven: DrivenSystem, push: Array, bounds: Array, active: Array, mu: float) -> Mapping[str, Any] | None:
    """Return ``Y`` of least trace for one ``mu``, with weights from the adjoint equation."""
    a, n, discrete = driven.system.A, driven.system.states, driven.system.is_discrete

    def solve(matrix: Array, right: Array) -> Array:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # near the boundary of stability; the rule judges the result
            if discrete:
                return solve_discrete_lyapunov(matrix / math.sqrt(1.0 - mu), right)
            return solve_continuous_lyapunov(matrix + 0.5 * mu * np.eye(n), -right)

    try:
        adjoint = solve(a.T, np.eye(n))
        cost = np.maximum(np.einsum("ij,ik,kj->j", push, adjoint, push), 0.0)
        weight = np.full(len(bounds), 1e100)
        part = np.sqrt(np.maximum(cost[active], 1e-12 * cost.max(initial=0.0)))
        if not (np.isfinite(part).all() and (part > 0).all()):
            return None
        weight[active] = part / float((part * bounds[active]).sum()) / bounds[active] * (1 - 1e-9)
        tau = np.where(
            bounds > 0, np.where(weight < 1e99, weight, 1e-9 / (len(bounds) * np.maximum(bounds, 1e-100) ** 2)), 1.0
        )
        tau = tau / max(1.0, float((tau * bounds * bounds).sum()) * (1 + 1e-12))
        reach = (push / tau) @ push.T / mu
        reach += 1e-9 * float(np.trace(reach)) / n * np.eye(n)
        Y = solve(a, reach)
    except (np.linalg.LinAlgError, ValueError):
        return None
    Y = np.ascontiguousarray(0.5 * (Y + Y.T)) * (1 + 1e-9)
    if not np.isfinite(Y).all():
        return None
    top = float(np.linalg.eigvalsh(Y)[-1])
    if not top > 0:
        return None
    return {"Y": Y, "mu": float(mu), "tau": tau, "radius": math.sqrt(top) * (1 + 1e-8)}


EQUILIBRIA = {
    "multiplier_lmi": "attracting_equilibrium",
    "interval_jacobian": "gated_equilibrium",
    "interval_lmi": "gated_equilibrium",
    "cascade": "cascade_equilibrium",
}
"""Theorem about equilibria by the theorem that proved contraction."""


def diagonal_of(low: Array, high: Array) -> float:
    """Bound the diagonal of a box above, rounding included."""
    return float(euclidean_norms(np.nextafter(high - low, np.inf))) * (1 + (len(low) + 16) * EPS)


def equilibrium_claim(subject: Any, contraction: Claim) -> Claim | None:
    """Claim one globally attracting equilibrium for each constant input, from a proof of contraction.

    Args:
        subject: a system, network, gated cell or stack.
        contraction: the claim with its proof.

    Returns:
        The claim ``equilibrium`` (``equilibrium_in_box`` where the inputs have a box), or ``None`` where there is no
        such proof.

    Example:
        >>> equilibrium_claim(None, Claim("contraction", "", Verdict.INCONCLUSIVE)) is None
        True
    """
    proof = contraction.proof if contraction.verdict is Verdict.CERTIFIED else None
    kind = None if proof is None else EQUILIBRIA.get(proof.kind)
    if proof is None or kind is None or getattr(subject, "directions", 1) != 1:
        return None
    first = getattr(subject, "layers", (subject,))[0]
    name = "equilibrium" if getattr(first, "input_low", None) is None else "equilibrium_in_box"
    keys = ("P", "L", "rate") if kind == "attracting_equilibrium" else tuple(proof.data)
    return propose(subject, kind, {key: proof.data[key] for key in keys}, name)
