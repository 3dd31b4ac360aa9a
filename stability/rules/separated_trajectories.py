"""Rule ``separated_trajectories``: two trajectories under one input that were seen not to approach each other.

The input is constant or, for maps, periodic: activations that saturate by turns can keep apart what every constant
input brings together.

They are simulated again in float64 (the map itself; in continuous time Runge-Kutta steps no longer than a half of the
network's natural time, once more with half the step). This is a replay, not a proof: the verdict stays inconclusive,
the evidence is ``replayed``. What a run must show, so that neither rounding nor slow contraction can pass for
separation, is in ``stability.rules.replay``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rules.fields import Count, Datum, Number, Size, State, require, rows
from stability.rules.registry import ProofData, rule
from stability.rules.replay import Replay, replay, why_not_apart
from stability.statements import at_least, describe
from stability.systems import DrivenSystem, LureSystem
from stability.systems.simulate import advance_many, natural_step

__all__ = [
    "LONGEST_PERIOD",
    "LONGEST_STEP",
    "MAX_WORK",
    "MIN_STEPS",
    "SeparatedTrajectories",
    "runs",
    "step_work",
]

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
