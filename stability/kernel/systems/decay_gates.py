r"""Gates of linear recurrences: the decay ``a`` of every channel or head, by its logarithm.

The extremes of a pre-activation ``p`` over the input set give those of ``ln a``, since every gate is monotone in ``p``.
``ln a`` is kept instead of ``1 - a``, so that slow channels lose no digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stability.errors import ConfigurationError
from stability.kernel.arithmetic.directed_functions import (
    add_up,
    exponential,
    logistic,
    lower,
    softplus,
    upper,
)
from stability.kernel.arithmetic.floating_point import EPS
from stability.kernel.format.serialization import subject
from stability.kernel.systems.input_sets import InputSet
from stability.kernel.systems.signals import Array, Node, Signal, as_array, as_signal

RG_LRU_SHARPNESS = 8.0
"""Constant ``c`` of ``a = exp(-c r softplus(Lambda))`` in the RG-LRU."""


class Gate(Node):
    """Decay of every channel or head; by default of one pre-activation, ``signal``, with one entry for each."""

    signal: Signal

    @property
    def units(self) -> int:
        """Number of channels or heads."""
        return self.signals[0].size

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Signals of the pre-activations."""
        return (self.signal,)

    @cached_property
    def log_decay(self) -> tuple[Array, Array]:
        """Bounds of ``ln a``, ``(units,)`` or ``(units, k)`` each."""
        return self._log_decay()

    def _log_decay(self) -> tuple[Array, Array]:
        raise NotImplementedError

    @cached_property
    def slope(self) -> Array:
        """Bound of ``|d ln(-ln a)|`` per ``sup_t |du_t|_2``, ``(units,)``: the sum over all pre-activations."""
        return add_up(*(signal.group_constants(self.units) for signal in self.signals))

    def slowest(self) -> Array:
        """Return the largest ``ln a`` of every channel or head, ``(units,)``."""
        high = self.log_decay[1]
        return high if high.ndim == 1 else high.max(axis=1)


@subject("softplus_gate")
@dataclass(frozen=True, eq=False, repr=False)
class SoftplusGate(Gate):
    r"""Softplus gate of Mamba, Mamba-2 and gated DeltaNet.

    .. math:: a = \exp(-e^{A} \Delta), \quad \Delta = \mathrm{softplus}(p)

    Args:
        log_rate: ``A (units,)``, or ``(units, k)`` for ``k`` states a channel.
        signal: pre-activation ``p`` with ``units`` entries.
        least: ``(units,)`` lower limit (a floor) of ``Delta``; 0 by default.
        most: upper limit of ``Delta``; ``None`` for no limit.
        growing: the sign of ``A`` is wrong: :math:`a = \exp(+e^{A} \Delta)`.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: limits out of order.
    """

    log_rate: Any
    signal: Signal
    least: Any = None
    most: float | None = None
    growing: bool = False

    def __post_init__(self) -> None:
        units = as_signal(self.signal).size
        columns = (None,) * (np.ndim(self.log_rate) - 1)
        log_rate = as_array("log_rate", self.log_rate, (units, *columns[:1]))
        least = np.zeros(units) if self.least is None else as_array("least", self.least, (units,))
        most = None if self.most is None else float(self.most)
        if (least < 0.0).any() or (most is not None and not (least.max() <= most < np.inf)):
            raise ConfigurationError(f"limits of the step need 0 <= least <= most, got up to {least.max()} and {most}")
        self._set(log_rate=log_rate, least=least, most=most)

    @property
    def limited(self) -> bool:
        """True where the step has a limit."""
        return self.most is not None or bool(self.least.any())

    @cached_property
    def rate(self) -> tuple[Array, Array]:
        """Bounds of ``exp(A)``."""
        return exponential(self.log_rate, self.log_rate)

    @cached_property
    def step(self) -> tuple[Array, Array]:
        """Bounds ``(units,)`` of the limited ``Delta``."""
        low, high = softplus(*self.signal.bounds)
        most = np.inf if self.most is None else self.most
        return np.minimum(np.maximum(low, self.least), most), np.minimum(np.maximum(high, self.least), most)

    def _log_decay(self) -> tuple[Array, Array]:
        low, high = (step if self.rate[0].ndim == 1 else step[:, None] for step in self.step)
        least, most = np.maximum(lower(self.rate[0] * low, 4 * EPS), 0.0), upper(self.rate[1] * high, 4 * EPS)
        return (least, most) if self.growing else (-most, -least)


@subject("sigmoid_gate")
@dataclass(frozen=True, eq=False, repr=False)
class SigmoidGate(Gate):
    r"""Logistic gate of minGRU, HGRN (``l > 0``), GLA (``k = 16``) and mLSTM (``c = 15``).

    .. math:: a = l + (1 - l)\, \sigma(c \tanh(p / c))^{1 / k}

    Args:
        signal: pre-activation ``p``; minGRU's ``a = 1 - sigma(z)`` has ``p = -z``.
        floor: ``l (units,)`` in [0, 1); 0 by default.
        root: ``k >= 1``.
        cap: soft cap ``c > 0``; ``None`` for none, ``p`` itself.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: numbers out of range.
    """

    signal: Signal
    floor: Any = None
    root: float = 1.0
    cap: float | None = None

    def __post_init__(self) -> None:
        units = as_signal(self.signal).size
        floor = np.zeros(units) if self.floor is None else as_array("floor", self.floor, (units,))
        fits = (floor >= 0.0).all() and (floor < 1.0).all() and 1.0 <= self.root < np.inf
        if not fits or (self.cap is not None and not 0.0 < self.cap < np.inf):
            raise ConfigurationError("a sigmoid gate needs floors in [0, 1), a root >= 1 and a positive cap")
        self._set(floor=floor, root=float(self.root), cap=None if self.cap is None else float(self.cap))

    def _log_decay(self) -> tuple[Array, Array]:
        low, high = self.signal.bounds
        if self.cap is not None:
            low, high = soft_cap(low, high, self.cap)
        most, least = softplus(-high, -low)  # -ln sigma(p) = softplus(-p) falls with p
        low, high = -upper(least / self.root, 4 * EPS), -np.maximum(lower(most / self.root, 4 * EPS), 0.0)
        if not self.floor.any():
            return low, high
        # ln(l + (1 - l) s) = log1p(-(1 - l) (1 - s))
        rest = 1.0 - self.floor  # a relative rounding error of a few units remains where l is near one
        loss = [rest * -np.expm1(end) for end in (low, high)]
        with np.errstate(divide="ignore"):
            least, most = (np.log1p(-np.clip(value, 0.0, 1.0)) for value in (upper(loss[0]), lower(loss[1])))
        return -upper(-least), np.minimum(-lower(-most), 0.0)


def soft_cap(low: Array, high: Array, cap: float) -> tuple[Array, Array]:
    """Enclose ``cap tanh(p / cap)`` for ``low <= p <= high``."""
    ends = (cap * np.tanh(low / cap), cap * np.tanh(high / cap))
    return lower(ends[0]), upper(ends[1])


@subject("ratio_gate")
@dataclass(frozen=True, eq=False, repr=False)
class RatioGate(Gate):
    r"""Gate of minLSTM: :math:`a = f / (f + i)` with :math:`f = \sigma(p_f)`, :math:`i = \sigma(p_i)`.

    The two pre-activations are bounded separately, so the bounds hold but are not attained.

    Args:
        forget: ``p_f``.
        insert: ``p_i``, of the same size.

    Raises:
        ConfigurationError: two sizes.
    """

    forget: Signal
    insert: Signal

    def __post_init__(self) -> None:
        if as_signal(self.forget).size != as_signal(self.insert).size:
            raise ConfigurationError(f"both gates need one size, got {self.forget.size} and {self.insert.size}")

    @property
    def signals(self) -> tuple[Signal, ...]:
        """Both pre-activations."""
        return self.forget, self.insert

    def _log_decay(self) -> tuple[Array, Array]:
        forget, insert = logistic(*self.forget.bounds), logistic(*self.insert.bounds)
        with np.errstate(divide="ignore"):
            most, least = upper(insert[1] / forget[0]), np.maximum(lower(insert[0] / forget[1]), 0.0)
        return -upper(np.log1p(most)), -np.maximum(lower(np.log1p(least)), 0.0)


@subject("rg_lru_gate")
@dataclass(frozen=True, eq=False, repr=False)
class RGLRUGate(Gate):
    r"""Gate of the RG-LRU: :math:`\ln a = -8 \sigma(p)\, \mathrm{softplus}(\Lambda)`.

    Args:
        signal: pre-activation ``p`` of the recurrent gate.
        parameter: ``Lambda (units,)``.

    Raises:
        DimensionError: shapes that do not fit.
    """

    signal: Signal
    parameter: Any

    def __post_init__(self) -> None:
        self._set(parameter=as_array("parameter", self.parameter, (as_signal(self.signal).size,)))

    def _log_decay(self) -> tuple[Array, Array]:
        gate, rate = logistic(*self.signal.bounds), softplus(self.parameter, self.parameter)
        most = upper(RG_LRU_SHARPNESS * gate[1] * rate[1], 8 * EPS)
        return -most, -np.maximum(lower(RG_LRU_SHARPNESS * gate[0] * rate[0], 8 * EPS), 0.0)


@subject("constant_gate")
@dataclass(frozen=True, eq=False, repr=False)
class ConstantGate(Gate):
    r"""Constant decay of S4D, S5 and LRU: :math:`\ln |\lambda| = r\, e^{s}` with ``r`` or :math:`r = -e^{q}` stored.

    Args:
        input_set: input set of the layer.
        rate: ``r (units,)``: real part of the continuous eigenvalue.
        log_rate: ``q (units,)``: its logarithm where that is what the model stores; exactly one of the two is given.
        log_step: ``s (units,)``: logarithm of the step; zero by default.

    Raises:
        DimensionError: shapes that do not fit.
        ConfigurationError: both rates, none, or no input set.
    """

    input_set: InputSet
    rate: Any = None
    log_rate: Any = None
    log_step: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.input_set, InputSet) or (self.rate is None) == (self.log_rate is None):
            raise ConfigurationError("a constant gate needs an input set and one of rate and log_rate")
        name = "log_rate" if self.rate is None else "rate"
        value = as_array(name, getattr(self, name), (None,))
        step = np.zeros(len(value)) if self.log_step is None else as_array("log_step", self.log_step, value.shape)
        self._set(**{name: value}, log_step=step)

    @property
    def units(self) -> int:
        """Number of modes."""
        return len(self.log_step)

    @property
    def signals(self) -> tuple[Signal, ...]:
        """The input set, which no gate reads."""
        return (self.input_set,)

    @cached_property
    def slope(self) -> Array:
        """Zero: the gate is constant."""
        return np.zeros(self.units)

    def _log_decay(self) -> tuple[Array, Array]:
        if self.rate is None:
            least, most = exponential(self.log_rate, self.log_rate)
            low, high = -most, -least
        else:
            low = high = self.rate
        step = exponential(self.log_step, self.log_step)
        ends = np.stack([low * step[0], low * step[1], high * step[0], high * step[1]])
        return lower(ends.min(axis=0), 4 * EPS), upper(ends.max(axis=0), 4 * EPS)
