"""Certificates of stacks, composed from the certificates of their layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stability.certificate import Certificate, Finding
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.theorems.stack_contraction import GROW, compose, layer_claim
from stability.proposals import accepted_claim, pack


def stack_claim(stack: LayerStack, parts: Sequence[Certificate], *, tolerance: float = 1e-3) -> Claim | None:
    """Return the claim about a stack that the certificates of its layers support.

    The claim has the rate of the slowest layer. If two layers are equally slow within ``tolerance``, the claimed decay
    is slightly slower.

    Args:
        stack: the stack.
        parts: one certificate per layer, in the order of ``stack.layers``.
        tolerance: fraction of ``1 - rho`` (continuous time: of ``lambda``) given up if rates are equal.

    Returns:
        The certified claim; a refuted claim if a layer of the lowest level is refuted; otherwise ``None``.

    Source:
        Cascades of contracting systems: W. Lohmiller, J.-J. Slotine, "On contraction analysis for non-linear systems",
        Automatica 34 (1998), section 3.8.
    """
    for k, part in enumerate(parts[: stack.directions]):
        if part.verdict is Verdict.REFUTED and part.proof is not None:
            data = {"layer": k, "kind": part.proof.kind, "data": dict(part.proof.data)}
            return accepted_claim(stack, "cascade_layer", data)
    if any(part.verdict is not Verdict.CERTIFIED or part.proof is None for part in parts):
        return None
    packed = [pack(part.claim) for part in parts]
    claims = [layer_claim(data) for data in packed]
    composed = compose(stack, claims, tolerance)
    if isinstance(composed, str):
        return None
    rate, overshoot = composed[0], composed[1] * GROW  # slack for a checker that sums in another order
    data = {"layers": packed, "rate": rate, "overshoot": overshoot, "tolerance": tolerance}
    return accepted_claim(stack, "cascade", data)


def layer_findings(parts: Sequence[Certificate], discrete: bool) -> tuple[Finding, ...]:
    """Return the certificate of every layer as a finding about the stack.

    Args:
        parts: one certificate per layer.
        discrete: True if rates are per step.

    Returns:
        One finding per layer. For a layer without a certificate it holds the criterion with the largest margin.
    """
    return tuple(_layer_finding(f"layer {k + 1}", part, discrete) for k, part in enumerate(parts))


def _layer_finding(name: str, part: Certificate, discrete: bool) -> Finding:
    if part.rate is not None:
        margin = 1.0 - part.rate if discrete else part.rate
        return Finding(name, part.verdict is Verdict.CERTIFIED, margin, f"{part.verdict} ({part.criterion})", part.rate)
    tried = sorted(part.findings, key=lambda found: -np.inf if found.margin is None else found.margin)
    reason = f"{tried[-1].criterion}: {tried[-1].detail}" if tried else str(part.criterion)
    return Finding(name, False, tried[-1].margin if tried else None, f"{part.verdict} ({reason})")
