r"""Bounds of logits and of decisions under rounding, from a proved bound of the states.

A run whose states are within ``B`` of the exact ones, and whose logits are :math:`W (C x + D u) + b`, changes the
difference of logits ``i`` and ``j`` by at most :math:`|(w_i - w_j)^T C|_2 B` and the rounding of the head, in the
arithmetic of the run. The head is that of the given model: a certificate is about the recurrent layer, and ``verify``
does not check these numbers.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from stability import ExecutionModel
from stability.certificate import Certificate
from stability.errors import UnsupportedError
from stability.kernel.format.claims import Claim
from stability.search.as_it_runs import size_of_states

from ...models import SequenceModel
from ...models.linear import LinearLayer


class LogitChange(NamedTuple):
    """Largest change by rounding of one logit, and of the difference of two."""

    logit: float
    difference: float


def run_claim(certificate: Certificate) -> Claim | None:
    """Return the proved claim of a certificate about its run in an arithmetic, if there is one."""
    return next((claim for claim in certificate.claims if claim.name == "as_it_runs"), None)


def logit_change(model: SequenceModel, certificate: Certificate, claim: Claim) -> LogitChange:
    """Bound the change of logits between a run of a network and exact arithmetic, at every step of the claim.

    Args:
        model: the network, with logits at the last step or at all steps.
        certificate: certificate of its layer.
        claim: the claim ``as_it_runs`` about the arithmetic of the run.

    Returns:
        The bounds, infinite if logits may exceed the largest number of a format; no decision whose margin (difference
        of the two largest logits) is above ``difference`` changes.

    Raises:
        UnsupportedError: logits of a mean output, or of a layer whose output is neither its state nor linear in it.

    Example:
        >>> from stability import certify
        >>> from stability.models import ContractingRNN
        >>> _ = torch.manual_seed(0)
        >>> model = SequenceModel(ContractingRNN(2, 4, rate=0.8), 3)
        >>> certificate = certify(model, arithmetic="float32", input_box=(0.0, 1.0))
        >>> change = logit_change(model, certificate, run_claim(certificate))
        >>> 0.0 < change.logit <= change.difference < 2.1 * change.logit < 1e-3
        True
    """
    layer, bound = model.layer, float(claim.value or 0.0)
    data = {} if claim.proof is None else claim.proof.data
    state = size_of_states(certificate.subject, claim) + bound
    weight = model.head.weight.detach().double()
    bias = 0.0 if model.head.bias is None else float(model.head.bias.detach().abs().max())
    execution = ExecutionModel.from_payload(data["arithmetic"])

    def rounding(terms: int) -> float:
        return 1.01 * float(execution.relative_error(terms, 2))

    read, size, error = weight, state, 0.0
    if model.reduction == "mean" or not (layer.outputs_hidden or isinstance(layer, LinearLayer)):
        raise UnsupportedError(f"the logits of {type(layer).__name__}, {model.reduction}, have no bound here")
    if isinstance(layer, LinearLayer):
        inputs = torch.as_tensor(np.maximum(np.abs(data["low"]), np.abs(data["high"])))
        with torch.no_grad():
            out, D = layer.realise(double=True).out, layer.D.double().abs()
            inexact = 2.0 * float((layer.realise().out.double() - out).abs().max())  # as for other computed weights
        rows = (out.norm(dim=1) + inexact * math.sqrt(out.shape[1])) * state
        rows = rows + (D * inputs if D.dim() == 1 else D @ inputs)
        terms = out.shape[1] + len(inputs)
        lost = rounding(terms) * rows + inexact * math.sqrt(out.shape[1]) * state
        read, size, error = weight @ out, float((rows + lost).norm()), float(lost.norm())
    terms, sums = weight.shape[1], float(weight.abs().sum(dim=1).max())
    reached = float(weight.norm(dim=1).max()) * size + bias
    head = rounding(terms) * reached + execution.lost * (terms + 2.0 + sums + (terms + 1.0) * size)
    head = head + 1.01 * sums * float(execution.factor_errors(np.array([size]))[0])
    head = head if 2.0 * max(reached, sums) < execution.largest else math.inf
    logit = float(read.norm(dim=1).max()) * bound + float(weight.norm(dim=1).max()) * error + head
    apart, between = (float((W[:, None] - W).norm(dim=2).max()) for W in (read, weight))
    return LogitChange(logit, apart * bound + between * error + 2.0 * head)


def decision_margin(model: Any, certificate: Certificate) -> float | None:
    """Return the margin above which no decision of a run differs from that of exact arithmetic, if it is known.

    Args:
        model: the network; of others than a ``SequenceModel`` nothing is known.
        certificate: its certificate, with a claim about the run.
    """
    claim = run_claim(certificate)
    if claim is None or not isinstance(model, SequenceModel):
        return None
    try:
        margin = logit_change(model, certificate, claim).difference
    except UnsupportedError:
        return None
    return margin if math.isfinite(margin) else None
