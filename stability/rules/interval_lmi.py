r"""Rule ``interval_lmi``: a gated cell contracts in a quadratic norm on a box that every trajectory enters.

The difference of two trajectories in the box satisfies a Lur'e system whose slope intervals are bounds of the gates,
recomputed from the stored weights with outward rounding (``stability.gated.bounds.embedding``); the multiplier
inequality for that system is then proved as in ``multiplier_lmi``. What the box must be: see ``interval_jacobian``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stability.certificate import Claim, Verdict
from stability.gated.bounds import embedding
from stability.gated.cell import GatedCell
from stability.rules.interval_jacobian import box_phrase, proved_box
from stability.rules.multiplier_lmi import LMI_FIELDS, check_decay
from stability.rules.registry import Outcome, rule
from stability.statements import at_most, decay_factor, subject_phrase

__all__ = ["check"]


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return (
        f"For {subject_phrase(subject)}: {box_phrase(subject, data)} |d| <= {at_most(data['overshoot'])} * "
        f"{decay_factor(data['rate'], True)} |d(0)| after k steps, in the Euclidean norm."
    )


@rule(
    "interval_lmi",
    subject=GatedCell,
    claim="contraction",
    verdict=Verdict.CERTIFIED,
    fields={**LMI_FIELDS, "low": "array", "high": "array"},
    value="rate",
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``low``, ``high`` (n,) the state box, and ``P``, ``L``, ``rate``, ``overshoot``, ``p_min``, ``p_max``."""
    box, reason = proved_box(subject, data)
    if box is None:
        return False, reason
    system = embedding(subject, box)
    valid, reason = check_decay(system, data)
    return valid, f"over a box that every trajectory enters, {reason}" if valid else reason
