r"""Multipliers: minimise :math:`\max_\omega \bar\sigma(\Delta M(i\omega) \Delta^{-1})` over ``log Delta``.

The function is convex in ``x = log Delta`` (Sezginer and Overton 1990). With the leading singular pair ``(u, v)`` at
the peak its derivative is :math:`\bar\sigma\,(|u_i|^2 - |v_i|^2)`. The axis is sampled; whatever comes out is only
a proposal, and the bounded real lemma at these multipliers decides.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import schur, solve_triangular
from scipy.optimize import minimize

from stability.solve.deadline import Deadline, TimeOverError
from stability.solve.loop import Loop

__all__ = ["FrequencySamples", "optimise_scaling", "osborne"]

Array = np.ndarray
_DECOMPOSED, _BLOCK = 24, 6
_MOST = 2**29
"""Bytes that the samples may take."""
_FLOOR = 1e-5
"""Entries below this share of the largest count as this share: a reducible loop has no best balance."""


def _frequencies(loop: Loop, eigenvalues: Array, count: int) -> Array:
    """Sample points: the resonances first, then a logarithmic (continuous) or even (discrete) grid, and zero."""
    if loop.is_discrete:
        order = np.argsort(-np.abs(eigenvalues))
        peaks = np.abs(np.angle(eigenvalues[order]))[: count // 2]
        return np.unique(np.concatenate([peaks, np.linspace(0.0, np.pi, count - count // 2)]))
    order = np.argsort(-np.real(eigenvalues))
    peaks = np.abs(np.imag(eigenvalues)[order])[: count // 2]
    size = np.abs(eigenvalues) + 1e-300
    grid = np.geomspace(0.1 * size.min(), 3.0 * size.max(), count - count // 2 - 1)
    return np.unique(np.concatenate([[0.0], peaks, grid]))


class FrequencySamples:
    """The transfer matrix of a loop on sampled points of its (shifted) axis.

    Args:
        loop: the centred loop, unshifted.
        count: number of sample points.

    Cost:
        One complex Schur form, then ``4 n^2 m`` flops a point and rate; memory ``16 count m^2`` bytes, half a gigabyte
        at most (fewer points, down to four) where there are thousands of channels.
    """

    def __init__(self, loop: Loop, count: int = 32) -> None:
        self.loop = loop
        count = max(4, min(count, int(_MOST // (8 * max(loop.B.shape[1], 1) ** 2))))
        t, u = schur(loop.A, output="complex")[:2]
        self._t, self._b, self._c = t, u.conj().T @ loop.B, loop.C @ u
        self.eigenvalues = np.diagonal(t).copy()
        self.omega = _frequencies(loop, self.eigenvalues, count)

    def add(self, omega: float) -> None:
        """One more sample point, where a peak was missed."""
        self.omega = np.unique(np.append(self.omega, abs(omega)))

    def at(self, rate: float, deadline: Deadline | None = None) -> Array:
        """Samples ``(count, m, m)`` along the axis that belongs to a rate, in single precision where they are many.

        Raises:
            TimeOverError: when the deadline comes before the last of them.
        """
        n = self._t.shape[0]
        eye = np.eye(n)
        points = rate * np.exp(1j * self.omega) if self.loop.is_discrete else 1j * self.omega - rate
        shape = (len(points), self.loop.C.shape[0], self.loop.B.shape[1])
        out = np.empty(shape, dtype=np.complex128 if 16 * np.prod(shape) <= _MOST else np.complex64)
        for k, s in enumerate(points):
            if deadline is not None:
                deadline.require()
            out[k] = self._c @ solve_triangular(s * eye - self._t, self._b) + self.loop.D
        return out


def osborne(samples: Array, sweeps: int = 20) -> Array:
    """``log Delta`` that balances the mean squared moduli of the samples (Osborne 1960), a good start.

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

    Several triplets a sample are kept: near the optimum singular values come in clusters, and one vector a sample
    would see a kink where the smoothed function has none. Small matrices are decomposed, large ones iterated on
    (block power steps that start from the last point's vectors).
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
        """``(K, r)`` singular values, ``(K, m, r)`` left and right vectors."""
        scale = np.exp(np.clip(x, -40.0, 40.0))[None, :, None].astype(np.real(self.samples).dtype)
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
        values, w = np.linalg.eigh(image.conj().transpose(0, 2, 1) @ image)
        sigma = np.sqrt(np.maximum(values, 1e-30))
        return sigma.astype(np.float64), (image @ w) / sigma[:, None, :].astype(image.real.dtype), v @ w

    def largest(self, x: Array, steps: int) -> Array:
        """``(K,)`` largest singular value of every sample."""
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
    """``log Delta`` of small peak gain on the samples, and that gain.

    Args:
        samples: ``(count, m, m)`` transfer matrices.
        start: where to start; zero or Osborne's balancing, whichever is better, by default.
        target: stop early once the peak is below it.
        rounds: of descent on the samples that are near the peak, each followed by a look at all of them.
        deadline: asked at every product with the samples; the best so far is the answer, of infinite gain where none
            was judged.

    Returns:
        ``log Delta`` with mean zero and the peak gain reached (on the samples).

    Example:
        >>> samples = np.array([[[0.0, 4.0], [0.04, 0.0]]], dtype=complex)
        >>> x, peak = optimise_scaling(samples)
        >>> round(peak, 3)
        0.4
    """
    found = _Best(start if start is not None else np.zeros(samples.shape[1]))
    with contextlib.suppress(TimeOverError):
        _descend(samples, start is None or not start.any(), found, target, rounds, deadline or Deadline())
    return found.x, found.peak


@dataclass
class _Best:
    """The best scaling so far, which is there whenever the time is over."""

    x: Array
    peak: float = np.inf

    def offer(self, x: Array, peak: float) -> None:
        if peak < self.peak:
            self.x, self.peak = x, peak


def _descend(samples: Array, balance: bool, found: _Best, target: float, rounds: int, deadline: Deadline) -> None:
    """Descent on the samples that are near the peak, round by round, each judged on all of them."""
    m = samples.shape[1]
    judge = _Peak(samples, 300.0, 30, deadline=deadline)

    def look(x: Array) -> Array:
        return judge.largest(x, 8)

    def onward(*_: Any) -> None:
        if deadline.over:
            raise StopIteration  # the descent ends with the point it has

    x = found.x
    sigma = look(x)
    if balance:
        other = osborne(samples)
        if look(other).max() < sigma.max():
            x, sigma = other, look(other)
    found.offer(x, float(sigma.max()))
    active = np.zeros(len(samples), dtype=bool)
    sharpness = 60.0
    for _ in range(2 * rounds):
        best = found.peak
        if best < target or not best > 0.0 or m < 2 or deadline.over:
            break
        active |= sigma > 0.8 * best
        chosen = samples[active]
        if not judge.exact:
            chosen = chosen.astype(np.complex64, copy=False)  # single precision steers well enough
        peak = _Peak(chosen, sharpness, 2, best, deadline)
        peak.v = judge.v[active].astype(chosen.dtype)
        result = minimize(peak, x, jac=True, method="L-BFGS-B", callback=onward, options={"maxiter": 40, "maxcor": 20})
        trial = result.x - result.x.mean()
        sigma_trial = look(trial)
        value = float(sigma_trial.max())
        missed = ~active & (sigma_trial > 0.9 * value)
        found.offer(trial, value)
        if missed.any():  # the descent pushed other samples up: they join, at the same sharpness
            active |= missed
        elif sharpness >= 600.0 or (sharpness > 60.0 and best - value < 1e-4 * best):
            break
        else:
            sharpness *= 2.5
        if value < best:
            x, sigma = trial, sigma_trial
