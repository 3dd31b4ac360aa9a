r"""Rule ``interval_jacobian``: a gated cell contracts in a weighted infinity norm on a box that all trajectories enter.

The box and the bound of the Jacobian are recomputed from the stored weights with outward rounding. No step leaves the
box, and every trajectory from ``|h| <= 1`` and any ``c`` enters it (``stability.gated.bounds.absorbs``): a proof on a
smaller box, around one of several attractors say, is refused, since it would say nothing about the others. Over the box
``sup |J| d <= rho d``, so for two trajectories in it under one input the mean value theorem gives
``max_i |delta_i| / d_i`` a factor of at most ``rho`` a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.gated.bounds import JacobianBound, absorbs, is_invariant
from stability.gated.cell import GatedCell
from stability.rigor.intervals import Interval
from stability.rules.registry import Outcome, rule
from stability.rules.witness_data import vector
from stability.statements import at_most, decay_factor, subject_phrase

__all__ = ["box_phrase", "check", "proved_box"]


def box_phrase(subject: Any, data: Mapping[str, Any]) -> str:
    """What the state box of a proof means, with its size, in words; ``d`` is the difference of two trajectories."""
    low, high = data["low"], data["high"]
    size = np.maximum(np.abs(low), np.abs(high)) if low.shape == high.shape == (subject.states,) else np.zeros(0)
    parts = [("h", size[: subject.hidden]), ("c", size[subject.hidden :])]
    sizes = " and ".join(f"|{name}| <= {at_most(float(x.max()))}" for name, x in parts if x.size)
    start = "|h| <= 1 and any c" if subject.kind == "lstm" else "|h| <= 1"
    return (
        f"every trajectory from {start} enters the box of the proof, in which {sizes} in every entry, and stays in it; "
        "the difference d of any two trajectories that start in it satisfies"
    )


def _statement(subject: Any, claim: Claim, data: Mapping[str, Any]) -> str:
    return (
        f"For {subject_phrase(subject)}: {box_phrase(subject, data)} |d| <= {at_most(data['overshoot'])} * "
        f"{decay_factor(data['rate'], True)} |d(0)| after k steps, in the infinity norm."
    )


def proved_box(cell: GatedCell, data: Any) -> tuple[Interval | None, str]:
    """The state box of a proof, when no step is proved to leave it and every trajectory to enter it; else why not."""
    low, high = vector(data, "low", cell.states), vector(data, "high", cell.states)
    if low is None or high is None or not (low <= high).all():
        return None, f"low and high must be finite vectors of {cell.states} entries with low <= high"
    box = Interval(low, high)
    if not is_invariant(cell, box):
        return None, "the state box is not proved to be invariant, or does not hold the zero state"
    if not absorbs(cell, box):
        return None, "not every trajectory is proved to enter the state box"
    return box, ""


@rule(
    "interval_jacobian",
    subject=GatedCell,
    claim="contraction",
    verdict=Verdict.CERTIFIED,
    fields={"low": "array", "high": "array", "d": "array", "rate": "number", "overshoot": "number"},
    value="rate",
    statement=_statement,
)
def check(subject: Any, claim: Claim, data: Mapping[str, Any]) -> Outcome:
    """Data: ``low``, ``high`` (n,) the state box, ``d`` (n,) the weights, ``rate``, ``overshoot``."""
    rate, overshoot, d = float(data["rate"]), float(data["overshoot"]), vector(data, "d", subject.states)
    if d is None:
        return False, f"d must be a vector of {subject.states} entries"
    if not 0.0 < rate < 1.0:
        return False, f"the rate must lie in (0, 1), got {rate}"
    if not (d > 1e-100).all():
        return False, "d must be positive"
    if not np.nextafter(overshoot, 0.0) >= d.max() / d.min():
        return False, f"the overshoot {overshoot} is smaller than max d / min d"
    box, reason = proved_box(subject, data)
    if box is None:
        return False, reason
    image = JacobianBound(subject, box).apply(d)
    if not (image <= np.nextafter(rate * d, 0.0)).all():
        return False, f"sup |J| d <= {rate} d is not proved in row {int(np.argmax(image / d))}"
    return True, f"|J| d <= {rate:.6g} d over a box that every trajectory enters, rounded outwards"
