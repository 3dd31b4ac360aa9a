r"""Rule ``interval_lmi``: a gated cell contracts in a quadratic norm on an invariant box.

The difference of two trajectories in the box satisfies a Lur'e system whose slope intervals are bounds of the gates,
recomputed from the stored weights with outward rounding (``stability.gated_bounds.embedding``); the multiplier
inequality for that system is then proved as in ``multiplier_lmi``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stability.certificate import Claim
from stability.gated import GatedCell
from stability.gated_bounds import embedding
from stability.rules.interval_jacobian import cell_phrase, proved_box
from stability.rules.multiplier_lmi import check as check_multiplier
from stability.rules.registry import Outcome, rule
from stability.statements import at_most, decay_factor

__all__ = ["check"]


def _statement(subject: Any, claim: Claim) -> str:
    data = claim.proof.data if claim.proof is not None else {}
    return (
        f"For {cell_phrase(subject)}: the difference d of any two trajectories that start in the invariant box of "
        f"the proof, which holds the zero state, satisfies |d| <= {at_most(data.get('overshoot'))} * "
        f"{decay_factor(data.get('rate'), True)} |d(0)| after k steps, in the Euclidean norm."
    )


@rule("interval_lmi", statement=_statement)
def check(subject: Any, claim: Claim) -> Outcome:
    """Data: ``low``, ``high`` (n,) the state box, and ``P``, ``L``, ``rate``, ``overshoot``, ``p_min``, ``p_max``."""
    if not isinstance(subject, GatedCell):
        return False, f"this proof is about LSTM and GRU cells, not {type(subject).__name__}"
    if claim.proof is None:
        return False, "there is no proof"
    box, reason = proved_box(subject, claim.proof.data)
    if box is None:
        return False, reason
    with np.errstate(all="ignore"):
        system = embedding(subject, box)
    valid, reason = check_multiplier(system, claim)
    return valid, f"over the invariant box, {reason}" if valid else reason
