"""Rule ``gated_trajectories``: two simulated trajectories of a gated cell that stay apart.

They are simulated in float64. That is a replay, not a proof: it supports the verdict inconclusive and shows what was
seen. ``stability.rules.replay`` says when a replay counts. It has to count twice, over the stated steps and over as
many again: by then what decays at all has decayed, and a part of the gap that only decays slowly stands alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stability.certificate import Claim, Verdict
from stability.gated.cell import GatedCell
from stability.rules.fields import AnyArray, Count, Number, State, require
from stability.rules.gated_orbits import input_phrase, inputs_of
from stability.rules.registry import ProofData, rule
from stability.rules.replay import replay, why_not_apart
from stability.stacks.cascade import Cascade
from stability.statements import at_least, describe

__all__ = [
    "MAX_STEPS",
    "MAX_WORK",
    "MIN_STEPS",
    "SIZE",
    "GatedTrajectories",
    "HeldApart",
    "cell_work",
    "twice_apart",
]

Array = np.ndarray
MIN_STEPS, MAX_STEPS, MAX_WORK = 2000, 200_000, 4e10


def cell_work(cell: GatedCell) -> float:
    """Operations of one step, roughly."""
    return 2.0 * cell.w_hh.size + 2.0 * cell.w_ih.size


def twice_apart(
    advance: Callable[[Array, Array], Array], first: Array, second: Array, inputs: Array, steps: int, gap: float
) -> str | None:
    """Why two runs are no evidence over ``steps`` steps and over as many again; ``None`` where they are.

    Args:
        advance: one step for a batch.
        first: ``(n,)`` state.
        second: ``(n,)`` state.
        inputs: ``(q, p)``, used in turn.
        steps: a multiple of ``q`` is run.
        gap: the stated least distance.

    Returns:
        The reason, or ``None``.
    """
    length = steps - steps % len(inputs)
    for _ in range(2):
        run = replay(advance, first, second, inputs, length)
        reason = why_not_apart(run, gap)
        if reason is not None:
            return reason
        first, second = run.last
    return None


class HeldApart(ProofData):
    """Two first states (n,), the number of steps, and the least distance over them."""

    first: State
    second: State
    steps: Count
    gap: Number

    def kept(self, subject: GatedCell | Cascade, inputs: Array, work: float) -> str | None:
        """Why the replay, each step of ``work`` operations, is no evidence; ``None`` where it is."""
        if not MIN_STEPS <= self.steps <= MAX_STEPS or 2.0 * self.steps * work > MAX_WORK:
            return f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}], and the replay not too long"
        return twice_apart(subject.advance, self.first, self.second, inputs, self.steps, self.gap)

    def seen(self, subject: GatedCell | Cascade, inputs: Array, runs: str) -> str:
        """What was seen, in words."""
        return (
            f"{describe(subject)} was not seen to contract (replayed numerically, not proved): under the "
            f"{input_phrase(inputs)} two {runs} stay at least {at_least(self.gap)} apart for {self.steps} steps."
        )


SIZE = "first and second must be vectors of {n} entries"


@rule("gated_trajectories", subject=GatedCell, claim="contraction", verdict=Verdict.INCONCLUSIVE, size=SIZE)
class GatedTrajectories(HeldApart):
    """``input`` (p,) or (q, p)."""

    input: AnyArray

    def sentence(self, subject: GatedCell, claim: Claim) -> str:
        return self.seen(subject, self.input, "trajectories")

    def check(self, subject: GatedCell, claim: Claim) -> str:
        inputs = inputs_of(subject, self.input)
        reason = self.kept(subject, inputs, cell_work(subject))
        require(reason is None, reason)
        return f"replayed numerically, not proved: the gap stays above {self.gap:.3g} for {self.steps} steps"
