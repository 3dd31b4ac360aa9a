r"""Theorems on residual blocks around recurrent layers: gain and contraction.

Let ``d`` denote differences of two runs, ``g_k`` the scales in front of layer ``k``, ``G_k`` the proved l2 gain of
layer ``k`` to its whole output, ``|M|`` the 2-norm of a matrix, and ``c`` the Lipschitz constant of the activation
before the mixing. Then

.. math:: |d s_k| \le |d s_{k-1}| + |M_k|\, c\, |d y_k| \le (1 + |M_k|\, c\, |g_k|_\infty\, G_k)\, |d s_{k-1}|,
          \qquad |d s_0| \le |E|\, |u|

in the l2 norm over the sequence, which proves ``residual_gain``. For the output at the last step alone,
:math:`|d s_K(T)| \le |d s_{K-1}|_2 + |M_K|\, c\, |d y_K(T)|`, so that the last layer needs only a gain to its last
output. With a linear head ``H`` the last factor is :math:`|H| + |H M_K|\, c\, |g_K|_\infty\, G_K`.

``residual_contraction``: let layer ``k`` contract at rate :math:`\rho_k` in a norm :math:`V_k`, which an input
difference of size one increases by at most :math:`a_k`, and let :math:`|d y_k| \le o_k V_k`. Then two runs under one
input have

.. math:: V_k(t + 1) \le \rho_k V_k(t) + a_k |g_k|_\infty \sum_{j < k} |M_j|\, c\, o_j V_j(t + 1) .

Therefore weights :math:`w > 0` with :math:`\rho_k w_k + r\, a_k |g_k|_\infty \sum_{j<k} |M_j| c\, o_j w_j \le r\, w_k`
make :math:`\max_k V_k / w_k` shrink by the factor ``r`` per step.
"""

from __future__ import annotations

import math

import numpy as np

from stability.kernel.arithmetic.definiteness import round_up
from stability.kernel.arithmetic.floating_point import LOST
from stability.kernel.arithmetic.intervals import euclidean_norms
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import (
    AnyArray,
    Number,
    NumberOrNull,
    Parts,
    ProofData,
    Refused,
    Text,
    require,
    required,
)
from stability.kernel.format.sentences import decays, gain_bound
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.residual_stack import STRETCH, ResidualStack
from stability.kernel.theorems.multiplier_lmi import Contraction
from stability.kernel.theorems.norm_gain import prove_above, require_span
from stability.kernel.theorems.stack_contraction import CONTRACTING, GAINS, GROW, Norm, norms_of, proved_layers
from stability.kernel.theorems.stack_gain import Span, layer_gain

Array = np.ndarray
_SLACK = (1e-12, 1e-10, 1e-8, 1e-6)  # relative enlargements of a computed norm, tried in turn


def norm_above(M: Array) -> float:
    """Prove a sharp upper bound of the 2-norm of a matrix.

    Args:
        M: ``(m, n)``.

    Raises:
        Refused: an entry is too large for its rounding to be bounded.

    Example:
        >>> 5.0 <= norm_above(np.array([[3.0], [4.0]])) <= 5.0 * (1 + 1e-6)
        True
    """
    size = float(np.abs(M).max(initial=0.0))
    require(math.isfinite(size) and size <= 1e100, "an entry is too large for its rounding to be bounded here")
    if size == 0.0:
        return 0.0
    power = math.frexp(size)[1]
    scaled = np.ldexp(M, -power)  # exact, but for entries 1e300 times smaller than the largest
    least = float(np.linalg.norm(scaled, 2))
    for slack in _SLACK:
        bound = least * (1.0 + slack)
        if prove_above(np.full(int(M.shape[1]), bound * bound * (1.0 - 4e-16)), scaled).holds:
            return round_up(math.ldexp(round_up(bound), power))
    raise Refused("the norm of a matrix between the layers is not proved")


def branches(network: ResidualStack) -> list[tuple[float, float]]:
    """Return for each block the gain from its layer's output to the residual stream, and the largest scale.

    Raises:
        Refused: a norm that is not proved.
    """
    stretch = STRETCH[network.between]
    scales = np.abs(network.scales).max(axis=1, initial=0.0)
    return [(norm_above(M) * stretch, float(g)) for M, g in zip(network.mixing, scales)]


def gain_below(network: ResidualStack, claims: list[Claim], span: Span) -> float | str:
    """Return the gain to the last block's layer input, from the proved claims of the layers; or the reason for none.

    Raises:
        Refused: a norm that is not proved.
    """
    total = norm_above(network.encoder)
    for k, (out, scale) in enumerate(branches(network)[:-1]):
        gain = layer_gain(network.layers[k], claims[k], None, Span("l2", span.horizon))
        if isinstance(gain, str):
            return f"layer {k}: {gain}"
        total *= 1.0 + out * scale * gain
    return total


def residual_bound(network: ResidualStack, claims: list[Claim], head: Array | None, span: Span) -> float | str:
    """Return the gain of the network from its layers' proved claims, rounded up, or the reason for none.

    Args:
        network: the blocks.
        claims: one claim per layer: contraction, or a gain to its state.
        head: ``(k, w)``; ``None`` for the identity.
        span: number of steps that the claim covers.

    Raises:
        Refused: a norm that is not proved.
    """
    below = gain_below(network, claims, span)
    gain = layer_gain(network.layers[-1], claims[-1], None, span)
    if isinstance(below, str) or isinstance(gain, str):
        return below if isinstance(below, str) else f"layer {len(claims) - 1}: {gain}"
    scale = float(np.abs(network.scales[-1]).max(initial=0.0)) * STRETCH[network.between]
    M, size = network.mixing[-1], 1.0
    through = norm_above(M)
    if head is not None:
        size = norm_above(head)
        through = min(size * through, norm_above(head @ M) + _product_error(head, M))
    total = round_up(below * (size + through * scale * gain) * GROW)
    return total if math.isfinite(total) else "the bound overflows"


def _product_error(head: Array, M: Array) -> float:
    """Return an upper bound of the 2-norm of the rounding errors of ``head @ M``."""
    return float(euclidean_norms(head.ravel()) * euclidean_norms(M.ravel())) * (len(M) + 4) * 2.3e-16 + LOST


def comparison(network: ResidualStack, norms: list[Norm]) -> tuple[Array, Array]:
    """Return the gains ``(K,)`` from the residual stream to each layer's norm, and from that norm to the stream.

    Raises:
        Refused: a norm that is not proved.
    """
    both = branches(network)
    into = np.array([norm.gain * scale for norm, (_, scale) in zip(norms, both)])
    return into, np.array([norm.out * out for norm, (out, _) in zip(norms, both)])


def least_overshoot(norms: list[Norm], weights: Array) -> float:
    """Return the overshoot of the weights, rounded up."""
    out = math.hypot(*(norm.out * w for norm, w in zip(norms, weights)))
    return max(1.0, out * max(norm.into / w for norm, w in zip(norms, weights)) * GROW)


@certifies("residual_gain", subject=ResidualStack, claim="gain", value="gain")
class ResidualGain(ProofData):
    """Data: ``layers``, kind, data and rate of each layer's proof; optional ``head`` (k, w)."""

    layers: Parts
    gain: Number
    measure: Text
    horizon: NumberOrNull
    head: AnyArray | None = None

    def sentence(self, subject: ResidualStack, claim: Claim) -> str:
        head = "" if self.head is None else ", under the linear head of the proof"
        return gain_bound(
            subject, self.gain, self.measure, self.horizon, f"The output is that of the last block{head}."
        )

    def check(self, subject: ResidualStack, claim: Claim) -> str:
        head = self.head
        fits = head is None or (head.ndim == 2 and head.shape[1] == subject.outputs)
        require(fits, f"head must be a finite matrix with {subject.outputs} columns")
        require_span(self.measure, self.horizon)
        claims = proved_layers(subject.layers, self.layers, (*CONTRACTING, *GAINS), "gain is proved")
        bound = required(residual_bound(subject, claims, head, Span(self.measure, self.horizon)))
        require(self.gain >= bound, f"the blocks give the gain {bound}, more than {self.gain}")
        return f"the gains of {len(claims)} residual blocks, each proved, give at most {self.gain:.6g}"


@certifies("residual_contraction", subject=ResidualStack, claim="contraction", value="rate")
class ResidualContraction(Contraction):
    """Data: ``layers``, kind, data and rate of each layer's proof; ``weights`` (K,), one per layer."""

    layers: Parts
    weights: AnyArray

    def check(self, subject: ResidualStack, claim: Claim) -> str:
        w, rate = self.weights, self.rate
        require(decays(rate, discrete=True), "the rate must be one of exponential decay")
        require(w.shape == (len(subject.layers),), "weights must hold one number per layer")
        require(bool((w > 0.0).all()), "a weight is not positive")
        require(bool((w >= 1e-100).all() and (w <= 1e100).all()), "a weight is too small or too large")
        claims = proved_layers(subject.layers, self.layers, CONTRACTING, "layer is proved to contract")
        norms = required(norms_of(subject.layers, claims))
        into, out = comparison(subject, norms)
        below = 0.0
        for k, norm in enumerate(norms):
            kept = (norm.rate * w[k] + rate * into[k] * below) * GROW
            require(
                kept <= rate * w[k], f"block {k}: the weights shrink by {kept / w[k]:.6g} a step, not by {rate:.6g}"
            )
            below += out[k] * w[k]
        least = least_overshoot(norms, w)
        require(self.overshoot >= least, f"the weights give the overshoot {least}, more than {self.overshoot}")
        return f"all {len(norms)} layers are proved to contract, and so do the blocks"
