r"""Theorems ``run_lmi``, ``run_equilibrium``, ``run_bounds``: contraction under inputs in a box, near one trajectory.

The sets of ``absorbing_sets`` enclose every trajectory, and are wide where runs are narrow: what keeps them wide is
that a bound for all trajectories feeds on itself. One run ``y`` per sequence of inputs can be followed more closely. It
starts in the middle of a box ``R``; zonotopes from ``R`` are inside of ``R`` again after every number of steps from
``turns`` to ``2 turns - 1``, hence after every number from ``turns`` on, for each is a sum of such numbers. So from
step ``turns + settling`` on the run lies in the zonotope that follows ``R`` after ``settling`` steps.

For any other trajectory ``x`` under the same inputs the difference ``d = x - y`` obeys

.. math:: d^+ = A d + B K C d, \qquad K = \operatorname{diag}(k_i), \quad
          k_i = \frac{\phi(z_i) - \phi(v_i)}{z_i - v_i},

``z`` in the sets of all trajectories and ``v`` in those of the run, which leaves each ``k_i`` an interval that is far
smaller than that of two trajectories in the sets (``secants_between``). The multiplier inequality with these intervals
(``entry_P``, ``entry_L``, ``entry_rate``) draws every trajectory to the run: from what the two can be apart at first,

.. math:: |d(k)| \le \sqrt{p_{max} / p_{min}}\, \rho^k |d(0)| \le \text{near} \quad\text{for}\quad k = \text{waits}.

From then on all trajectories have the pre-activations of the run up to ``|C_i| near``, and ``driven_lmi`` holds there.
"""

from __future__ import annotations

import numpy as np

from stability.errors import StabilityError
from stability.kernel.arithmetic.activation_bounds import secants_between
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import has_feedthrough, system_balls
from stability.kernel.arithmetic.definiteness import spectral_bounds
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import euclidean_norms
from stability.kernel.format.fields import Channels, Count, Metric, Number, Refused, State, require, require_definite
from stability.kernel.format.sentences import decays
from stability.kernel.format.theorem_table import certifies, reason_of
from stability.kernel.reachability.invariant_zonotope import InvariantZonotope
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.lure import LureSystem
from stability.kernel.theorems.absorbing_sets import Absorbed, Sets, why_no_zonotopes
from stability.kernel.theorems.driven_bounds import DrivenBounds
from stability.kernel.theorems.driven_lmi import SIZE, DrivenEquilibrium, DrivenLmi
from stability.kernel.theorems.multiplier_lmi import check_lmi, no_decay
from stability.kernel.theorems.regional_lmi import regional_system

Array = np.ndarray
MOST_TURNS, MOST_SETTLING, MOST_WAITS = 50, 100, 10**6
"""Largest numbers of steps that a file may ask of the checker (waiting costs nothing)."""
RUN = "run_low and run_high must be vectors of {n} entries with run_low <= run_high"


def why_no_run(subject: DrivenSystem) -> str | None:
    """Return the reason why no run of this network is enclosed, or ``None``."""
    if activation(subject.activation).width is None:
        return f"this proof needs a bounded smooth activation, which {subject.activation} is not"
    if subject.is_discrete and has_feedthrough(subject.system):
        return "this proof is about networks without feedthrough (D = 0)"
    return why_no_zonotopes(subject)


def zonotopes_from_box(
    subject: DrivenSystem, box: tuple[Array, Array], run: tuple[Array, Array], steps: int
) -> InvariantZonotope:
    """Return zonotopes from a box of states for inputs in ``box``; during ``steps`` none is wider than necessary."""
    low, high = run
    return InvariantZonotope(subject, *box, high, steps, -low, stays=False)


def difference_system(subject: DrivenSystem, sets: Sets, run: Sets) -> LureSystem:
    """Return the system of the difference between any trajectory in the sets and a run, with quotients as slopes.

    Raises:
        Refused: they make no system.
    """
    low, high = secants_between(subject.activation, (run.low, run.high), (sets.low, sets.high))
    try:
        return regional_system(subject.system, low, high)
    except StabilityError as error:
        raise Refused(f"no system with the slopes between the sets and the run: {error}") from error


def distance_bound(sets: Sets, run: Sets) -> float:
    """Bound the Euclidean distance of a state in the sets from one of the run, rounded up."""
    (low, high), (least, most) = sets.states, run.states
    return float(euclidean_norms(np.nextafter(np.maximum(high - least, most - low), np.inf))) * (
        1 + (len(low) + 8) * EPS
    )


def neighborhood_bounds(subject: DrivenSystem, sets: Sets, run: Sets, near: float) -> Sets:
    """Bound every trajectory that is within ``near`` of the run and in the sets."""
    C = system_balls(subject.system)[2].upper()
    more = np.nextafter(euclidean_norms(C) * (1 + (C.shape[1] + 8) * EPS) * near, np.inf)
    low = np.maximum(sets.low, np.nextafter(run.low - more, -np.inf))
    high = np.minimum(sets.high, np.nextafter(run.high + more, np.inf))
    least = np.maximum(sets.states[0], np.nextafter(run.states[0] - near, -np.inf))
    most = np.minimum(sets.states[1], np.nextafter(run.states[1] + near, np.inf))
    return Sets(low, high, (least, most))


class NearRun(Absorbed):
    """Data near a run. ``run_low``, ``run_high`` (n,): the box of the run; ``entry_P`` (n, n), ``entry_L`` (m,),
    ``entry_rate``: the contraction towards it, with ``entry_least I < entry_P < entry_top I``; ``near``: the distance
    after ``waits`` steps.
    """

    run_low: State
    run_high: State
    turns: Count
    settling: Count
    entry_P: Metric
    entry_L: Channels
    entry_rate: Number
    entry_least: Number
    entry_top: Number
    near: Number
    waits: Count

    @property
    def settled(self) -> int:
        """Return the steps from the first box to the sets near the run."""
        return max(super().settled, self.turns + self.settling) + self.waits

    def enclosed(self, subject: DrivenSystem) -> Sets:
        """Bound pre-activations and states once every trajectory is near the run.

        Raises:
            Refused: it is not proved, or the data ask for more than a checker does.
        """
        sets = super().enclosed(subject)
        run = self._run(subject)
        require(decays(self.entry_rate, True), no_decay(self.entry_rate))
        reason_of(check_lmi(difference_system(subject, sets, run), self.entry_P, self.entry_L, self.entry_rate))
        require(0.0 < self.entry_least <= self.entry_top, "entry_least and entry_top must satisfy 0 < least <= top")
        bounds = spectral_bounds(self.entry_P, self.entry_least, self.entry_top)
        require_definite(bounds, "entry_P does not lie between entry_least and entry_top")
        require(self.waits <= MOST_WAITS and self.near >= 1e-100, "near is too small or waits are too many")
        fits = (
            distance_after(distance_bound(sets, run), self.entry_least, self.entry_top, self.entry_rate, self.waits)
            <= self.near
        )
        require(fits, "not every trajectory is proved to be near the run after so many steps")
        out = neighborhood_bounds(subject, sets, run, self.near)
        empty = (out.low > out.high).any() or (out.states[0] > out.states[1]).any()
        require(not empty, "the sets are empty: that cannot be")
        return out

    def _run(self, subject: DrivenSystem) -> Sets:
        """Enclose the run ``turns + settling`` steps after its start in the middle of its box.

        Raises:
            Refused: it is not proved to stay in its box.
        """
        require((self.run_low <= self.run_high).all(), RUN.format(n=subject.states))
        require(self.turns <= MOST_TURNS and self.settling <= MOST_SETTLING, "more steps than this checker makes")
        steps = max(2 * self.turns - 1, self.settling)
        tube, enclosure = zonotopes_from_box(subject, (self.low, self.high), (self.run_low, self.run_high), steps), None
        for k in range(1, steps + 1):
            tube.step()
            states = tube.states()
            require((states[0] <= states[1]).all(), "the sets are empty: that cannot be")
            require(np.isfinite(tube.low).all() and np.isfinite(tube.high).all(), "the sets have no finite bounds")
            if self.turns <= k < 2 * self.turns:
                require(contains_box(states, (self.run_low, self.run_high)), "the run may leave its box")
            if k == self.settling:
                enclosure = Sets(tube.low, tube.high, states)
        assert enclosure is not None  # settling is positive
        return enclosure


def contains_box(states: tuple[Array, Array], box: tuple[Array, Array]) -> bool:
    """Return True if a box contains another one."""
    return bool((box[0] <= states[0]).all() and (states[1] <= box[1]).all())


def distance_after(distance: float, least: float, top: float, rate: float, steps: int) -> float:
    """Return ``sqrt(top / least) rate^steps distance``, rounded up."""
    return float(np.sqrt(top / least) * np.float64(rate) ** steps * distance * (1 + 1e-12))


@certifies("run_lmi", subject=DrivenSystem, claim="driven_contraction", value="rate", unfit=why_no_run, size=SIZE)
class RunLmi(NearRun, DrivenLmi):
    """Data of ``driven_lmi``, on the bounds near the run."""


@certifies("run_equilibrium", subject=DrivenSystem, claim="equilibrium_in_box", unfit=why_no_run, size=SIZE)
class RunEquilibrium(NearRun, DrivenEquilibrium):
    """Data of ``run_lmi``."""


@certifies("run_bounds", subject=DrivenSystem, claim="bounded_in_box", value="diagonal", unfit=why_no_run, size=SIZE)
class RunBounds(NearRun, DrivenBounds):
    """Data of ``driven_bounds``, with the bounds near the run."""
