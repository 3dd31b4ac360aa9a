"""Claims about residual blocks and stacks, combined from the claims about their layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stability.certificate import Certificate
from stability.kernel.format.claims import Claim, Verdict
from stability.kernel.format.fields import Refused
from stability.kernel.systems.layer_stack import LayerStack
from stability.kernel.systems.residual_stack import ResidualStack
from stability.kernel.theorems.residual import comparison, least_overshoot, residual_bound
from stability.kernel.theorems.stack_contraction import GROW, Norm, layer_claim, norms_of
from stability.kernel.theorems.stack_gain import Span, combined_gain
from stability.proposals import accepted_claim, pack
from stability.search.gains.pairwise import weight_norm_claim

Array = np.ndarray
SHARES = (0.02, 0.1, 0.3, 0.6, 0.9)
"""Shares of ``1 - rho`` of the slowest layer by which the rate of all blocks may be slower. The share is selected for
which differences shrink by ``TARGET``, overshoot included, in the shortest time.
"""
TARGET = 1e-3


def residual_claim(network: ResidualStack, parts: Sequence[Certificate]) -> Claim | None:
    """Return the contraction claim of the blocks, from certificates of their layers.

    Args:
        network: the blocks.
        parts: one certificate per layer.

    Returns:
        The certified claim, or ``None``.

    Example:
        >>> from stability import PairwiseSystem, certify
        >>> half = PairwiseSystem(0.5 * np.eye(2), 0.5 * np.eye(2), np.zeros(2), "abs")
        >>> blocks = ResidualStack([half, half], np.eye(2), [np.eye(2), np.eye(2)])
        >>> claim = residual_claim(blocks, [certify(half), certify(half)])
        >>> str(claim.verdict), 0.5 < claim.value < 1.0
        ('certified', True)
    """
    if any(part.verdict is not Verdict.CERTIFIED or part.proof is None for part in parts):
        return None
    packed = [pack(part.claim) for part in parts]
    claims = [layer_claim(data) for data in packed]
    try:
        norms = norms_of(network.layers, claims)
        into, out = comparison(network, norms) if not isinstance(norms, str) else (np.zeros(0), np.zeros(0))
    except Refused:
        return None
    if isinstance(norms, str):
        return None
    best: tuple[float, dict[str, object]] | None = None
    slowest = max(norm.rate for norm in norms)
    for share in SHARES:
        rate = slowest + share * (1.0 - slowest)
        weights = _weights(norms, into, out, rate)
        with np.errstate(all="ignore"):
            overshoot = least_overshoot(norms, weights) * GROW
            time = float(np.log(TARGET / overshoot) / np.log(rate))
        if np.isfinite(overshoot) and (best is None or time < best[0]):
            best = time, {"layers": packed, "weights": weights, "rate": rate, "overshoot": overshoot}
    return None if best is None else accepted_claim(network, "residual_contraction", best[1])


def _weights(norms: Sequence[Norm], into: Array, out: Array, rate: float) -> Array:
    """Return the smallest layer weights ``(K,)`` for which the weighted differences shrink by ``rate`` per step."""
    weights: list[float] = []
    lower = 0.0
    for k, norm in enumerate(norms):
        least = rate * into[k] * lower / (rate - norm.rate * GROW) * GROW * GROW
        weights.append(max(least, 1e-3 * max(weights, default=1e3)))
        lower += out[k] * weights[-1]
    return np.array(weights)


def residual_gain_claim(network: ResidualStack, claims: list[Claim], head: Array | None, span: Span) -> Claim | None:
    """Return the gain of the blocks from proved claims of their layers, or ``None``.

    Args:
        network: the blocks.
        claims: one claim per layer: contraction, or a gain to its state.
        head: ``(k, w)`` or ``None``.
        span: number of steps that the claim covers.
    """
    try:
        total = residual_bound(network, claims, head, span)
    except Refused:
        return None
    if isinstance(total, str):
        return None
    data = {"layers": [pack(claim) for claim in claims], "gain": total * GROW, "measure": span.measure}
    data |= {"horizon": span.horizon, **({} if head is None else {"head": head})}
    return accepted_claim(network, "residual_gain", data)


def residual_norm_gain(network: ResidualStack, main: Claim) -> Claim | None:
    """Return the claim of the gain to the last block's output at any time.

    Args:
        network: the blocks.
        main: the claim of contraction, whose proofs give the gains of layers for which norms of weights give none.

    Returns:
        The certified claim, or ``None``.
    """
    contracting = main.proof.data.get("layers", ()) if main.proof is not None else ()
    claims: list[Claim] = []
    for k, layer in enumerate(network.layers):
        claim = weight_norm_claim(layer, "final" if k == len(network.layers) - 1 else "l2")
        if claim is None and k >= len(contracting):
            return None
        claims.append(claim or layer_claim(contracting[k]))
    return residual_gain_claim(network, claims, None, Span("final"))


def stack_norm_gain(stack: LayerStack) -> Claim | None:
    """Claim the gain of a stack of networks with activations on pairs: the product of its layers' gains.

    Args:
        stack: the stack.

    Returns:
        The certified claim ``gain`` of the last layer's state at any time, or ``None``.

    Example:
        >>> from stability import PairwiseSystem
        >>> half = PairwiseSystem(0.6 * np.eye(2), 0.8 * np.eye(2), np.zeros(2), "oplu")
        >>> round(stack_norm_gain(LayerStack([half, half])).value, 6)
        2.0
    """
    last = len(stack.layers) - 1
    layer_claims = [weight_norm_claim(layer, "final" if k == last else "l2") for k, layer in enumerate(stack.layers)]
    claims = [claim for claim in layer_claims if claim is not None]
    if len(claims) < len(layer_claims) or stack.directions != 1:
        return None
    total = combined_gain(stack, claims, None, Span("final"))
    if isinstance(total, str):
        return None
    data = {"layers": [pack(claim) for claim in claims], "gain": total * GROW, "measure": "final"}
    return accepted_claim(stack, "stack_gain", data)
