"""Step ``certificate``, the first of an analysis: the certificate that later steps use.

The step certifies a network for every input, and for inputs in a box: the stated one, or the range of the data with a
margin on both sides. The second claim, if proved, is a further claim of the same file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stability.certificate import Certificate
from stability.certification import certify
from stability.checkpoint_certificate import CheckpointCertificate
from stability.errors import StabilityError, UnsupportedError
from stability.kernel.format.claims import Verdict
from stability.kernel.systems.gated_linear import GatedLinearLayer
from stability.search.as_it_runs import as_model, with_run
from stability.search.input_sets.driven import driven_contraction
from stability.search.input_sets.limit_sets import allows_box_claims
from stability.storage.artifacts import WEIGHTS

from ..dynamics.decisions import decision_margin
from ..dynamics.rounding import rounding_distance
from ..unroll import layer_inputs, only_layer
from .work import Work

SEQUENCES = 20
"""Number of sequences on which the rounding distance from float64 is measured, if nothing is certified."""
RUN_STEPS = 100_000
"""Steps of all sequences together of a measured run of a certified network."""
LONGEST = 1000
"""Steps of a sequence of this run: rounding errors that decay are at their largest after a few time constants."""
HELD = 10
"""Steps for which inputs of this run stay at a corner of the box."""
DECISIONS = 1000
"""Most test inputs whose margins are compared with the effect of rounding."""
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
    work.certificate = replace(certificate, meta={**certificate.meta, "model": work.digest})
    work.certificate.save(work.file("certificate.json"))


def _with_run(certificate: Certificate, work: Work) -> Certificate:
    """Return the certificate with the rounding of a run in the model's precision: proved, or why not, and measured."""
    dtype = "" if work.model is None else next((str(p.dtype) for p in work.model.parameters()), "")
    subject, steps, box = certificate.subject, LONGEST, None
    if certificate.verdict is Verdict.CERTIFIED and dtype and hasattr(subject, "inputs"):
        if not isinstance(subject, GatedLinearLayer):  # whose claims hold in an input set of its own
            box = covered_box(work.input_range, work.settings.input_box, subject)
        length = None if work.task is None else int(work.task.test[0].shape[1])
        certificate = with_run(certificate, as_model(dtype.removeprefix("torch."), work.model), box, length)
        proof = next((claim.proof for claim in certificate.claims if claim.name == "as_it_runs"), None)
        steps = LONGEST if proof is None else min(proof.data.get("steps", LONGEST), LONGEST)
    more = {"rounding": _measured(work, box, steps), "decisions": _decisions(certificate, work)}
    return replace(certificate, meta={**certificate.meta, **{key: value for key, value in more.items() if value}})


def _measured(work: Work, box: Any, steps: int) -> dict[str, Any]:
    """Return the distance of a run to float64: on data, or over 10^5 steps of data and corners of a box."""
    try:
        model, x = work.whole_sequences(SEQUENCES)
        read = layer_inputs(model, x)
        if box is not None and len(box[0]) == read.shape[2]:
            model, x = only_layer(model), box_inputs(read, box, RUN_STEPS // steps, steps, work.seed)
        distance = rounding_distance(model, x)
    except StabilityError:
        return {}
    names = ("largest", "relative", "size", "steps", "sequences", "dtype")
    return {} if distance.dtype == "float64" else {name: getattr(distance, name) for name in names}


def box_inputs(x: Tensor, box: tuple[Any, Any], sequences: int, steps: int, seed: int) -> Tensor:
    """Return inputs in a box: one half repeats sequences of data, the other stays at random corners for some steps.

    Args:
        x: ``(batch, time, p)``, data; entries outside of the box are moved to its end.
        box: its ends, ``(p,)`` each.
        sequences: number of sequences.
        steps: length of each.
        seed: seed of the corners.

    Returns:
        ``(sequences, steps, p)``.

    Example:
        >>> inputs = box_inputs(torch.full((1, 3, 2), 0.5), (np.zeros(2), np.ones(2)), 4, 7, seed=0)
        >>> inputs.shape, inputs[0].unique().tolist(), inputs[2:].unique().tolist()
        (torch.Size([4, 7, 2]), [0.5], [0.0, 1.0])
    """
    low, high = (torch.as_tensor(np.array(end)).to(x) for end in box)
    half = sequences // 2
    data = x[torch.arange(half) % len(x)].repeat(1, -(-steps // x.shape[1]), 1)[:, :steps]
    at_high = np.random.default_rng(seed).random((sequences - half, -(-steps // HELD), x.shape[2])) < 0.5
    corners = torch.where(torch.as_tensor(at_high.repeat(HELD, axis=1)[:, :steps]).to(x.device), high, low)
    return torch.cat([data.clamp(low, high), corners])


def _decisions(certificate: Certificate, work: Work) -> dict[str, float]:
    """Return the margin above which rounding changes no decision, and the share of test data with a larger one."""
    margin = decision_margin(work.model, certificate)
    if margin is None:
        return {}
    try:
        model, x, _, _ = work.answers(DECISIONS)
    except StabilityError:
        return {"margin": margin}
    with torch.no_grad():
        best = model(x).double().topk(2, dim=-1).values
    return {"margin": margin, "share": float((best[..., 0] - best[..., 1] > margin).double().mean())}


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
    subject = certificate.subject
    box = covered_box(seen, stated, subject, margin) if allows_box_claims(subject) else None
    if box is None:
        return certificate
    low, high = box
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


def covered_box(seen: Any, stated: Any, subject: Any, margin: float = MARGIN) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the ends of the box of inputs of claims like the data: its own of a cell, the stated one, or a wider one.

    Args:
        seen: range of the data, see ``in_box``.
        stated: stated box.
        subject: the network.
        margin: widening of the range of the data.

    Returns:
        Two vectors ``(p,)``; ``None`` if no box is known, or one of another size.
    """
    if getattr(subject, "input_low", None) is not None:
        return subject.input_low, subject.input_high
    box = seen if stated is None else stated
    if not subject.inputs or not _fits(box, subject.inputs):
        return None
    low, high = _ends(box, subject.inputs)
    room = margin * (high - low) if stated is None else 0.0
    return low - room, high + room


def _fits(box: Any, inputs: int) -> bool:
    """Return True if the ends of the box are numbers or vectors of ``inputs`` entries."""
    return box is not None and all(np.shape(end) in ((), (inputs,)) for end in box)


def _ends(box: Any, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), (inputs,)) for end in box)
    return low, high
