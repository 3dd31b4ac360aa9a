"""Rule ``separated_trajectories``: two trajectories under one input that were seen not to approach each other.

The input is constant or, for maps, periodic: activations that saturate by turns can keep apart what every constant
input brings together.

They are simulated again in float64 (the map itself; in continuous time Runge-Kutta steps no longer than a half of the
network's natural time, once more with half the step). This is a replay, not a proof: the verdict stays inconclusive,
the evidence is ``replayed``. What a run must show, so that neither rounding nor slow contraction can pass for
separation, is in ``stability.rules.replay``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.rules.registry import Outcome, rule
from stability.rules.replay import Replay, replay, why_not_apart
from stability.rules.witness_data import vector
from stability.statements import at_least, describe
from stability.systems import DrivenSystem, LureSystem
from stability.systems.simulate import advance_many, natural_step

__all__ = ["LONGEST_PERIOD", "LONGEST_STEP", "MAX_WORK", "MIN_STEPS", "check", "periodic_input", "runs", "step_work"]

MIN_STEPS, MAX_STEPS, MAX_WORK = 2000, 200_000, 4e10
LONGEST_PERIOD = 4
SWEEPS = 30  # of an equation between the channels, as most take them
LONGEST_STEP = 2.5  # in natural steps: beyond, Runge-Kutta's own dynamics could keep two runs apart


def periodic_input(data: Any, key: str, size: int) -> np.ndarray | None:
    """``data[key]`` as ``(k, size)`` when it is a finite input, ``(size,)`` or one to four of them, else ``None``."""
    value = data.get(key)
    if not isinstance(value, np.ndarray) or value.ndim != 2:
        single = vector(data, key, size)
        return None if single is None else single[None, :]
    good = 1 <= len(value) <= LONGEST_PERIOD and all(vector({key: u}, key, size) is not None for u in value)
    return value if good else None


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


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    inputs = data["input"]
    what = "constant input" if inputs.ndim < 2 or len(inputs) == 1 else f"input of period {len(inputs)}"
    span = f"for {data['steps']!r} steps" if subject.system.is_discrete else f"over the time {at_least(data['time'])}"
    return (
        f"{describe(subject)} was not seen to contract (replayed numerically, not proved): under the "
        f"{what} of the proof two trajectories stay at least {at_least(data['gap'])} apart {span}."
    )


@rule(
    "separated_trajectories",
    subject=DrivenSystem,
    claim="contraction",
    verdict=Verdict.INCONCLUSIVE,
    fields={
        **dict.fromkeys(("first", "second", "input"), "array"),
        **dict.fromkeys(("time", "gap"), "number"),
        "steps": "count",
    },
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``first``, ``second`` (n,), ``input`` (p,) or for maps (k, p) with k <= 4, ``time``, ``steps``, ``gap``."""
    system, steps, time, gap = subject.system, data["steps"], float(data["time"]), float(data["gap"])
    first, second = (vector(data, key, system.states) for key in ("first", "second"))
    inputs = periodic_input(data, "input", subject.inputs)
    if first is None or second is None or inputs is None:
        return False, "first, second and input must be finite and of the network's sizes"
    if not MIN_STEPS <= steps <= MAX_STEPS:
        return False, f"steps must be an integer in [{MIN_STEPS}, {MAX_STEPS}]"
    if steps * step_work(system) > MAX_WORK:
        return False, "the replay would take too long"
    if len(inputs) > 1 and not system.is_discrete:
        return False, "a periodic input is for maps"
    if not time > 0:
        return False, "the time must be positive"
    if system.is_discrete and time != steps:
        return False, "in discrete time the time is the number of steps"
    step = 1.0 if system.is_discrete else time / steps
    if not step <= LONGEST_STEP * natural_step(subject):
        return False, "the steps of the replay are too long for the speed of the network"
    for run in runs(subject, first, second, inputs, step, steps):
        problem = why_not_apart(run, gap)
        if problem is not None:
            return False, problem
    return True, f"replayed, not proved: the gap stays above {gap:.3g} over time {time:.6g}"
