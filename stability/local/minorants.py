"""Lower bounds of functions on boxes, by their slopes or by their Hessians, for any rounding of what is computed."""

from __future__ import annotations

import numpy as np

from stability.rigor.constants import EPS, TINY
from stability.rigor.definite import gamma
from stability.rigor.intervals import Interval

Array = np.ndarray


def first_order(slope: Interval, price: Interval, c: Array, a: Array, b: Array) -> Array:
    """What ``L`` is more than at ``c``, at least, by the range of its margin's slopes over the box."""
    p = price.low
    out, size = np.zeros(c.shape), np.zeros(c.shape)
    for steep, far in ((slope.low, b - c), (slope.high, a - c)):
        ends = steep + 2.0 * p * c
        with np.errstate(all="ignore"):
            top = np.where(p > 0.0, -ends / (2.0 * p), far)
        top = np.clip(np.nan_to_num(top), np.minimum(far, 0.0), np.maximum(far, 0.0))
        out = np.minimum(out, np.minimum(ends * top + p * top * top, ends * far + p * far * far))
        size += (np.abs(steep) + 2.0 * p * np.abs(c)) * np.abs(far) + p * far * far
    total = out.sum(axis=1) - gamma(2 * c.shape[1] + 64) * size.sum(axis=1) - TINY
    return np.where(np.isfinite(total), total, -np.inf)


def second_order(g: Interval, H: Interval, c: Array, a: Array, b: Array) -> Array:
    """The same by the slope at ``c`` and the Hessian over the box."""
    k = c.shape[1]
    left, right = a - c, b - c
    w = np.maximum(right, -left)
    mid = 0.5 * H.low + 0.5 * H.high
    rad = np.maximum(H.high - mid, mid - H.low) * (1.0 + 4 * EPS) + TINY
    scale = w[:, :, None] * w[:, None, :]
    S, R = mid * scale, rad * scale
    R = R * (1.0 + 16 * EPS) + 16 * EPS * np.abs(S) + TINY
    R = np.maximum(R, R.transpose(0, 2, 1))
    S = 0.5 * (S + S.transpose(0, 2, 1))
    R = R + np.abs(S - mid * scale) * (1.0 + 8 * EPS)
    rows, index = R.sum(axis=2) * (1.0 + gamma(k + 8)), np.arange(k)
    diagonal = S[:, index, index] - rows
    diagonal = diagonal - 4 * EPS * (np.abs(diagonal) + rows)
    still = np.where(w > 0.0, 0.0, np.abs(diagonal).max(axis=1, initial=0.0)[:, None] + TINY)
    S[:, index, index] = diagonal + still  # of what does not move nothing is asked
    bend = least_eigenvalues(S)[:, None]
    middle, slack = 0.5 * g.low + 0.5 * g.high, 0.5 * (g.high - g.low)
    s = middle * w
    with np.errstate(all="ignore"):
        e = [np.where(w > 0.0, end / w, 0.0) for end in (left, right)]
        top = np.clip(np.where(bend > 0.0, -s / bend, 0.0), *e)
    values = [s * x + 0.5 * bend * x * x for x in e]
    out = np.minimum(*values)
    out = np.where(bend > 0.0, np.minimum(out, s * top + 0.5 * bend * top * top), out)
    size = (np.abs(s) + np.abs(bend)).sum(axis=1)
    loss = (slack * w * (1.0 + 8 * EPS) + 4 * EPS * np.abs(s)).sum(axis=1)
    total = out.sum(axis=1) - loss - gamma(2 * k + 64) * (size + loss) - TINY
    return np.where(np.isfinite(total), total, -np.inf)


def least_eigenvalues(S: Array) -> Array:
    """Lower bounds ``(N,)`` of the eigenvalues of symmetric matrices ``(N, k, k)``: proved, whatever is computed.

    For any invertible ``V``: the eigenvalues of ``V^T S V``, which Gershgorin's circles enclose, are those of ``S``
    times numbers between the least and the largest eigenvalue of ``V^T V`` (Ostrowski).

    Example:
        >>> bound = least_eigenvalues(np.array([[[2.0, 1.0], [1.0, 2.0]]]))
        >>> bool(1.0 - 1e-12 < bound[0] <= 1.0)
        True
    """
    k = S.shape[1]
    fine = np.asarray(np.isfinite(S).all(axis=(1, 2)))
    S = np.where(fine[:, None, None], S, np.eye(k))
    try:
        V = np.linalg.eigh(S)[1]
    except np.linalg.LinAlgError:
        V = np.broadcast_to(np.eye(k), S.shape)
    W, size, index = V.transpose(0, 2, 1), np.abs(V), np.arange(k)
    X = W @ S @ V
    error = (gamma(2 * k + 8) * (size.transpose(0, 2, 1) @ np.abs(S) @ size)).sum(axis=2) + TINY
    off = np.abs(X).sum(axis=2) - np.abs(X[:, index, index])
    low = (X[:, index, index] - off * (1.0 + gamma(k + 8)) - error * (1.0 + gamma(k + 8))).min(axis=1)
    low = low - 8 * EPS * np.abs(low)
    apart = np.abs(W @ V - np.eye(k)).sum(axis=2) + gamma(k + 8) * (size.transpose(0, 2, 1) @ size).sum(axis=2)
    apart = apart.max(axis=1) * (1.0 + gamma(k + 8)) + 4 * EPS
    bound = low / np.where(low >= 0.0, 1.0 + apart, 1.0 - apart)
    bound = bound - 4 * EPS * np.abs(bound)
    return np.where(fine & (apart < 0.5), bound, -np.inf)
