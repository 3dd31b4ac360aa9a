"""Signals computed from other signals: a matrix, a causal convolution, SiLU."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import (
    SILU_SLOPE,
    add_up,
    lower,
    norm_above,
    silu,
    silu_excess,
    upper,
)
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.format.serialization import subject
from stability.kernel.systems.input_sets import InputBox, InputSet, NormBall
from stability.kernel.systems.signals import ALL, Array, Rows, Signal, as_array, as_signal, spectral_norms


class Derived(Signal):
    """Signal computed from another one, its ``source``."""

    source: Signal

    @property
    def size(self) -> int:
        """Number of entries: that of the source."""
        return self.source.size

    @property
    def inputs(self) -> InputSet:
        """The input set of the layer."""
        return self.source.inputs

    @property
    def taps(self) -> int:
        """Number of input steps that the signal reads."""
        return self.source.taps


@subject("affine_signal")
@dataclass(frozen=True, eq=False, repr=False)
class Affine(Derived):
    """Matrix applied to a signal: ``W x + b``.

    Args:
        weight: ``W (k, n)``.
        source: signal ``x`` with ``n`` entries.
        bias: ``b (k,)``; zero by default.

    Raises:
        DimensionError: shapes that do not fit.
    """

    weight: Any
    source: Signal
    bias: Any = None

    def __post_init__(self) -> None:
        source = as_signal(self.source)
        weight = as_array("weight", self.weight, (None, source.size))
        bias = np.zeros(len(weight)) if self.bias is None else as_array("bias", self.bias, (len(weight),))
        self._set(weight=weight, bias=bias)

    @property
    def size(self) -> int:
        """Number of rows of ``W``."""
        return len(self.weight)

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Return the source's extremes of ``g W``, shifted by ``g . b``, rounded outwards."""
        low, high = self.source.extremes(rows.times(self.weight))
        shift, error = rows.dot(self.bias), rows.error(self._reach)
        return -add_up(-low, -shift, error), add_up(high, shift, error)

    def at(self, inputs: Ball, entries: slice = ALL) -> Ball:
        """Enclose entries of ``W x + b``."""
        return self.source.at(inputs) @ self.weight[entries].T + self.bias[entries]

    @cached_property
    def _reach(self) -> Array:
        """Bound of ``|W| |x| + |b|``, which the rounding errors of ``g W`` are measured by."""
        return upper(np.abs(self.weight) @ self.source.magnitude, gamma(self.weight.shape[1])) + np.abs(self.bias)

    def _bounds(self) -> tuple[Array, Array]:
        low, high = self.source.extremes(Rows(self.weight))
        return -add_up(-low, -self.bias), add_up(high, self.bias)

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the spectral bound where the source is an input set, or the bound by entries where it is smaller."""
        scales = self._scales(scales)
        entries = self.entry_norms(groups, scales)
        spectral = self.source.affine_norms(self.weight, self.bias, groups, scales)
        return entries if spectral is None else np.minimum(spectral, entries)

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return spectral norms times the source's constant."""
        scales = self._scales(scales)
        spectral = spectral_norms(self.weight, np.ones(self.weight.shape[1]), groups, scales)
        return upper(spectral * float(self.source.group_constants(1)[0]), 8 * EPS)


@subject("convolution_signal")
@dataclass(frozen=True, eq=False, repr=False)
class Convolution(Derived):
    r"""Causal convolution of every entry: :math:`y_t = c + \sum_{j < k} K_j * x_{t-j}`.

    At the start of a sequence the taps before the first step are zero, so extremes are taken over ``m = 1, ..., k``
    present taps.

    Args:
        kernel: ``K (k, n)``; row 0 multiplies the present step.
        source: signal ``x`` of ``n`` entries that reads one step.
        bias: ``c (n,)``; zero by default.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: a source that reads several steps.
    """

    kernel: Any
    source: Signal
    bias: Any = None

    def __post_init__(self) -> None:
        source = as_signal(self.source)
        if source.taps != 1:
            raise ConfigurationError("a convolution of a convolution is not supported: join the two kernels")
        kernel = as_array("kernel", self.kernel, (None, source.size))
        bias = np.zeros(source.size) if self.bias is None else as_array("bias", self.bias, (source.size,))
        self._set(kernel=kernel, bias=bias)

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.source.size

    @property
    def taps(self) -> int:
        """Number of taps ``k``."""
        return len(self.kernel)

    def at(self, inputs: Ball, entries: slice = ALL) -> Ball:
        """Enclose entries of the convolution of the repeated inputs."""
        x = self.source.at(inputs)
        taps = (Ball(np.roll(x.mid, j, axis=0), np.roll(x.rad, j, axis=0)) * tap for j, tap in enumerate(self.kernel))
        return sum(taps, Ball.exact(self.bias))[:, entries]

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Return ``g . c`` and the extreme sums of the source's extremes of ``g * K_j`` over the present taps."""
        total, most = np.zeros(2)[:, None], np.array(-np.inf)  # of -low and high
        for tap in self.kernel:
            terms = rows.scaled(tap)
            low, high = self.source.extremes(terms)
            total = add_up(total, np.stack([-low, high]), terms.error(self.source.magnitude))
            most = np.maximum(most, total)
        shift, error = rows.dot(self.bias), rows.error(np.abs(self.bias))
        low, high = add_up(most, np.stack([-shift, shift]), error)
        return -low, high

    def _bounds(self) -> tuple[Array, Array]:
        low, high = self.source.bounds
        total, most = np.zeros((2, self.size)), np.full((2, self.size), -np.inf)
        for tap in self.kernel:
            ends = np.stack([tap * low, tap * high])
            total = add_up(total, upper(np.stack([-ends.min(axis=0), ends.max(axis=0)]), 4 * EPS))
            most = np.maximum(most, total)
        down, up = add_up(most, np.stack([-self.bias, self.bias]))
        return -down, up

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return ``|s * c|_2`` and the sum of the source's bounds over all taps, or the bound by entries if smaller."""
        scales = self._scales(scales)
        taps = np.concatenate([upper(np.abs(scales) * np.abs(tap), 4 * EPS) for tap in self.kernel])
        parts = self.source.norms(groups, taps).reshape(self.taps, len(scales), groups).sum(axis=0)
        shift = norm_above((scales * self.bias).reshape(len(scales), groups, -1))
        return np.minimum(upper(parts + shift, (self.taps + 8) * EPS), self.entry_norms(groups, scales))

    def affine_norms(self, weight: Array, bias: Array, groups: int, scales: Array) -> Array | None:
        """Bound ``|s * (W y + b)|_2`` above by a sum over all taps, for inputs of an input set without a bias ``c``."""
        if not isinstance(self.source, InputSet) or self.bias.any():
            return None
        shift = norm_above((scales * bias).reshape(len(scales), groups, -1))
        parts = [self.source.affine_norms(weight * tap, np.zeros_like(bias), groups, scales) for tap in self.kernel]
        known = [part for part in parts if part is not None]
        return upper(sum(known, shift), (self.taps + 8) * EPS) if len(known) == self.taps else None

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the sum of the source's constants over all taps."""
        scales = self._scales(scales)
        taps = np.concatenate([upper(np.abs(scales) * np.abs(tap), 4 * EPS) for tap in self.kernel])
        parts = self.source.lipschitz_norms(groups, taps).reshape(self.taps, len(scales), groups)
        return upper(parts.sum(axis=0), (self.taps + 8) * EPS)


@subject("silu_signal")
@dataclass(frozen=True, eq=False, repr=False)
class SiLU(Derived):
    r"""SiLU of every entry: :math:`v = s \sigma(s) = s / 2 + e(s)` with :math:`0 \le e(s) \le \min(s^2 / 4, |s| / 2)`.

    Args:
        source: signal ``s``.
    """

    source: Signal

    def __post_init__(self) -> None:
        as_signal(self.source)

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.source.size

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Return extremes of the linear part and of the rest, or those by entries where they are tighter."""
        low, high = self.bounds
        G, error, excess = rows.dense(), rows.error(self.magnitude), silu_excess(self.source.magnitude)
        half = 0.5 * float(self.source.group_norms(1)[0])
        found = []
        for sign, linear in zip((-1.0, 1.0), self.source.extremes(rows.scaled(0.5))):
            positive, negative = np.maximum(sign * G, 0.0), np.minimum(sign * G, 0.0)
            entries = add_up(positive @ high + negative @ low, error)
            total = add_up(positive @ excess, error)
            rest = np.minimum(total, upper(norm_above(positive) * half, 8 * EPS))
            found.append(sign * np.minimum(entries, add_up(sign * linear, rest)))
        return found[0], found[1]

    def _bounds(self) -> tuple[Array, Array]:
        return silu(*self.source.bounds)

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the source's bounds, since ``|silu(s)| <= |s|``, or the bound by entries where it is smaller."""
        scales = self._scales(scales)
        return np.minimum(self.source.norms(groups, scales), self.entry_norms(groups, scales))

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return 1.1 times the source's constants."""
        return upper(SILU_SLOPE * self.source.lipschitz_norms(groups, scales), 8 * EPS)


@subject("tanh_signal")
@dataclass(frozen=True, eq=False, repr=False)
class Tanh(Derived):
    """Hyperbolic tangent of every entry.

    Args:
        source: its argument.
    """

    source: Signal

    def __post_init__(self) -> None:
        as_signal(self.source)

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        """Return the extremes over the box of all entries."""
        return InputBox(*self.bounds).extremes(rows)

    def at(self, inputs: Ball, entries: slice = ALL) -> Ball:
        """Enclose the hyperbolic tangents of entries."""
        low, high = self.source.at(inputs, entries).endpoints()
        return Ball.around(lower(np.tanh(low)), upper(np.tanh(high)))

    def _bounds(self) -> tuple[Array, Array]:
        low, high = self.source.bounds
        return lower(np.tanh(low)), upper(np.tanh(high))

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the source's constants."""
        return self.source.lipschitz_norms(groups, scales)


@subject("normalized_signal")
@dataclass(frozen=True, eq=False, repr=False)
class Normalized(Derived):
    r"""RMSNorm of a signal of ``n`` entries: :math:`w * x / \sqrt{|x|^2 / n + \epsilon}`.

    Extremes and norms are those of the ball :math:`w * z`, :math:`\|z\|_2 \le \sqrt n`, whatever the source. The
    Jacobian without ``w`` has the norm :math:`1 / \sqrt{|x|^2 / n + \epsilon} \le 1 / \sqrt\epsilon` at most.

    Args:
        weight: ``w (n,)``.
        source: signal ``x``.
        eps: epsilon, > 0.

    Raises:
        DimensionError: a weight that is no vector.
        ConfigurationError: an epsilon that is not positive, or sizes that do not fit.
    """

    weight: Any
    source: Signal
    eps: float
    ball: Any = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.eps, float) and 0.0 < self.eps < np.inf):
            raise ConfigurationError(f"a normalized signal needs a positive eps, got {self.eps!r:.40}")
        ball = NormBall(self.weight)
        if as_signal(self.source).size != ball.size:
            raise ConfigurationError(f"{ball.size} weights do not fit to a signal of {self.source.size} entries")
        self._set(weight=ball.weight, ball=ball)

    def extremes(self, rows: Rows) -> tuple[Array, Array]:
        r"""Return :math:`\mp \sqrt n \|g * w\|_2`, rounded outwards."""
        return self.ball.extremes(rows)

    def _bounds(self) -> tuple[Array, Array]:
        return self.ball.bounds

    def norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the norms of the ball."""
        return self.ball.norms(groups, scales)

    def lipschitz_norms(self, groups: int, scales: Array | None = None) -> Array:
        """Return the largest ``|s w|`` of every part times the source's constant over ``sqrt(eps)``."""
        factors = self.ball.lipschitz_norms(groups, self._scales(scales) * self.weight)
        slope = float(self.source.group_constants(1)[0]) / lower(np.sqrt(self.eps), 4 * EPS)
        return upper(factors * slope, 16 * EPS)
