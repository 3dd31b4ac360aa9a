r"""Which states a network of one state can reach where every step's perturbation has a range of its own: an interval.

With the state in ``[l, h]`` and the coordinates of a step in their ranges, independent of each other, what they add to
the activation's argument, ``y``, and what goes past it, ``q``, fill a polygon, a sum of segments ``(S_k, g_k) v_k`` and
``(C, A) h``. Each of its upper edges has a slope ``s``, and nowhere is ``q > sigma(s) + s y``:

.. math:: \max h^+ = f + \max_s \Big( \sigma(s) + \max_y (s y + B \phi(y + e)) \Big), \quad y \text{ on the edge of } s.

The last maximum is that of a function of one number whose slope changes its sign where it is known to. Nothing is lost
but rounding, however many steps there are. Where the coordinates are not independent, ``(y, q)`` fill a convex set that
has a table of tangents (``stability.local.pairs``), and these are the edges.
"""

from __future__ import annotations

import numpy as np

from stability.local.curves import slack, slopes
from stability.local.pairs import Pair
from stability.local.scalar import ScalarStep
from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval
from stability.systems.activations import Activation

Array = np.ndarray
_ROOM = 1e-12
"""Of the states: by how much both sides of a cut overlap."""


def middle(x: Interval) -> Array:
    """Half way between both ends."""
    return 0.5 * x.low + 0.5 * x.high


def half(x: Interval) -> Array:
    """How far both ends are from ``middle`` at most."""
    own = middle(x)
    return np.where(x.low == x.high, 0.0, np.maximum(x.high - own, own - x.low) * (1.0 + 4 * EPS))


def reached(
    steps: list[ScalarStep], phi: Activation, start: float, within: tuple[Array, Array] | None = None
) -> tuple[Array, Array]:
    """Ends of the states after every step, the start included; rounded outwards.

    Args:
        steps: see ``stability.local.scalar``.
        phi: the activation.
        start: the first state.
        within: ``(T + 1,)``, ``(T + 1,)``, ends that the states of the runs in question keep to; ``None`` for all runs.

    Returns:
        ``(T + 1,)``, ``(T + 1,)``; NaN or infinite where numbers overflow. Where no run keeps to the ends, the first is
        somewhere above the second.

    Example:
        >>> from stability.local.classifier import Classifier
        >>> from stability.local.scalar import scalar_steps
        >>> from stability.systems import DrivenSystem, LureSystem
        >>> from stability.systems.activations import activation
        >>> cell = DrivenSystem(LureSystem([[0.0]], [[1.0]], [[0.5]], dt=1.0), "tanh", [[1.0]])
        >>> steps = scalar_steps(Classifier(cell, [[1.0], [-1.0]]), np.ones((2, 1)), 0.5, "linf")
        >>> low, high = reached(steps, activation("tanh"), 0.0)
        >>> bool(abs(high[2] - np.tanh(1.5 + 0.5 * np.tanh(1.5))) < 1e-12)
        True
    """
    low, high = np.full(len(steps) + 1, start), np.full(len(steps) + 1, start)
    for t, step in enumerate(steps):
        if within is not None and low[t] > high[t]:
            low[t + 1 :], high[t + 1 :] = low[t], high[t]
            break
        high[t + 1] = greatest(step, phi, low[t], high[t], 1.0)
        low[t + 1] = -greatest(step, phi, low[t], high[t], -1.0)
        if within is not None:
            room = _ROOM * (abs(low[t + 1]) + abs(high[t + 1]) + 1e-300)
            low[t + 1] = max(low[t + 1], within[0][t + 1] - room)
            high[t + 1] = min(high[t + 1], within[1][t + 1] + room)
    return low, high


def greatest(step: ScalarStep, phi: Activation, low: float, high: float, sign: float) -> float:
    """An upper bound of ``sign h+``, from all states between ``low`` and ``high``."""
    if step.pair is not None:
        return _beyond_tangents(step, step.pair, phi, low, high, sign)
    P, Q = np.append(middle(step.S), middle(step.C)), sign * np.append(middle(step.g), middle(step.A))
    p, q = np.append(half(step.S), half(step.C)), np.append(half(step.g), half(step.A))
    ends = np.append(step.low, low), np.append(step.high, high)
    far, B, e = np.maximum(np.abs(ends[0]), np.abs(ends[1])), sign * float(middle(step.B)), float(middle(step.e))
    error, n = gamma(len(P) + 32), len(P)
    sizes = float(np.abs(P) @ far), float(np.abs(Q) @ far)  # of y and q
    doubts = float(p @ far) + float(half(step.e)), float(q @ far) + float(half(step.f))
    with np.errstate(all="ignore"):
        s = np.where(P != 0.0, Q / P, np.nan)
    edges = np.flatnonzero(np.isfinite(s) & (np.abs(s) < 1e60))
    edges = edges[np.argsort(-s[edges], kind="stable")]
    rest = np.setdiff1d(np.arange(n), edges)
    # the corner on the left of all edges: there each coordinate has the end that makes y least
    at = np.where(P >= 0.0, ends[0], ends[1])
    straight = float(np.maximum(Q * ends[0], Q * ends[1])[rest].sum())
    y0, q0 = float((P * at)[edges].sum()), float((Q * at)[edges].sum()) + straight
    wide = (np.abs(P) * (ends[1] - ends[0]))[edges]
    s = s[edges] if len(edges) else np.zeros(1)
    ys = y0 + np.concatenate([[0.0], np.cumsum(wide)]) if len(edges) else np.full(2, y0)
    qs = q0 + np.concatenate([[0.0], np.cumsum(s * wide)[:-1]]) if len(edges) else np.full(1, q0)
    off = 4.0 * error * sizes[0] + doubts[0] + float((np.abs(P) * far)[rest].sum()) + TINY
    bound = qs - s * ys[:-1] + 8.0 * error * (sizes[1] + np.abs(s) * sizes[0]) + doubts[1] + np.abs(s) * doubts[0]
    bound = bound + np.abs(s) * float((np.abs(P) * far)[rest].sum())
    most = crests(phi, s, B, e, ys[:-1] - off, ys[1:] + off)
    top = bound + most + float(half(step.B)) * _largest(phi, sizes[0] + abs(e) + off) + sign * float(middle(step.f))
    size = np.abs(bound) + np.abs(most) + np.abs(float(middle(step.f)))
    return float((top + 16 * EPS * size + TINY).max())


def _beyond_tangents(
    step: ScalarStep, pair: Pair, phi: Activation, low: float, high: float, sign: float
) -> float:  # fmt: skip
    """The same where what a step adds lies in a set that is known by its tangents: ``sigma`` is the least of them."""
    side, far = pair.sides[0 if sign > 0.0 else 1], max(abs(low), abs(high))
    P, Q = float(middle(step.C)), sign * float(middle(step.A))
    B, e = sign * float(middle(step.B)), float(middle(step.e))
    s, size = side.slopes, float(np.abs(pair.ends).max())
    doubts = float(half(step.C)) * far + float(half(step.e)), float(half(step.A)) * far + float(half(step.f))
    error = gamma(32)
    lead = np.maximum((Q - s * P) * low, (Q - s * P) * high)
    bound = side.tops + lead + 8.0 * error * (np.abs(side.tops) + (abs(Q) + np.abs(s) * abs(P)) * far)
    bound = bound + doubts[1] + np.abs(s) * doubts[0]
    off = 4.0 * error * (abs(P) * far + size) + doubts[0] + TINY
    least, most = pair.ends[0] + min(P * low, P * high) - off, pair.ends[1] + max(P * low, P * high) + off
    cuts = side.cuts(bound, least, most)
    top = bound + crests(phi, s, B, e, cuts[:-1], cuts[1:])
    top = top + float(half(step.B)) * _largest(phi, abs(P) * far + size + abs(e) + off) + sign * float(middle(step.f))
    size = 2.0 * np.abs(bound) + np.abs(top) + 2.0 * abs(float(middle(step.f)))
    return float((top + 16 * EPS * size + TINY).max())


def _largest(phi: Activation, far: float) -> float:
    """``|phi|`` at most, for arguments up to ``far``; zero is not moved."""
    return min(phi.bound, abs(float(phi.function(np.zeros(())))) + phi.slope[1] * far) * (1.0 + 8 * EPS) + 1e-14


def crests(phi: Activation, s: Array, B: float, e: float | Array, low: Array, high: Array) -> Array:
    """Upper bounds ``(N,)`` of ``s y + B phi(y + e)`` for ``y`` in ranges, edge by edge."""
    if phi.width is None:
        turns = [np.clip(k - e, low, high) for k in phi.kinks]
    else:
        with np.errstate(all="ignore"):
            steep = np.arctanh(np.sqrt(1.0 + s / (B * phi.slope[1]))) / phi.width
        turns = [np.clip(np.where(np.isfinite(steep), z, -np.inf) - e, low, high) for z in (-steep, steep)]
        turns = [np.where(np.isfinite(turn), turn, low) for turn in turns]
    y = np.sort(np.stack([low, *turns, high]), axis=0)
    value = phi.function(y + e)
    top = np.abs(B) * phi.slope[1]
    psi = s * y + B * value
    psi = psi + np.abs(B) * slack(phi, value) + 8 * EPS * (np.abs(s * y) + np.abs(B * value) + top * np.abs(y + e))
    if phi.width is None:  # between kinks it is a line; the kinks themselves are off by a rounding
        off = 4 * EPS * (np.abs(y) + np.abs(e) + 1.0)
        return (psi + (np.abs(s) + top) * off).max(axis=0)
    wide, pad = (y[1:] - y[:-1]) * (1.0 + 4 * EPS), 4 * EPS * (np.abs(y) + np.abs(e))
    least, most = slopes(phi, y[:-1] + e - pad[:-1], y[1:] + e + pad[1:])
    ways = s + B * least, s + B * most
    off = 4 * EPS * (np.abs(s) + top)
    fall, rise = np.maximum(off - np.minimum(*ways), 0.0), np.maximum(np.maximum(*ways) + off, 0.0)
    return np.minimum(psi[1:] + fall * wide, psi[:-1] + rise * wide).max(axis=0)
