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
from stability.kernel.theorems.stack_contraction import GAINS, GROW
from stability.kernel.theorems.stack_gain import Span, as_stack, combined_gain, layer_gain
from stability.proposals import pack, propose
from stability.search.criteria.interval import fastest_gated_claim, gated_findings
from stability.search.gains.lure import incremental_gain
from stability.search.gains.residual import residual_gain_claim
from stability.search.solvers.deadline import Deadline, TimeLimit

Array = np.ndarray


def stack_gain(
    subject: Any, *, head: Any = None, measure: str = "l2", horizon: int | None = None, time_limit: TimeLimit = None
) -> Claim:
    r"""Prove an upper bound of the incremental l2 gain of a gated cell, a stack or residual blocks.

    .. math:: \sqrt{\sum_t |H (y_t - y'_t)|^2} \le g \sqrt{\sum_t |u_t - u'_t|^2}

    The gain also bounds the change of the output at the last step, and ``certified_radius(model, x, y, gain=claim)``
    computes radii from it. The gain of a stack is the product of the layers' gains. With the measure ``final`` the gain
    of the last layer is smaller; the other layers still output whole sequences.

    Args:
        subject: a ``GatedCell``, a ``LayerStack``, a ``ResidualStack``, or a module with one (``torch.nn.LSTM``,
            several layers).
        head: ``H (k, outputs)``, such as the weights of a linear decoder; the identity by default.
        measure: ``"l2"``, or ``"final"`` for the outputs at the last step alone (discrete, one direction).
        horizon: ``None`` for every horizon, or a number of steps, for which layers with an activation on pairs need not
            contract.
        time_limit: seconds, divided equally among the layers.

    Returns:
        The claim, with the gain as its ``value``; inconclusive if a layer has no finite bound.

    Raises:
        UnsupportedError: another kind of subject, for which ``incremental_gain`` may apply.
        DimensionError: a head that does not fit.
        ConfigurationError: an unknown measure, or a horizon that is no number of steps.

    Example:
        >>> cell = GatedCell("gru", np.ones((3, 1)), np.zeros((3, 1)), input_low=-1.0, input_high=1.0)
        >>> claim = stack_gain(cell)
        >>> str(claim.verdict), claim.value < 10
        ('certified', True)
        >>> half = PairwiseSystem(0.5 * np.eye(2), 0.5 * np.eye(2), np.zeros(2), "abs")
        >>> block = ResidualStack([half], np.eye(2), [2.0 * np.eye(2)])
        >>> round(stack_gain(block).value, 6)  # 1 + 2 * (0.5 / (1 - 0.5))
        3.0
    """
    deadline = Deadline.from_limit(time_limit)
    target = as_subject(subject)
    if not isinstance(target, (GatedCell, LayerStack, ResidualStack)):
        raise UnsupportedError(
            f"stack_gain needs an LSTM, a GRU or a stack, got {type(target).__name__}: use incremental_gain instead"
        )
    stack, span = target if isinstance(target, ResidualStack) else as_stack(target), _span(measure, horizon)
    lower = len(stack.layers) - (stack.directions if isinstance(stack, LayerStack) else 1)
    outputs = stack.outputs if isinstance(stack, ResidualStack) else sum(at.outputs for at in stack.layers[lower:])
    H = None if head is None else np.array(as_matrix("head", head, (None, outputs)))
    claims, at = [], 0
    for k, layer in enumerate(stack.layers):
        columns = None
        if H is not None and k >= lower and isinstance(stack, LayerStack):
            columns = np.ascontiguousarray(H[:, at : at + layer.outputs])
            at += layer.outputs
        layer_span = span if k >= lower else Span("l2", horizon)
        claim = best_layer_claim(layer, columns, layer_span, deadline.share(1.0 / (len(stack.layers) - k)))
        if claim is None:
            return Claim("gain", f"Whether layer {k} has a finite incremental gain is open.", Verdict.INCONCLUSIVE)
        claims.append(claim)
    if isinstance(stack, ResidualStack):
        gain_claim = residual_gain_claim(stack, claims, H, span)
        return gain_claim or Claim("gain", "No incremental gain of the blocks was proved.", Verdict.INCONCLUSIVE)
    total = combined_gain(stack, claims, H, span)
    if isinstance(total, str):
        return Claim("gain", f"No incremental gain was proved: {total}.", Verdict.INCONCLUSIVE)
    total *= GROW  # allowance for machines that add in another order
    data: dict[str, Any] = {"layers": [pack(claim) for claim in claims], "gain": total}
    extras = {"head": H, "measure": None if measure == "l2" else measure, "horizon": horizon}
    data |= {name: value for name, value in extras.items() if value is not None}
    claim = propose(target, "stack_gain", data)
    valid, reason = RULES["stack_gain"](target, claim)
    return claim if valid else Claim("gain", f"No incremental gain was proved: {reason}.", Verdict.INCONCLUSIVE)


def _span(measure: str, horizon: int | None) -> Span:
    as_choice("measure", measure, ("l2", "final"))
    if not (horizon is None or (type(horizon) is int and 0 < horizon < 2**31)):
        raise ConfigurationError(f"horizon must be None or a number of steps, got {horizon!r}")
    return Span(measure, horizon)


def best_layer_claim(layer: Layer, head: Array | None, span: Span, deadline: Deadline) -> Claim | None:
    """Return the layer's claim with the smallest gain."""
    claims = _CLAIMS[type(layer)](layer, head, span, deadline)
    if not claims:
        certificate = certify(layer, refute=False, time_limit=deadline)
        if certificate.verdict is Verdict.CERTIFIED:
            claims.append(certificate.claim)
    usable = [(g, c) for c in claims if not isinstance(g := layer_gain(layer, c, head, span), str)]
    return min(usable, key=lambda pair: pair[0])[1] if usable else None


def _network_claims(
    layer: DrivenSystem | PairwiseSystem, head: Array | None, span: Span, deadline: Deadline
) -> list[Claim]:
    steps = span.horizon if isinstance(layer, PairwiseSystem) else None  # other networks: a bound over every horizon
    options: dict[str, Any] = {"measure": span.measure, "horizon": steps, "time_limit": deadline}
    gain = incremental_gain(layer, output="state" if head is None else head, **options)
    return [] if gain.proof is None or gain.proof.kind not in GAINS else [gain.claim]


def _cell_claims(layer: GatedCell, head: Array | None, span: Span, deadline: Deadline) -> list[Claim]:
    proofs = [fastest_gated_claim(layer, [finding]) for finding in gated_findings(layer, time_limit=deadline)]
    return [proof[0] for proof in proofs if proof is not None]


_CLAIMS: dict[type, Callable[[Any, Array | None, Span, Deadline], list[Claim]]] = {
    DrivenSystem: _network_claims,
    PairwiseSystem: _network_claims,
    GatedCell: _cell_claims,
}
"""Functions that return claims from which a layer's gain follows, by the layer's type."""
