r"""Rule ``unstable_equilibrium``: an equilibrium of the network itself that nearby trajectories leave.

Existence of an equilibrium in a box around the stored state is proved by Krawczyk's test, for the stored
constant input; then an eigenvalue outside the stability region is proved for *every* Jacobian over the box.
A network that contracts at an exponential rate has no such equilibrium.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.balls import activation_slopes
from stability.certificate import Claim, Verdict
from stability.enclosures import closed_loop
from stability.instability import prove_not_stable
from stability.krawczyk import enclose_equilibrium
from stability.rules.registry import Outcome, rule
from stability.rules.witness_data import complex_number, eigenvalue_text, vector
from stability.statements import describe
from stability.systems import DrivenSystem

__all__ = ["check"]


def _statement(subject: Any, claim: Claim) -> str:
    data = claim.proof.data if claim.proof is not None else {}
    what = "contracting" if claim.name == "contraction" else "globally asymptotically stable for every constant input"
    return (
        f"{describe(subject)} is not {what}: under the constant input of the proof it has an equilibrium "
        f"whose Jacobian has the eigenvalue {eigenvalue_text(complex_number(data, 'eigenvalue'))}, "
        "so trajectories that start next to it leave it."
    )


@rule(
    "unstable_equilibrium",
    subject=DrivenSystem,
    claim=("contraction", "equilibrium"),
    verdict=Verdict.REFUTED,
    fields={"state": "array", "input": "array", "eigenvalue": "pair"},
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``state`` (n,), ``input`` (p,), ``eigenvalue`` (re, im) approximately."""
    state, inputs = vector(data, "state", subject.system.states), vector(data, "input", subject.inputs)
    value = complex_number(data, "eigenvalue")
    if state is None or inputs is None or value is None:
        return False, "state, input and eigenvalue must be finite and of the network's sizes"
    with np.errstate(all="ignore"):
        found = enclose_equilibrium(subject, state, inputs)
        if found is None:
            return False, "no equilibrium is proved to exist at the stored state and input"
        slopes = activation_slopes(subject.activation, found.channel)
        if slopes is None:
            return False, f"no error bound is known for the activation {subject.activation!r}"
        if subject.activation in ("relu", "leaky_relu") and slopes.rad.any():
            return False, "the equilibrium may lie on a kink of the activation, where there is no Jacobian"
        matrix = closed_loop(subject.system, slopes)
        proved = prove_not_stable(matrix, subject.system.is_discrete, value, strict=True)
    if proved is None:
        return (
            False,
            "no eigenvalue of the Jacobian outside the stability region is proved near the stored one",
        )
    where = float(found.state.rad.max())
    return True, f"an equilibrium within {where:.1e} of the stored state; its Jacobian: {proved}"
