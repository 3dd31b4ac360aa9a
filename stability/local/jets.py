"""Functions of a few numbers with two derivatives, and activations, over many boxes at once, in intervals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval, tanh

Array = np.ndarray
_PEAK, _AT = 0.3849001794597506, 3.0**-0.5
"""The largest ``t - t^3`` from 0 to 1, a little more, and where it is."""


@dataclass(frozen=True, eq=False)
class Jet:
    """A function over ``N`` boxes of ``q`` variables.

    Attributes:
        value: ``(N,)``.
        slope: ``(N, q)``.
        bend: ``(N, q, q)``; ``None`` where it is not asked for.
    """

    value: Interval
    slope: Interval
    bend: Interval | None = None


@dataclass(frozen=True, eq=False)
class Curve:
    """Activations over ranges: ``value``, and derivatives ``first`` and ``second``, each ``(g, N)``."""

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


def steep(width: float | Array, top: float | Array, t: Interval) -> tuple[Interval, Interval]:
    """First two derivatives of ``phi`` with ``phi' = top (1 - t^2)``, ``phi'' = -2 top width (t - t^3)``, by ``t``."""
    least, most, scale = t.mignitude, t.magnitude, 2.0 * top * width
    flat = (1.0 - most * most) - 4 * EPS, (1.0 - least * least) + 4 * EPS
    first = Interval(np.clip(top * flat[0], 0.0, top), np.clip(top * flat[1], 0.0, top))
    ends, slack = [x * (1.0 - x * x) for x in (t.low, t.high)], 8 * EPS * most + TINY
    low, high = np.minimum(*ends) - slack, np.maximum(*ends) + slack
    high[(t.low <= _AT + 4 * EPS) & (t.high >= _AT - 4 * EPS)] = _PEAK
    low[(t.low <= -_AT + 4 * EPS) & (t.high >= -_AT - 4 * EPS)] = -_PEAK
    slack = slack * scale  # what products and the scale are rounded by is less
    return first, Interval(-scale * high - slack, -scale * low + slack)


def images(sigmoids: int, z: Interval) -> Interval:
    """Activations over ranges ``(g, N)``: ``sigmoid`` of the first rows, ``tanh`` of the others."""
    return _activations(sigmoids, z)[0]


def curves(sigmoids: int, z: Interval) -> Curve:
    """The same with derivatives.

    Example:
        >>> at = curves(1, Interval.point(np.zeros((2, 1))))
        >>> [(x.high[:, 0].round(12) + 0.0).tolist() for x in (at.value, at.first, at.second)]
        [[0.5, 0.0], [0.25, 1.0], [0.0, 0.0]]
    """
    value, t, width = _activations(sigmoids, z)
    return Curve(value, *steep(width, width * width, t))


def _activations(sigmoids: int, z: Interval) -> tuple[Interval, Interval, Array]:
    """Values, ``tanh(w z)`` with ``w`` a half for sigmoids, and ``w (g, 1)``; a sigmoid rises by its square at most."""
    width = np.where(np.arange(len(z.low)) < sigmoids, 0.5, 1.0)[:, None]
    lift, t = 1.0 - width, tanh(Interval(width * z.low, width * z.high))
    low, high = (lift + width * end for end in (t.low, t.high))
    low, high = np.maximum(low - 2 * EPS * lift, lift - width), np.minimum(high + 2 * EPS * lift, 1.0)
    return Interval(low, high), t, width
