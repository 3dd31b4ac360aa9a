"""Regional certificates: contraction on an invariant ellipsoid.

A neural ODE ``dh/dt = tanh(W h + ...)`` or an antisymmetric network cannot contract globally, because tanh
saturates; near an equilibrium it can. The search widens a region around the equilibrium until the inequality
fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from stability.arguments import as_vector
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError
from stability.kernel.arithmetic.activation_bounds import slope_range
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.systems.driven import ControlLoop, DrivenSystem
from stability.kernel.theorems.regional_lmi import regional_system
from stability.proposals import accepted_claim
from stability.search.counterexamples.eigenvalue_gradient import stability_excess
from stability.search.counterexamples.equilibrium_manifold import newton_equilibrium
from stability.search.criteria.multiplier import multiplier_criterion
from stability.search.input_sets.attraction import attraction
from stability.search.input_sets.bounded import check_input_bound
from stability.search.solvers.deadline import TOO_LATE, Deadline, TimeLimit
from stability.search.trajectories.simulation import simulate_to_limit

Array = np.ndarray


def regional(
    subject: Any,
    *,
    input: Any = None,
    input_bound: float = 0.0,
    rate: float | None = None,
    box: Any = None,
    seed: int = 0,
    time_limit: TimeLimit = None,
) -> Claim:
    r"""Find an invariant ellipsoid around a stable equilibrium: a region of contraction, or of attraction of a loop.

    Where every pre-activation stays within ``r_i`` of zero, tanh has slopes in
    :math:`[\mathrm{sech}^2 r_i, 1]`; the multiplier inequality with those slopes holds on a region of some
    size although it fails globally.

    For a ``ControlLoop`` the claim is ``attraction``: every trajectory that starts in the ellipsoid stays there and
    converges to the equilibrium zero. The plant may be unstable and its actuators saturated; the sectors are those of
    the nonlinearities around zero.

    Args:
        subject: a network, or anything that ``stability.conversion.subjects.as_subject`` turns into one.
        input: ``(p,)`` the input of the equilibrium; zero when not given.
        input_bound: inputs may move by this much around ``input``, entry by entry and at every time.
        rate: the rate asked for (``lambda``, or ``rho`` per step in discrete time); half of the
            equilibrium's own rate when not given, 2 % of it for a ``ControlLoop``. A lower rate gives a larger region.
        box: ``(n,)`` half widths >= 0 of a box of initial states of a ``ControlLoop``. The claim holds the largest
            multiple that is proved. States with a zero start at zero: the section of the ellipsoid by the others is
            made large. When not given, the ellipsoid and the box in it have large volumes.
        seed: seed of the random starts in the search for the equilibrium.
        time_limit: seconds; the widest region proved until then is the answer.

    Returns:
        The claim ``regional``, or ``attraction`` for a ``ControlLoop``; its value is the rate. ``claim.proof.data``
        holds the ellipsoid, ``P`` and ``level`` (around ``centre``; around zero for a loop), and ``box``. Inconclusive,
        with the reason, where no region is found.

    Raises:
        ConfigurationError: options that make no sense.
        DimensionError: an input or a box of the wrong size.

    Sources:
        T. Hu, Z. Lin, *Control Systems with Actuator Saturation* (2001); S. Tarbouriech et al., *Stability and
        Stabilization of Linear Systems with Saturating Actuators* (2011).

    Example:
        >>> from stability.systems import LureSystem
        >>> ode = DrivenSystem(LureSystem.recurrent([[0.0]], [[-1.0]]), "tanh", [[1.0]])
        >>> claim = regional(ode, rate=0.25)
        >>> str(claim.verdict), claim.value, claim.proof.data["radius"] > 1
        ('certified', 0.25, True)
        >>> from stability.systems import ControlLoop
        >>> loop = ControlLoop([[1.2]], [[-0.5]], [[1.0]], slope="saturation", dt=1.0)  # x+ = 1.2 x - 0.5 sat(x)
        >>> print(regional(loop).proof.data["box"].round(1))  # returns to zero: |x| < 2.5
        [2.4]
    """
    deadline = Deadline.from_limit(time_limit).named("regional")
    check_input_bound(input_bound)
    target = as_subject(subject)
    if not isinstance(target, (ControlLoop, DrivenSystem)) or target.system.channels == 0:
        return _open("Regional contraction is open: it needs a network with an activation, and this system has none.")
    discrete = target.system.is_discrete
    if rate is not None and (
        isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 < rate < (1.0 if discrete else 1e100)
    ):
        raise ConfigurationError(f"rate must be a number in (0, {'1' if discrete else 'inf'}), got {rate!r}")
    if isinstance(target, ControlLoop) and input is None and not input_bound:
        return attraction(target, rate, box, deadline)
    if isinstance(target, ControlLoop) or box is not None:
        raise ConfigurationError("box is for a ControlLoop, input and input_bound are for networks: leave them out")
    p = target.inputs
    centre = as_vector("input", np.zeros(p) if input is None else input, p, f"input must be a vector of {p} numbers")
    with np.errstate(all="ignore"):
        return _search(target, centre, float(input_bound), rate, seed, deadline)


def _open(statement: str) -> Claim:
    return Claim("regional", statement, Verdict.INCONCLUSIVE)


def _equilibrium(driven: DrivenSystem, u: Array, seed: int, deadline: Deadline) -> tuple[Array, float] | None:
    """Return the most stable equilibrium found, with its excess."""
    best: tuple[Array, float] | None = None
    for number, start in enumerate(_starts(driven, u, np.random.default_rng(seed), deadline)):
        if deadline.over:
            break
        state = newton_equilibrium(driven, start, u, deadline=deadline)
        if state is not None:
            size = float(
                stability_excess(np.linalg.eigvals(driven.jacobian(state, u)), driven.system.is_discrete).max()
            )
            if best is None or size < best[1]:
                best = (state, size)
        if best is not None and best[1] < 0 and number == 0:
            break
    return best


def _starts(driven: DrivenSystem, u: Array, rng: np.random.Generator, deadline: Deadline) -> Iterator[Array]:
    """Yield zero, states of trajectories after a while, and random states."""
    n = driven.system.states
    yield np.zeros(n)
    x = np.vstack([np.zeros(n), rng.normal(size=(5, n))])
    x, _ = simulate_to_limit(driven, x, u[None], 1500, deadline)
    yield from (row for row in x if np.isfinite(row).all())
    yield from rng.normal(size=(6, n))


def _search(driven: DrivenSystem, u: Array, bound: float, rate: float | None, seed: int, deadline: Deadline) -> Claim:
    equilibrium = _equilibrium(driven, u, seed, deadline)
    problem = _why_no_region(driven, u, equilibrium, deadline)
    if equilibrium is None or problem is not None:
        return _open(problem or "")
    centre, size = equilibrium
    discrete = driven.is_discrete
    limit = 1.0 + size if discrete else -size
    target = (0.5 * (1.0 + limit) if discrete else 0.5 * limit) if rate is None else float(rate)
    if (target <= limit) if discrete else (target >= limit):
        return _open(f"No region reaches the rate {target:.6g}: the equilibrium itself has the rate {limit:.6g}.")
    best = _widest(driven, centre, u, bound, target, deadline)
    if best is not None:
        return best
    inputs = "" if bound == 0 else f" for input changes up to {bound:g}"
    return _open(f"No invariant region with the rate {target:.6g} was found around the stable equilibrium{inputs}.")


def _why_no_region(driven: DrivenSystem, u: Array, point: tuple[Array, float] | None, deadline: Deadline) -> str | None:
    """Return the reason why no region can be centered at an equilibrium, or ``None``."""
    if point is None and deadline.cut:
        return f"Regional contraction is open: {TOO_LATE}."
    if point is None:
        return "Regional contraction is open: no equilibrium was found for this input."
    centre, size = point
    if not (np.isfinite(size) and abs(size) < 1e25 and np.isfinite(driven.channel(centre, u)).all()):
        return "Regional contraction is open: the weights are too large for the computation."
    if not size < 0:
        return f"Regional contraction is open: the equilibrium found is not stable (excess {size:.3g})."
    return None


def _widest(
    driven: DrivenSystem, centre: Array, u: Array, bound: float, rate: float, deadline: Deadline
) -> Claim | None:
    """Return the widest proved region: the reach of the channels grows while the inequality holds, then is bisected."""
    middle = driven.channel(centre, u)
    weights, best, low, high = np.ones(len(middle)), None, 0.0, math.inf
    reach = 0.25
    for rounds in range(24):
        if deadline.over:
            break
        claim, shape = _attempt(driven, centre, u, bound, rate, middle, reach * weights, deadline)
        if claim is not None and (best is None or _radius(claim) > _radius(best)):
            best = claim
        if shape is None and deadline.cut:
            break
        if shape is None:
            high = reach
        else:
            low = reach
            weights = shape if rounds < 3 else np.sqrt(weights * shape)  # the box takes the ellipsoid's shape
            high = math.inf if rounds < 3 else high
        reach = 2.0 * low if math.isinf(high) else (0.25 * high if low == 0.0 else math.sqrt(low * high))
        if high < 1.02 * low or not 1e-9 < reach < 1e3:
            break
    return best


def _radius(claim: Claim) -> float:
    return 0.0 if claim.proof is None else float(claim.proof.data["radius"])


def _attempt(
    driven: DrivenSystem,
    centre: Array,
    u: Array,
    bound: float,
    rate: float,
    middle: Array,
    swing: Array,
    deadline: Deadline,
) -> tuple[Claim | None, Array | None]:
    """Solve one inequality, with the slopes of states that move the channels by at most ``swing``.

    Returns:
        The claim where the rule accepts it; the shape of the ellipsoid in the channels where the inequality
        holds.
    """
    system = driven.system
    turn = np.abs(driven.E).sum(axis=1) * bound
    gain = np.abs(system.D) * np.maximum(np.abs(system.alpha), np.abs(system.beta))[None, :]
    slopes = slope_range(driven.activation, middle, np.linalg.solve(np.eye(len(middle)) - gain, swing + turn))
    if not all(np.isfinite(s).all() for s in slopes):
        return None, None
    inner = regional_system(system, *slopes)
    finding = multiplier_criterion(inner, rate=rate, solver="riccati", time_limit=deadline)
    if not finding.holds or not finding.witness:
        return None, None
    P, L = np.asarray(finding.witness["P"]), np.asarray(finding.witness["L"])
    spread = np.sqrt(np.maximum(np.einsum("ij,ji->i", system.C, np.linalg.solve(P, system.C.T)), 0.0))
    shape = np.maximum(spread / max(float(spread.max()), 1e-300), 1e-3)
    level = float(((swing / np.maximum(spread, 1e-300)) ** 2).min()) * (1 - 1e-6)
    eigenvalues = np.linalg.eigvalsh(P)
    p_min, p_max = float(eigenvalues[0]) * (1 - 1e-9), float(eigenvalues[-1]) * (1 + 1e-9)
    if not (p_min > 0 and level > 0):
        return None, shape
    data = {
        "P": P,
        "L": L,
        "rate": rate,
        "overshoot": math.sqrt(p_max / p_min) * (1 + 1e-12),
        "p_min": p_min,
        "p_max": p_max,
        "level": level,
        "radius": math.sqrt(level / p_max) * (1 - 1e-12),
        "centre": centre,
        "input": u,
        "input_bound": bound,
    }
    return accepted_claim(driven, "regional_lmi", data), shape
