r"""Theorems about gated linear layers: decay, state bounds, gains, and three refutations.

The bounds are those of ``gated_linear_bounds``; a check computes them from the weights and compares.

* ``gate_extremes``: :math:`\ln a \le l` from the extremes of the pre-activations. The weight of an input ``n + k - 1``
  steps back, ``k`` the taps of a convolution, is at most :math:`e^{n l}`.
* ``expanding_unit``: :math:`\ln a \ge l > 0` under every input: the difference of two states grows by ``e^l`` a step.
* ``accumulator``: :math:`1 - a \le 2^{-25}` under every input: the gate rounds to 1 in float32.
* ``periodic_growth``: under inputs that repeat with period ``T``, the difference of two states of a head of RWKV-7 is
  multiplied by :math:`\Phi = M_1 \cdots M_T` in every period. If :math:`\Phi r = \lambda r` with
  :math:`|\lambda| > 1`, then :math:`D_n r = \lambda^n D_0 r` for the differences after ``n`` periods. So every
  difference with :math:`D_0 r \ne 0` grows without bound, and one of the two states does. The first transitions of a
  sequence, which miss taps, are not singular, so initial states with such a difference exist. The check encloses the
  inputs, the gates of every step, the products and an eigenvalue.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stability.kernel.arithmetic.balls import Ball, row_sum_norm
from stability.kernel.arithmetic.eigenpairs import Matrix, inverse_or_none
from stability.kernel.format.claims import Claim
from stability.kernel.format.fields import AnyArray, Index, Inputs, Number, ProofData, require, required
from stability.kernel.format.sentences import at_least, at_most, exact_text, theorem
from stability.kernel.format.theorem_table import certifies, refutes
from stability.kernel.systems.gated_linear import DeltaInjection, GatedLinearLayer
from stability.kernel.systems.input_sets import NormBall
from stability.kernel.systems.rwkv import RWKVInjection, period
from stability.kernel.theorems.eigenvalue_phrase import Unstable
from stability.kernel.theorems.gated_linear_bounds import (
    BOUNDS,
    FLOAT32_ONE,
    horizons,
    largest_decay,
    most_forgotten,
    slowest_decays,
)

Array = np.ndarray
MIDDLES = "The p_i of a head are the middles of the ranges of its rates a."
WEIGHTED = "|S diag(p)^(-1/2)|_F, p the middles of the ranges of the rates a"


def _uncovered(kind: str) -> Callable[[GatedLinearLayer], str | None]:
    def reason(layer: GatedLinearLayer) -> str | None:
        if not isinstance(layer.injection, BOUNDS[kind][0]):
            return f"the theorem {kind} does not cover this injection"
        growing = kind.startswith("average") and getattr(layer.gate, "growing", False)
        return "the gate grows" if growing else None

    return reason


def _size(layer: GatedLinearLayer, value: str) -> tuple[str, str]:
    """Return the size of a unit's state, or of a difference, in a formula, and the units that it is about."""
    states, unit = layer.unit_states, layer.unit
    index, norm = {"channel": ("i" if states == 1 else "ij", ""), "mode": ("i", "")}.get(unit, ("i", "_F"))
    inner = value.replace("(", f"_{index}(")
    entries = f"entry j of every {unit} i" if index == "ij" else f"{unit} i"
    return f"|{inner}|{norm}", entries


def _for_inputs(layer: GatedLinearLayer) -> str:
    return f"For {layer.inputs_phrase}"


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
        decay = at_most(self.decay, near=1.0)
        weighted = f" in the norm {WEIGHTED}" if isinstance(subject.injection, RWKVInjection) else ""
        return theorem(
            subject,
            f"{_for_inputs(subject)}, the decay of every {subject.unit} is at most {decay} per step{weighted}.",
            f"The weight of an input is at most {exact_text(self.tol)} after {median} in the median {subject.unit} "
            f"and after {most} in the slowest.",
        )

    def check(self, subject: Any, claim: Claim) -> str:
        """Compare with the bounds computed from the weights."""
        require(0.0 < self.tol < 1.0, "tol must lie between 0 and 1")
        _require_above(self.log_decay, slowest_decays(subject), "log_decay")
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
        require(self.bounds.min() >= 0.0, "a bound is negative")
        require(self.most >= self.bounds.max(), "the stated bound is not the largest of all units")
        return f"at most {at_most(self.most)}, for every length"


class _StateBound(_UnitBounds):
    def sentence(self, subject: Any, claim: Claim) -> str:
        """Return the sentence."""
        size, units = _size(subject, "h(t)")
        start, weighted = size.replace("t", "0"), isinstance(subject.injection, RWKVInjection)
        most = "(min p_i / max p_i)^(1/2) r_i" if weighted else "r_i"
        return theorem(
            subject,
            f"{_for_inputs(subject)} and every initial state with {start} <= {most}, {size} <= r_i for all t >= 0 and "
            f"every {units}.",
            f"The largest r_i of the proof is {at_most(self.most)}.",
            *([MIDDLES] if weighted else []),
        )


class _Gain(_UnitBounds):
    def sentence(self, subject: Any, claim: Claim) -> str:
        """Return the sentence."""
        size, units = _size(subject, "x(t) - y(t)")
        return theorem(
            subject,
            f"{_for_inputs(subject)}, two trajectories from the zero state with inputs u, v satisfy {size} <= "
            f"g_i sup_s |u(s) - v(s)|_2 for all t >= 0 and every {units}.",
            f"The largest g_i of the proof is {at_most(self.most)}.",
        )


def _enter(kind: str, base: type[_UnitBounds], claim: str) -> type[_UnitBounds]:
    data = type(kind, (base,), {"KIND": kind, "__doc__": f"Proof of ``{kind}``.", "__module__": __name__})
    return certifies(kind, subject=GatedLinearLayer, claim=claim, value="most", unfit=_uncovered(kind))(data)


for _kind in BOUNDS:
    _enter(_kind, *((_StateBound, "state_bound") if _kind.endswith("_bound") else (_Gain, "state_gain")))


def _grows_alone(layer: GatedLinearLayer) -> str | None:
    shrinks = isinstance(layer.injection, (DeltaInjection, RWKVInjection))
    return "a delta rule also shrinks states" if shrinks else None


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
        factor = at_least(math.exp(min(self.log_growth, 700.0)) * (1 - 1e-12))
        return theorem(
            subject,
            f"{_for_inputs(subject)}, the difference of any two states of {subject.unit} {self.unit} grows by a factor "
            f"of at least {factor} per step.",
            "Its states are not bounded.",
        )

    def check(self, subject: Any, claim: Claim) -> str:
        """Compare with the lower bound computed from the weights."""
        low = subject.gate.log_decay[0]
        require(self.unit < subject.units, f"there is no {subject.unit} {self.unit}")
        least = low[self.unit].min()
        require(0.0 < self.log_growth <= least, f"ln a is at least {least}, stated is {self.log_growth}")
        return f"ln a is at least {at_least(self.log_growth)}"


@refutes("accumulator", subject=GatedLinearLayer, claim="forgetting", unfit=_grows_alone)
class Accumulator(ProofData):
    """Proof of ``accumulator``.

    Attributes:
        units: ``(k,)`` channels, modes or heads, in rising order.
    """

    units: AnyArray

    def sentence(self, subject: Any, claim: Claim) -> str:
        """Return the sentence."""
        return theorem(
            subject,
            f"{_for_inputs(subject)}, {len(self.units)} of {subject.units} {subject.unit}s have a decay a with "
            f"1 - a <= 2^-25 at every step. The first is number {int(self.units[0])}.",
            "A float32 gate rounds such a decay to 1, so nothing is forgotten.",
        )

    def check(self, subject: Any, claim: Claim) -> str:
        """Compare with the lower bounds computed from the weights."""
        units, share = self.units, most_forgotten(subject)
        known = np.arange(float(subject.units))
        fits = units.ndim == 1 and 0 < units.size <= subject.units and bool(np.isin(units, known).all())
        require(fits and (np.diff(units) > 0).all(), f"units must be numbers below {subject.units} in rising order")
        most = float(share[units.astype(int)].max())
        require(most <= FLOAT32_ONE, f"1 - a is up to {most}, more than 2^-25")
        return f"1 - a is at most {at_most(most)}"


@refutes(
    "periodic_growth",
    subject=GatedLinearLayer,
    claim="state_bound",
    unfit=lambda layer: None if isinstance(layer.injection, RWKVInjection) else "the theorem is about RWKV-7",
    size="inputs must be up to 64 rows of {p} numbers",
)
class PeriodicGrowth(Unstable):
    """Proof of ``periodic_growth``, with an ``eigenvalue`` of the product of a period.

    Attributes:
        head: number of the head.
        inputs: ``(T, d)`` inputs of a period, less the norm's weight and bias where the input set is that of a norm.
    """

    head: Index
    inputs: Inputs

    def sentence(self, subject: Any, claim: Claim) -> str:
        """Return the sentence."""
        inputs = subject.input_set.phrase.replace("every", "an", 1)
        inputs += " (with eps > 0)" if isinstance(subject.input_set, NormBall) else ""
        return theorem(
            subject,
            f"For some sequence of period {len(self.inputs)}, each {inputs}, two trajectories of head {self.head} move "
            "apart without bound.",
            f"Over one period its transition has {self.phrase(discrete=True)}.",
        )

    def check(self, subject: Any, claim: Claim) -> str:
        """Enclose the product of the transitions of a period, and an eigenvalue outside the unit circle."""
        require(self.head < subject.injection.heads, f"there is no head {self.head}")
        inputs = required(subject.input_set.points(self.inputs), "an input of the proof may lie outside the input set")
        gates, k = subject.injection.gates, subject.taps - 1
        zeros = np.zeros((k, subject.inputs))
        start = Ball(*(np.vstack([zeros, np.resize(part, zeros.shape)]) for part in (inputs.mid, inputs.rad)))
        first = period(gates(subject.gate, start, self.head), k)
        inverse = required(inverse_or_none(first.mid), "the first transitions may be singular")
        distance = row_sum_norm(Ball.exact(inverse) @ first - np.eye(first.shape[0]))
        require(distance < 1.0, "the first transitions may be singular")
        product = period(gates(subject.gate, inputs, self.head))
        matrix = Matrix(product, np.ones(product.shape[0]))
        return self.outside(matrix, discrete=True, reason="no eigenvalue is proved to lie outside the unit circle")
