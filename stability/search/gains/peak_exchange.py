r"""Incremental l2 gain from the input to the output sequence, minimized over scales by an exchange of frequency peaks.

.. math:: \min_{\Delta, g} g \quad\text{subject to}\quad \left\| \begin{bmatrix} \Delta & 0 \\ 0 & I \end{bmatrix}
          \begin{bmatrix} M_{11} & M_{12} \\ M_{21} & M_{22} \end{bmatrix}
          \begin{bmatrix} \Delta & 0 \\ 0 & g I \end{bmatrix}^{-1} \right\|_\infty \le 1,

where ``M`` is the transfer matrix of the centered loop with input and output attached, and ``Delta`` holds the scales.
The search is that of ``solvers/peak_exchange`` with ``-log g`` in place of the rate. The input and output get a scale
of their own, the last one; only ratios of scales matter.
"""

from __future__ import annotations

import math

import numpy as np

from stability.search.solvers.deadline import Deadline
from stability.search.solvers.frequency_peaks import FrequencyAxis
from stability.search.solvers.peak_exchange import Exchange
from stability.search.solvers.state_space import StateSpace

Array = np.ndarray
_ABOVE, _BELOW = math.log(1e5), math.log(1e3)
"""Search range of ``log g`` above and below the logarithm of a first estimate."""


class _AttachedAxis(FrequencyAxis):
    """Singular triplets of the loop with input and output attached, for the rate ``-log g``.

    Args:
        loop: the loop; its channels come first, then inputs and outputs.
        m: number of channels.
        deadline: see ``FrequencyAxis``.
    """

    def __init__(self, loop: StateSpace, m: int, deadline: Deadline) -> None:
        super().__init__(loop, deadline=deadline)
        self.m, self.inputs, self.outputs = m, loop.channels - m, len(loop.C) - m
        self.block = min(self.block, len(loop.C))

    def shifted(self, points: Array, rate: float) -> Array:
        """Return the points themselves: the rate moves no pole here."""
        return points

    def scales(self, x: Array, rate: float) -> tuple[Array, Array]:
        """Return the output scales ``(Delta, d I)`` and the input scales ``(Delta, d g I)``, ``d`` the last one."""
        delta, last = np.exp(x[: self.m]), math.exp(x[-1])
        input_scale = last * math.exp(min(max(-rate, -300.0), 300.0))
        return np.append(delta, np.full(self.outputs, last)), np.append(delta, np.full(self.inputs, input_scale))

    def by_scale(self, u: Array, v: Array) -> Array:
        """Return derivatives by the scales, see ``FrequencyAxis``; the last row belongs to input and output."""
        last = u[self.m :].sum(axis=0) - v[self.m :].sum(axis=0)
        return np.concatenate([u[: self.m] - v[: self.m], last[None]])

    def by_rate(self, points: Array, v: Array, slope: Array) -> Array:
        """Return derivatives by the rate, which are the input's part of ``|v|^2``."""
        return (np.abs(v[self.m :]) ** 2).sum(axis=0)

    def parts(self, omega: Array, x: Array) -> tuple[float, float, float]:
        """Return the largest norms over the frequencies: input to output, channels to output, input to channels."""
        resolvent = 1.0 / (self.point(omega)[:, None, None] - self.poles[:, None])
        m, delta = self.m, np.exp(x[: self.m])
        to_channels, to_output = self.C[:m] * delta[:, None], self.C[m:]
        from_input = self.B[:, m:] * resolvent
        direct = to_output @ from_input + self.D[m:, m:]
        output = (to_output @ (self.B[:, :m] * resolvent) + self.D[m:, :m]) / delta
        channels = to_channels @ from_input + delta[:, None] * self.D[:m, m:]
        direct, output, channels = (np.linalg.norm(part, axis=(1, 2)).max() for part in (direct, output, channels))
        return float(direct), float(output), float(channels)


class GainExchange(Exchange):
    """Search for the smallest gain and its scales.

    Args:
        loop: the centered loop with input and output attached, channels first.
        delta: ``(m,)`` scales that prove the loop of the channels stable.
        deadline: checked before each step.
    """

    def __init__(self, loop: StateSpace, delta: Array, deadline: Deadline) -> None:
        self.loop, self.deadline, self.x = loop, deadline, np.append(np.log(delta), 0.0)
        self.axis = self._attached = _AttachedAxis(loop, len(delta), deadline)
        self.start, self.span = 0.0, 1.0
        self._reset()

    @property
    def usable(self) -> bool:
        """Return True if the centered loop is stable and its eigenvectors are well conditioned."""
        poles = self.axis.poles
        stable = np.abs(poles).max() < 1.0 if self.loop.is_discrete else np.real(poles).max() < 0.0
        return bool(stable) and self.axis.usable

    def least(self, tol: float = 2e-3) -> tuple[float, Array] | None:
        """Propose a gain and scales ``Delta``; ``None`` if input or output have no effect.

        Args:
            tol: tolerance of the gain's logarithm.
        """
        direct, output, channels = self._attached.parts(self._frequencies(), self.x)
        estimate = direct + output * channels
        if not (math.isfinite(estimate) and output > 0.0 and estimate > 0.0):
            return None
        self.start, self.span = -math.log(estimate) - _ABOVE, _ABOVE + _BELOW
        self.x[-1] = -math.log(2.0 * output)
        share = self.run(tol / self.span, (_ABOVE - math.log(3.0)) / self.span)
        return math.exp(-self.at(share)), np.exp(self.x[:-1] - self.x[-1])
