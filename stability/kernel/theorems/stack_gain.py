r"""Theorem ``stack_gain``: incremental l2 gain of a gated cell or a stack, from input to output sequence.

Two runs start in one state and read input sequences that differ by ``u``. A layer with a proof of rule ``gain_lmi`` or
``norm_gain`` has that gain. A layer that contracts at rate ``rho`` in a norm ``V``, and whose next state an input
difference of size one moves by at most ``g`` in it, has ``V(t + 1) <= rho V(t) + g |u(t)|``; summed over time (Young's
inequality), ``|V|_2 <= g / (1 - rho) |u|_2`` (``g / lambda`` in continuous time). Gains of layers on top of each other
multiply; those side by side add in squares. A linear head on the last level multiplies what is left. Where only the
outputs at the last step are asked for, the last level may have a gain to these; what it reads is a whole sequence all
the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from stability.kernel.arithmetic.floating_point import TINY
from stability.kernel.arithmetic.intervals import euclidean_norms, upper_product
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Number, NumberOrNull, Parts, ProofData, Text, require, required
from stability.kernel.format.sentences import gain_bound
from stability.kernel.format.theorem_table import certifies
from stability.kernel.systems.gated_cell import GatedCell
from stability.kernel.systems.layer_stack import Layer, LayerStack
from stability.kernel.theorems.norm_gain import require_span
from stability.kernel.theorems.stack_contraction import (
    CONTRACTING,
    GAINS,
    GROW,
    layer_norm,
    proved_stack,
    require_parts,
)

Array = np.ndarray


def as_stack(subject: GatedCell | LayerStack) -> LayerStack:
    """Return a stack unchanged, a single gated cell as a stack of one."""
    return LayerStack([subject]) if isinstance(subject, GatedCell) else subject


@dataclass(frozen=True)
class Span:
    """Measured output of a gain and its horizon: ``l2``, the whole output, or ``final``, the last step."""

    measure: str = "l2"
    horizon: float | None = None

    def covers(self, data: Mapping[str, Any]) -> bool:
        """Return True if a proof's bound implies this one: that of the whole output bounds its last step as well."""
        return data["measure"] in ("l2", self.measure) and data["horizon"] in (None, self.horizon)


def layer_gain(layer: Layer, claim: Claim, head: Array | None, span: Span = Span()) -> float | str:
    """Return the gain to ``head @ output`` from a layer's proved claim, up to a few roundings; or the reason for none.

    Args:
        layer: the layer.
        claim: contraction, or a gain whose own output matrix is ``head`` (the identity where it is ``None``).
        head: ``(k, outputs)``.
        span: number of steps that the layer's claim covers.
    """
    assert claim.proof is not None
    data = claim.proof.data
    if claim.proof.kind in GAINS:
        wanted = np.eye(layer.outputs) if head is None else head
        if not span.covers(data) or not np.array_equal(data["H"], wanted):
            return "its gain is one to another output, or over another horizon"
        return float(claim.value or math.inf)
    norm = layer_norm(layer, claim)
    if isinstance(norm, str):
        return norm
    if claim.proof.kind == "interval_jacobian":
        d = data["d"][: layer.outputs]
        reach = d if head is None else upper_product(np.abs(head), d)
        out = float(euclidean_norms(reach))
    else:
        out = norm.out * (1.0 if head is None else float(euclidean_norms(head.ravel())))
    room = 1.0 - norm.rate if layer.is_discrete else norm.rate
    return max(out * norm.gain / room, TINY)


def combined_gain(stack: LayerStack, claims: list[Claim], head: Array | None, span: Span = Span()) -> float | str:
    """Return the gain of the stack from its layers' proved claims, rounded up, or the reason for none."""
    total, wide = 1.0, stack.directions
    for level in range(stack.levels):
        last, at = level == stack.levels - 1, 0
        gains: list[float] = []
        for k in range(level * wide, (level + 1) * wide):
            layer = stack.layers[k]
            columns = None if head is None or not last else np.ascontiguousarray(head[:, at : at + layer.outputs])
            gain = layer_gain(layer, claims[k], columns, span if last else replace(span, measure="l2"))
            if isinstance(gain, str):
                return f"layer {k}: {gain}"
            gains.append(gain)
            at += layer.outputs
        # outputs side by side add in squares; under a head their images add up
        total = max(total * (sum(gains) if last and head is not None else math.hypot(*gains)), TINY)
    total *= GROW
    return total if math.isfinite(total) else "the bound overflows"


@certifies("stack_gain", subject=(GatedCell, LayerStack), claim="gain", value="gain")
class StackGain(ProofData):
    """Data: ``layers``, kind, data and rate of each layer's proof; optional ``head`` (k, outputs).

    ``measure`` and ``horizon`` where it is not about the whole output over every horizon.
    """

    layers: Parts
    gain: Number
    head: AnyArray | None = None
    measure: Text = "l2"
    horizon: NumberOrNull = None

    def sentence(self, subject: GatedCell | LayerStack, claim: Claim) -> str:
        gated = any(layer.rests_on_boxes for layer in as_stack(subject).layers)
        start = " in the invariant boxes of the proof" if gated else ""
        head = "" if self.head is None else ", under the linear head of the proof"
        output = f"The output is that of the last level{head}."
        return gain_bound(subject, self.gain, self.measure, self.horizon, output, start)

    def check(self, subject: GatedCell | LayerStack, claim: Claim) -> str:
        stack, head = as_stack(subject), self.head
        require_parts(self.layers, stack.layers)
        width = sum(layer.outputs for layer in stack.layers[-stack.directions :])
        fits = head is None or head.shape[1:] == (width,)
        require(fits, f"head must be a finite matrix with {width} columns")
        require_span(self.measure, self.horizon)
        plain = (self.measure, self.horizon) == ("l2", None)
        one_way = stack.directions == 1 and stack.is_discrete
        require(plain or one_way, "the last of some steps is known of discrete stacks with one direction")
        claims = proved_stack(stack, self.layers, (*CONTRACTING, *GAINS), "gain is proved")
        bound = required(combined_gain(stack, claims, head, Span(self.measure, self.horizon)))
        require(self.gain >= bound, f"the layers give the gain {bound}, more than {self.gain}")
        return f"the gains of {len(claims)} layers, each proved, give at most {self.gain:.6g}"
