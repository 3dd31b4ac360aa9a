r"""Theorem 1 of the Lipschitz RNN paper: case (a), case (b) as published, case (b) corrected.

The system is :math:`\dot h = A h + \sigma(W h + U x + b)` with ``sigma`` M-Lipschitz.
Source: N. B. Erichson, O. Azencot, A. Queiruga, L. Hodgkinson, M. W. Mahoney, Lipschitz Recurrent Neural
Networks, ICLR 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from stability.arguments import as_positive
from stability.certificate import Finding
from stability.errors import ConfigurationError, DimensionError
from stability.kernel.checks import as_matrix, as_slope
from stability.kernel.systems.lure import LureSystem
from stability.search.criteria.witness import (
    CAPS,
    Multiplier,
    Witness,
    guarded_criterion,
    nested_multiplier,
    prove_witness,
    rates_towards_start,
)
from stability.search.solvers.deadline import TOO_LATE, Deadline, TimeLimit, TimeOverError
from stability.search.solvers.rates import quadratic_rate

Array = np.ndarray
_SYMMETRY = 1e-8  # relative asymmetry above which ``W`` counts as not symmetrizable


@dataclass(frozen=True)
class Theorem1:
    """Findings of the three cases of Theorem 1.

    Attributes:
        a: case (a): certifies.
        b_published: case (b) as printed: never certifies, for it is false when W is not symmetric.
        b_sound: case (b) where ``L W`` is symmetric for a positive diagonal L: certifies.
    """

    a: Finding
    b_published: Finding
    b_sound: Finding


@np.errstate(all="ignore")
def theorem1(A: Any, W: Any, M: float = 1.0, *, slope: Any = None, time_limit: TimeLimit = None) -> Theorem1:
    r"""Check Theorem 1 for ``dh/dt = A h + sigma(W h + input)``.

    * (a): ``A_sym < 0`` and ``sigma_min(A_sym) > M sigma_max(W)``, with ``A_sym = (A + A^T)/2``. It gives
      the rate ``sigma_min(A_sym) - M sigma_max(W)`` with overshoot 1.
    * (b) as published: ``A_sym < 0``, ``W + W^T < 0``, ``A^T W + W^T A > 0``. There are systems that meet
      this and have an unstable equilibrium, so it certifies nothing.
    * (b) sound: a positive diagonal L with ``L W`` symmetric negative definite and ``A^T L W + L W A > 0``;
      then ``V = -h^T L W h`` decreases.

    Args:
        A: ``(n, n)``.
        W: ``(n, n)``.
        M: Lipschitz constant of ``sigma``.
        slope: ``(alpha, beta)`` of ``sigma``, ``(0, M)`` by default; witnesses are for this interval.
        time_limit: time limit in seconds; undecided cases do not hold, and their detail says so.

    Returns:
        The findings; witnesses ``{"P", "L"}`` are proved for the multiplier inequality with ``B = I``, ``C = W``.

    Raises:
        DimensionError: matrices that are not square or differ in size.
        NonFiniteError: NaN or infinite entries.
        ConfigurationError: M not positive, or a slope beyond it.

    Example:
        >>> result = theorem1([[-2.0]], [[-1.0]])
        >>> result.a.rate, result.b_sound.holds
        (1.0, True)
    """
    deadline = Deadline.from_limit(time_limit).named("theorem1")
    a = as_matrix("A", A)
    w = as_matrix("W", W)
    if a.shape[0] != a.shape[1] or a.shape[0] == 0:
        raise DimensionError("A", "(n, n) with n >= 1", a.shape)
    if w.shape != a.shape:
        raise DimensionError("W", f"{a.shape} like A", w.shape)
    M = as_positive("M", M)
    alpha, beta = as_slope((0.0, M) if slope is None else slope, len(a))
    if max(-float(alpha.min()), float(beta.max())) > M:
        raise ConfigurationError(f"the slope bounds must lie in [-M, M] = [{-M:g}, {M:g}]: pass a larger M")
    system = LureSystem.recurrent(a, w, (alpha, beta))
    return Theorem1(_case_a(system, 1.0, M, deadline), _case_b_published(system), _case_b_sound(system, 1.0, deadline))


@np.errstate(all="ignore")
def theorem1_system(system: LureSystem, *, time_limit: TimeLimit = None) -> Theorem1:
    """Evaluate Theorem 1 for a system of its form: continuous, ``B = c I`` with ``c > 0``, ``D = 0``.

    Args:
        system: the system; ``M = c max(|alpha|, |beta|)`` and ``W = C``.
        time_limit: see ``theorem1``.

    Returns:
        The findings, witnesses for this system; none holds when the system has another form.

    Example:
        >>> round(theorem1_system(LureSystem([[-2.0]], [[0.5]], [[2.0]])).a.rate, 6)
        1.0
    """
    n, c = system.states, float(system.B[0, 0]) if system.channels else 0.0
    reach = c * max(float(np.abs(system.alpha).max(initial=0.0)), float(np.abs(system.beta).max(initial=0.0)))
    if system.is_discrete or not (c > 0 and reach > 0) or system.D.any() or not np.array_equal(system.B, c * np.eye(n)):
        why = "does not apply: the theorem needs the form dh/dt = A h + sigma(W h + input)"
        return Theorem1(*(Finding(f"theorem1{case}", False, None, why) for case in ("a", "b_published", "b")))
    deadline = Deadline.from_limit(time_limit).named("theorem1")
    return Theorem1(_case_a(system, c, reach, deadline), _case_b_published(system), _case_b_sound(system, c, deadline))


def _largest_eigenvalue(M: Array) -> float:
    """Return the largest eigenvalue of the symmetric part."""
    return float(np.linalg.eigvalsh(0.5 * (M + M.T))[-1])


@guarded_criterion("theorem1a")
def _case_a(system: LureSystem, c: float, M: float, deadline: Deadline) -> Finding:
    """Evaluate case (a) of a system with ``B = c I``: that of ``c sigma``, with multipliers ``L / c^2``."""
    n, slopes = system.states, (c * system.alpha, c * system.beta)
    decay, norm = -_largest_eigenvalue(system.A), M * float(np.linalg.norm(system.C, 2))
    margin = decay - norm
    words = f"sigma_min(A_sym) = {decay:.6g}, M sigma_max(W) = {norm:.6g} (M: largest slope)"
    if not margin > 0:
        what = "A_sym is not negative definite" if not decay > 0 else "sigma_min(A_sym) <= M sigma_max(W)"
        return Finding("theorem1a", False, margin, f"{what}: {words}")
    level = 1.0 / (2.0 * M * max(norm, 1e-12 * decay))  # multiplier for the slopes [-M, M]
    ball = np.full(n, M)

    def multiplier(cap: float) -> Array:
        return c * c * level * nested_multiplier((-ball, ball), slopes, cap) * M

    try:
        witness = _proved_witness(system, np.eye(n), multiplier, margin, deadline)
    except TimeOverError:
        return Finding("theorem1a", False, margin, f"{words}; {TOO_LATE}")
    words += "" if witness else "; the margin is within rounding errors"
    return Finding("theorem1a", bool(witness), margin, words, witness.rate, witness.data)


def _proved_witness(system: LureSystem, P: Array, multiplier: Multiplier, best: float, deadline: Deadline) -> Witness:
    """Return a witness with this P, within 1 % of the best rate unless only the largest multipliers give one.

    Raises:
        TimeOverError: when the deadline comes first.
    """
    for cap in CAPS:
        for rate in (best, *rates_towards_start(system, best)):
            deadline.require()
            witness = prove_witness(system, P, multiplier(cap), rate)
            if witness and (float(witness.rate or 0.0) > 0.99 * best or cap == CAPS[-1]):
                return witness
    return Witness()


@guarded_criterion("theorem1b_published")
def _case_b_published(system: LureSystem) -> Finding:
    A, W = system.A, system.C
    product = A.T @ W
    margin = min(-_largest_eigenvalue(A), -2 * _largest_eigenvalue(W), -_largest_eigenvalue(-(product + product.T)))
    holds = bool(margin > 0 and (system.alpha >= 0).all())
    why = "as printed it is false unless W is symmetric: the proof takes an infimum over real vectors only"
    state = "the hypotheses hold" if holds else "the hypotheses fail"
    return Finding("theorem1b_published", holds, margin + 0.0, f"{state}; it never certifies: {why}")


def symmetrizer(W: Any) -> tuple[Array, float]:
    """Find a positive diagonal ``L`` that makes ``L W`` symmetric, as far as one does.

    Along the edges of W's graph ``l_i W_ij = l_j W_ji`` fixes the ratio of neighbors; a spanning tree of its
    largest entries fixes all, and the remaining entries decide whether they agree.

    Args:
        W: ``(n, n)``.

    Returns:
        ``L (n,)`` with maximum 1 in every connected component, and the asymmetry ``|L W - W^T L| / |L W|`` that
        remains (Frobenius; 1 or more where no L exists).

    Example:
        >>> L, asymmetry = symmetrizer([[-2.0, 1.0], [4.0, -9.0]])
        >>> L, float(asymmetry)
        (array([1.  , 0.25]), 0.0)
    """
    w = as_matrix("W", W)
    n = len(w)
    size = float(np.linalg.norm(w))
    if np.array_equal(w, w.T):
        return np.ones(n), 0.0
    if ((w > 0) != (w.T > 0)).any() or ((w < 0) != (w.T < 0)).any():
        return np.ones(n), max(1.0, float(np.linalg.norm(w - w.T)) / size)
    # loaded where there is an L to find
    from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

    strength = np.abs(w) + np.abs(w.T)
    np.fill_diagonal(strength, 0.0)
    cost = np.where(strength > 0, 1.0 + np.log(strength.max() / np.where(strength > 0, strength, 1.0)), 0.0)
    tree = minimum_spanning_tree(cost)
    log = np.zeros(n)
    count, parts = connected_components(strength > 0, directed=False)
    for part in range(count):
        members = np.flatnonzero(parts == part)
        order, parent = breadth_first_order(tree, members[0], directed=False)
        for j in order[1:]:
            i = parent[j]
            log[j] = log[i] + np.log(abs(w[i, j])) - np.log(abs(w[j, i]))
        log[members] -= log[members].max()
    L = np.exp(log)
    LW = L[:, None] * w
    total = float(np.linalg.norm(LW))
    return L, float(np.linalg.norm(LW - LW.T)) / total if total > 0 else 1.0


@guarded_criterion("theorem1b")
def _case_b_sound(system: LureSystem, c: float, deadline: Deadline) -> Finding:
    """Evaluate case (b) of a system with ``B = c I``, as in ``_case_a``."""
    name = "theorem1b"
    A, W = system.A, system.C
    if not ((system.alpha >= 0).all() and (system.beta > 0).all()):
        return Finding(name, False, None, "does not apply: sigma must be monotone non-decreasing")
    L, asymmetry = symmetrizer(W)
    if asymmetry > _SYMMETRY:
        words = f"no positive diagonal L makes L W symmetric (asymmetry {asymmetry:.2g})"
        return Finding(name, False, -asymmetry, words)
    scaled = "W is symmetric" if (L == 1).all() else "L W is symmetric for a positive diagonal L"
    P = -0.5 * (L[:, None] * W + (L[:, None] * W).T)
    bottom = float(np.linalg.eigvalsh(P)[0])
    if not bottom > 0:
        words = f"{scaled} but not negative definite (eigenvalue {-bottom + 0.0:.6g})"
        return Finding(name, False, bottom + 0.0, words)
    product = A.T @ P
    margin = min(-_largest_eigenvalue(product + product.T) / float(np.abs(P).max()), bottom)
    best = quadratic_rate(A, P, False)
    if not (margin > 0 and best > 0):
        words = f"{scaled} and negative definite, but A^T L W + L W A > 0 fails"
        return Finding(name, False, min(margin, best), words)
    alpha, beta = c * system.alpha, c * system.beta

    def multiplier(cap: float) -> Array:
        return c * c * nested_multiplier((0.0 * beta, beta), (alpha, beta), cap) * L / beta

    try:
        witness = _proved_witness(system, P, multiplier, best, deadline)
    except TimeOverError:
        return Finding(name, False, margin, f"{scaled}; {TOO_LATE}")
    proved = ", negative definite, and A^T L W + L W A > 0" if witness else ", but the margin is within rounding errors"
    return Finding(name, bool(witness), margin, scaled + proved, witness.rate, witness.data)
