r"""Gain to the whole output sequence by an exchange of frequency peaks.

.. math:: \min_{\Delta, g} g \quad\text{subject to}\quad \left\| \begin{bmatrix} \Delta & 0 \\ 0 & I \end{bmatrix}
          \begin{bmatrix} M_{11} & M_{12} \\ M_{21} & M_{22} \end{bmatrix}
          \begin{bmatrix} \Delta & 0 \\ 0 & g I \end{bmatrix}^{-1} \right\|_\infty \le 1,

``M`` the transfer matrix of the centered loop with input and output attached: the search of ``peak_exchange``
with ``-log g`` in the place of the rate, and with one more scale, that of output and input, since only ratios of scales
count there.
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
"""Logarithmic search range of the smallest gain above and below a first estimate."""


class _AttachedAxis(FrequencyAxis):
    """Triplets of the attached loop; its rate is ``-log g``, its last scale that of output and input.

    Args:
        loop: channels first, then input and output.
        m: channels.
        deadline: see ``FrequencyAxis``.
    """

    def __init__(self, loop: StateSpace, m: int, deadline: Deadline) -> None:
        super().__init__(loop, deadline=deadline)
        self.m, self.entries, self.outputs = m, loop.channels - m, len(loop.C) - m
        self.block = min(self.block, len(loop.C))

    def shifted(self, points: Array, rate: float) -> Array:
        """Return the points themselves: the rate moves no pole here."""
        return points

    def scales(self, x: Array, rate: float) -> tuple[Array, Array]:
        """Return ``(Delta, d I)`` and ``(Delta, d g I)``."""
        delta, last = np.exp(x[: self.m]), math.exp(x[-1])
        entry = last * math.exp(min(max(-rate, -300.0), 300.0))
        return np.append(delta, np.full(self.outputs, last)), np.append(delta, np.full(self.entries, entry))

    def by_scale(self, u: Array, v: Array) -> Array:
        """Return derivatives by the scales, see ``FrequencyAxis``; the last row is that of output and input."""
        last = u[self.m :].sum(axis=0) - v[self.m :].sum(axis=0)
        return np.concatenate([u[: self.m] - v[: self.m], last[None]])

    def by_rate(self, points: Array, v: Array, slope: Array) -> Array:
        """Return the input's part of ``|v|^2``."""
        return (np.abs(v[self.m :]) ** 2).sum(axis=0)

    def parts(self, omega: Array, x: Array) -> tuple[float, float, float]:
        """Return the largest norms over the frequencies: input to output, channels to output, input to channels."""
        resolvent = 1.0 / (self.point(omega)[:, None, None] - self.poles[:, None])
        m, delta = self.m, np.exp(x[: self.m])
        within, out = self.C[:m] * delta[:, None], self.C[m:]
        into = self.B[:, m:] * resolvent
        direct, feed = out @ into + self.D[m:, m:], within @ into + delta[:, None] * self.D[:m, m:]
        back = (out @ (self.B[:, :m] * resolvent) + self.D[m:, :m]) / delta
        direct, back, feed = (float(np.linalg.norm(part, axis=(1, 2)).max()) for part in (direct, back, feed))
        return direct, back, feed


class GainExchange(Exchange):
    """Search for the smallest gain.

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
        direct, back, feed = self._attached.parts(self._frequencies(), self.x)
        estimate = direct + back * feed
        if not (math.isfinite(estimate) and back > 0.0 and estimate > 0.0):
            return None
        self.start, self.span = -math.log(estimate) - _ABOVE, _ABOVE + _BELOW
        self.x[-1] = -math.log(2.0 * back)
        share = self.run(tol / self.span, (_ABOVE - math.log(3.0)) / self.span)
        return math.exp(-self.at(share)), np.exp(self.x[:-1] - self.x[-1])
