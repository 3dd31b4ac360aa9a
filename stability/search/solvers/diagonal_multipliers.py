r"""Diagonal multipliers: minimize :math:`\max_\omega \bar\sigma(\Delta M(i\omega) \Delta^{-1})` over ``log Delta``.

The function is convex in ``x = log Delta`` (Sezginer and Overton 1990). With the leading singular pair ``(u, v)`` at
the peak its derivative is :math:`\bar\sigma\,(|u_i|^2 - |v_i|^2)`. The maximum is taken over sample points, so the
result is only a candidate; the bounded real lemma at these multipliers decides.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import minimize

from stability.search.solvers.deadline import Deadline, TimeOverError
from stability.search.solvers.frequency_peaks import axis_frequencies
from stability.search.solvers.state_space import StateSpace
from stability.search.solvers.transfer_function import Response

Array = np.ndarray
_DECOMPOSED, _BLOCK = 24, 6  # most channels for a full decomposition, and vectors per sample above
_REACH, _REACH_SINGLE = 40.0, 35.0
"""Largest logarithms of scales: products with their quotients stay finite, also in single precision."""
_MOST = 2**29
"""Most bytes of the samples."""
_FLOOR = 1e-5
"""Smallest entries, relative to the largest, that are used: a reducible loop has no optimal balance."""


class FrequencySamples:
    """Transfer matrix of a loop on sampled points of its (shifted) axis.

    Args:
        loop: the centered loop, unshifted.
        count: number of sample points.

    Cost:
        One complex Schur form, then ``4 n^2 m`` flops per point and rate; memory ``16 count m^2`` bytes, at most half
        a gigabyte: with thousands of channels there are fewer points, down to four.
    """

    def __init__(self, loop: StateSpace, count: int = 32) -> None:
        count = max(4, min(count, int(_MOST // (8 * max(loop.channels, 1) ** 2))))
        self._response = Response(loop)
        self.eigenvalues = self._response.poles
        self.omega = axis_frequencies(self.eigenvalues, loop.is_discrete, count // 2, count - count // 2, (0.1, 3.0))

    def at(self, rate: float, deadline: Deadline | None = None) -> Array:
        """Return samples ``(count, m, m)`` along the axis of a rate, in single precision if there are many.

        Raises:
            TimeOverError: the deadline passes before the last sample.
        """
        points = self._response.point(self.omega)
        points = rate * points if self._response.discrete else points - rate
        shape = (len(points), *self._response.D.shape)
        if 16 * np.prod(shape) <= _MOST:
            return self._response.values(points, deadline)
        out = np.empty(shape, dtype=np.complex64)
        for k, s in enumerate(points):
            out[k] = self._response.values(s[None], deadline)[0]
        return out


def osborne_scaling(samples: Array, sweeps: int = 20) -> Array:
    """Return ``log Delta`` that balances the mean squared moduli of the samples (Osborne 1960), a good start.

    Args:
        samples: ``(count, m, m)``.
        sweeps: passes over the channels.

    Returns:
        ``(m,)`` with mean zero.
    """
    weight = np.sqrt((np.abs(samples) ** 2).mean(axis=0))
    weight = np.maximum(weight, _FLOOR * weight.max(initial=0.0)) + 1e-30
    np.fill_diagonal(weight, 0.0)
    x = np.zeros(weight.shape[0])
    for _ in range(sweeps):
        scaled = np.exp(x)[:, None] * weight * np.exp(-x)[None, :]
        rows, columns = np.linalg.norm(scaled, axis=1) + 1e-30, np.linalg.norm(scaled, axis=0) + 1e-30
        move = 0.25 * np.log(columns / rows)  # damped Jacobi sweep: all channels at once
        x += np.clip(move, -2.0, 2.0)
        if np.abs(move).max() < 1e-3:
            break
    return x - x.mean()


class _Peak:
    """Leading singular triplets of the scaled samples, and a smoothed maximum over all of them with its gradient.

    Several triplets per sample are kept: near the optimum singular values come in clusters, and the function of one
    vector per sample has kinks that the smoothed one lacks. Small matrices are decomposed; for large ones block power
    steps start from the vectors of the last point.
    """

    def __init__(
        self, samples: Array, sharpness: float, steps: int, level: float = 1.0, deadline: Deadline | None = None
    ) -> None:
        self.samples, self.deadline = samples, deadline or Deadline()
        self.sharpness, self.steps = sharpness / level, steps  # level: fixed, so that the gradient is exact
        self.exact = samples.shape[1] <= _DECOMPOSED
        rng = np.random.default_rng(0)
        self.v = rng.standard_normal((samples.shape[0], samples.shape[2], min(_BLOCK, samples.shape[2]))).astype(
            samples.dtype
        )

    def triplets(self, x: Array, steps: int) -> tuple[Array, Array, Array]:
        """Return ``(K, r)`` singular values, ``(K, m, r)`` left and right vectors."""
        reach = _REACH if np.finfo(self.samples.dtype).bits > 32 else _REACH_SINGLE
        scale = np.exp(np.clip(x, -reach, reach))[None, :, None].astype(np.real(self.samples).dtype)
        if self.exact:
            u, sigma, vh = np.linalg.svd(scale * self.samples / scale.transpose(0, 2, 1))
            return sigma, u, vh.conj().transpose(0, 2, 1)
        v = self.v
        for _ in range(steps):
            self.deadline.require()
            u = np.linalg.qr(scale * (self.samples @ (v / scale)))[0]
            back = (scale * u).conj().transpose(0, 2, 1) @ self.samples  # no adjoint of the samples is stored
            v = np.linalg.qr(back.conj().transpose(0, 2, 1) / scale)[0]
        self.v = v
        image = scale * (self.samples @ (v / scale))
        image = image.astype(np.complex128, copy=False)  # squares of the entries may overflow in single precision
        values, w = np.linalg.eigh(image.conj().transpose(0, 2, 1) @ image)
        sigma = np.sqrt(np.maximum(values, 1e-30))
        return sigma, (image @ w) / sigma[:, None, :], v @ w

    def largest(self, x: Array, steps: int) -> Array:
        """Return the largest singular value of every sample, ``(K,)``."""
        return self.triplets(x, steps)[0].max(axis=1)

    def __call__(self, x: Array) -> tuple[float, Array]:
        sigma, u, v = self.triplets(x, self.steps)
        top = float(sigma.max())
        weight = np.exp(self.sharpness * (sigma - top))
        total = float(weight.sum())
        slope = np.einsum("kr,kmr->m", weight / total * sigma, np.abs(u) ** 2 - np.abs(v) ** 2)
        return top + float(np.log(total)) / self.sharpness, slope.astype(np.float64)


def optimise_scaling(
    samples: Array,
    start: Array | None = None,
    *,
    target: float = 0.0,
    rounds: int = 4,
    deadline: Deadline | None = None,
) -> tuple[Array, float]:
    """Return ``log Delta`` of small peak gain on the samples, and that gain.

    Args:
        samples: ``(count, m, m)`` transfer matrices.
        start: starting point; by default the better of zero and Osborne's balancing.
        target: stop early once the peak is below it.
        rounds: rounds of descent on the samples near the peak, each followed by an evaluation of all samples.
        deadline: checked at every product with the samples; after it the best scaling so far is returned, with an
            infinite gain if none was evaluated.

    Returns:
        ``log Delta`` with mean zero and the peak gain reached (on the samples).

    Example:
        >>> samples = np.array([[[0.0, 4.0], [0.04, 0.0]]], dtype=complex)
        >>> x, peak = optimise_scaling(samples)
        >>> round(peak, 3)
        0.4
    """
    best = _Best(start if start is not None else np.zeros(samples.shape[1]))
    deadline = deadline or Deadline()
    judge = _Peak(samples, 300.0, 30, deadline=deadline)
    with contextlib.suppress(TimeOverError):
        best.offer(best.x, judge)
        if start is None or not start.any():
            best.offer(osborne_scaling(samples), judge)
        _descend(judge, best, target, rounds)
    return best.x, best.peak


@dataclass
class _Best:
    """Best scaling so far and its largest singular values, available at any deadline."""

    x: Array
    peak: float = np.inf
    sigma: Array = field(default_factory=lambda: np.zeros(0))

    def offer(self, x: Array, judge: _Peak) -> Array:
        """Keep the better one; return the largest singular values at ``x``."""
        sigma = judge.largest(x, 8)
        if sigma.max() < self.peak:
            self.x, self.peak, self.sigma = x, float(sigma.max()), sigma
        return sigma


def _descend(judge: _Peak, scaling: _Best, target: float, rounds: int) -> None:
    """Descend on the samples near the peak, with a sharper maximum each round; evaluate all samples after each."""
    active, sharpness = np.zeros(len(judge.samples), dtype=bool), 60.0
    for _ in range(2 * rounds):
        best = scaling.peak
        if best < target or not 0.0 < best < np.inf or len(scaling.x) < 2 or judge.deadline.over:
            break
        active |= scaling.sigma > 0.8 * best
        try:
            sigma = scaling.offer(_descended(judge, active, scaling.x, sharpness, best), judge)
        except np.linalg.LinAlgError:  # a step was so long that products overflow
            break
        value = float(sigma.max())
        missed = ~active & (sigma > 0.9 * value)
        if missed.any():  # the descent raised other samples: add them, at the same sharpness
            active |= missed
        elif sharpness >= 600.0 or (sharpness > 60.0 and best - value < 1e-4 * best):
            break
        else:
            sharpness *= 2.5


def _descended(judge: _Peak, active: Array, x: Array, sharpness: float, level: float) -> Array:
    """Descend for one round from ``x`` on the active samples."""
    active_samples = judge.samples[active]
    if not judge.exact:
        active_samples = active_samples.astype(np.complex64, copy=False)  # single precision suffices for the descent
    peak = _Peak(active_samples, sharpness, 2, level, judge.deadline)
    peak.v = judge.v[active].astype(active_samples.dtype)

    def onward(*_: Any) -> None:
        if judge.deadline.over:
            raise StopIteration  # ends the descent at its present point

    result = minimize(peak, x, jac=True, method="L-BFGS-B", callback=onward, options={"maxiter": 40, "maxcor": 20})
    return result.x - result.x.mean()
