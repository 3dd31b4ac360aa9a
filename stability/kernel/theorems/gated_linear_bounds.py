r"""Bounds of decay, states and gains of gated linear layers that do not depend on the length of the sequence.

``a`` is the decay of a channel or head; all suprema are over the layer's input set.

* ``average_bound``: for :math:`h^+ = a h + (1 - a) \tau` every state is an average of ``h_0`` and earlier ``tau``, so
  :math:`|h_t| \le \max(|h_0|, \sup |\tau|)`, whatever ``a``. An injection :math:`\Delta x \otimes B` with
  :math:`a = e^{-A \Delta}` has this form with :math:`\tau = \phi_A(\Delta) x \otimes B`,
  :math:`\phi_A(\Delta) = \Delta / (1 - e^{-A \Delta})`, which rises with ``Delta`` and falls with ``A``.
* ``root_bound``: :math:`h^+ = a h + \sqrt{1 - a^2} b` has :math:`|h_t| \le \sup |b| \sqrt{(1 + a) / (1 - a)}`.
* ``delta_bound``: :math:`S^+ = a (I - \beta k k^T) S + \beta k v^T`, :math:`|k| \le 1`, :math:`\beta \le b < 2`.
  Nothing changes off ``k``; along ``k`` maximize :math:`((1 - \theta) s + \beta |k| |v|)^2 - s^2` with
  :math:`\theta = \beta |k|^2`. So :math:`|S^+|_F^2 \le a^2 |S|_F^2 + |v|^2 b / (2 - b)`.
* ``weighted_bound``: :math:`S^+ = S (\mathrm{diag}(w) - \kappa (a * \kappa)^T) + b` with :math:`|\kappa| \le 1`
  contracts in the norm :math:`|S|_p = |S\, \mathrm{diag}(p)^{-1/2}|_F`, ``p`` the middles of the ranges of ``a``, if
  these ranges are small (``weighted_decays``). Then :math:`|S_t|_p \le \max(|S_0|_p, \sup |b|_p / (1 - |N|))`, and
  :math:`|S|_F \le (\max p)^{1/2} |S|_p`, :math:`|S|_p \le (\min p)^{-1/2} |S|_F`.
* ``series_bound``: :math:`|h_t| \le \max(|h_0|, \sup |b| / (1 - a))`.
* ``average_gain``: for :math:`h^+ = a h + (1 - a) \tau` in a ball of radius ``H`` around all ``tau`` and ``h_0``,
  :math:`|\delta h_t| \le H \sup |\delta \ln(-\ln a)| + \sup |\delta \tau|`. Interpolate :math:`\ln(-\ln a)` and ``tau``
  linearly. The derivative of ``h`` through the gate, ``D``, obeys :math:`D^+ = a D + a' (h - \tau)` with
  :math:`|a'| \le \sqrt a (1 - a) \epsilon`, and :math:`|D|^2 / \epsilon^2 + |h|^2 \le H^2` is invariant.
* ``series_gain``: :math:`|\delta h_t| \le (\sup |h| \sup |\delta a| + \sup |\delta b|) / (1 - a)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from stability.kernel.arithmetic.directed_functions import (
    SILU_SLOPE,
    add_up,
    exponential,
    logistic,
    lower,
    norm_above,
    silu,
    upper,
)
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.systems.decay_gates import SoftplusGate, soft_cap
from stability.kernel.systems.derived_signals import Affine
from stability.kernel.systems.gated_linear import (
    ConvexInjection,
    DeltaInjection,
    GatedLinearLayer,
    LinearInjection,
    OuterInjection,
    RootInjection,
    StepInjection,
)
from stability.kernel.systems.rwkv import RWKVInjection
from stability.kernel.systems.signals import Signal

Array = np.ndarray
FLOAT32_ONE = 2.0**-25
"""Largest ``1 - a`` for which a float32 gate rounds to 1."""
TOLERANCE = 0.01
"""Weight of an input below which it counts as forgotten, unless another one is asked for."""
LEAST_RATE = 1e-100
"""Least middle ``p`` of the range of a rate of RWKV-7: any ``p > 0`` gives a bound, and no quotient overflows."""
EXCESS = 0.36788
"""Upper bound of ``x exp(-x)``: of ``|da|`` for ``|d ln x| = 1``, ``x = -ln a``."""


def horizons(log_decay: Array, tol: float, taps: int) -> Array:
    """Return the number of steps after which the weight of an input is at most ``tol``, ``(units,)``; -1 for never.

    Args:
        log_decay: ``(units,)`` upper bounds of ``ln a``.
        tol: weight, in (0, 1).
        taps: input steps that enter one step of the state.

    Example:
        >>> horizons(np.log([0.5, 1.0]), 0.01, 4).tolist()
        [10.0, -1.0]
    """
    with np.errstate(over="ignore"):
        steps = np.ceil(upper(math.log(tol) / np.where(log_decay < 0.0, log_decay, -TINY), 16 * EPS)) + (taps - 1)
    return np.where(steps < 2.0**53, steps, -1.0)


def largest_decay(log_decay: Array) -> float:
    """Bound ``max exp(l)`` above; at most 1 for ``l <= 0``."""
    most = float(log_decay.max())
    above = float(upper(np.exp(np.float64(most))))
    return min(above, 1.0) if most <= 0.0 else above


def _product_gain(factors: tuple[Array, Array], constants: tuple[Array, Array]) -> Array:
    """Bound ``|d(x y)|`` above by ``|dx| |y| + |x| |dy|``."""
    return add_up(upper(constants[0] * factors[1], 4 * EPS), upper(factors[0] * constants[1], 4 * EPS))


def rooms(layer: GatedLinearLayer) -> Array:
    """Bound ``1 - a`` below, ``(units, k)`` or ``(units, 1)``; zero where the decay may be 1."""
    return np.maximum(lower(-np.expm1(np.minimum(layer.gate.log_decay[1], 0.0))), 0.0).reshape(layer.units, -1)


def _one_minus_decay(layer: GatedLinearLayer) -> Array:
    return rooms(layer).min(axis=1)


def quotient(numerator: Array, denominator: Array) -> Array:
    """Bound a quotient above; infinite where the denominator may be zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator > 0.0, upper(numerator / denominator, 4 * EPS), np.inf)


def step_parts(layer: GatedLinearLayer) -> tuple[Array, tuple[Array, Array], tuple[Array, Array]]:
    """Return the bound of ``phi`` and norms and Lipschitz constants of values and keys, shaped to be multiplied."""
    gate, injection = layer.gate, layer.injection
    assert isinstance(gate, SoftplusGate)
    assert isinstance(injection, StepInjection)
    diagonal = gate.log_rate.ndim == 2
    step, rate = gate.step[1], gate.rate[0]
    step = step[:, None] if diagonal else step
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = lower(-np.expm1(-lower(rate * step, 4 * EPS)))
        phi = np.where(loss > 0.0, upper(step / loss), np.inf)
        phi = np.minimum(phi, add_up(upper(1.0 / rate, 4 * EPS), step))  # phi <= 1/A + Delta
    values, keys = injection.values, injection.keys

    def shaped(measure: Callable[[Signal, int], Array]) -> tuple[Array, Array]:
        if diagonal:
            return measure(values, values.size)[:, None], measure(keys, keys.size)[None, :]
        heads = layer.units // injection.groups
        return measure(values, layer.units), np.repeat(measure(keys, injection.groups), heads)

    return phi, shaped(Signal.group_norms), shaped(Signal.group_constants)


def convex_range(injection: ConvexInjection) -> tuple[Array, Array]:
    """Enclose the values ``f(x)`` that a convex injection averages."""
    low, high = injection.values.bounds
    if injection.activation == "silu":
        return silu(low, high)
    if injection.activation == "min_gru":
        least, most = logistic(low, high)
        return np.where(low >= 0.0, lower(low + 0.5), least), np.where(high >= 0.0, upper(high + 0.5), most)
    return low, high


def _worst(bounds: Array) -> Array:
    return bounds if bounds.ndim == 1 else bounds.max(axis=1)


def average_bounds(layer: GatedLinearLayer) -> Array:
    """Bound ``sup |tau|`` of every channel (entry) or head (Frobenius norm) above, ``(units,)``."""
    if isinstance(layer.injection, ConvexInjection):
        low, high = convex_range(layer.injection)
        return np.maximum(np.abs(low), np.abs(high))
    phi, (values, keys), _ = step_parts(layer)
    return _worst(upper(upper(phi * values, 4 * EPS) * keys, 4 * EPS))  # no product of three: it may underflow


def average_gains(layer: GatedLinearLayer) -> Array:
    """Bound ``|dh|`` of every channel or head by ``gain sup_t |du_t|_2``, ``(units,)``."""
    slope = layer.gate.slope
    if isinstance(layer.injection, ConvexInjection):
        low, high = convex_range(layer.injection)
        radius = upper(0.5 * (np.maximum(high, 0.0) - np.minimum(low, 0.0)), 4 * EPS)
        factor = SILU_SLOPE if layer.injection.activation == "silu" else 1.0
        return add_up(upper(radius * slope), upper(factor * layer.injection.values.group_constants(layer.units)))
    phi, sizes, constants = step_parts(layer)
    assert isinstance(layer.gate, SoftplusGate)
    rise = upper(logistic(-np.inf * np.ones(1), layer.gate.signal.bounds[1])[1] * slope, 4 * EPS)
    slope, rise = (x[:, None] if phi.ndim == 2 else x for x in (slope, rise))
    size = upper(sizes[0] * sizes[1], 4 * EPS)
    terms = (upper(phi * size) * slope, rise * size, phi * _product_gain(sizes, constants))
    return _worst(add_up(*(upper(term, 8 * EPS) for term in terms)))


def root_bounds(layer: GatedLinearLayer) -> Array:
    """Bound ``|h|`` of every channel of an RG-LRU above, ``(units,)``."""
    injection = layer.injection
    assert isinstance(injection, RootInjection)
    values: Array = injection.values.magnitude
    bounds: tuple[Array, Array] = injection.insert.bounds
    size = upper(values * logistic(*bounds)[1], 4 * EPS)
    return upper(size * np.sqrt(quotient(np.array(2.0), _one_minus_decay(layer))), 8 * EPS)


def largest_rates(injection: DeltaInjection) -> Array:
    """Bound ``beta`` of every head above, ``(heads,)``."""
    return np.minimum(upper(injection.scale * logistic(*injection.rate.bounds)[1], 4 * EPS), injection.scale)


def delta_gains(layer: GatedLinearLayer) -> Array:
    """Bound ``|S|`` of every head above over that of its values, ``(heads,)``; the same for each column of ``S``."""
    injection = layer.injection
    assert isinstance(injection, DeltaInjection)
    beta = largest_rates(injection)
    loss = np.maximum(lower(-np.expm1(np.minimum(2.0 * slowest_decays(layer), 0.0))), 0.0)
    return upper(np.sqrt(quotient(beta, lower(np.maximum(2.0 - beta, 0.0) * loss, 4 * EPS))), 4 * EPS)


def delta_bounds(layer: GatedLinearLayer) -> Array:
    """Bound ``|S|_F`` of every head above, ``(heads,)``."""
    injection = layer.injection
    assert isinstance(injection, DeltaInjection)
    return upper(injection.values.group_norms(injection.rate.size) * delta_gains(layer), 4 * EPS)


def _rates(layer: GatedLinearLayer) -> tuple[Array, Array, Array]:
    """Return the middles ``p`` of the ranges of the rates ``a``, ``(heads, key_size)``, and the bounds of ``a``."""
    assert isinstance(layer.injection, RWKVInjection)
    low, high = (end.reshape(layer.injection.heads, -1) for end in logistic(*layer.injection.rate.bounds))
    return np.maximum(0.5 * (low + high), LEAST_RATE), low, high


def weighted_decays(layer: GatedLinearLayer) -> Array:
    r"""Bound the logarithm of the norm of RWKV-7's transition in ``T = S diag(p)^(-1/2)`` above, ``(heads,)``.

    With :math:`z = p^{1/2} * \kappa` and :math:`h = p^{-1/2} * (a - p) * \kappa` the transition of ``T`` is
    :math:`N = \mathrm{diag}(w) - z (z + h)^T`, where :math:`|z|^2 \le P = \max p` and
    :math:`|h|^2 \le q = \max (a - p)^2 / p`. Let :math:`w_0 \le w \le w_1`, :math:`c = w_0 + w_1 > P`, and let
    :math:`s + d` and :math:`s - d` be unit vectors, so :math:`|s|^2 + |d|^2 = 1`. With :math:`A = z \cdot s`,
    :math:`B = z \cdot d` and :math:`H = h \cdot (s - d)`

    .. math:: (s + d)^T N (s - d) = \sum_i w_i (s_i^2 - d_i^2) - (A + B)(A - B + H)
              \le w_1 - c |d|^2 + B^2 + |B H| + H^2 / 4,

    since :math:`-A^2 - A H \le H^2 / 4`. As :math:`B^2 \le P |d|^2`, the maximum over ``|d|`` gives
    :math:`|N| \le w_1 + (q / 4)\, c / (c - P)`.
    """
    p, low, high = _rates(layer)
    least, most = (end.reshape(p.shape) for end in layer.gate.log_decay)
    slowest, fastest = most.max(axis=1), least.min(axis=1)
    radius = upper(np.maximum(high - p, p - low), 4 * EPS)
    spread = upper(radius * radius / p, 8 * EPS).max(axis=1)
    total = lower(exponential(fastest, fastest)[0] + exponential(slowest, slowest)[0], 4 * EPS)  # less c: weaker bound
    excess = upper(0.25 * spread * quotient(total, lower(total - p.max(axis=1), 4 * EPS)), 8 * EPS)
    return add_up(slowest, upper(excess * exponential(-slowest, -slowest)[1], 8 * EPS))  # ln(w + e) <= ln w + e / w


def weighted_bounds(layer: GatedLinearLayer) -> Array:
    r"""Bound ``|S|_F`` of every head of RWKV-7 above, ``(heads,)``, by :math:`\sqrt P \sup |b|_p / (1 - |N|)`.

    :math:`|b|_p \le |v| |p^{-1/2} * k'|` with the injected key :math:`k' = x * (1 + (a - 1) * k_a)`.
    """
    injection, (p, *ends) = layer.injection, _rates(layer)
    assert isinstance(injection, RWKVInjection)
    mix, values = injection.replacement.reshape(p.shape), injection.values
    factor = np.maximum(*(np.abs(1.0 + (a - 1.0) * mix) for a in ends)) + 8 * EPS * (1.0 + np.abs(mix))
    keys = injection.keys.norms(len(p), upper(factor / np.sqrt(p), 16 * EPS).reshape(1, -1))[0]
    size = values.group_norms(len(p))
    if injection.first is not None:  # between two values in every entry, so v^2 is at most the larger of their squares
        entries = np.maximum(values.magnitude, injection.first.magnitude).reshape(len(p), -1)
        both = upper(np.hypot(size, injection.first.group_norms(len(p))), 8 * EPS)
        size = np.minimum(norm_above(entries), both)
    injected = upper(upper(np.sqrt(p.max(axis=1)) * size, 8 * EPS) * keys, 8 * EPS)
    return quotient(injected, lower(-np.expm1(weighted_decays(layer))))


def _series(layer: GatedLinearLayer) -> tuple[Array, Array]:
    """Return bounds of ``|b|`` and of ``|db| / sup |du|`` of every unit."""
    injection = layer.injection
    if isinstance(injection, LinearInjection):
        signal = Affine(injection.weight, layer.input_set)
        scale = exponential(injection.log_scale, injection.log_scale)[1]
        if injection.hold:
            scale = upper(scale * exponential(layer.gate.log_step, layer.gate.log_step)[1], 4 * EPS)  # type: ignore[attr-defined]
        return tuple(
            upper(scale * part(signal, layer.units), 4 * EPS) for part in (Signal.group_norms, Signal.group_constants)
        )  # type: ignore[return-value]
    assert isinstance(injection, OuterInjection)
    heads, repeats = injection.heads, layer.units // injection.heads

    def parts(measure: Callable[[Signal, int], Array]) -> tuple[Array, Array]:
        return np.repeat(measure(injection.values, heads), repeats), measure(injection.keys, layer.units)

    sizes, constants = parts(Signal.group_norms), parts(Signal.group_constants)
    size, change = upper(sizes[0] * sizes[1], 4 * EPS), _product_gain(sizes, constants)
    if injection.insert is not None:
        low, high = injection.insert.bounds
        high = high if injection.cap is None else soft_cap(low, high, injection.cap)[1]
        factor = np.repeat(exponential(high, high)[1], repeats)
        rise = np.repeat(injection.insert.group_constants(heads), repeats)
        size, change = upper(size * factor, 4 * EPS), upper(factor * add_up(change, upper(size * rise)), 4 * EPS)
    return size, change


def series_bounds(layer: GatedLinearLayer) -> Array:
    """Bound ``|h|`` of every channel, mode or head above by ``sup |b| / (1 - a)``, ``(units,)``."""
    return quotient(_series(layer)[0], _one_minus_decay(layer))


def series_gains(layer: GatedLinearLayer) -> Array:
    """Bound ``|dh|`` of every channel, mode or head by ``gain sup_t |du_t|_2``, ``(units,)``."""
    rest, slope = _one_minus_decay(layer), layer.gate.slope
    if isinstance(layer.injection, RootInjection):
        values, insert = layer.injection.values, layer.injection.insert
        gate, size = logistic(*insert.bounds)[1], values.magnitude
        # |d sqrt(1 - a^2)| <= |dp| / 2 and the slope of the logistic function is at most 1/4
        through_gate = upper(0.25 * size * insert.group_constants(layer.units), 4 * EPS)
        change = add_up(
            upper(0.5 * upper(gate * size) * slope, 8 * EPS),
            through_gate,
            upper(gate * values.group_constants(layer.units), 4 * EPS),
        )
        state = root_bounds(layer)
    else:
        change, state = _series(layer)[1], series_bounds(layer)
    memory = np.where(slope == 0.0, 0.0, upper(upper(EXCESS * state) * slope, 8 * EPS))  # NaN stays NaN
    return quotient(add_up(change, memory), rest)


BOUNDS: dict[str, tuple[tuple[type, ...], Callable[[GatedLinearLayer], Array]]] = {
    "average_bound": ((StepInjection, ConvexInjection), average_bounds),
    "root_bound": ((RootInjection,), root_bounds),
    "delta_bound": ((DeltaInjection,), delta_bounds),
    "weighted_bound": ((RWKVInjection,), weighted_bounds),
    "series_bound": ((OuterInjection, LinearInjection), series_bounds),
    "average_gain": ((StepInjection, ConvexInjection), average_gains),
    "series_gain": ((OuterInjection, LinearInjection, RootInjection), series_gains),
}
"""Injections that each theorem covers, and its bound."""


def most_forgotten(layer: GatedLinearLayer) -> Array:
    """Bound ``|1 - a|`` above, ``(units,)``, over all inputs and all states of a channel."""
    low, high = layer.gate.log_decay
    share = np.maximum(upper(-np.expm1(low)), upper(np.expm1(high)))
    return share if share.ndim == 1 else share.max(axis=1)


def slowest_decays(layer: GatedLinearLayer) -> Array:
    """Bound ``ln a`` above for every channel, mode or head; a head of a delta rule is as slow as its slowest key."""
    if isinstance(layer.injection, RWKVInjection):
        return weighted_decays(layer)
    high = layer.gate.slowest()
    return (
        high.reshape(layer.injection.rate.size, -1).max(axis=1) if isinstance(layer.injection, DeltaInjection) else high
    )
