r"""Absorbing sets under inputs in a box: recomputed by the checker, shared by several theorems.

The network ``x+ = A x + B phi(C x + E u + b) + F u`` has a bounded activation, :math:`|\phi| \le \bar\phi`, and inputs
:math:`u_j \in [l_j, h_j]`. With :math:`s = |B| \bar\phi + |F| \max(|l|, |h|)` and ``r > 0``

.. math:: |A| r \le q\, r, \qquad |A| r + s \le r

make :math:`V = \max_i |x_i| / r_i` obey :math:`V^+ - 1 \le q (V - 1)` above one: the box
:math:`|x_i| \le (1 + \eta) r_i` is never left, and entered from anywhere: after one step where ``A = 0``, else after
:math:`\lceil \log((V_0 - 1) / \eta) / \log(1 / q) \rceil` steps. If ``A`` contracts but ``|A|`` does not, an ellipsoid
replaces this box. Let ``b`` bound the absolute entries of :math:`(\phi, u)`, which ``G = [B, F]`` multiplies. With
:math:`\sum_j \tau_j b_j^2 \le 1` and

.. math:: q^{-1} A Y A^T + (1 - q)^{-1} G \operatorname{diag}(\tau)^{-1} G^T < Y

:math:`V = x^T Y^{-1} x` obeys :math:`V^+ - 1 \le q (V - 1)`, and the box is the one around ``V <= 1``. Zonotopes
(``invariant_zonotope``) then enclose the pre-activations at all times from ``steps`` steps later on. Linear bounds
traced back through several steps (``backward_bounds``), as often as ``backward`` says, tighten these ranges. All
bounds are rounded outwards.

For an activation without a bound (ReLU) the box is :math:`-v_i \le x_i \le r_i`, with ``falls`` for ``v``, and follows
from the signs of the weights (``kernel/theorems/decaying_boxes.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.balls import Ball, has_feedthrough, system_balls
from stability.kernel.arithmetic.definiteness import prove_positive_definite
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.format.fields import (
    LIMIT,
    AnyArray,
    Count,
    Input,
    Metric,
    Number,
    ProofData,
    Refused,
    State,
    require,
)
from stability.kernel.format.sentences import at_most, entry_time, exact_text
from stability.kernel.reachability.backward_bounds import BackwardBounds, Schedule, steps_made
from stability.kernel.reachability.invariant_zonotope import InvariantZonotope
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.theorems.bounded import forced_ellipsoid, forcing_bounds, prove_ball_positive
from stability.kernel.theorems.decaying_boxes import is_unbounded, signed_balance

MOST_STEPS, MOST_WINDOW = 2000, 200  # limits on the work of the checker
MOST_ROUNDS, MOST_DEPTH, MOST_SWEEPS, MOST_HISTORIES = 1000, 64, 16, 256
"""Limits on the schedules of linear bounds that the checker accepts."""
ROWS = "backward must hold whole numbers, (rounds, depth, sweeps, cells, memory) in each row"
BOX = "low and high must be vectors of {p} entries with low <= high"
Array = np.ndarray


def why_no_zonotopes(subject: DrivenSystem) -> str | None:
    """Return the reason why this proof by zonotopes does not cover a network, or ``None`` if it does."""
    if not subject.is_discrete:
        return "this proof covers networks in discrete time only"
    if is_unbounded(subject.activation) and has_feedthrough(subject.system):
        return "with an unbounded activation this proof covers networks without feedthrough (D = 0) only"
    return None


@dataclass(frozen=True, eq=False)
class Sets:
    """Bounds of all trajectories from a known step on.

    Attributes:
        low: ``(m,)`` lower bounds of the pre-activations.
        high: ``(m,)`` upper bounds.
        states: lower and upper bounds ``(n,)`` of the states.
    """

    low: Array
    high: Array
    states: tuple[Array, Array]


class Absorbed(ProofData):
    """Data of absorbing sets, in the notation of the module.

    Attributes:
        low: ``(p,)`` lower ends of the inputs.
        high: ``(p,)`` upper ends.
        r: ``(n,)`` half-widths of the box of states, or its upper ends if ``falls`` is given.
        share: ``q``.
        room: ``eta``.
        steps: steps of the zonotopes.
        window: steps that keep the zonotopes' generators.
        backward: ``(k, 5)``; a row holds rounds, depth, sweeps, cells and memory of linear bounds.
        Y: ``(n, n)`` matrix of the ellipsoid, if there is one.
        tau: ``(m,)`` or ``(m + p,)`` weights of the ellipsoid.
        falls: ``(n,)`` the box of states begins at ``-falls``.
    """

    low: Annotated[Input, BOX]
    high: Annotated[Input, BOX]
    r: State
    share: Number
    room: Number
    steps: Count
    window: Count
    backward: AnyArray | None = None
    Y: Metric | None = None
    tau: AnyArray | None = None
    falls: State | None = None

    @property
    def settled(self) -> int:
        """Return the number of steps from the first box to the last sets."""
        return steps_made(self.steps, self.backward)

    def entry(self, levels: int = 1) -> str:
        """State the step from which the claim holds, of a network or of a stack of levels."""
        if self.share == 0.0:
            return f"Here K = {self.settled + levels} for all initial states."
        size = "|s_i| / r_i", "r"
        if self.falls is not None:
            size = "s_i / r_i or -s_i / falls_i", "r and falls"
        if self.Y is not None:
            size = "s^T Y^-1 s", "Y"
        steps = f"ceil(log((V - 1) / {exact_text(self.room)}) / log(1 / {at_most(self.share, near=1.0)}))"
        return entry_time("K", f"{self.settled + levels - 1}", steps, size, self.room)

    def enclosed(self, subject: DrivenSystem) -> Sets:
        """Bound pre-activations and states once the sets have settled.

        Raises:
            Refused: the sets are not proved, or the data exceed the limits of the checker.
        """
        require((self.low <= self.high).all(), BOX.format(p=subject.inputs))
        require(self.steps <= MOST_STEPS and self.window <= MOST_WINDOW, "more steps than the checker's limit")
        self._absorbs(subject)
        box = wide_box(self.r, self.room), None if self.falls is None else wide_box(self.falls, self.room)
        tube = InvariantZonotope(subject, self.low, self.high, box[0], self.window, box[1])
        for _ in range(self.steps):
            tube.step()
            require(np.isfinite(tube.low).all() and np.isfinite(tube.high).all(), "the sets have no finite bounds")
        states = bounds_in_invariant_box(*box, tube.states())
        bounds = BackwardBounds(subject, self.low, self.high, (tube.low, tube.high), states)
        schedules = self._schedules()
        require(not (schedules and has_feedthrough(subject.system)), "bounds are not traced back through feedthrough")
        for schedule in schedules:
            fits = schedule.histories(subject.inputs) <= MOST_HISTORIES and schedule.memory <= schedule.depth
            require(fits, "more histories of inputs than the checker's limit")
            bounds.follow(schedule)
        require((bounds.low <= bounds.high).all(), "lower bounds exceed upper bounds: the sets would be empty")
        return Sets(bounds.low, bounds.high, bounds.states)

    def _schedules(self) -> list[Schedule]:
        """Return the rows of ``backward``.

        Raises:
            Refused: they are malformed, or exceed the limits of the checker.
        """
        rows = np.zeros((0, 5)) if self.backward is None else self.backward
        require(rows.ndim == 2 and rows.shape[1:] == (5,) and len(rows) <= 16, ROWS)
        most = np.array([MOST_ROUNDS, MOST_DEPTH, MOST_SWEEPS, MOST_HISTORIES, MOST_DEPTH])
        require((rows == np.floor(rows)).all() and (rows >= (0, 1, 0, 1, 0)).all() and (rows <= most).all(), ROWS)
        return [Schedule(*(int(entry) for entry in row)) for row in rows]

    def _absorbs(self, subject: DrivenSystem) -> None:
        """Prove that every trajectory enters the box, and none leaves it.

        Raises:
            Refused: it is not proved.
        """
        r, q = self.r, self.share
        require((r > 0).all(), "r must be positive")
        words = "share must lie in [0, 1) and room in (0, 1], or both must be zero"
        require(0.0 <= q < 1.0 and 0.0 <= self.room <= 1.0 and (self.room > 0.0 or q == 0.0), words)
        require((1.0 + self.room) - 1.0 == self.room, "(1 + room) - 1 must equal room in float64")
        if self.falls is not None:
            self._by_signs(subject, self.falls)
            return
        require(not is_unbounded(subject.activation), "an activation without a bound needs falls")
        if self.Y is not None or self.tau is not None:
            self._in_ellipsoid(subject)
            return
        kept, added = box_balance(subject, r, self.low, self.high)
        require((kept <= q * r * (1 - 1e-15)).all() if q else not kept.any(), "|A| r is not proved within share r")
        require((kept + added <= r * (1 - 1e-15)).all(), "a step may leave the box")

    def _by_signs(self, subject: DrivenSystem, falls: Array) -> None:
        """Prove that every trajectory enters ``-falls <= x <= r``, and none leaves it, by the signs of the weights.

        Raises:
            Refused: it is not proved.
        """
        require(self.Y is None and self.tau is None, "falls and an ellipsoid (Y, tau) exclude each other")
        require(bool(activation(subject.activation).pieces), "falls are for piecewise linear activations")
        require(not has_feedthrough(subject.system), "falls are for networks without feedthrough")
        require((falls > 0).all() and self.share > 0.0, "falls and share must be positive")
        kept, added = signed_balance(subject, self.r, falls, self.low, self.high)
        for side, own, more in zip((self.r, falls), kept, added):
            require((own <= self.share * side * (1 - 1e-15)).all(), "the weights are not proved to contract by share")
            require((own + more <= side * (1 - 1e-15)).all(), "a step may leave the box")

    def _in_ellipsoid(self, subject: DrivenSystem) -> None:
        """Prove that every trajectory enters ``x^T Y^-1 x <= 1 + room``, and that the box is around it.

        Raises:
            Refused: it is not proved.
        """
        Y, tau, q = self.Y, self.tau, self.share
        if Y is None or tau is None:
            raise Refused("Y and tau belong together")
        G, bounds = forcing_bounds(subject, np.maximum(np.abs(self.low), np.abs(self.high)))
        words = "tau must hold one positive number per activation and per input that enters the state"
        require(tau.shape == bounds.shape and (tau > 0).all() and (tau <= LIMIT).all(), words)
        require(q > 1e-30, "with an ellipsoid share must be positive")
        reach = forced_ellipsoid(G, bounds, tau)
        require(prove_positive_definite(Y).holds, "Y is not proved positive definite")
        A = system_balls(subject.system)[0]
        state_weight, reach_weight = (Ball(np.array(1.0 / v), np.array(8 * EPS / v)) for v in (q, 1.0 - q))
        slack = Y - state_weight * (A @ (Y @ A.T)) - reach_weight * reach
        require(prove_ball_positive(slack), "a step may leave the ellipsoid: its inequality is not proved")
        require((self.r * self.r * (1 - 4 * EPS) >= np.diagonal(Y)).all(), "the box does not contain the ellipsoid")


def wide_box(r: Array, room: float) -> Array:
    """Return ``(1 + room) r``, the half-widths of the box that trajectories enter in finite time, rounded up."""
    return np.nextafter((1.0 + room) * r, np.inf) if room else r


def bounds_in_invariant_box(box: Array, below: Array | None, states: tuple[Array, Array]) -> tuple[Array, Array]:
    """Intersect bounds of the states with the invariant box ``[-below, box]``, by default ``[-box, box]``."""
    return np.maximum(states[0], -(box if below is None else below)), np.minimum(states[1], box)


def box_balance(subject: DrivenSystem, r: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return upper bounds of ``|A| r`` and of ``s``, the terms that activation and inputs add to each state."""
    A, B, _, _ = system_balls(subject.system)
    kept = (Ball.exact(A.upper()) @ r).upper() if A.mid.any() or A.rad.any() else np.zeros(subject.states)
    bound = np.full(subject.system.channels, activation(subject.activation).bound)
    largest = np.maximum(np.abs(low), np.abs(high))
    added = Ball.exact(B.upper()) @ bound + Ball.exact(np.abs(subject.F)) @ largest
    return kept, added.upper()
