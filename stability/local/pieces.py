r"""Pieces of an l2 ball of inputs: what of it lies in a box, and the tube around the runs from there.

Inputs ``x' = c + v`` of a box with middle ``c`` and half widths ``b`` lie in the ball where
:math:`|v + \delta|_2 \le r` for :math:`\delta = c - x`. So a form :math:`c_i + L v + \dots` stays, beside what the box
says of it, within :math:`|L|_2 r` of :math:`c_i - L \delta`; and to a function ``F`` of the symbols
:math:`\lambda (|v + \delta|^2 - r^2)` may be added for any price :math:`\lambda \ge 0`: it is not positive in the ball.
With a budget for each step the same holds step by step: of :math:`\sum_t |L_t|_2 r`, and of one price for each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from stability.local.forms import Form, Tube, gamma
from stability.local.leaves import entries
from stability.local.parabolas import Quadratic
from stability.rigor.constants import EPS, LOST, TINY
from stability.rigor.intervals import length

Array = np.ndarray


def beyond(x: Array, radius: float, low: Array, high: Array, each: bool = False) -> bool:
    """Whether a box has no point of the ball, rounding counted.

    Args:
        x: ``(T, p)``, the middle of the ball.
        radius: of the ball.
        low: ``(T, p)``.
        high: ``(T, p)``.
        each: whether every step has a ball of its own.

    Example:
        >>> x, one = np.zeros((1, 2)), np.ones((1, 2))
        >>> beyond(x, 1.4, one, 2 * one), beyond(x, 1.5, one, 2 * one)
        (True, False)
    """
    away = np.maximum(np.maximum(low - x, x - high), 0.0)
    farthest = np.sqrt((away * away).sum(axis=1 if each else None)).max()
    return bool(farthest * (1.0 - gamma(away.size)) - LOST > radius)


@dataclass
class PieceTube(Tube):
    """A tube around the runs from a box that know of the ball, too.

    Attributes:
        x: ``(T, p)``, the middle of the ball.
        ball: its radius.
        each: whether every step has a ball of its own.
    """

    x: Array = field(default_factory=lambda: np.zeros((0, 0)))
    ball: float = np.inf
    each: bool = False

    @property
    def shares(self) -> list[slice]:
        """Which of the inputs' symbols share a ball: all so far, or those of one step."""
        ends = np.cumsum([0, *(len(moves) for _, moves, _ in self.inputs)]).tolist()
        return [slice(a, b) for a, b in pairwise(ends)] if self.each else [slice(0, ends[-1])]

    def symbols_of_inputs(self) -> tuple[Array, Array]:
        """Numbers of the inputs' symbols so far, and ``delta``: the middle of the box less that of the ball."""
        index = [first + np.arange(len(moves)) for _, moves, first in self.inputs]
        shift = [centre[moves] - self.x[t, moves] for t, (centre, moves, _) in enumerate(self.inputs)]
        return np.concatenate([*index, np.zeros(0, dtype=int)]), np.concatenate([*shift, np.zeros(0)])

    def form(self, c: Array, L: Array, err: Array, low: Array | None = None, high: Array | None = None) -> Form:
        """As of any tube, within what the ball says."""
        whole = super().form(c, L, err, low, high)
        index, shift = self.symbols_of_inputs()
        index, shift = index[index < L.shape[1]], shift[index < L.shape[1]]
        if not len(index):
            return whole
        entry, rest = L[:, index], np.abs(L)
        rest[:, index] = 0.0
        few = gamma(L.shape[1])
        middle = c - entry @ shift
        size = sum(length(entry[:, of]) for of in self.shares)
        reach = self.ball * size + rest @ self.radius[: L.shape[1]] + err
        slack = few * (np.abs(c) + np.abs(entry) @ np.abs(shift) + reach) + TINY
        lower = np.maximum(whole.low, middle - reach - slack)
        upper = np.minimum(whole.high, middle + reach + slack)
        return replace(whole, low=lower, high=np.maximum(upper, lower))


def priced(F: Quadratic, tube: PieceTube, prices: Array) -> Quadratic:
    r"""``F`` and a price for what leaves the ball: nowhere above ``F`` for the inputs of the ball.

    Args:
        F: of the tube, in symbols scaled to one.
        tube: the tube.
        prices: ``lambda >= 0``: one, or one for each step that has a ball of its own.

    Returns:
        :math:`F(v) + \lambda (|b v + \delta|^2 - r^2)`, the constant rounded downwards.
    """
    index, shift = tube.symbols_of_inputs()
    k, few = entries(tube), gamma(entries(tube) + 8)
    rows, paid = np.zeros((k, len(F.linear))), np.zeros(k)
    rows[np.arange(k), index] = tube.radius[index]
    # the offset is known to within a rounding: a ball as much larger holds all that lies in this one
    whole = 0.0
    for price, of in zip(prices, tube.shares, strict=True):
        wrong = 2.0 * EPS * float(length(shift[of])) + TINY
        paid[of] = price
        whole += float(price) * (tube.ball + wrong) ** 2 * (1.0 + few) if of.stop > of.start else 0.0
    return replace(
        F,
        constant=float(F.constant - whole * (1.0 + few + gamma(len(prices))) - 4.0 * EPS * abs(F.constant)),
        rows=np.concatenate([F.rows, rows]),
        offset=np.concatenate([F.offset, shift]),
        diagonal=np.concatenate([F.diagonal, paid]),
    )
