"""Incremental gains of gated cells and stacks, to their outputs or logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stability.certification import certify
from stability.conversion.subjects import as_subject
from stability.errors import ConfigurationError, UnsupportedError
from stability.kernel.checks import as_choice, as_matrix
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.theorem_table import RULES
from stability.kernel.systems.driven import DrivenSystem
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import Layer, LayerStack
from stability.kernel.systems.pairwise import PairwiseSystem
from stability.kernel.systems.residual_stack import ResidualStack
from stability.kernel.theorems.norm_gain import is_horizon
from stability.kernel.theorems.stack_contraction import GAINS, GROW
from stability.kernel.theorems.stack_gain import Span, as_stack, combined, layer_gain
from stability.proposals import pack, propose
from stability.search.criteria.interval import gated_findings, gated_proof
from stability.search.gains.lure import incremental_gain
from stability.search.gains.residual import residual_gain_claim
from stability.search.solvers.deadline import Deadline, TimeLimit

Array = np.ndarray


def stack_gain(
    subject: Any, *, head: Any = None, measure: str = "l2", horizon: int | None = None, time_limit: TimeLimit = None
) -> Claim:
    r"""A proved upper bound of the incremental l2 gain of a gated cell or of a stack.

    .. math:: \sqrt{\sum_t |H (y_t - y'_t)|^2} \le g \sqrt{\sum_t |u_t - u'_t|^2}

    It bounds the change at the last step as well, over every horizon: ``certified_radius(model, x, y, gain=claim)``
    turns it into radii. Gains of layers on top of each other multiply; that of the last one is smaller where its last
    step alone is asked for, the others put out a whole sequence.

    Args:
        subject: a ``GatedCell``, a ``LayerStack``, a ``ResidualStack``, or a module with one (``torch.nn.LSTM``,
            several layers).
        head: ``H (k, outputs)``, such as the weights of a linear decoder; the identity by default.
        measure: ``"l2"``, or ``"final"`` for the outputs at the last step alone (discrete, one direction).
        horizon: ``None`` for every horizon, or a number of steps: then a layer with an activation on pairs need not
            contract.
        time_limit: seconds, shared evenly by the layers.

    Returns:
        The claim, with the gain as its ``value``; inconclusive where a layer has no finite bound.

    Raises:
        UnsupportedError: another kind of subject (``incremental_gain`` is for those).
        DimensionError: a head that does not fit.
        ConfigurationError: an unknown measure, or a horizon that is no number of steps.

    Example:
        >>> cell = GatedCell("gru", np.ones((3, 1)), np.zeros((3, 1)), input_low=-1.0, input_high=1.0)
        >>> claim = stack_gain(cell)
        >>> str(claim.verdict), claim.value < 10
        ('certified', True)
    """
    deadline = Deadline.after(time_limit)
    target = as_subject(subject)
    if isinstance(target, ResidualStack):
        return residual_gain(target, head=head, measure=measure, horizon=horizon, time_limit=deadline)
    stack = as_stack(target) if isinstance(target, (GatedCell, LayerStack)) else None
    if stack is None:
        raise UnsupportedError(
            f"stack_gain is about LSTM, GRU and stacks; use incremental_gain for a {type(target).__name__}"
        )
    span = _span(measure, horizon)
    top = stack.layers[-stack.directions :]
    H = None if head is None else np.array(as_matrix("head", head, (None, sum(layer.outputs for layer in top))))
    claims, at = [], 0
    for k, layer in enumerate(stack.layers):
        columns, last = None, k >= len(stack.layers) - stack.directions
        if H is not None and last:
            columns = np.ascontiguousarray(H[:, at : at + layer.outputs])
            at += layer.outputs
        asked = span if last else Span("l2", horizon)
        claim = best_claim(layer, columns, asked, deadline.share(1.0 / (len(stack.layers) - k)))
        if claim is None:
            return Claim("gain", f"Whether layer {k} has a finite incremental gain is open.", Verdict.INCONCLUSIVE)
        claims.append(claim)
    total = combined(stack, claims, H, span)
    if isinstance(total, str):
        return Claim("gain", f"No incremental gain was proved: {total}.", Verdict.INCONCLUSIVE)
    total *= GROW  # room for a machine that adds in another order
    data: dict[str, Any] = {"layers": [pack(claim) for claim in claims], "gain": total}
    more = {"head": H, "measure": None if measure == "l2" else measure, "horizon": horizon}
    data |= {name: value for name, value in more.items() if value is not None}
    claim = propose(target, "stack_gain", data)
    valid, reason = RULES["stack_gain"](target, claim)
    return claim if valid else Claim("gain", f"No incremental gain was proved: {reason}.", Verdict.INCONCLUSIVE)


def residual_gain(
    network: ResidualStack, *, head: Any = None, measure: str = "l2", horizon: int | None = None, time_limit: TimeLimit
) -> Claim:
    """The same of residual blocks, see ``stack_gain``: what each adds to the one that it passes on.

    Args:
        network: the blocks.
        head: as in ``stack_gain``.
        measure: as there.
        horizon: as there.
        time_limit: seconds, shared evenly by the layers.

    Returns:
        The claim, inconclusive where a layer has no finite bound.

    Raises:
        DimensionError: a head that does not fit.
        ConfigurationError: an unknown measure, or a horizon that is no number of steps.

    Example:
        >>> half = PairwiseSystem(0.5 * np.eye(2), 0.5 * np.eye(2), np.zeros(2), "abs")
        >>> block = ResidualStack([half], np.eye(2), [2.0 * np.eye(2)])
        >>> round(residual_gain(block, time_limit=None).value, 6)  # 1 + 2 * (0.5 / (1 - 0.5))
        3.0
    """
    deadline, span = Deadline.after(time_limit), _span(measure, horizon)
    H = None if head is None else np.array(as_matrix("head", head, (None, network.outputs)))
    count, claims = len(network.layers), []
    for k, layer in enumerate(network.layers):
        asked = span if k == count - 1 else Span("l2", horizon)
        claim = best_claim(layer, None, asked, deadline.share(1.0 / (count - k)))
        if claim is None:
            return Claim("gain", f"Whether layer {k} has a finite incremental gain is open.", Verdict.INCONCLUSIVE)
        claims.append(claim)
    made = residual_gain_claim(network, claims, H, span)
    return made or Claim("gain", "No incremental gain of the blocks was proved.", Verdict.INCONCLUSIVE)


def _span(measure: str, horizon: int | None) -> Span:
    as_choice("measure", measure, ("l2", "final"))
    if not is_horizon(horizon):
        raise ConfigurationError(f"horizon must be None or a number of steps, got {horizon!r}")
    return Span(measure, horizon)


def best_claim(layer: Layer, head: Array | None, span: Span, deadline: Deadline) -> Claim | None:
    """The layer's claim that gives the smallest gain."""
    found = _CLAIMS[type(layer)](layer, head, span, deadline)
    if not found:
        certificate = certify(layer, refute=False, time_limit=deadline)
        if certificate.verdict is Verdict.CERTIFIED:
            found.append(certificate.claim)
    usable = [(g, c) for c in found if not isinstance(g := layer_gain(layer, c, head, span), str)]
    return min(usable, key=lambda pair: pair[0])[1] if usable else None


def _of_network(
    layer: DrivenSystem | PairwiseSystem, head: Array | None, span: Span, deadline: Deadline
) -> list[Claim]:
    steps = span.horizon if isinstance(layer, PairwiseSystem) else None  # of the others a bound over every horizon
    asked: dict[str, Any] = {"measure": span.measure, "horizon": steps, "time_limit": deadline}
    gain = incremental_gain(layer, output="state" if head is None else head, **asked)
    return [] if gain.proof is None or gain.proof.kind not in GAINS else [gain.claim]


def _of_cell(layer: GatedCell, head: Array | None, span: Span, deadline: Deadline) -> list[Claim]:
    proofs = [gated_proof(layer, [finding]) for finding in gated_findings(layer, time_limit=deadline)]
    return [proof[0] for proof in proofs if proof is not None]


_CLAIMS: dict[type, Callable[[Any, Array | None, Span, Deadline], list[Claim]]] = {
    DrivenSystem: _of_network,
    PairwiseSystem: _of_network,
    GatedCell: _of_cell,
}
"""Who makes claims from which a layer's gain follows."""
