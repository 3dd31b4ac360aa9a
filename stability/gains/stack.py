"""Incremental gains of gated cells and stacks, to their outputs or to the logits of a linear head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stability.certificate import Claim, Verdict
from stability.certify import certify
from stability.criteria.interval import gated_findings, gated_proof
from stability.errors import UnsupportedError
from stability.gains.lure import incremental_gain
from stability.gated.cell import GatedCell
from stability.rules.registry import RULES, propose
from stability.rules.stack_contraction import GROW, pack
from stability.rules.stack_gain import as_stack, combined, layer_gain
from stability.solve.deadline import Deadline, TimeLimit
from stability.stacks.stack import Layer, LayerStack
from stability.systems import DrivenSystem, as_matrix
from stability.systems.subjects import as_subject

Array = np.ndarray


def stack_gain(subject: Any, *, head: Any = None, time_limit: TimeLimit = None) -> Claim:
    r"""A proved upper bound of the incremental l2 gain of a gated cell or of a stack.

    .. math:: \sqrt{\sum_t |H (y_t - y'_t)|^2} \le g \sqrt{\sum_t |u_t - u'_t|^2}

    It bounds the change at the last step as well, over every horizon: ``certified_radius(model, x, y, gain=claim)``
    turns it into radii.

    Args:
        subject: a ``GatedCell``, a ``LayerStack``, or a module with one (``torch.nn.LSTM``, several layers).
        head: ``H (k, outputs)``, such as the weights of a linear decoder; the identity by default.
        time_limit: seconds, shared evenly by the layers.

    Returns:
        The claim, with the gain as its ``value``; inconclusive where a layer has no finite bound.

    Raises:
        UnsupportedError: another kind of subject (``incremental_gain`` is for those).
        DimensionError: a head that does not fit.

    Example:
        >>> cell = GatedCell("gru", np.ones((3, 1)), np.zeros((3, 1)), input_low=-1.0, input_high=1.0)
        >>> claim = stack_gain(cell)
        >>> str(claim.verdict), claim.value < 10
        ('certified', True)
    """
    deadline = Deadline.after(time_limit)
    target = as_subject(subject)
    stack = as_stack(target) if isinstance(target, (GatedCell, LayerStack)) else None
    if stack is None:
        raise UnsupportedError(
            f"stack_gain is about LSTM, GRU and stacks; use incremental_gain for a {type(target).__name__}"
        )
    top = stack.layers[-stack.directions :]
    H = None if head is None else np.array(as_matrix("head", head, (None, sum(layer.outputs for layer in top))))
    claims, at = [], 0
    for k, layer in enumerate(stack.layers):
        columns = None
        if H is not None and k >= len(stack.layers) - stack.directions:
            columns = np.ascontiguousarray(H[:, at : at + layer.outputs])
            at += layer.outputs
        claim = _best(layer, columns, deadline.share(1.0 / (len(stack.layers) - k)))
        if claim is None:
            return Claim("gain", f"Whether layer {k} has a finite incremental gain is open.", Verdict.INCONCLUSIVE)
        claims.append(claim)
    total = combined(stack, claims, H)
    if isinstance(total, str):
        return Claim("gain", f"No incremental gain was proved: {total}.", Verdict.INCONCLUSIVE)
    total *= GROW  # room for a machine that adds in another order
    data: dict[str, Any] = {"layers": [pack(claim) for claim in claims], "gain": total}
    if H is not None:
        data["head"] = H
    claim = propose(target, "stack_gain", data)
    valid, reason = RULES["stack_gain"](target, claim)
    return claim if valid else Claim("gain", f"No incremental gain was proved: {reason}.", Verdict.INCONCLUSIVE)


def _best(layer: Layer, head: Array | None, deadline: Deadline) -> Claim | None:
    """The layer's claim that gives the smallest gain."""
    found = _CLAIMS[type(layer)](layer, head, deadline)
    if not found:
        certificate = certify(layer, refute=False, time_limit=deadline)
        if certificate.verdict is Verdict.CERTIFIED:
            found.append(certificate.claim)
    usable = [(g, c) for c in found if not isinstance(g := layer_gain(layer, c, head), str)]
    return min(usable, key=lambda pair: pair[0])[1] if usable else None


def _of_network(layer: DrivenSystem, head: Array | None, deadline: Deadline) -> list[Claim]:
    gain = incremental_gain(layer, output="state" if head is None else head, time_limit=deadline)
    return [] if gain.proof is None else [gain.claim]


def _of_cell(layer: GatedCell, head: Array | None, deadline: Deadline) -> list[Claim]:
    proofs = [gated_proof(layer, [finding]) for finding in gated_findings(layer, time_limit=deadline)]
    return [proof[0] for proof in proofs if proof is not None]


_CLAIMS: dict[type, Callable[[Any, Array | None, Deadline], list[Claim]]] = {
    DrivenSystem: _of_network,
    GatedCell: _of_cell,
}
"""Who makes claims from which a layer's gain follows."""
