r"""Theorem ``as_it_runs``: a bound on the distance between a contracting network and its run in finite precision.

Let ``|f(x, u) - f(y, u)|_P <= rho |x - y|_P`` for all states and inputs, and let a set ``S`` contain the exact and the
computed states ``x(k)``, ``x~(k)``. If the computed step is within ``delta`` of the exact step from the same state of
``S``, in the norm of ``P``, then

.. math:: |\tilde x(k) - x(k)|_P \le \rho^k |\tilde x(0) - x(0)|_P + \delta \frac{1 - \rho^k}{1 - \rho} .

Here both start at zero, and ``|x|_2 <= |x|_P / sqrt(p_min)``. With a bounded activation and a stable ``A`` the set is a
box: the sums of the impulse responses of ``A`` bound every entry, the errors of the steps included (``peak_gain``).
Or it is the ellipsoid of a ``ball`` proof (``bounded``), which is smaller in the Euclidean norm, times a factor.
Else it is the ball ``|x - c|_P <= R`` around a state ``c``: with ``|f(c, u) - c|_P <= g`` for every input of the box,
no step leaves it if ``rho R + g + delta <= R``.

``delta`` is a bound of the errors of each entry of the state (``step_errors``), put into the norm of ``P``:
:math:`\delta^2 = e^T |P| e`.

``as_it_runs_in_box``, for LSTM and GRU: the same on the box of states of their contraction proof, in its norm. The
box stays invariant with the errors added.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.activations import activation
from stability.kernel.arithmetic.definiteness import gamma, spectral_bounds
from stability.kernel.arithmetic.directed_functions import gram_norms, norm_above, upper
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.arithmetic.intervals import Interval, affine, upper_product
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import (
    AnyArray,
    Inner,
    Input,
    Number,
    NumberOrNull,
    ProofData,
    Refused,
    State,
    require,
    required,
)
from stability.kernel.format.sentences import at_most, for_every, inputs_phrase, theorem
from stability.kernel.format.theorem_table import RULES, certifies, reason_of
from stability.kernel.reachability.peak_gain import peak_bounds
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.execution import ExecutionModel
from stability.kernel.systems.gated_bounds import embedding
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.interval import IntervalJacobian, IntervalLmi, OverBox
from stability.kernel.theorems.multiplier_lmi import Decay, majorant
from stability.kernel.theorems.pairwise import PairNorm, metric, why_it_stretches
from stability.kernel.theorems.step_errors import (
    StateSet,
    StepError,
    cell_step_error,
    driven_step_error,
    pair_step_error,
    stages_of,
    stays_in_box,
)

Array = np.ndarray
SIZE = "arrays of a proof about a run must have the sizes of the network: center ({n},), low and high ({p},)"


def norm_of_entries(P: Array, entries: Array) -> float:
    """Bound ``|e|_P`` above for all ``|e_i| <= entries_i``.

    Example:
        >>> 1.0 <= norm_of_entries(np.eye(2), np.array([0.6, 0.8])) < 1.000001
        True
    """
    scale = float(entries.max(initial=0.0))
    if not 0.0 < scale < math.inf:
        return scale
    share = entries / scale * (1.0 + EPS)
    square = float(share @ upper_product(np.abs(P), share)) * (1.0 + gamma(len(entries) + 4))
    return math.sqrt(square) * scale * (1.0 + 8.0 * EPS) + TINY


def model_of(data: Any) -> ExecutionModel:
    """Return the execution model of a proof.

    Raises:
        Refused: it is none.
    """
    try:
        return ExecutionModel.from_payload(data)
    except (ConfigurationError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"the arithmetic of the proof is unknown: {error}") from error


def displacement(subject: DrivenSystem, center: Array, low: Array, high: Array) -> Array:
    """Bound ``|f(c, u) - c|`` entry by entry, for every input in the box."""
    system, phi = subject.system, activation(subject.activation)
    big = majorant(system)
    at, u = Interval.point(center), Interval(low, high)
    stored = gamma(big.roundings) if big.roundings else 0.0
    w = Interval.point(np.zeros(system.channels))
    w_size = np.zeros(system.channels)
    relative, absolute = phi.error
    for _ in range(stages_of(subject) or 1):
        inexact = upper(stored * upper(upper_product(big.C, np.abs(center)) + upper_product(big.D, w_size)))
        z = affine(system.C, at) + affine(system.D, w) + affine(subject.E, u, Interval.point(subject.b))
        z = z + Interval(-inexact, inexact)
        ends = phi.function(z.low), phi.function(z.high)  # every activation here rises
        slack = [2.0 * EPS * (relative * np.abs(end) + absolute) + TINY for end in ends]
        w = Interval(ends[0] - slack[0], ends[1] + slack[1])
        w_size = w.magnitude
    inexact = upper(stored * upper(upper_product(big.A, np.abs(center)) + upper_product(big.B, w_size)))
    moved = affine(system.A, at) + affine(system.B, w) + affine(subject.F, u) - at
    return upper(moved.magnitude + inexact)


def why_no_run(subject: DrivenSystem) -> str | None:
    """Return the reason why the theorem is not about a network, or ``None``."""
    if not subject.is_discrete:
        return "a run has steps, and this is a differential equation"
    return None if stages_of(subject) else "the channels of this step are an implicit equation"


def run_sentence(subject: Any, bound: float, model: ExecutionModel, box: tuple[Array, Array] | None) -> str:
    """State the claim about a run."""
    inputs = inputs_phrase(subject, box=box)
    return theorem(
        subject,
        f"{for_every(subject, inputs)} of numbers of the format, the states x of the network in exact arithmetic and "
        f"the states y of any step-by-step run in {model.phrase}, both from zero, satisfy |y(k) - x(k)|_2 <= "
        f"{at_most(bound)} for all k >= 0.",
    )


@certifies("as_it_runs", subject=DrivenSystem, claim="as_it_runs", value="bound", unfit=why_no_run, size=SIZE)
class AsItRuns(Decay):
    """Metric of a contraction proof, set of the states, box of the inputs, arithmetic and bound.

    The set is ``|x_i| <= entries_i`` (``peak_gain``); or the ellipsoid of ``ball``, the data of a proof of that kind,
    times ``room``, with ``Y > y_min I``; or the ball of ``radius`` around ``center`` in the metric.
    """

    low: Input
    high: Input
    arithmetic: Inner
    bound: Number
    entries: State | None = None
    ball: Inner | None = None
    room: NumberOrNull = None
    y_min: NumberOrNull = None
    center: State | None = None
    radius: NumberOrNull = None

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return run_sentence(subject, self.bound, model_of(self.arithmetic), (self.low, self.high))

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        require((self.low <= self.high).all(), "low and high must satisfy low <= high")
        self.decays_at_the_rate(subject.system)
        found = self.errors(subject)
        delta = norm_of_entries(self.P, found.step)
        if self.ball is not None:
            self.require_ellipsoid(subject, found.step)
        elif self.entries is None:
            self.require_ball(subject, delta)
        else:
            reached = required(reached_entries(subject, self.inputs, found.step), "no bound of the states is known")
            require((reached <= self.entries).all(), "the computed states are not proved to stay in the set")
        least = run_bound(delta, self.rate, self.p_min, float(norm_above(found.stored)))
        require(least <= self.bound, f"the bound is below the proved one, {at_most(least)}")
        return f"the errors of a step are at most {at_most(delta)} in the norm of P"

    @property
    def inputs(self) -> Array:
        """Bounds of the absolute values of the inputs."""
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def require_ellipsoid(self, subject: DrivenSystem, step: Array) -> None:
        r"""Prove that no computed state leaves the ellipsoid times ``room``.

        A step takes :math:`N = \sqrt{x^T Y^{-1} x}` to at most :math:`\sqrt{(1 - \mu) N^2 + \mu}`, and errors ``e`` add
        at most :math:`|e|_2 / \sqrt{y_{\min}}`.

        Raises:
            Refused: it is not proved.
        """
        data, room, least = required(self.ball), required(self.room), required(self.y_min)
        claim = Claim("bounded", "", Verdict.CERTIFIED, Proof("ball", data), data.get("radius"))
        reason_of(RULES["ball"](subject, claim))
        limit = data.get("input_bound")
        covered = not subject.F.any() or (limit is not None and bool((self.inputs <= limit).all()))
        require(covered, "the ellipsoid is for smaller inputs")
        require(least > 0.0 and spectral_bounds(data["Y"], least, 1e100).holds, "y_min is not proved to be below Y")
        mu, error = float(data["mu"]), float(norm_above(step)) / math.sqrt(least)
        after = float(upper(np.array(math.sqrt((1.0 - mu) * room * room + mu) * (1.0 + 8.0 * EPS) + error)))
        require(after <= room, "the computed states are not proved to stay in the ellipsoid")

    def require_ball(self, subject: DrivenSystem, delta: float) -> None:
        """Prove that no computed state leaves the ball, which contains zero.

        Raises:
            Refused: it is not proved.
        """
        center, radius = required(self.center), required(self.radius)
        push = norm_of_entries(self.P, displacement(subject, center, self.low, self.high))
        inside = upper(np.array(self.rate * radius)) + push + delta
        require(inside <= radius, "the computed states are not proved to stay in the ball")
        require(norm_of_entries(self.P, np.abs(center)) <= radius, "the zero state is not in the ball")

    def errors(self, subject: DrivenSystem) -> StepError:
        """Return the errors of a step from a state of the set.

        Raises:
            Refused: neither set is given, or numbers exceed a format.
        """
        require(self.p_min > 0.0, "p_min must be positive")
        zero = np.zeros(subject.states)
        if self.ball is not None:
            data, room = self.ball, required(self.room, "an ellipsoid needs room")
            known = isinstance(data.get("Y"), np.ndarray) and data["Y"].shape == (len(zero),) * 2
            require(known and type(data.get("radius")) is float and 1.0 <= room < 1e50, "the ellipsoid is malformed")
            entries = upper(room * np.sqrt(np.maximum(np.diagonal(data["Y"]), 0.0)))
            states = StateSet(entries, zero, float(upper(np.array(room * data["radius"]))))
        elif self.entries is not None:
            require((self.entries >= 0.0).all(), "entries must not be negative")
            states = StateSet(self.entries, zero, float(norm_above(self.entries)))
        else:
            center = required(self.center, "a proof needs entries, or center and radius")
            radius = required(self.radius, "a proof needs entries, or center and radius")
            require(0.0 < radius < math.inf, "the radius must be positive")
            radius = float(upper(np.array(radius / math.sqrt(self.p_min))))
            states = StateSet(upper(np.abs(center) + radius), center, radius)
        return driven_step_error(subject, model_of(self.arithmetic), states, self.inputs)


def reached_entries(subject: DrivenSystem, inputs: Array, step: Array) -> Array | None:
    """Bound the entries of the computed states from zero, for a bounded activation and a stable ``A``."""
    system, limit = subject.system, activation(subject.activation).bound
    if not math.isfinite(limit) and system.channels:
        return None
    big, w = majorant(system), np.full(system.channels, limit if system.channels else 0.0)
    stored = gamma(big.roundings) if big.roundings else 0.0
    terms = (
        (system.B, w),
        (subject.F, inputs),
        (np.eye(subject.states), upper(step + stored * upper_product(big.B, w))),
    )
    return peak_bounds(system.A, stored * big.A, terms)


def why_no_blocks(subject: DrivenSystem) -> str | None:
    """Return the reason why a network is no linear map, or ``None``."""
    return "this proof is about linear maps" if subject.system.channels else why_no_run(subject)


@certifies("as_it_runs_blocks", subject=DrivenSystem, claim="as_it_runs", value="bound", unfit=why_no_blocks, size=SIZE)
class AsItRunsBlocks(ProofData):
    r"""Run of a linear map whose ``A`` is block-diagonal, with a norm below one for every block (LRU, RotRNN).

    A block with :math:`\|A_j\|_2 \le \rho_j < 1` and inputs :math:`|(F u)_j|_2 \le g_j` keeps computed states within
    ``sizes_j`` if :math:`\rho_j s_j + g_j + \delta_j \le s_j`, and its error within
    :math:`\delta_j / (1 - \rho_j)`.
    """

    sizes: AnyArray
    low: Input
    high: Input
    arithmetic: Inner
    bound: Number

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        return run_sentence(subject, self.bound, model_of(self.arithmetic), (self.low, self.high))

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        require((self.low <= self.high).all(), "low and high must satisfy low <= high")
        blocks = diagonal_blocks(subject.system.A)
        right = self.sizes.shape == (len(blocks),) and bool((self.sizes > 0.0).all())
        require(right, f"sizes must hold {len(blocks)} positive numbers, one a block")
        found = self.block_bounds(subject, blocks)
        require((found.least <= self.sizes).all(), "the computed states of a block are not proved to stay in its size")
        least = float(norm_above(found.error)) + found.stored
        require(least <= self.bound, f"the bound is below the proved one, {at_most(least)}")
        return f"{len(blocks)} blocks, the largest norm is {at_most(float(found.rates.max()))}"

    def block_bounds(self, subject: DrivenSystem, blocks: list[Array]) -> BlockBounds:
        """Return norms, sizes and errors of all blocks, for states within ``sizes``.

        Raises:
            Refused: a block whose norm is not below one.
        """
        entries = np.empty(subject.states)
        for block, size in zip(blocks, self.sizes):
            entries[block] = size
        inputs = np.maximum(np.abs(self.low), np.abs(self.high))
        radius = float(norm_above(self.sizes))
        states = StateSet(entries, np.zeros(subject.states), radius)
        step = driven_step_error(subject, model_of(self.arithmetic), states, inputs)
        drive = affine(subject.F, Interval(self.low, self.high)).magnitude
        rates = np.array([norm_of_block(subject.system.A[np.ix_(block, block)]) for block in blocks])
        require((rates < 1.0).all(), "the norm of a block is not below one")
        push, delta = (np.array([float(norm_above(x[block])) for block in blocks]) for x in (drive, step.step))
        least = upper(rates * self.sizes + push + delta)
        return BlockBounds(rates, least, upper(delta / (1.0 - rates)), float(norm_above(step.stored)))


class BlockBounds(NamedTuple):
    """Norms of blocks, sizes after a step, errors at all steps, and the distance of the stored state."""

    rates: Array
    least: Array
    error: Array
    stored: float


def norm_of_block(block: Array) -> float:
    """Bound the spectral norm of a matrix above, by powers and by row sums of ``A^T A``: exact for scaled rotations."""
    gram = block.T @ block
    error = gamma(len(block) + 2) * float(norm_above(np.abs(block).ravel())) ** 2 * (1.0 + 8.0 * EPS)
    rows = float(upper(np.abs(gram).sum(axis=1)).max()) + len(block) * error
    return float(upper(np.sqrt(np.minimum(gram_norms(gram, np.array(error)), rows))))


def diagonal_blocks(matrix: Array) -> list[Array]:
    """Return the indices of the blocks of a matrix that is block-diagonal up to a permutation.

    Example:
        >>> [block.tolist() for block in diagonal_blocks(np.diag([1.0, 2.0]))]
        [[0], [1]]
    """
    linked = (matrix != 0.0) | (matrix.T != 0.0)
    left, blocks = np.ones(len(matrix), dtype=bool), []
    for first in range(len(matrix)):
        if not left[first]:
            continue
        block = np.zeros(len(matrix), dtype=bool)
        new = np.arange(len(matrix)) == first
        while new.any():
            block |= new
            new = linked[new].any(axis=0) & ~block
        left &= ~block
        blocks.append(np.flatnonzero(block))
    return blocks


@certifies(
    "as_it_runs_pairs", subject=PairwiseSystem, claim="as_it_runs", value="bound", unfit=why_it_stretches, size=SIZE
)
class AsItRunsPairs(PairNorm):
    """Norm of a contraction proof of a network on pairs, radius of its states, inputs, arithmetic and bound."""

    radius: Number
    low: Input
    high: Input
    arithmetic: Inner
    bound: Number

    def sentence(self, subject: PairwiseSystem, claim: Claim) -> str:
        return run_sentence(subject, self.bound, model_of(self.arithmetic), (self.low, self.high))

    def check(self, subject: PairwiseSystem, claim: Claim) -> str:
        require((self.low <= self.high).all(), "low and high must satisfy low <= high")
        self.shrinks(subject)
        delta, stored = self.errors(subject)
        inside = upper(np.array(self.rate * self.radius)) + self.push(subject) + delta
        require(inside <= self.radius, "the computed states are not proved to stay in the ball")
        least = run_bound(delta, self.rate, float(self.weights.min()), stored)
        require(least <= self.bound, f"the bound is below the proved one, {at_most(least)}")
        return f"the errors of a step are at most {at_most(delta)} in the norm of the weights"

    def norm(self, subject: PairwiseSystem, entries: Array) -> float:
        """Bound the norm of all ``|e_i| <= entries_i`` above."""
        return float(norm_above(upper(np.sqrt(metric(subject, self.weights)) * entries)))

    def push(self, subject: PairwiseSystem) -> float:
        """Bound ``|f(0, u)|`` above: no activation on pairs stretches what it is applied to, from zero."""
        z = affine(subject.V, Interval(self.low, self.high)).magnitude
        inside = len(subject.b) != subject.states
        return self.norm(subject, z if inside else upper(z + np.abs(subject.b)))

    def errors(self, subject: PairwiseSystem) -> tuple[float, float]:
        """Return the error of a step in this norm, and the distance of the stored state to the acting one."""
        require(0.0 < self.radius < math.inf and (self.weights > 0.0).all(), "radius and weights must be positive")
        require(self.weights.shape == (len(subject.pairs),), "weights must hold one number a pair")
        size = float(upper(np.array(self.radius / math.sqrt(float(self.weights.min())))))
        inputs = np.maximum(np.abs(self.low), np.abs(self.high))
        found = pair_step_error(subject, model_of(self.arithmetic), size, inputs)
        return self.norm(subject, found.step), float(norm_above(found.stored))


def run_bound(delta: float, rate: float, p_min: float, stored: float) -> float:
    """Return ``delta / ((1 - rate) sqrt(p_min)) + stored``, rounded up."""
    return float(upper(np.array(delta / ((1.0 - rate) * math.sqrt(p_min)) + stored)))


class RunInBox(OverBox):
    """Box of states of a cell that its computed states do not leave, arithmetic and bound."""

    arithmetic: Inner
    bound: Number

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        return run_sentence(subject, self.bound, model_of(self.arithmetic), None)

    def errors(self, subject: GatedCell) -> StepError:
        """Return the errors of a step after proving that no computed state leaves the box.

        Raises:
            Refused: it is not proved.
        """
        require((self.low <= self.high).all(), "low and high must satisfy low <= high")
        box = Interval(self.low, self.high)
        found = cell_step_error(subject, model_of(self.arithmetic), box)
        require(stays_in_box(subject, box, found.step), "the computed states are not proved to stay in the box")
        return found

    def require_bound(self, least: float) -> None:
        """Compare the bound with the least one that is proved.

        Raises:
            Refused: it is smaller.
        """
        require(least <= self.bound, f"the bound is below the proved one, {at_most(least)}")


@certifies("as_it_runs_interval", subject=GatedCell, claim="as_it_runs", value="bound")
class AsItRunsInterval(RunInBox, IntervalJacobian):
    """Proof by a bound of the Jacobian in a maximum norm with weights ``1 / d``."""

    def check(self, subject: GatedCell, claim: Claim) -> str:
        found = self.errors(subject)
        shrinks = self.shrinks(subject, Interval(self.low, self.high))
        delta = float(upper((found.step / self.d).max()))
        self.require_bound(
            run_bound(delta * float(norm_above(self.d)), self.rate, 1.0, float(norm_above(found.stored)))
        )
        return f"{shrinks}; the errors of a step are at most {at_most(delta)} in its norm"


@certifies("as_it_runs_lmi", subject=GatedCell, claim="as_it_runs", value="bound")
class AsItRunsLmi(RunInBox, IntervalLmi):
    """Proof by the multiplier inequality of ``embedding``."""

    def check(self, subject: GatedCell, claim: Claim) -> str:
        found = self.errors(subject)
        reason = self.decays_at_the_rate(embedding(subject, Interval(self.low, self.high)))
        delta = norm_of_entries(self.P, found.step)
        self.require_bound(run_bound(delta, self.rate, self.p_min, float(norm_above(found.stored))))
        return f"{reason}; the errors of a step are at most {at_most(delta)} in the norm of P"
