r"""RWKV-7: gate, injection and the transition :math:`S^+ = S (\mathrm{diag}(w) - \kappa (a * \kappa)^T) + v k^T`.

``S`` is the state of a head, ``(value_size, key_size)``; :math:`\kappa = k_k * x / r` is the normalized key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.balls import Ball
from stability.kernel.arithmetic.definiteness import gamma
from stability.kernel.arithmetic.directed_functions import exponential, logistic, lower, norm_above, upper
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.format.serialization import subject
from stability.kernel.systems.decay_gates import Gate
from stability.kernel.systems.gated_linear import Injection
from stability.kernel.systems.signals import Signal, as_array, as_signal

Array = np.ndarray
LARGEST_RATE = 0.6065306597126334
"""Constant ``c`` of ``ln w = -c sigmoid(p)``: ``exp(-1/2)``, or this number in some of the published code."""
KEY_EPS = 1e-6
"""Largest epsilon of the published normalizations of keys, which divide by ``|x|`` or by ``sqrt(|x|^2 + KEY_EPS)``."""
LEAST_KEY = 1e-3
"""Smallest norm of a key in a refutation; there the two normalizations differ by a factor of 1.4."""


@subject("rwkv_gate")
@dataclass(frozen=True, eq=False, repr=False)
class RWKVGate(Gate):
    r"""Decay of RWKV-7: :math:`\ln w = -c\, \sigma(p)` with :math:`c = e^{-1/2}`, so ``w > 0.545``.

    Args:
        signal: pre-activation ``p``, one entry a key channel.
    """

    signal: Signal

    def __post_init__(self) -> None:
        as_signal(self.signal)

    def _log_decay(self) -> tuple[Array, Array]:
        return _log_decay(*self.signal.bounds)


def _log_decay(low: Array, high: Array) -> tuple[Array, Array]:
    least, most = logistic(low, high)
    return -upper(LARGEST_RATE * most, 8 * EPS), -np.maximum(lower(LARGEST_RATE * least, 8 * EPS), 0.0)


@subject("rwkv_injection")
@dataclass(frozen=True, eq=False, repr=False)
class RWKVInjection(Injection):
    r"""Injection of RWKV-7: :math:`v (x * (1 + (a - 1) * k_a))^T`, with the rate :math:`a = \sigma(q)`.

    The normalized key is :math:`\kappa = k_k * x / r` with :math:`|k_k * x|^2 \le r^2 \le |k_k * x|^2 + 10^{-6}`, which
    covers the published normalizations.

    Args:
        values: signal of the values, ``heads * value_size`` entries.
        keys: signal ``x``, ``heads * key_size`` entries.
        rate: pre-activation ``q``, ``heads * key_size`` entries.
        removal: ``k_k``, ``(heads * key_size,)``.
        replacement: ``k_a``, ``(heads * key_size,)``.
        heads: number of heads.
        first: values of the first layer, with an input set of their own. ``v`` then lies between the two values, entry
            by entry.

    Raises:
        DimensionError: shapes that do not fit.
    """

    values: Signal
    keys: Signal
    rate: Signal
    removal: Any
    replacement: Any
    heads: int
    first: Signal | None = None
    transition: ClassVar[str] = "delta rule"

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Values, keys and rate of this layer."""
        return self.values, self.keys, self.rate

    def unit_states(self, gate: Gate) -> int:
        """Return ``value_size``, the state entries of a key channel."""
        values, keys, heads = as_signal(self.values).size, as_signal(self.keys).size, self.heads
        fits = isinstance(gate, RWKVGate) and keys == as_signal(self.rate).size == gate.units
        fits = fits and type(heads) is int and heads > 0 and values % heads == 0 and keys % heads == 0
        if not fits or (self.first is not None and as_signal(self.first).size != values):
            raise ConfigurationError(
                f"{values} values and {keys} keys do not fit to {heads} heads and {gate.units} gates"
            )
        for name in ("removal", "replacement"):
            self._set(**{name: as_array(name, getattr(self, name), (keys,))})
        return values // heads

    def entries(self, head: int) -> slice:
        """Return the key channels of a head."""
        size = self.keys.size // self.heads
        return slice(head * size, (head + 1) * size)

    def gates(self, gate: Gate, inputs: Ball, head: int) -> tuple[Ball, Ball, Ball, Ball]:
        """Enclose ``w``, ``a``, ``1 / r`` and ``k_k * x`` of a head under periodic inputs.

        Args:
            gate: the layer's gate.
            inputs: ``(T, d)`` inputs of one period.
            head: number of the head.

        Returns:
            ``w (T, key_size)``, ``a (T, key_size)``, ``1 / r (T, 1)`` and ``k_k * x (T, key_size)``.
        """
        entries = self.entries(head)
        p, q, x = (signal.at(inputs, entries) for signal in (gate.signal, self.rate, self.keys))
        key = x * self.removal[entries]
        least = np.maximum(np.abs(key.mid) - key.rad, 0.0) * (1.0 - 4 * EPS)
        size = np.sqrt((least * least).sum(axis=1)) * (1.0 - gamma(least.shape[1] + 8))
        most = upper(np.sqrt(norm_above(key.upper()) ** 2 + KEY_EPS), 8 * EPS)
        size = np.where(size >= LEAST_KEY, size, np.nan)
        factor = Ball.around(lower(1.0 / most, 4 * EPS), upper(1.0 / size, 4 * EPS))[:, None]
        decay = exponential(*_log_decay(*p.endpoints()))
        return Ball.around(*decay), Ball.around(*logistic(*q.endpoints())), factor, key


def period(parts: tuple[Ball, Ball, Ball, Ball], start: int = 0) -> Ball:
    r"""Enclose the product :math:`M_1 \cdots M_T` of the transitions from step ``start``."""
    decay, rate, factor, key = parts
    unit = key * factor
    total = Ball.exact(np.eye(key.shape[1]))
    for t in range(start, key.shape[0]):
        row = (unit[t] * rate[t])[None, :]
        total = total * decay[t] - (total @ unit[t])[:, None] * row
    return total
