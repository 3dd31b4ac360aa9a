r"""Schur test: contraction by comparison with a non-negative system.

Write the centered loop (``loop_transformation``) as :math:`d^+ = A d + B \delta`, :math:`y = C d + D \delta`,
:math:`|\delta_k| \le |y_k|`, and let bars denote entrywise absolute values (in continuous time :math:`\bar A` keeps the
signs of the diagonal). With the comparison matrix

.. math:: M = \bar A + \bar B (I - \bar D)^{-1} \bar C

and any level :math:`\nu` above its largest eigenvalue (its spectral radius; in continuous time :math:`\nu = -\lambda`),

.. math:: u = (\nu I - M)^{-1} r, \quad v = (\nu I - M^T)^{-1} r', \quad s = (I - \bar D)^{-1} \bar C u, \quad
          t = (I - \bar D^T)^{-1} \bar B^T v

are positive for positive right-hand sides. Then ``P = diag(v / u)`` with ``2 L = diag(t / s)`` (times the rate in
discrete time) satisfies the multiplier inequality at every rate slower than that of :math:`\nu`: each square of a sum
is bounded by the Cauchy-Schwarz inequality with the weights u and s, as in Schur's test for the norm of an integral
operator. For the map :math:`x^+ = \phi(W x)` with slopes in [0, 1] the matrix M is :math:`|W|`. The test is exact for W
that is triangular, or non-negative up to a change of signs of states.

The same argument holds for groups of states and channels, with norms of blocks in place of absolute values. A single
group gives ``P = I`` and the norm of W. With the strongly connected components as groups, components in series are
combined.

Source: I. Schur, Bemerkungen zur Theorie der beschränkten Bilinearformen mit unendlich vielen Veränderlichen, J. reine
angew. Math. 140 (1911); the weights are those of E. Gagliardo (1965).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from stability.certificate import Finding
from stability.kernel.systems.lure import LureSystem
from stability.search.criteria.witness import Witness, guarded_criterion, prove_witness
from stability.search.solvers.deadline import TOO_LATE, Deadline, TimeLimit
from stability.search.solvers.loop_transformation import (
    centered_loop,
    completed_multipliers,
    fixed_channels,
    multiply_diagonal,
)
from stability.search.solvers.nonnegative_matrices import (
    ComparisonMatrix,
    Groups,
    block_sizes,
    channel_layers,
    norms_may_suffice,
    ordered_components,
    renumbered_groups,
)
from stability.search.solvers.rates import Rate, bisect, parse_rate, start_rate
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_MOST_OVERSHOOT = 1e4
"""Limit of the overshoot of the best rate, or ten times the overshoot of half the exponent if that is larger: in a
reducible network the fastest rates need unbounded overshoots.
"""
_QUICK, _PARTS = 200, 512  # most states for the test by norms without a pre-test, and for the test by components
_HALVINGS = 10  # bisection steps for the rate of the largest allowed overshoot


@dataclass(frozen=True, eq=False)
class SchurTest:
    """Comparison matrix for one choice of groups of states and channels.

    Attributes:
        system: the system.
        fixed: ``(m,)`` True for channels with a single slope, which bring no uncertainty.
        states, channels: number of the group of every state and of every other channel.
        B, C: non-negative comparison matrices between the groups.
        through: ``(I - D)^{-1}`` between the groups of channels.
        comparison: the matrix M.
        words: description of the comparison.
    """

    system: LureSystem
    fixed: Array
    states: Array
    channels: Array
    B: Array
    C: Array
    through: Array | None
    comparison: ComparisonMatrix
    words: str

    @property
    def top(self) -> float:
        """Largest eigenvalue of M, a bound of the rate: every slower rate is proved, up to rounding."""
        return self.comparison.top

    def rate(self, level: float) -> float:
        """Return the rate of a level: ``rho`` itself, ``lambda = -level``."""
        return level if self.system.is_discrete else -level

    def vectors(self, level: float) -> tuple[Array, Array]:
        """Return ``u`` and ``v`` at a level."""
        ones = np.ones(len(self.comparison.matrix))
        return self.comparison.solve(level, ones), self.comparison.solve_transposed(level, ones)

    def overshoot(self, level: float) -> float:
        """Return ``sqrt(max P / min P)`` at a level."""
        u, v = self.vectors(level)
        p = v / u
        return float(np.sqrt(p.max() / p.min())) if (p > 0).all() and np.isfinite(p).all() else np.inf

    def witness(self, level: float, rate: float) -> Witness:
        """Return the proved witness at a rate, from u and v at a level between ``top`` and that of the rate."""
        u, v = self.vectors(level)
        target = rate if self.system.is_discrete else -rate
        with np.errstate(all="ignore"):
            s, t = self._channels(u, v, target - level)
            p = v / u
            unit = np.exp(-0.5 * (np.log(p.max()) + np.log(p.min())))
            P = np.diag((unit * p)[self.states])
            L = np.zeros(self.system.channels)
            L[~self.fixed] = 0.5 * unit * (rate if self.system.is_discrete else 1.0) * (t / s)[self.channels]
        if not (np.isfinite(P).all() and np.isfinite(L).all()):
            return Witness()
        for full in completed_multipliers(self.system, P, L, rate, self.fixed):
            witness = prove_witness(self.system, P, full, rate)
            if witness:
                return witness
        return Witness()

    def _channels(self, u: Array, v: Array, slack: float) -> tuple[Array, Array]:
        """Return ``s`` and ``t``, enlarged by their part of the slack between level and rate."""
        through = np.eye(len(self.C)) if self.through is None else self.through
        s, t = through @ (self.C @ u), through.T @ (self.B.T @ v)
        most = max(float((self.B @ s / u).max(initial=0.0)), float((self.C.T @ t / v).max(initial=0.0)))
        share = min(0.5 * slack / most, 1.0) if most > 0.0 else 1.0
        floor = 0.1 * slack / max(len(s), 1)  # s and t must be positive also for channels without input or effect
        return (
            np.maximum((1.0 + share) * s, floor * _smallest_ratio(u, self.B.T)),
            np.maximum((1.0 + share) * t, floor * _smallest_ratio(v, self.C)),
        )


def _smallest_ratio(weights: Array, rows: Array) -> Array:
    """Return ``min_i weights_i / rows_ki`` over the nonzero entries of each row k, one for a zero row."""
    with np.errstate(divide="ignore"):
        ratios = (weights / rows).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(ratios), ratios, 1.0)


def schur_tests(system: LureSystem, enough: float = np.inf) -> Iterator[SchurTest]:
    """Yield the useful tests: a single group (norms), entries, then the strongly connected components.

    Args:
        system: the system.
        enough: tests with a ``top`` of at least this are left out.

    Yields:
        Tests with a finite limit.

    Example:
        >>> system = LureSystem(np.zeros((2, 2)), np.eye(2), [[0.5, 9.0], [0.0, -0.25]], dt=1.0)
        >>> [round(test.top, 6) for test in schur_tests(system, 1.0)]  # spectral radius of |W|, whose norm is above one
        [0.5]
    """
    fixed = fixed_channels(system)
    loop = centered_loop(system).restricted(~fixed)
    if not all(np.isfinite(x).all() for x in loop.matrices):
        return
    n, m = loop.B.shape
    one, layers = np.zeros(n, dtype=int), renumbered_groups(channel_layers(system.D)[~fixed])
    if layers.any():  # remove rounding errors of centering: channels read only earlier layers
        loop = replace(loop, D=np.where(layers[:, None] > layers[None, :], loop.D, 0.0))
    if n > 1 and (n <= _QUICK or norms_may_suffice(loop, enough)):
        yield from _group_tests(system, fixed, loop, (one, layers), (one, np.zeros(m, dtype=int)), enough, "norms")
    entries = (np.arange(n), np.arange(m))
    tests = _group_tests(system, fixed, loop, entries, entries, enough, "absolute values")
    yield from tests
    if not tests and n <= _PARTS:
        yield from _component_tests(system, fixed, loop, layers, enough)


def _component_tests(
    system: LureSystem, fixed: Array, loop: StateSpace, layers: Array, enough: float
) -> list[SchurTest]:
    """Return the tests with strongly connected components as groups, if norms are better than entries for some."""
    n, m = loop.B.shape
    parts = ordered_components((np.block([[loop.A, loop.B], [loop.C, loop.D]]) != 0.0) | np.eye(n + m, dtype=bool))
    if len(parts) <= 1 or not any((part < n).sum() > 1 for part in parts):
        return []
    states, channels, belongs = np.arange(n), np.arange(m), np.empty(n + m, dtype=int)
    for k, part in enumerate(parts):
        belongs[part] = k
        x, w = part[part < n], part[part >= n] - n
        if len(x) > 1 and _rate_limit(loop, x, w, None) > _rate_limit(loop, x, w, layers):
            states[x] = x[0]
            for layer in np.unique(layers[w]):
                channels[w[layers[w] == layer]] = w[layers[w] == layer][0]
    labels = (renumbered_groups(states), renumbered_groups(channels))
    return _group_tests(system, fixed, loop, labels, (belongs[:n], belongs[n:]), enough, "norms of connected parts")


def _group_tests(
    system: LureSystem, fixed: Array, loop: StateSpace, labels: Groups, parts: Groups, enough: float, words: str
) -> list[SchurTest]:
    """Return the test of these groups, if its limit is below ``enough``."""
    sizes = block_sizes(loop, labels, parts)
    through, M = _comparison(*sizes)
    comparison = ComparisonMatrix(M, enough) if np.isfinite(M).all() else None
    if comparison is None or not comparison.top < enough:
        return []
    return [SchurTest(system, fixed, *labels, sizes[1], sizes[2], through, comparison, words)]


def _comparison(A: Array, B: Array, C: Array, D: Array) -> tuple[Array | None, Array]:
    """Return ``(I - D)^{-1}``, or ``None`` for the identity, and ``M``; not finite if ``I - D`` has no inverse >= 0."""
    if not D.any():
        return None, A + multiply_diagonal(B, C)
    inner = ComparisonMatrix(D, 1.0)
    if not inner.top < 1.0:
        return None, np.full_like(A, np.inf)
    through = inner.solve(1.0, np.eye(len(D)) + 1e-300)
    return through, A + B @ (through @ C)


def _rate_limit(loop: StateSpace, x: Array, w: Array, layers: Array | None) -> float:
    """Return ``top`` of one connected component, by entries or, given the layers, by norms."""
    A, B, C, D = loop.A[np.ix_(x, x)], loop.B[np.ix_(x, w)], loop.C[np.ix_(w, x)], loop.D[np.ix_(w, w)]
    part = StateSpace(A, B, C, D, loop.is_discrete)
    groups = (np.zeros(len(x), dtype=int), np.zeros(len(w), dtype=int))
    labels = (np.arange(len(x)), np.arange(len(w))) if layers is None else (groups[0], renumbered_groups(layers[w]))
    M = _comparison(*block_sizes(part, labels, groups))[1]
    return ComparisonMatrix(M).top if np.isfinite(M).all() else np.inf


@guarded_criterion("schur")
def schur_criterion(system: LureSystem, *, rate: Rate = "best", time_limit: TimeLimit = None) -> Finding:
    r"""Evaluate contraction by comparison with a non-negative system (Schur test); ``P`` is diagonal.

    For :math:`x^+ = \phi(W x)` with slopes in [0, 1] it holds whenever the spectral radius of :math:`|W|`, or the norm
    of W, is below one; this decides triangular and non-negative W.

    Args:
        system: a Lur'e system.
        rate: ``"best"`` (the best with a useful overshoot), ``"any"`` or a number: at least this rate.
        time_limit: seconds, or a deadline, respected between factorizations.

    Returns:
        A finding with margin ``1 - top`` or ``-top``, ``top`` the largest eigenvalue of the comparison matrix, and a
        witness ``{"P", "L"}`` proved at ``rate``.

    Raises:
        ConfigurationError: a bad rate or time limit.

    Source:
        See the module; the comparison argument is that of D. D. Šiljak, Large-Scale Dynamic Systems (1978).

    Cost:
        One comparison matrix and some products with vectors; a proof adds two linear systems and one check.

    Example:
        >>> W = np.triu(np.ones((12, 12)))
        >>> np.fill_diagonal(W, 0.9)
        >>> finding = schur_criterion(LureSystem(np.zeros((12, 12)), np.eye(12), W, dt=1.0), rate=0.95)
        >>> finding.holds, round(finding.margin, 6), finding.rate
        (True, 0.1, 0.95)
    """
    rate = parse_rate(rate, system)
    deadline = Deadline.from_limit(time_limit).named("schur")
    start = start_rate(system)
    target = start if isinstance(rate, str) else rate if system.is_discrete else -rate
    tests: Iterable[SchurTest] = schur_tests(system, target)
    if rate == "best":
        tests = sorted(tests, key=lambda test: round(test.top, 9))  # stable: norms have the smaller overshoot
    first: SchurTest | None = None
    for test in tests:
        first = first or test
        if rate == "best":
            witness = _fastest_witness(test, start, deadline)
        else:
            witness = _inner_witness(test, target, deadline, exactly=target != start)
        if witness:
            return Finding("schur", True, start - test.top, _detail(test), witness.rate, witness.data)
        if deadline.over:
            return Finding("schur", False, start - test.top, f"{_detail(test)}; {TOO_LATE}")
    if first is None:
        words = "neither norms nor absolute values of the weights are small enough"
        return Finding("schur", False, None, words)
    return Finding("schur", False, start - first.top, f"{_detail(first)}; the margin is within rounding errors")


def _detail(test: SchurTest) -> str:
    return f"{test.words}: spectral {'radius' if test.system.is_discrete else 'abscissa'} {test.top:.6g}"


def _inner_witness(test: SchurTest, limit: float, deadline: Deadline, exactly: bool = False) -> Witness:
    """Return a witness of the rate ``limit`` or of a faster one, with a level that gives a small overshoot."""
    distance = limit - test.top
    for level, inside in ((0.7, 0.9), (0.5, 0.95), (0.3, 0.99)):
        if deadline.over:
            break
        rate = limit if exactly else test.top + inside * distance
        witness = test.witness(test.top + level * distance, test.rate(rate))
        if witness:
            return witness
    return Witness()


def _fastest_witness(test: SchurTest, start: float, deadline: Deadline) -> Witness:
    """Return the witness of the fastest rate with a useful overshoot."""
    distance = start - test.top
    most = max(_MOST_OVERSHOOT, 10.0 * test.overshoot(test.top + 0.5 * distance))
    size = float(np.abs(test.comparison.matrix).max())
    least = max(1e-9, 1e-12 * size / distance)  # smallest share that changes the level in floating point
    high = min(least, 0.5)
    if test.overshoot(test.top + high * distance) > most:

        def useful(log_share: float) -> bool:
            return test.overshoot(test.top + np.exp(log_share) * distance) <= most

        small, half = float(np.log(high)), float(np.log(0.5))
        high = float(np.exp(bisect(useful, half, small, (half - small) * 2.0**-_HALVINGS * (1.0 + 1e-6), deadline)))
    while high < 0.5 and not deadline.over:
        witness = test.witness(test.top + high * distance, test.rate(test.top + 1.01 * high * distance))
        if not witness:
            witness = test.witness(test.top + high * distance, test.rate(test.top + 2.0 * high * distance))
        if witness:
            return witness
        high *= 10.0
    return _inner_witness(test, start, deadline)
