r"""Theorem ``local_ellipsoids``: no perturbation of an input within an l2 radius changes its class.

The checker runs the network on the input in floats and builds the tube of ``ellipsoid_tube`` around that run with
the proof's multipliers ``T``. How it comes to an ellipsoid ``Y+`` proves nothing; that it contains what it should is

.. math:: \begin{bmatrix} Y^+ - G Y G^T - B \rho T \rho B^T & G Y C^T \\ C Y G^T & T - C Y C^T \end{bmatrix} > 0

at every stage, proved with its rounding errors (Schur's complement gives the inequality of the tube). ``Y+`` is a
little larger than computed, so that this holds strictly.

The run of floats need not be one of the network: what a stage misses of the exact one is bounded entry by entry,
``|w_i| <= eta_i``, and counts as one more input. In a total budget its share :math:`s^2` of the squares is reserved for
each stage, and :math:`w w^T \le k \operatorname{diag}(\eta^2) = s^2 (k \operatorname{diag}(\eta^2) / s^2)` is added to
``Y+``; in a budget for each step, by :math:`(d + w)(d + w)^T \le (1 + \theta) d d^T + (1 + 1 / \theta) w w^T`. So the
errors of a step do not grow with the network's expansions more than perturbations do.

With ``weights`` in the place of ``T`` the tube is that of ``gated_tube``, for networks of gates: weights say
what is worth keeping small where ellipsoids are added.

A class that the tube leaves open is closed from its end: ``quadratic_lower_bound`` proves a quadratic function below
its margin, stage by stage, with the reaches of the tube, around an input that the proof names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma, prove_positive_definite
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Refused, require, required
from stability.kernel.format.theorem_table import certifies
from stability.kernel.reachability.ellipsoid_operations import half_widths
from stability.kernel.reachability.ellipsoid_tube import (
    ROOM,
    Local,
    append_input,
    local_slopes,
    next_ellipsoid,
    nominal_run,
    products,
    row_spread,
    stage_error,
)
from stability.kernel.reachability.gated_tube import bent_tube, linear_part
from stability.kernel.reachability.margin_loss import differences, margin_loss
from stability.kernel.reachability.network_stages import Stages, stages_of
from stability.kernel.reachability.quadratic_lower_bound import Passage, half_reach, proved_margin, reference
from stability.kernel.reachability.stages import Nominal, Stage
from stability.kernel.systems.classifier import Classifier
from stability.kernel.theorems.local_ball import LARGEST, LocalBall

Array = np.ndarray
_INFLATIONS = (1e-10, 1e-8, 1e-6)  # relative enlargements of an ellipsoid that are tried in turn
_THETA = 1e-11
"""Share of an ellipsoid, with budgets per step, reserved for the errors of a stage."""


@dataclass(frozen=True, eq=False)
class _Run:
    """Tube up to the final vector.

    Attributes:
        y: the vector at the end of the run of floats.
        ways: every stage.
        sides: half-widths of its entries.
        moves: ``(k,)`` what each logit can gain on that of the class.
        missed: error bound of the last stage.
    """

    y: Array
    ways: list[Passage]
    sides: Array
    moves: Array
    missed: Array


@certifies("local_ellipsoids", subject=Classifier, claim="local_robustness", value="radius")
class LocalEllipsoids(LocalBall):
    """Ball with multipliers ``T (T, m)`` of all channels of a step, stage by stage, or ``weights (T, k)`` of all
    outputs of the stages; ``tau (T,)`` for a budget in each step; for ``c`` classes that the tube leaves open:
    ``others (c,)``, their numbers, and for each a reference input ``points (c, T, p)``, ``prices (c,)``, or ``(c, T)``
    for a budget in each step, and ``sectors (c, T, m)``, see ``quadratic_lower_bound``.
    """

    T: AnyArray | None = None
    weights: AnyArray | None = None
    tau: AnyArray | None = None
    others: AnyArray | None = None
    points: AnyArray | None = None
    prices: AnyArray | None = None
    sectors: AnyArray | None = None

    measure: ClassVar[str] = "l2"

    def sentence(self, subject: Classifier, claim: Claim) -> str:
        return self.claimed(subject, self.tau is not None)

    def check(self, subject: Classifier, claim: Claim) -> str:
        self.require_ball(subject)
        self._require_sizes(subject)
        net = stages_of(subject)
        run = self._bent(net) if self.T is None else self._widened(net, self.T)
        slack = self._slack(subject, net.head, run)
        for k, other in enumerate(() if self.others is None else self.others.astype(int)):
            slack[other] = max(slack[other], self._from_its_end(subject, net, run, k))
        worst = int(np.argmin(slack))
        self.require_below(worst, slack[worst] > 0)
        return f"ellipsoids of {len(self.x)} steps keep every logit below that of class {self.label}"

    def _widened(self, net: Stages, multipliers: Array) -> _Run:
        """Return the tube of the multipliers."""
        room = ROOM * self.radius**2 / (4.0 * len(self.x) * len(net.stages))  # of the squares, for each stage
        y, shape = net.start, np.zeros((net.states, net.states))
        last: Any = None
        raised = 0  # of the inflations: what one stage needs, the next one needs, too
        missed, ways = np.zeros(net.states), list[Passage]()
        for t, u in enumerate(self.x):
            at = 0
            for stage in net.stages:
                if stage.fresh:
                    y = np.concatenate([y, u])
                    free = np.ones(len(u)) if self.mask is None else self.mask[t]
                    shape = append_input(shape, free, None if self.tau is None else self.tau[t])
                    if self.tau is not None:
                        _raise_diagonal(shape, 4 * len(shape) * EPS)  # the roundings of the division by shares
                nominal = stage.nominal(y)
                T = multipliers[t, at : at + len(stage.C)]
                at += len(stage.C)
                local, after, missed, raised = self._stage(stage, nominal, shape, T, room, f"step {t}", raised)
                last = (stage, nominal.rows, shape, local)
                ways.append(Passage(stage, y, half_reach(self.radius, shape), nominal.rows, local.reach, shape))
                y, shape = nominal.out, after
        moves = margin_loss(net.head, np.asarray(self.label), self.radius, shape, last)
        return _Run(y, ways, half_reach(self.radius, shape), moves, missed)

    def _bent(self, net: Stages) -> _Run:
        """Return the tube of the weights."""
        assert self.weights is not None
        run, free = nominal_run(net, self.x), np.ones(self.x.shape) if self.mask is None else self.mask
        ends = np.cumsum([len(stage.A) for stage in net.stages])[:-1]
        worth = [part for row in self.weights for part in np.split(row, ends)]
        tube = required(bent_tube(net, linear_part(net, self.x, run, free, worth), self.radius), "the tube diverges")
        return _Run(run[-1].out, tube.ways, tube.sides(), tube.margin_loss(net.head, self.label), 0.0 * run[-1].out)

    def _require_sizes(self, subject: Classifier) -> None:
        x, T, tau, weights, net = self.x, self.T, self.tau, self.weights, stages_of(subject)
        width, size = sum(len(stage.C) for stage in net.stages), sum(len(stage.A) for stage in net.stages)
        require((T is None) != (weights is None), "either T or weights must be there")
        if weights is not None:
            fits = weights.shape == (len(x), size) and bool(((weights >= 0) & (weights < LARGEST)).all())
            require(fits, f"weights must be {size} columns of numbers from zero")
            require(tau is None, "weights are for a total budget")
            self._require_closed(subject, width)
            return
        assert T is not None
        require(T.shape == (len(x), width) and bool((T > 0).all()), f"T must be positive and of {width} columns")
        require(tau is None or (tau.shape == (len(x),) and bool(((tau > 1e-9) & (tau < 1 - 1e-9)).all())),
                "tau must lie between 0 and 1, one for each step")  # fmt: skip
        self._require_closed(subject, width)

    def _require_closed(self, subject: Classifier, width: int) -> None:
        """Check the sizes of the data that close single classes."""
        x, others, points, prices, sectors = self.x, self.others, self.points, self.prices, self.sectors
        if others is None or points is None or prices is None or sectors is None:
            require(others is points is prices is sectors, "others, points, prices and sectors come together")
            return
        count = len(others) if others.ndim == 1 else -1
        require(0 < count <= subject.classes, "others must be some classes")
        names: list[int] = others.tolist()
        known = set(names) <= set(range(subject.classes)) and len(set(names)) == count
        require(known and self.label not in others, "others must be numbers of other classes, each once")
        free = np.ones(x.shape) if self.mask is None else self.mask
        fits = points.shape == (count, *x.shape) and bool((np.abs(points) < LARGEST).all())
        require(
            fits and bool(((points == x) | (free == 1.0)).all()), "points must be inputs that differ where x may change"
        )
        fits = prices.shape == ((count,) if self.tau is None else (count, len(x)))
        require(fits and bool(((prices > 0) & (prices < LARGEST**2)).all()), "prices must be positive, one for each")
        require(sectors.shape == (count, len(x), width) and bool((sectors > 0).all()), "sectors must be positive")

    def _from_its_end(self, subject: Classifier, net: Stages, run: _Run, k: int) -> float:
        """Bound the remaining margin to one of the ``others`` below."""
        closing: Any = (self.others, self.points, self.prices, self.sectors)  # together, or none of them
        others, points, prices, sectors = closing
        other, label, head = int(others[k]), self.label, net.head
        steps = float(len(self.x)) if subject.reduction == "mean" else 1.0
        free = np.ones(self.x.shape) if self.mask is None else self.mask
        ref = reference(net, points[k], head[label] - head[other])
        left = proved_margin(net, run.ways, ref, sectors[k], free, np.atleast_1d(prices[k]), (self.x, self.radius))
        own, bias = ref.run[-1].out, steps * (subject.bias[label] - subject.bias[other])
        far = np.abs(own) + np.abs(own - run.y) + run.sides
        error = gamma(len(own) + 32) * ((np.abs(head[label]) + np.abs(head[other])) @ far + steps * float(
            abs(subject.bias[label]) + abs(subject.bias[other])) + abs(left) * (left > -np.inf))  # fmt: skip
        return float(left + bias - error) if left > -np.inf else -np.inf

    def _stage(
        self, stage: Stage, at: Nominal, Y: Array, T: Array, room: float, where: str, raised: int
    ) -> tuple[Local, Array, Array, int]:
        """Return a stage's slopes, the proved next ellipsoid, the error of the floats, and the inflation's index."""
        CY, size = row_spread(stage, Y)
        local = local_slopes(stage, at, size, self.radius)
        of, active = products(stage, CY, local.m), local.rho > 0
        G, out = of.G, next_ellipsoid(stage, Y, of, local.rho, np.where(active, T, 1.0))
        moves = half_reach(self.radius, Y)
        offset = at.offset if stage.slack is None else at.offset + stage.slack[2] @ moves
        missed = stage_error(stage, at, local, offset, moves)
        k, share = len(out), room if self.tau is None else 0.5 * _THETA * self.radius**2
        added = 2.0 * k * missed**2 / share
        # room in proportion to what rounding costs: entries that are small by cancellation get as much as their terms
        size = np.maximum(np.einsum("ii->i", out), (np.abs(G) @ half_widths(Y)) ** 2)
        proved = self._inequality(stage, Y, G, local.rho, T, active)
        for number, inflation in enumerate(_INFLATIONS[raised:], raised):
            trial = out.copy()
            trial[range(k), range(k)] += inflation * size + 1e-16 * size.max(initial=0.0) + 1e-40
            if proved(trial):
                if self.tau is not None:
                    trial *= 1.0 + _THETA
                _raise_diagonal(trial, 4 * k * EPS)  # more than what is rounded in the line above and the one below
                trial[range(k), range(k)] += added
                return local, trial, missed, number
        raise Refused(f"{where}: the multipliers do not prove the next ellipsoid")

    def _inequality(
        self, stage: Stage, Y: Array, G: Array, rho: Array, T: Array, active: Array
    ) -> Callable[[Array], bool]:
        """Return the test of the module's inequality for ``Y+``, over the channels of inexact slopes."""
        k, B = len(G), stage.B[:, active]
        V = np.concatenate([G, -stage.C[active]])
        loss, count = rho[active] ** 2 * T[active], int(active.sum())
        fixed = -(V @ Y @ V.T)
        fixed[:k, :k] -= (B * loss) @ B.T
        fixed[range(k, k + count), range(k, k + count)] += T[active]
        fixed = 0.5 * (fixed + fixed.T)
        aV, aY, aB = np.abs(V), np.abs(Y), np.abs(B)
        factor = gamma(2 * Y.shape[0] + count + 16)

        def holds(after: Array) -> bool:
            size, matrix = np.abs(after), fixed.copy()
            matrix[:k, :k] += after

            def action(s: Array) -> Array:
                out = aV @ (aY @ (aV.T @ s))
                out[:k] += aB @ (loss * (aB.T @ s[:k])) + size @ s[:k]
                out[k:] += T[active] * s[k:]
                return factor * out

            return prove_positive_definite(matrix, action, overwrite=True).holds

        return holds

    def _slack(self, subject: Classifier, head: Array, run: _Run) -> Array:
        """Bound the remaining margins below; infinite for the class itself."""
        w, label = differences(head, np.asarray(self.label)), self.label
        steps = float(len(self.x)) if subject.reduction == "mean" else 1.0
        bias = steps * subject.bias
        y, moves, missed = run.y, run.moves, run.missed
        margin = -(w @ y) - (bias - bias[label])
        # of the sum, of the differences of the head's rows, here and in what moves
        sizes = np.abs(head) + np.abs(head[label])
        error = gamma(len(y) + 16) * (sizes @ (np.abs(y) + run.sides) + np.abs(bias) + abs(bias[label]) + moves)
        error = error + 2.0 * (sizes @ missed)  # of the last stage, where its rows alone are looked at
        slack = margin - moves - error
        slack[label] = np.inf
        return slack


def _raise_diagonal(Y: Array, share: float) -> None:
    """Add a share of each diagonal entry, which exceeds changes of the entries by relative ``share / len(Y)``."""
    index = range(len(Y))
    Y[index, index] += share * np.einsum("ii->i", Y)
