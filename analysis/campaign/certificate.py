"""Step ``certificate``, the first of an analysis: the certificate that later steps use.

The step certifies a network for every input, and for inputs in a box: the stated one, or the range of the data with a
margin on both sides. The second claim, if proved, is a further claim of the same file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from stability.certificate import Certificate
from stability.certification import certify
from stability.checkpoint_certificate import CheckpointCertificate
from stability.errors import StabilityError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.search.as_it_runs import as_model, with_run
from stability.search.input_sets.driven import driven_contraction
from stability.search.input_sets.limit_sets import allows_box_claims
from stability.storage.artifacts import WEIGHTS

from ..dynamics.rounding import rounding_distance
from .work import Work

SEQUENCES = 20
"""Number of sequences on which the rounding distance from float64 is measured."""
MARGIN = 0.05
"""Relative widening of the range of the data on both sides."""


def certificate_step(work: Work) -> None:
    """Run the step ``certificate`` of an analysis and write its files."""
    options: dict[str, Any] = {}  # with data, the search for counterexamples starts in the range of the data
    if work.task is not None:
        options = {"input_range": work.input_range, "horizon": int(work.task.test[0].shape[1])}
    certificate = certify(work.subject, seed=work.seed, **options)
    if isinstance(certificate, CheckpointCertificate):  # no other step has a use for it
        if not (work.folder / WEIGHTS).is_file():
            raise UnsupportedError(
                f"its {len(certificate.layers)} gated linear layers are certified from a file of weights: name a run "
                "directory"
            )
        replace(certificate, meta={"model": work.digest}).save(work.file("certificate.json"))
        return
    certificate = in_box(certificate, work.input_range, work.settings.input_box)
    certificate = _with_run(certificate, work)
    work.certificate = replace(certificate, meta={**certificate.meta, **_rounding(work), "model": work.digest})
    work.certificate.save(work.file("certificate.json"))


def _with_run(certificate: Certificate, work: Work) -> Certificate:
    """Return the certificate with a bound on the distance of a run in the model's precision, or the reason for none."""
    dtype = next((str(p.dtype) for p in work.model.parameters()), "") if work.model is not None else ""
    like_data = certificate.meta.get("like_data")
    if certificate.verdict is not Verdict.CERTIFIED or not isinstance(like_data, dict) or not dtype:
        return certificate
    model = as_model(dtype.removeprefix("torch."), work.model)
    return with_run(certificate, model, (np.array(like_data["low"]), np.array(like_data["high"])))


def _rounding(work: Work) -> dict[str, Any]:
    """Return ``meta`` fields on the distance between the running network and the certified map, if it can run."""
    try:
        model, x = work.whole_sequences(SEQUENCES)
        distance = rounding_distance(model, x)
    except StabilityError:
        return {}
    fields = {name: getattr(distance, name) for name in ("largest", "relative", "steps", "sequences", "dtype")}
    return {} if distance.dtype == "float64" else {"rounding": fields}


def in_box(certificate: Certificate, seen: Any, stated: Any = None, *, margin: float = MARGIN) -> Certificate:
    """Return the certificate extended by the claim ``driven_contraction`` for inputs in a box, if it can be proved.

    Args:
        certificate: certificate for every input. It is returned unchanged for subjects without such claims, for example
            gated cells, whose claims are about a box of inputs anyway.
        seen: ``(low, high)``, the range of the data; ``None`` if it is not known.
        stated: ends of the box; ``None`` for the range of the data with the margin.
        margin: widening of the range on both sides, as a share of its width.

    Returns:
        The certificate, with a new entry ``meta["like_data"]``: the box, the margin, whether the user stated the box,
        whether it contains the input of a known counterexample, and the reason if the claim is not proved.
    """
    subject, box = certificate.subject, seen if stated is None else stated
    if not allows_box_claims(subject) or not subject.inputs or not _fits(box, subject.inputs):
        return certificate
    low, high = _ends(box, subject.inputs)
    if stated is None:
        low, high = low - margin * (high - low), high + margin * (high - low)
    inside = (certificate.meta.get("witness") or {}).get("input_in_data_range") is True
    if inside and stated is not None:  # the input lies in the range of the data; does the stated box contain that?
        inside = _fits(seen, subject.inputs) and all(bool(((low <= end) & (end <= high)).all()) for end in seen)
    entry: dict[str, Any] = {"low": low.tolist(), "high": high.tolist(), "why": "", "inside": inside}
    entry |= {"margin": margin if stated is None else 0.0, "stated": stated is not None}
    claims = certificate.claims
    if certificate.verdict is not Verdict.CERTIFIED and not inside:
        try:  # an error must not discard the claim for every input
            claim, finding = driven_contraction(subject, (low, high))
        except StabilityError as error:
            entry["why"] = str(error)
        else:
            claims += (claim,) if claim.verdict is Verdict.CERTIFIED else ()
            entry["why"] = "" if claim.verdict is Verdict.CERTIFIED else finding.detail
    return replace(certificate, claims=claims, meta={**certificate.meta, "like_data": entry})


def _fits(box: Any, inputs: int) -> bool:
    """Return True if the ends of the box are numbers or vectors of ``inputs`` entries."""
    return box is not None and all(np.shape(end) in ((), (inputs,)) for end in box)


def _ends(box: Any, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (inputs,)) for end in box)
    return low, high
