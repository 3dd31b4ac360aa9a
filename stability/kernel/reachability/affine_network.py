r"""Margins of networks without activations as affine functions of the input, in fixed-point arithmetic.

.. math:: M_j(x + d) = M_j(x) + \sum_t g_{j,t}^T d_t

The rows ``g`` are computed from the last step back to the first, by products with the stored matrices as integers over
a power of two. A product is rounded down to ``bits`` binary places. One number for each step bounds the sum of all
rounding errors: ``|(delta P) A| <= |delta P| \|A\|_1``, entry by entry, for any signs. More bits cost only time, so
margins can be as exact as needed, whatever the growth of the states.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import log2

import numpy as np

from stability.kernel.arithmetic.balls import system_balls
from stability.kernel.arithmetic.fixed_point import ExactMatrix, FixedPoint, integers, rounded_ratio
from stability.kernel.reachability.affine_margin import Margin
from stability.kernel.systems.classifier import Classifier
from stability.kernel.systems.driven import DrivenSystem

Array = np.ndarray
SPARE, LONGEST = 160, 20_000
"""Binary places in addition to those for rounding errors, and largest number of steps."""
_ROW, _STEP = 100.0, 300.0
"""Overhead of a row and of a step of a layer, in products of short integers."""
WORK, MEMORY = 3e8, 4e8
"""Limits of a check: products of short integers (about a minute), and bytes of its rows."""


def why_not_applicable(subject: Classifier) -> str | None:
    """Return the reason why the theorem does not cover a network, or ``None``."""
    for layer in subject.layers:
        if not isinstance(layer, DrivenSystem) or (layer.activation != "identity" and layer.system.channels):
            return "a proof by linear margins needs a network without activations"
        A, B, C, D = system_balls(layer.system)
        if any(part.rad.any() for part in (A, B, C)) or D.mid.any() or D.rad.any():
            return "a proof by linear margins needs stored matrices and D = 0"
    return None


Layer = tuple[ExactMatrix, ExactMatrix, ExactMatrix, ExactMatrix, ExactMatrix, ExactMatrix]
"""Matrices ``A, B, C, E, F`` and bias of a layer ``x+ = A x + B (C x + E s + b) + F s`` with input ``s``."""


@dataclass(frozen=True, eq=False)
class Kernel:
    """Logits of all sequences of one length, times the number of steps for a head on the mean.

    Attributes:
        bits: binary places of the integers in the other attributes.
        rows: ``(k, T, p)`` derivatives of the logits by the inputs.
        wrong: ``(T, 1)`` error bound of the rows of each step.
        offset: ``(k, 1)`` logits of a sequence of zeros.
    """

    bits: int
    rows: Array
    wrong: Array
    offset: FixedPoint

    def margin(self, x: Array, label: int, other: int) -> Margin:
        """Return the margin of a class over another one, around an input ``(T, p)``."""
        rows, wrong = self.rows[label] - self.rows[other], 2 * self.wrong
        ints, places = integers(x)
        value = self.offset.ints[label, 0] - self.offset.ints[other, 0] + (int((rows * ints).sum()) >> places)
        off = 2 * self.offset.off + (int((wrong * np.abs(ints)).sum()) >> places) + 2
        return Margin(self.bits, value - off, off, rows, wrong)


def _layers(subject: Classifier) -> list[Layer]:
    out = list[Layer]()
    for layer in subject.layers:
        assert isinstance(layer, DrivenSystem)
        s = layer.system
        out.append(tuple(ExactMatrix.of(part) for part in (s.A, s.B, s.C, layer.E, layer.F, layer.b[:, None])))  # type: ignore[arg-type]
    return out


def growth(layers: list[Layer], steps: int) -> float:
    """Estimate the binary logarithm of the amplification of a rounding over all steps."""
    sizes = [[rounded_ratio(part.size, 1 << part.places) for part in matrices] for matrices in layers]
    most = max(A + B * C for A, B, C, *_ in sizes)
    between = sum(log2(max(B * E + F, 1.0)) for _, B, _, E, F, _ in sizes)
    return steps * log2(max(most, 1.0)) + between + (len(layers) + 3.0) * log2(steps + 1.0)


def planned(subject: Classifier, steps: int) -> tuple[list[Layer], int, float]:
    """Return layers, binary places and cost of ``kernel``, in products of short integers."""
    layers = _layers(subject)
    bits = SPARE + int(min(growth(layers, steps), LONGEST))
    each = sum(part.cost for matrices in layers for part in matrices) + _ROW
    return layers, bits, steps * (each * subject.classes * (1.0 + bits / 1024.0) + _STEP * len(layers))


@lru_cache(maxsize=4)
def kernel(subject: Classifier, steps: int) -> Kernel | None:
    """Return the logits of all sequences of one length; ``None`` if this is too expensive.

    Args:
        subject: a network without activations, see ``why_not_applicable``.
        steps: ``T``.

    Example:
        >>> from stability.systems import LureSystem
        >>> line = DrivenSystem(LureSystem.linear([[0.5]], dt=1.0), "identity", np.zeros((0, 1)), F=[[1.0]])
        >>> found = kernel(Classifier(line, [[1.0], [-1.0]]), 2)
        >>> (found.rows[:, :, 0] / (1 << found.bits)).tolist()
        [[0.5, 1.0], [-0.5, -1.0]]
    """
    (layers, bits, cost), mean = planned(subject, steps), subject.reduction == "mean"
    if bits > LONGEST or not cost <= WORK:
        return None
    if subject.classes * subject.inputs * steps * (64.0 + bits / 8.0) > MEMORY:
        return None
    head = FixedPoint.of(subject.weight, bits)
    worth = [FixedPoint(np.zeros((subject.classes, layer.states), object), 0) for layer in subject.layers]
    offset, rows = FixedPoint.of(subject.bias[:, None], bits).times(steps if mean else 1), list[FixedPoint]()
    for t in range(steps - 1, -1, -1):
        if mean or t == steps - 1:
            worth[-1] = worth[-1] + head
        for k in range(len(layers) - 1, -1, -1):
            A, B, C, E, F, b = layers[k]
            gained = worth[k] @ B
            offset = offset + gained @ b
            reads = gained @ E + worth[k] @ F
            worth[k] = gained @ C + worth[k] @ A
            if k:
                worth[k - 1] = worth[k - 1] + reads  # a layer above reads the whole state
            else:
                rows.append(reads)
    for output_rows, start in zip(worth, subject.starts):
        offset = offset + output_rows @ ExactMatrix.of(start[:, None])
    wrong = np.array([[row.off] for row in reversed(rows)], object)
    return Kernel(bits, np.stack([row.ints for row in reversed(rows)], axis=1), wrong, offset)
