"""Rules for two simulated trajectories under one input that were seen to stay apart.

They are simulated again in float64. That is a replay, not a proof: the verdict stays inconclusive, the evidence is
``replayed``. What a run must show, so that neither rounding nor slow contraction can pass for separation, is in
``stability.rules.replay``. The input is constant or periodic: activations that saturate by turns can keep apart what
every constant input brings together.

``separated_trajectories``, of a network: the map itself; in continuous time Runge-Kutta steps no longer than a half of
the network's natural time, once more with half the step.

``gated_trajectories`` and ``stack_trajectories``, of a cell and of a whole stack: a run has to count twice, over the
stated steps and over as many again: by then what decays at all has decayed, and a part of the gap that only decays
slowly stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.gated.cell import GatedCell
from stability.rules.fields import AnyArray, Count, Datum, Number, ProofData, Size, State, require, rows
from stability.rules.gated_orbits import input_phrase, inputs_of
from stability.rules.registry import rule
from stability.rules.replay import Replay, replay, why_not_apart
from stability.stacks.stack import LayerStack
from stability.statements import at_least, describe
from stability.systems import DrivenSystem, LureSystem
from stability.systems.simulate import advance_many, natural_step

Array = np.ndarray
MIN_STEPS, MAX_STEPS, MAX_WORK = 2000, 200_000, 4e10
LONGEST_PERIOD = 4
SWEEPS = 30  # of an equation between the channels, as most take them
LONGEST_STEP = 2.5  # in natural steps: beyond, Runge-Kutta's own dynamics could keep two runs apart


def step_work(system: LureSystem) -> float:
    """Multiplications of one step of one run, those of sweeps that solve the channels' equation with them."""
    n, m = system.states, system.channels
    return n * (n + 2 * m) + 1.0 + (SWEEPS * m * m if system.D.any() else 0.0)


def runs(subject: DrivenSystem, first: Any, second: Any, inputs: Any, step: float, steps: int) -> Iterator[Replay]:
    """The replay; in continuous time then a second one with half the step."""
    for refine in (1,) if subject.system.is_discrete else (1, 2):

        def advance(x: Any, u: Any, length: float = step / refine) -> Any:
            return advance_many(subject, x, u, length)

        yield replay(advance, first, second, inputs, refine * steps)


@rule(
    "separated_trajectories",
    subject=DrivenSystem,
    claim="contraction",
    verdict=Verdict.INCONCLUSIVE,
    size="first, second and input must be finite and of the network's sizes",
)
class SeparatedTrajectories(ProofData):
    """``input``: one, or for maps up to four in turn."""

    first: State
    second: State
    input: Annotated[np.ndarray, Datum("array", Size(("p", "kp"), most=LONGEST_PERIOD))]
    time: Number
    steps: Count
    gap: Number

    def sentence(self, subject: DrivenSystem, claim: Claim) -> str:
        period = len(rows(self.input))
        what = "constant input" if period == 1 else f"input of period {period}"
        span = f"for {self.steps!r} steps" if subject.is_discrete else f"over the time {at_least(self.time)}"
        return (
            f"{describe(subject)} was not seen to contract (replayed numerically, not proved): under the "
            f"{what} of the proof two trajectories stay at least {at_least(self.gap)} apart {span}."
        )

    def check(self, subject: DrivenSystem, claim: Claim) -> str:
        require(MIN_STEPS <= self.steps <= MAX_STEPS, f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}]")
        require(self.steps * step_work(subject.system) <= MAX_WORK, "the replay would take too long")
        require(subject.is_discrete or len(rows(self.input)) == 1, "a periodic input is for maps")
        require(self.time > 0, "the time must be positive")
        whole = not subject.is_discrete or self.time == self.steps
        require(whole, "in discrete time the time is the number of steps")
        step = 1.0 if subject.is_discrete else self.time / self.steps
        words = "the steps of the replay are too long for the speed of the network"
        require(step <= LONGEST_STEP * natural_step(subject), words)
        for run in runs(subject, self.first, self.second, rows(self.input), step, self.steps):
            problem = why_not_apart(run, self.gap)
            require(problem is None, str(problem))
        return f"replayed, not proved: the gap stays above {self.gap:.3g} over time {self.time:.6g}"


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

    def replayed(self, subject: GatedCell | LayerStack, inputs: Array) -> str:
        """What the replay shows.

        Raises:
            Refused: it is no evidence.
        """
        short = MIN_STEPS <= self.steps <= MAX_STEPS and 2.0 * self.steps * subject.step_cost <= MAX_WORK
        require(short, f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}], and the replay not too long")
        reason = twice_apart(subject.advance, self.first, self.second, inputs, self.steps, self.gap)
        require(reason is None, str(reason))
        return f"not proved: the gap stays above {self.gap:.3g} for {self.steps} steps"

    def seen(self, subject: GatedCell | LayerStack, inputs: Array, runs: str) -> str:
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
        shown = self.replayed(subject, inputs_of(subject, self.input))
        return f"replayed numerically, {shown}"


def _not_one_way(subject: LayerStack) -> str | None:
    one_way = subject.directions == 1 and subject.is_discrete
    return None if one_way else "runs are replayed for discrete stacks with one direction"


@rule(
    "stack_trajectories",
    subject=LayerStack,
    claim="contraction",
    verdict=Verdict.INCONCLUSIVE,
    unfit=_not_one_way,
    size=SIZE,
)
class StackTrajectories(HeldApart):
    """``inputs`` (q, p)."""

    inputs: AnyArray

    def sentence(self, subject: LayerStack, claim: Claim) -> str:
        return self.seen(subject, self.inputs, "runs of it")

    def check(self, subject: LayerStack, claim: Claim) -> str:
        return f"replayed, {self.replayed(subject, inputs_of(subject, self.inputs))}"
