r"""Theorem ``as_it_runs`` for linear maps block by block, networks on pairs, and LSTM and GRU cells.

The argument is that of ``as_it_runs``, with other norms and sets.

``as_it_runs_blocks``: every block of a block-diagonal ``A`` (LRU, RotRNN) has a norm, a size and an error of its own.
``as_it_runs_pairs``: the norm of a ``pair_norm`` proof, which an activation on pairs does not increase.
``as_it_runs_steps``: the norm of a ``norm_gain`` proof of such a network, for sequences up to a length.
``as_it_runs_interval``, ``as_it_runs_lmi``: the box of states of the contraction proof of a cell, in the norm of that
proof. The box is invariant with the errors included.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import gram_norms, norm_above, upper
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.arithmetic.intervals import Interval, affine
from stability.kernel.format.claims import Claim, Proof, Verdict
from stability.kernel.format.fields import (
    AnyArray,
    Count,
    Inner,
    Input,
    Number,
    ProofData,
    require,
)
from stability.kernel.format.sentences import at_most
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_bounds import embedding
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.theorems.as_it_runs import SIZE, model_of, norm_of_entries, run_bound, run_sentence, why_no_run
from stability.kernel.theorems.interval import IntervalJacobian, IntervalLmi, OverBox
from stability.kernel.theorems.norm_gain import NormGain, why_no_norm_gain
from stability.kernel.theorems.pairwise import PairNorm, metric, why_it_stretches
from stability.kernel.theorems.step_errors import (
    StateSet,
    StepError,
    cell_step_error,
    driven_step_error,
    pair_step_error,
    stays_in_box,
)

Array = np.ndarray
MOST_STEPS = 10_000
"""Limit of the checker's work: a tenth of a millisecond a step."""


def why_no_blocks(subject: DrivenSystem) -> str | None:
    """Return the reason why a network is not a linear map, or ``None``."""
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
    left = np.ones(len(matrix), dtype=bool)
    blocks: list[Array] = []
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


class RunOfPairs(ProofData):
    """Norm of a network on pairs, inputs, arithmetic and bound."""

    weights: AnyArray
    low: Input
    high: Input
    arithmetic: Inner
    bound: Number

    def norm(self, subject: PairwiseSystem, entries: Array) -> float:
        """Bound the norm of all ``|e_i| <= entries_i`` above."""
        return float(norm_above(upper(np.sqrt(metric(subject, self.weights)) * entries)))

    def bias(self, subject: PairwiseSystem) -> Array:
        """Bound the part of the bias that is added before an activation: none for modReLU, which has it inside."""
        inside = len(subject.b) != subject.states
        return metric(subject, np.zeros(len(subject.pairs))) if inside else upper(np.abs(subject.b))

    def errors(self, subject: PairwiseSystem, radius: float) -> tuple[float, float]:
        """Return the error of a step from a state of this norm, and the residual of the stored state."""
        require(0.0 < radius < math.inf and (self.weights > 0.0).all(), "radius and weights must be positive")
        require(self.weights.shape == (len(subject.pairs),), "weights must hold one number a pair")
        size = float(upper(np.array(radius / math.sqrt(float(self.weights.min())))))
        inputs = np.maximum(np.abs(self.low), np.abs(self.high))
        found = pair_step_error(subject, model_of(self.arithmetic), size, inputs)
        return self.norm(subject, found.step), float(norm_above(found.stored))


@certifies(
    "as_it_runs_pairs", subject=PairwiseSystem, claim="as_it_runs", value="bound", unfit=why_it_stretches, size=SIZE
)
class AsItRunsPairs(RunOfPairs, PairNorm):
    """Norm of a contraction proof of a network on pairs, radius of its states, inputs, arithmetic and bound."""

    radius: Number

    def sentence(self, subject: PairwiseSystem, claim: Claim) -> str:
        return run_sentence(subject, self.bound, model_of(self.arithmetic), (self.low, self.high))

    def check(self, subject: PairwiseSystem, claim: Claim) -> str:
        require((self.low <= self.high).all(), "low and high must satisfy low <= high")
        self.shrinks(subject)
        delta, stored = self.errors(subject, self.radius)
        inside = upper(np.array(self.rate * self.radius)) + self.push(subject) + delta
        require(inside <= self.radius, "the computed states are not proved to stay in the ball")
        least = run_bound(delta, self.rate, float(self.weights.min()), stored)
        require(least <= self.bound, f"the bound is below the proved one, {at_most(least)}")
        return f"the errors of a step are at most {at_most(delta)} in the norm of the weights"

    def push(self, subject: PairwiseSystem) -> float:
        """Bound ``|f(0, u)|`` above: an activation on pairs does not increase the norm of its argument."""
        z = affine(subject.V, Interval(self.low, self.high)).magnitude
        return self.norm(subject, upper(z + self.bias(subject)))


@certifies(
    "as_it_runs_steps", subject=PairwiseSystem, claim="as_it_runs", value="bound", unfit=why_no_norm_gain, size=SIZE
)
class AsItRunsSteps(RunOfPairs):
    r"""Run of a network on pairs over at most ``steps`` steps; ``weights``, ``gain`` and ``growth`` of ``norm_gain``.

    From :math:`|W x + V u|_D^2 \le \rho^2 |x|_D^2 + g^2 |u|^2`, exact and computed states have sizes
    :math:`s_{k+1} = \sqrt{\rho^2 s_k^2 + g^2 |u|^2} + |b|_D + \delta(s_k)`, and their distance at most
    :math:`e_{k+1} = \rho e_k + \delta(s_k)`.
    """

    gain: Number
    growth: Number
    steps: Count

    def sentence(self, subject: PairwiseSystem, claim: Claim) -> str:
        return run_sentence(subject, self.bound, model_of(self.arithmetic), (self.low, self.high), self.steps)

    def check(self, subject: PairwiseSystem, claim: Claim) -> str:
        require((self.low <= self.high).all(), "low and high must satisfy low <= high")
        require(0 < self.steps <= MOST_STEPS, f"steps must be 1 to {MOST_STEPS}")
        data = {"weights": self.weights, "gain": self.gain, "growth": self.growth, "measure": "final"}
        data |= {"H": np.zeros((1, subject.states)), "horizon": self.steps}
        NormGain.of(data).check(subject, Claim("gain", "", Verdict.CERTIFIED, Proof("norm_gain", data), math.inf))
        _, least = self.growth_of(subject)
        require(least <= self.bound, f"the bound is below the proved one, {at_most(least)}")
        return f"the errors of {self.steps} steps, each from the largest state that it can have, are bounded"

    def growth_of(self, subject: PairwiseSystem) -> tuple[float, float]:
        """Bound the Euclidean norm of the states, and the distance of a run, after any of the steps."""
        fed = self.gain * float(norm_above(np.maximum(np.abs(self.low), np.abs(self.high))))
        bias, size, error, worst = self.norm(subject, self.bias(subject)), 1e-300, 0.0, 0.0
        for _ in range(self.steps):
            delta, stored = self.errors(subject, size)
            error = float(upper(np.array(self.growth * error + delta)))
            size = float(upper(np.array(math.hypot(self.growth * size, fed) + bias + delta)))
            worst = max(worst, float(upper(np.array(error / math.sqrt(float(self.weights.min())) + stored))))
        return float(upper(np.array(size / math.sqrt(float(self.weights.min()))))), worst


class RunInBox(OverBox):
    """Box of states of a cell that its computed states do not leave, arithmetic and bound."""

    arithmetic: Inner
    bound: Number

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        return run_sentence(subject, self.bound, model_of(self.arithmetic), None)

    def errors(self, subject: GatedCell) -> StepError:
        """Return the errors of a step after proving that no computed state leaves the box.

        Raises:
            Refused: the proof fails.
        """
        require((self.low <= self.high).all(), "low and high must satisfy low <= high")
        box = Interval(self.low, self.high)
        found = cell_step_error(subject, model_of(self.arithmetic), box)
        require(stays_in_box(subject, box, found.step), "the computed states are not proved to stay in the box")
        return found

    def require_bound(self, least: float) -> None:
        """Compare the bound with the smallest proved one.

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
