"""The first step of an analysis: the certificate, which later steps build on.

Of a network it answers twice: for every input, and for inputs like those of the data: their range, and a margin on both
sides. The second answer stands among the further claims of the same file, where it is proved.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stability.certificate import Certificate, Verdict
from stability.certify import certify
from stability.claims.driven import driven_contraction
from stability.errors import StabilityError
from stability.stacks.skewed import takes_box

from ...dynamics.rounding import rounding_distance
from ..work import Work
from . import step

SEQUENCES = 20
"""On which the distance of the network's own precision from float64 is measured."""
MARGIN = 0.05
"""By what share of its width the range of the data is widened on both sides."""


@step("certificate")
def _certificate_step(work: Work) -> None:
    use: dict[str, Any] = {}  # counter-examples are looked for where the data are, and said to lie there or not
    if work.task is not None:
        use = {"input_range": work.input_range, "horizon": int(work.task.test[0].shape[1])}
    found = certify(work.subject, seed=work.seed, time_limit=work.budget.seconds, **use)
    if work.input_range is not None:
        found = like_data(found, work.input_range, seconds=work.budget.box_seconds)
    work.certificate = replace(found, meta={**found.meta, **_rounding(work)})
    work.certificate.save(work.file("certificate.json"))


def _rounding(work: Work) -> dict[str, Any]:
    """What ``meta`` says of the distance between the network that runs and the map of the claim, if it can be run."""
    try:
        model, x = work.whole_sequences(SEQUENCES)
        found = rounding_distance(model, x)
    except StabilityError:
        return {}
    told = {name: getattr(found, name) for name in ("largest", "relative", "steps", "sequences", "dtype")}
    return {} if found.dtype == "float64" else {"rounding": told}


def like_data(certificate: Certificate, seen: Any, *, margin: float = MARGIN, seconds: float = 2.0) -> Certificate:
    """The certificate with what is proved of inputs like those of the data.

    Args:
        certificate: about every input; of a network, a map or a flow, or a stack of maps. Any other is returned as it
            is: a claim about gated cells is about a box of inputs already.
        seen: ``(low, high)``, the range of the data.
        margin: by what share of its width it is widened on both sides.
        seconds: for the sets and the inequality on them.

    Returns:
        With ``meta["like_data"]``: the widened range, the margin, and why nothing is proved where it is not; where it
        is, with the claim ``driven_contraction``.
    """
    subject = certificate.subject
    if not takes_box(subject) or not subject.inputs:
        return certificate
    if any(np.shape(end) not in ((), (subject.inputs,)) for end in seen):  # the range of something else
        return certificate
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (subject.inputs,)) for end in seen)
    low, high = low - margin * (high - low), high + margin * (high - low)
    asked: dict[str, Any] = {"low": low.tolist(), "high": high.tolist(), "margin": margin, "why": ""}
    claims = certificate.claims
    inside = (certificate.meta.get("witness") or {}).get("input_in_data_range") is True
    if certificate.verdict is not Verdict.CERTIFIED and not inside:
        try:  # the answer for every input is kept, whatever comes of this one
            claim, finding = driven_contraction(subject, (low, high), time_limit=seconds)
        except StabilityError as error:
            asked["why"] = str(error)
        else:
            claims += (claim,) if claim.verdict is Verdict.CERTIFIED else ()
            asked["why"] = "" if claim.verdict is Verdict.CERTIFIED else finding.detail
    return replace(certificate, claims=claims, meta={**certificate.meta, "like_data": asked})
