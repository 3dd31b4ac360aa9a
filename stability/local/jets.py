r"""Functions of a few numbers with their first two derivatives, over many boxes at once, in intervals.

.. math:: \nabla f = \sum_i f_i \nabla a_i, \qquad
          \nabla^2 f = \sum_i f_i \nabla^2 a_i + \sum_{i,j} f_{ij} \nabla a_i \nabla a_j^T .
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval, sigmoid, tanh

Array = np.ndarray
_PEAK, _AT = 0.38490017945975053, 3.0**-0.5
"""The largest ``t - t^3`` from 0 to 1, and where it is."""


@dataclass(frozen=True, eq=False)
class Jet:
    """A function over ``N`` boxes of ``q`` variables.

    Attributes:
        value: ``(N,)``.
        slope: ``(N, q)``, or ``(1, q)`` where it is the same in all.
        bend: ``(N, q, q)``; ``None`` where it is zero, or not asked for.
    """

    value: Interval
    slope: Interval
    bend: Interval | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """An activation over ranges: ``value``, and derivatives ``first`` and ``second``, each ``(N,)``."""

    value: Interval
    first: Interval
    second: Interval


def column(x: Interval, *, times: int = 1) -> Interval:
    """With axes of size one behind."""
    shape = x.low.shape + (1,) * times
    return Interval(x.low.reshape(shape), x.high.reshape(shape))


def crossed(a: Interval, b: Interval) -> Interval:
    """``a b^T`` of vectors along the last axes."""
    return column(a) * Interval(b.low[..., None, :], b.high[..., None, :])


def square(d: Interval) -> Interval:
    """``d d^T``, with squares on the diagonal."""
    out, index, own = crossed(d, d), np.arange(d.low.shape[-1]), d.square()
    out.low[..., index, index], out.high[..., index, index] = own.low, own.high
    return out


def turned(M: Interval) -> Interval:
    """With the last two axes exchanged."""
    return Interval(np.swapaxes(M.low, -1, -2), np.swapaxes(M.high, -1, -2))


def summed(x: Interval) -> Interval:
    """The sum along the last axis."""
    error = gamma(x.low.shape[-1] + 4) * x.magnitude.sum(axis=-1) + TINY
    return Interval(x.low.sum(axis=-1) - error, x.high.sum(axis=-1) + error)


def both(a: Interval, b: Interval) -> Interval:
    """What lies in both, where the same number is known to."""
    return Interval(np.maximum(a.low, b.low), np.minimum(a.high, b.high))


def steep(width: float, top: float, t: Interval) -> tuple[Interval, Interval]:
    """First two derivatives of ``phi`` with ``phi' = top (1 - t^2)``, ``phi'' = -2 top width (t - t^3)``, by ``t``."""
    one = Interval.point(1.0)
    first = Interval.point(top) * (one - t.square())
    first = Interval(np.clip(first.low, 0.0, top), np.clip(first.high, 0.0, top))
    ends = [x * (one - x.square()) for x in (Interval.point(t.low), Interval.point(t.high))]
    low, high = np.minimum(ends[0].low, ends[1].low), np.maximum(ends[0].high, ends[1].high)
    slack, peak = 4 * EPS, np.nextafter(_PEAK, 1.0)
    high = np.where((t.low <= _AT + slack) & (t.high >= _AT - slack), peak, high)
    low = np.where((t.low <= -_AT + slack) & (t.high >= -_AT - slack), -peak, low)
    return first, Interval.point(-2.0 * width * top) * Interval(low, high)


def curve(name: str, z: Interval) -> Curve:
    """``tanh`` or ``sigmoid`` over ranges.

    Example:
        >>> at = curve("sigmoid", Interval.point(np.zeros(1)))
        >>> [round(float(x.high[0]), 12) + 0.0 for x in (at.value, at.first, at.second)]
        [0.5, 0.25, 0.0]
    """
    if name == "tanh":
        t = tanh(z)
        return Curve(t, *steep(1.0, 1.0, t))
    return Curve(sigmoid(z), *steep(0.5, 0.25, tanh(Interval.point(0.5) * z)))


def chained(
    parts: list[Jet], value: Interval, first: list[Interval], second: dict[tuple[int, int], Interval] | None
) -> Jet:
    """A function of functions.

    Args:
        parts: the inner ones.
        value: ``(N,)`` of the outer one.
        first: its derivatives ``(N,)`` by each.
        second: its second derivatives ``(N,)`` by pairs ``i <= j``, those that are not zero; ``None``: not asked for.

    Example:
        >>> x = Jet(Interval.point(np.array([3.0])), Interval.point(np.array([[1.0]])))
        >>> one, two = Interval.point(np.ones(1)), Interval.point(np.array([2.0]))
        >>> product = chained([x, x], x.value * x.value, [x.value, x.value], {(0, 1): one})
        >>> bool(product.bend.contains(Interval.point([[[2.0]]]))), bool(product.bend.high[0, 0, 0] < 2.0 + 1e-12)
        (True, True)
    """
    slope = _total([column(f) * part.slope for f, part in zip(first, parts)])
    if second is None:
        return Jet(value, slope)
    bends = [column(f, times=2) * part.bend for f, part in zip(first, parts) if part.bend is not None]
    for (i, j), f in second.items():
        one = square(parts[i].slope) if i == j else crossed(parts[i].slope, parts[j].slope)
        if i != j:
            one = one + turned(one)
        bends.append(column(f, times=2) * one)
    return Jet(value, slope, _total(bends) if bends else None)


def _total(parts: list[Interval]) -> Interval:
    out = parts[0]
    for part in parts[1:]:
        out = out + part
    return out
