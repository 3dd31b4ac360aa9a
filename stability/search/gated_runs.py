"""Search for the claim about a run of a gated linear layer in finite precision."""

from __future__ import annotations

import numpy as np

from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import Refused
from stability.kernel.systems.decay_gates import SoftplusGate
from stability.kernel.systems.execution import ExecutionModel
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.kernel.theorems.gated_linear_bounds import slowest_decays
from stability.kernel.theorems.gated_runs import run_of
from stability.proposals import accepted_claim

ROUNDS = 60
ALLOWANCE = 1.0 + 1e-9
"""Factor of stated over computed numbers: a checker may sum in another order."""
SLACK = 1e-3
"""Share by which the stated distances exceed the errors of steps."""


def gated_run_claim(layer: GatedLinearLayer, model: ExecutionModel) -> Claim | str:
    """Return the claim about a run of a gated linear layer, or the reason why there is none.

    The stated distances are a fixed point of the errors that they allow, from below, and the second step tightens them.
    """
    try:
        run = run_of(layer, model)
    except Refused as reason:
        return str(reason)
    units = np.zeros(len(run.states))
    for _ in range(ROUNDS):
        try:
            with np.errstate(all="ignore"):
                found = run.errors(units)
        except Refused:
            break
        if (found[0] * ALLOWANCE <= units).all():
            data = {"arithmetic": model.payload(), "units": units, "bound": found[1] * ALLOWANCE}
            return accepted_claim(layer, "as_it_runs_gated", data) or "the check of the proof refuses it"
        units = found[0] * (1.0 + SLACK)
    slowest = slowest_decays(layer)
    unit, room = int(slowest.argmax()), max(float(-np.expm1(slowest.max())), 0.0)
    more = ", or floors (stability repair)" if isinstance(layer.gate, SoftplusGate) else ""
    return (
        f"the decay of {layer.unit} {unit} may come within {room:.2g} of 1, so errors of steps in {model.format} on a "
        f"state in {model.state} need not fade; try more bits{more}"
    )
