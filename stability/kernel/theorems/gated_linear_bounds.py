r"""Theorems on gated linear layers: decay, state bounds and gains that do not depend on the length of the sequence.

``a`` is the decay of a channel or head, all suprema are over the layer's input set, and no bound grows with the number
of steps.

* ``gate_extremes``: :math:`\ln a \le l` from the extremes of the pre-activations. The weight of an input ``n + k - 1``
  steps back, ``k`` the taps of a convolution, is at most :math:`e^{n l}`.
* ``average_bound``: for :math:`h^+ = a h + (1 - a) \tau` every state is an average of ``h_0`` and earlier ``tau``, so
  :math:`|h_t| \le \max(|h_0|, \sup |\tau|)`, whatever ``a``. An injection :math:`\Delta x \otimes B` with
  :math:`a = e^{-A \Delta}` has this form with :math:`\tau = \phi_A(\Delta) x \otimes B`,
  :math:`\phi_A(\Delta) = \Delta / (1 - e^{-A \Delta})`, which rises with ``Delta`` and falls with ``A``.
* ``root_bound``: :math:`h^+ = a h + \sqrt{1 - a^2} b` has :math:`|h_t| \le \sup |b| \sqrt{(1 + a) / (1 - a)}`.
* ``delta_bound``: :math:`S^+ = a (I - \beta k k^T) S + \beta k v^T`, :math:`|k| \le 1`, :math:`\beta \le b < 2`. Nothing
  changes off ``k``; along ``k`` maximize :math:`((1 - \theta) s + \beta |k| |v|)^2 - s^2`. So
  :math:`|S^+|_F^2 \le a^2 |S|_F^2 + |v|^2 b / (2 - b)`.
* ``series_bound``: :math:`|h_t| \le \max(|h_0|, \sup |b| / (1 - a))`.
* ``average_gain``: for :math:`h^+ = a h + (1 - a) \tau` in a ball of radius ``H`` around all ``tau`` and ``h_0``,
  :math:`|\delta h_t| \le H \sup |\delta \ln(-\ln a)| + \sup |\delta \tau|`.
* ``series_gain``: :math:`|\delta h_t| \le (\sup |h| \sup |\delta a| + \sup |\delta b|) / (1 - a)`.
* ``expanding_unit``: :math:`\ln a \ge l > 0` under every input: the difference of two states grows by ``e^l`` a step.
* ``accumulator``: :math:`1 - a \le 2^{-25}` under every input: the gate rounds to 1 in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stability.kernel.arithmetic.directed_functions import (
    SILU_SLOPE,
    add_up,
    exponential,
    logistic,
    lower,
    silu,
    upper,
)
from stability.kernel.arithmetic.floating_point import EPS, TINY
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Index, Number, ProofData, require
from stability.kernel.format.sentences import at_least, at_most, exact_text
from stability.kernel.format.theorem_table import certifies, refutes
from stability.kernel.systems.decay_gates import SoftplusGate, soft_cap
from stability.kernel.systems.gated_linear import (
    ConvexInjection,
    DeltaInjection,
    GatedLinearLayer,
    LinearInjection,
    OuterInjection,
    RootInjection,
    StepInjection,
)
from stability.kernel.systems.input_signals import Affine, Signal

Array = np.ndarray
FLOAT32_ONE = 2.0**-25
"""Largest ``1 - a`` for which a float32 gate rounds to 1."""
TOLERANCE = 0.01
"""Weight of an input below which it counts as forgotten, unless another one is asked for."""
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


def _one_minus_decay(layer: GatedLinearLayer) -> Array:
    """Bound ``1 - a`` below, ``(units,)``; zero where the decay may be 1."""
    return np.maximum(lower(-np.expm1(np.minimum(layer.gate.slowest(), 0.0))), 0.0)


def _over(numerator: Array, denominator: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator > 0.0, upper(numerator / denominator, 4 * EPS), np.inf)


def _step_parts(layer: GatedLinearLayer) -> tuple[Array, tuple[Array, Array], tuple[Array, Array]]:
    """Return the bound of ``phi`` and norms and Lipschitz constants of values and keys, shaped to be multiplied."""
    gate, injection = layer.gate, layer.injection
    assert isinstance(gate, SoftplusGate)
    assert isinstance(injection, StepInjection)
    diagonal = gate.log_rate.ndim == 2
    step, rate = gate.step[1], gate.rate[0]
    step = step[:, None] if diagonal else step
    with np.errstate(divide="ignore", invalid="ignore"):
        loss = -np.expm1(-lower(rate * step, 4 * EPS))
        phi = np.where(loss > 0.0, upper(step / lower(loss)), np.inf)
        phi = np.minimum(phi, add_up(upper(1.0 / rate, 4 * EPS), step))  # phi <= 1/A + Delta
    values, keys = injection.values, injection.keys

    def shaped(measure: Callable[[Signal, int], Array]) -> tuple[Array, Array]:
        if diagonal:
            return measure(values, values.size)[:, None], measure(keys, keys.size)[None, :]
        heads = layer.units // injection.groups
        return measure(values, layer.units), np.repeat(measure(keys, injection.groups), heads)

    return phi, shaped(Signal.group_norms), shaped(Signal.group_constants)


def _convex_range(injection: ConvexInjection) -> tuple[Array, Array]:
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
        low, high = _convex_range(layer.injection)
        return np.maximum(np.abs(low), np.abs(high))
    phi, (values, keys), _ = _step_parts(layer)
    return _worst(upper(phi * values * keys, 8 * EPS))


def average_gains(layer: GatedLinearLayer) -> Array:
    """Bound ``|dh|`` of every channel or head by ``gain sup_t |du_t|_2``, ``(units,)``."""
    slope = layer.gate.slope
    if isinstance(layer.injection, ConvexInjection):
        low, high = _convex_range(layer.injection)
        radius = upper(0.5 * (np.maximum(high, 0.0) - np.minimum(low, 0.0)), 4 * EPS)
        factor = SILU_SLOPE if layer.injection.activation == "silu" else 1.0
        return add_up(upper(radius * slope), upper(factor * layer.injection.values.group_constants(layer.units)))
    phi, sizes, constants = _step_parts(layer)
    assert isinstance(layer.gate, SoftplusGate)
    rise = upper(logistic(-np.inf * np.ones(1), layer.gate.signal.bounds[1])[1] * slope, 4 * EPS)
    slope, rise = (x[:, None] if phi.ndim == 2 else x for x in (slope, rise))
    size = upper(sizes[0] * sizes[1], 4 * EPS)
    terms = (phi * size * slope, rise * size, phi * _product_gain(sizes, constants))
    return _worst(add_up(*(upper(term, 8 * EPS) for term in terms)))


def root_bounds(layer: GatedLinearLayer) -> Array:
    """Bound ``|h|`` of every channel of an RG-LRU above, ``(units,)``."""
    injection = layer.injection
    assert isinstance(injection, RootInjection)
    size = upper(injection.values.magnitude * logistic(*injection.insert.bounds)[1], 4 * EPS)
    return upper(size * np.sqrt(_over(np.full(layer.units, 2.0), _one_minus_decay(layer))), 8 * EPS)


def delta_bounds(layer: GatedLinearLayer) -> Array:
    """Bound ``|S|_F`` of every head above, ``(heads,)``."""
    injection = layer.injection
    assert isinstance(injection, DeltaInjection)
    heads = injection.rate.size
    log_decay = layer.gate.slowest().reshape(heads, -1).max(axis=1)
    beta = np.minimum(upper(injection.scale * logistic(*injection.rate.bounds)[1], 4 * EPS), injection.scale)
    loss = np.maximum(lower(-np.expm1(np.minimum(2.0 * log_decay, 0.0))), 0.0)
    share = _over(beta, lower(np.maximum(2.0 - beta, 0.0) * loss, 4 * EPS))
    return upper(injection.values.group_norms(heads) * np.sqrt(share), 8 * EPS)


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
    return _over(_series(layer)[0], _one_minus_decay(layer))


def series_gains(layer: GatedLinearLayer) -> Array:
    """Bound ``|dh|`` of every channel, mode or head by ``gain sup_t |du_t|_2``, ``(units,)``."""
    rest, slope = _one_minus_decay(layer), layer.gate.slope
    if isinstance(layer.injection, RootInjection):
        values, insert = layer.injection.values, layer.injection.insert
        gate, size = logistic(*insert.bounds)[1], values.magnitude
        # |d sqrt(1 - a^2)| <= |dp| / 2 and the slope of the logistic function is at most 1/4
        through_gate = upper(0.25 * size * insert.group_constants(layer.units), 4 * EPS)
        change = add_up(
            upper(0.5 * gate * size * slope, 8 * EPS),
            through_gate,
            upper(gate * values.group_constants(layer.units), 4 * EPS),
        )
        state = root_bounds(layer)
    else:
        change, state = _series(layer)[1], series_bounds(layer)
    memory = np.where(slope > 0.0, upper(EXCESS * state * slope, 8 * EPS), 0.0)
    return _over(add_up(change, memory), rest)


BOUNDS: dict[str, tuple[tuple[type, ...], Callable[[GatedLinearLayer], Array]]] = {
    "average_bound": ((StepInjection, ConvexInjection), average_bounds),
    "root_bound": ((RootInjection,), root_bounds),
    "delta_bound": ((DeltaInjection,), delta_bounds),
    "series_bound": ((OuterInjection, LinearInjection), series_bounds),
    "average_gain": ((StepInjection, ConvexInjection), average_gains),
    "series_gain": ((OuterInjection, LinearInjection, RootInjection), series_gains),
}
"""Injections that each theorem covers, and its bound."""


def _uncovered(kind: str) -> Callable[[GatedLinearLayer], str | None]:
    def reason(layer: GatedLinearLayer) -> str | None:
        if not isinstance(layer.injection, BOUNDS[kind][0]):
            return f"the theorem {kind} does not cover this injection"
        growing = kind.startswith("average") and getattr(layer.gate, "growing", False)
        return "the gate grows" if growing else None

    return reason


def _beginning(layer: GatedLinearLayer) -> str:
    phrase = layer.phrase
    return f"{phrase[0].upper()}{phrase[1:]}, for {layer.input_set.phrase}:"


def _require_above(stated: Array, proved: Array, name: str) -> None:
    require(stated.shape == proved.shape, f"{name} must have one number a channel or head, {proved.shape[0]}")
    fits = np.isfinite(stated) & (stated >= proved)
    worst = int(np.argmin(fits))
    require(fits.all(), f"{name} of unit {worst} is stated as {stated[worst]}, proved is {proved[worst]}")


@certifies("gate_extremes", subject=GatedLinearLayer, claim="decay", value="decay")
class GateExtremes(ProofData):
    """Proof of ``gate_extremes``: upper bounds of ``ln a``.

    Attributes:
        log_decay: ``(units,)`` upper bound of ``ln a`` of every channel or head.
        decay: upper bound of ``a`` over all of them.
        tol: weight of an input below which it counts as forgotten, in (0, 1).
    """

    log_decay: AnyArray
    decay: Number
    tol: Number

    def sentence(self, subject: Any, claim: Claim) -> str:
        """Return the sentence, with median and largest memory horizon."""
        steps = horizons(self.log_decay, self.tol, subject.taps)
        steps = np.where(steps < 0.0, np.inf, steps)
        median, most = (
            f"{int(n)} steps" if n < np.inf else "no number of steps"
            for n in (np.sort(steps)[len(steps) // 2], steps.max())
        )
        return (
            f"{_beginning(subject)} the decay of every {subject.unit} is at most {at_most(self.decay, near=1.0)} per step. The "
            f"weight of an input is at most {exact_text(self.tol)} after {median} in the median {subject.unit} and after "
            f"{most} in the slowest."
        )

    def check(self, subject: Any, claim: Claim) -> str:
        """Compare with the bounds computed from the weights."""
        require(0.0 < self.tol < 1.0, "tol must lie between 0 and 1")
        _require_above(self.log_decay, subject.gate.slowest(), "log_decay")
        require(self.decay >= largest_decay(self.log_decay), "the decay is not the largest of all units")
        return f"decay at most {at_most(self.decay, near=1.0)} per step"


class _UnitBounds(ProofData):
    """Upper bounds of every channel or head.

    Attributes:
        bounds: ``(units,)``, or ``(heads,)`` of a delta rule with one decay a key channel.
        most: the largest of them.
    """

    bounds: AnyArray
    most: Number
    KIND = ""

    def check(self, subject: Any, claim: Claim) -> str:
        """Compare with the bounds computed from the weights."""
        _require_above(self.bounds, BOUNDS[self.KIND][1](subject), "the bound")
        require(self.most >= self.bounds.max(), "the stated bound is not the largest of all units")
        return f"at most {at_most(self.most)}, for every length"


class _StateBound(_UnitBounds):
    def sentence(self, subject: Any, claim: Claim) -> str:
        """Return the sentence."""
        size = "|h_i(t)|" if subject.unit != "head" else "|S_i(t)|_F"
        return (
            f"{_beginning(subject)} from every initial state with {size.replace('t', '0')} <= r_i, {size} <= r_i of the proof "
            f"at every step t in every {subject.unit} i. The largest r_i is {at_most(self.most)}."
        )


class _Gain(_UnitBounds):
    def sentence(self, subject: Any, claim: Claim) -> str:
        """Return the sentence."""
        norm = "_F" if subject.unit == "head" else ""
        return (
            f"{_beginning(subject)} any two runs from the zero state satisfy |h_i(t) - h_i'(t)|{norm} <= g_i sup_s |u(s) - u'(s)|_2 "
            f"at every step t, for the g_i of the proof. The largest g_i is {at_most(self.most)}; u is the input of the layer."
        )


def _enter(kind: str, base: type[_UnitBounds], claim: str) -> type[_UnitBounds]:
    theorem = type(kind, (base,), {"KIND": kind, "__doc__": f"Proof of ``{kind}``.", "__module__": __name__})
    return certifies(kind, subject=GatedLinearLayer, claim=claim, value="most", unfit=_uncovered(kind))(theorem)


for _kind in BOUNDS:
    _enter(_kind, *((_StateBound, "state_bound") if _kind.endswith("_bound") else (_Gain, "state_gain")))


def _grows_alone(layer: GatedLinearLayer) -> str | None:
    return "a delta rule also shrinks states" if isinstance(layer.injection, DeltaInjection) else None


@refutes("expanding_unit", subject=GatedLinearLayer, claim="state_bound", value="log_growth", unfit=_grows_alone)
class ExpandingUnit(ProofData):
    """Proof of ``expanding_unit``.

    Attributes:
        unit: channel, mode or head.
        log_growth: lower bound of its ``ln a`` under every input, > 0.
    """

    unit: Index
    log_growth: Number

    def sentence(self, subject: Any, claim: Claim) -> str:
        """Return the sentence."""
        return (
            f"{_beginning(subject)} {subject.unit} {self.unit} grows. The difference of any two states of it grows by a factor "
            f"of at least {at_least(math.exp(self.log_growth) * (1 - 1e-12))} in every step, so states are not bounded."
        )

    def check(self, subject: Any, claim: Claim) -> str:
        """Compare with the lower bound computed from the weights."""
        low = subject.gate.log_decay[0]
        require(self.unit < subject.units, f"there is no {subject.unit} {self.unit}")
        least = low[self.unit].max()
        require(0.0 < self.log_growth <= least, f"ln a is at least {least}, stated is {self.log_growth}")
        return f"ln a is at least {at_least(self.log_growth)}"


@refutes("accumulator", subject=GatedLinearLayer, claim="forgetting")
class Accumulator(ProofData):
    """Proof of ``accumulator``.

    Attributes:
        units: ``(k,)`` channels, modes or heads, in rising order.
    """

    units: AnyArray

    def sentence(self, subject: Any, claim: Claim) -> str:
        """Return the sentence."""
        return (
            f"{_beginning(subject)} {len(self.units)} of {subject.units} {subject.unit}s forget nothing (the first is number "
            f"{int(self.units[0])}). Their decay a has 1 - a <= 2^-25 in every step, so a float32 gate rounds to 1."
        )

    def check(self, subject: Any, claim: Claim) -> str:
        """Compare with the lower bounds computed from the weights."""
        units, share = self.units, most_forgotten(subject)
        fits = units.ndim == 1 and 0 < units.size <= subject.units and np.isin(units, np.arange(subject.units)).all()
        require(fits and (np.diff(units) > 0).all(), f"units must be numbers below {subject.units} in rising order")
        most = float(share[units.astype(int)].max())
        require(most <= FLOAT32_ONE, f"1 - a is up to {most}, more than 2^-25")
        return f"1 - a is at most {at_most(most)}"


def most_forgotten(layer: GatedLinearLayer) -> Array:
    """Bound ``1 - a`` above, ``(units,)``, over all inputs and all states of a channel."""
    low = layer.gate.log_decay[0]
    low = low if low.ndim == 1 else low.min(axis=1)
    return upper(-np.expm1(low))
